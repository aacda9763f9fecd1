"""A private server, started from the binary on this machine."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence

from ._types import TransportError

# The process waits beside the server for the end of its input, which comes when Python ends, however it ends, and then ends the server.
_WATCH = 'exec 3<&0 </dev/null; { read -r _ <&3; kill -TERM $$; } >/dev/null 2>&1 & exec 3<&-; exec "$@"'
_ADDRESS = r"msg=serving proto=%s addr=(\S+)"


class PrivateServer:
    """A server on free ports of 127.0.0.1. It ends with `close()`, or when this process ends in whatever way.

    `path` is the directory of its data, None keeps nothing on disk; `flags` are further flags of the server, and `timeout` seconds it may
    take to be ready. The binary is the one that `NIGH_BINARY` names, or `nigh` on the search path. Raises TransportError if it does not
    start."""

    def __init__(self, path: str | None = None, *, flags: Sequence[str] = (), timeout: float = 30.0) -> None:
        binary = os.environ.get("NIGH_BINARY") or shutil.which("nigh")
        if not binary:
            raise TransportError("there is no nigh on the search path: install it, or set NIGH_BINARY to its path")
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        command = [binary, "-http", "127.0.0.1:0", "-tcp", "127.0.0.1:0", *(["-data", path] if path else []), *flags]
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _WATCH, "sh", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            start_new_session=True,
        )
        self._owner = os.getpid()
        try:
            self.http = self._address("http", timeout)
            self.tcp = self._address("tcp", timeout)
            self._await_ready(timeout)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The id of the server's process."""
        return self._process.pid

    def _address(self, proto: str, timeout: float) -> str:
        end = time.monotonic() + timeout
        while True:
            text = os.pread(self._log.fileno(), 1 << 20, 0).decode("utf-8", "replace")
            if found := re.search(_ADDRESS % proto, text):
                return found[1]
            if self._process.poll() is not None:
                raise TransportError(f"the server has ended with {self._process.returncode}: {text[-2000:]}")
            if time.monotonic() > end:
                raise TransportError(f"the server did not listen within {timeout} s: {text[-2000:]}")
            time.sleep(0.005)

    def _await_ready(self, timeout: float) -> None:
        """It listens before it has read its directory."""
        host, _, port = self.http.rpartition(":")
        end = time.monotonic() + timeout
        while True:
            try:
                connection = http.client.HTTPConnection(host, int(port), timeout=5)
                connection.request("GET", "/v1/ready")
                answer = connection.getresponse()
                if answer.status == 200:
                    return
                text = answer.read()[:500].decode("utf-8", "replace")
            except OSError as error:
                text = str(error)
            finally:
                connection.close()
            if self._process.poll() is not None or time.monotonic() > end:
                raise TransportError(f"the server did not get ready within {timeout} s: {text}")
            time.sleep(0.005)

    def close(self) -> None:
        """Ends the server and waits for it."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            if self._owner != os.getpid():
                self._process.stdin.close()  # A forked process leaves the server to its parent.
                return
            with contextlib.suppress(BrokenPipeError):
                # The line ends it also where a forked process holds the input open. A second signal would end it at once.
                self._process.stdin.write(b"\n")
                self._process.stdin.close()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._log.close()
