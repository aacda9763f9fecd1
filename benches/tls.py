#!/usr/bin/env python3
"""Measures in one run what TLS costs, beside Redis and nginx, and what clients that connect or are refused cost the clients that are served.

    cargo build --release -p nigh
    python3 benches/tls.py [--server-cpu 0] [--client-cpu 1] [--turns 3] [--name tls]

Servers run on one processor and clients on another (`taskset`). The cases take turns; the tables have medians.

* Requests: GET over the binary protocol, by `nigh bench kv`, in plain text and over TLS, Nigh and Redis; searches over HTTP with binary
  bodies, by `nigh bench vector`, in plain text and over TLS.
* Handshakes: connections of Python's ssl that send one small request each, with a full and with a resumed handshake: Nigh and nginx over
  HTTP, Nigh and Redis over their own protocols. The table has the server's CPU time per connection, beside that of connections in plain text.
* Others: the latency of GETs at a fixed rate on open connections, first alone, then while `--arrivals` connections with handshakes a second arrive at
  the same server, then while as many connections in plain text arrive. The clients of the arriving connections share a processor with the
  generator, at the lowest priority; the last column says how late the generator sent its requests, which shows how much of the difference is due to these clients.
* Refused: the latency of GETs with a valid token at a fixed rate while `--refused` pipelined requests with wrong tokens arrive, and the server's
  memory before and after.

The certificate is made with the program `openssl`. Without Redis or nginx their rows are left out. The script writes NAME.json and NAME.md into
`--out`.
"""

import argparse
import itertools
import json
import os
import shutil
import socket
import ssl
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from http_share import free_port
from report import RESULTS, machine, machine_text, write

TICKS = os.sysconf("SC_CLK_TCK")
TOKEN = "a-token-of-this-benchmark"


class Program:
    """A server on a processor of its own, until `stop`."""

    def __init__(self, name, command, ports, cpu):
        self.name, self.ports = name, ports
        self.process = subprocess.Popen(["taskset", "-c", str(cpu), *map(str, command)], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for port in ports.values():
            self.wait(port)

    def wait(self, port):
        for _ in range(200):
            if self.process.poll() is not None:
                sys.exit(f"{self.name} ended at its start")
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                time.sleep(0.05)
        sys.exit(f"{self.name} does not listen on {port}")

    def pids(self):
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [self.process.pid, *map(int, children)]

    def cpu_s(self):
        """CPU seconds of the process and its children. `schedstat` counts in nanoseconds; `stat` would count in ticks."""
        total = 0
        for pid in self.pids():
            for task in Path(f"/proc/{pid}/task").iterdir():
                total += int((task / "schedstat").read_text().split()[0])
        return total / 1e9

    def resident(self):
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def stop(self):
        self.process.terminate()
        self.process.wait()


def certificate(directory):
    paths = directory / "cert.pem", directory / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30", "-subj",
                    "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE", "-out", paths[0], "-keyout", paths[1]],
                   check=True, capture_output=True)
    return paths


def nigh(args, directory, is_tls, keys_file=None):
    ports = {"http": free_port(), "tcp": free_port()}
    command = [args.nigh, "-http", f"127.0.0.1:{ports['http']}", "-tcp", f"127.0.0.1:{ports['tcp']}", "-cores", 1]
    if is_tls:
        command += ["-tls-cert", directory / "cert.pem", "-tls-key", directory / "key.pem"]
    if keys_file:
        command += ["-keys-file", keys_file]
    return Program("nigh over TLS" if is_tls else "nigh", command, ports, args.server_cpu)


def redis(args, directory, is_tls):
    port = free_port()
    command = ["redis-server", "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    if is_tls:
        command += ["--port", 0, "--tls-port", port, "--tls-cert-file", directory / "cert.pem", "--tls-key-file", directory / "key.pem",
                    "--tls-auth-clients", "no"]
    else:
        command += ["--port", port]
    return Program("redis over TLS" if is_tls else "redis", command, {"tcp": port}, args.server_cpu)


def nginx(args, directory):
    ports = {"http": free_port(), "plain": free_port()}
    (directory / "nginx.conf").write_text(f"""daemon off; worker_processes 1; pid {directory}/nginx.pid; error_log stderr crit;
events {{ worker_connections 4096; }}
http {{
    access_log off; ssl_session_tickets on; ssl_protocols TLSv1.2 TLSv1.3;
    client_body_temp_path {directory}/body; proxy_temp_path {directory}/proxy; fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi; scgi_temp_path {directory}/scgi;
    server {{
        listen 127.0.0.1:{ports['http']} ssl; listen 127.0.0.1:{ports['plain']};
        ssl_certificate {directory}/cert.pem; ssl_certificate_key {directory}/key.pem;
        location / {{ return 200 '{{"status":"ok"}}'; }}
    }}
}}
""")
    return Program("nginx", ["nginx", "-p", directory, "-c", directory / "nginx.conf"], ports, args.server_cpu)


def bench(args, words):
    command = ["taskset", "-c", str(args.client_cpu), args.nigh, "bench", *map(str, words), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip() or done.stdout}")
    return json.loads(done.stdout)


def kv_words(args, server, is_tls, words, token=None):
    protocol = "redis" if server.name.startswith("redis") else "nigh"
    tls = ["--tls-ca", args.directory / "cert.pem"] if is_tls else []
    api_key = ["--api-key", token] if token else []
    return ["kv", "--protocol", protocol, "--address", f"127.0.0.1:{server.ports['tcp']}", "--pid", server.process.pid, *tls, *api_key, *words]


def requests(args):
    """Rows of the table of requests."""
    rows = []
    makers = {"nigh": nigh, "redis": redis}
    if not shutil.which("redis-server"):
        print("redis is left out: redis-server is not installed.", flush=True)
        del makers["redis"]
    # All servers run from the beginning and take turns, so that a machine that slows down for a while slows all of them.
    servers = [(name, is_tls, make(args, args.directory, is_tls)) for name, make in makers.items() for is_tls in (False, True)]
    for turn, value in itertools.product(range(args.turns), (64, 1024)):
        for _, is_tls, server in servers:
            bench(args, kv_words(args, server, is_tls, ["--preload", "--seconds", 0, "--value-size", value]))
        for (pipeline, connections), (name, is_tls, server) in itertools.product(((1, 64), (16, 64)), servers):
            words = ["--reads", 100, "--pipeline", pipeline, "--connections", connections, "--value-size", value,
                     "--seconds", args.seconds, "--warmup", 0.5]
            stretch = bench(args, kv_words(args, server, is_tls, words))["stretches"][0]
            if stretch["misses"] or stretch["errors"]:
                sys.exit(f"{server.name}: {stretch}")
            rows.append({"server": name, "tls": is_tls, "value": value, "pipeline": pipeline, "connections": connections,
                         "turn": turn, "operations_per_s": stretch["operations_per_s"],
                         "server_cpu_ns": stretch["server"]["cpu_ns_per_operation"],
                         "p99_us": stretch["all"]["latency"]["p99_us"],
                         "generator_busy": stretch["generator"]["busy_share"]})
            print(json.dumps(rows[-1]), flush=True)
    for _, _, server in servers:
        server.stop()
    return rows


def searches(args):
    """Rows of the table of searches: 20,000 vectors of 384 components."""
    rows = []
    for turn in range(args.turns):
        for is_tls in (False, True):
            server = nigh(args, args.directory, is_tls)
            scheme = "https" if is_tls else "http"
            tls = ["--tls-ca", args.directory / "cert.pem"] if is_tls else []
            report = bench(args, ["vector", "--url", f"{scheme}://127.0.0.1:{server.ports['http']}", *tls, "--synthetic", "20000x384",
                                  "--ef-search", 64, "--connections", 4, "--duration", args.seconds, "--warm-up", 0.5])
            cycle = report["cycles"][0]
            phase = cycle["phases"][0]
            rows.append({"tls": is_tls, "turn": turn, "recall": cycle["recall"], "queries_per_s": phase["queries_per_s"],
                         "per_cpu_s": phase["server"]["searches_per_cpu_s"]})
            print(json.dumps(rows[-1]), flush=True)
            server.stop()
    return rows


PING = {"http": b"GET /v1/health HTTP/1.1\r\nhost: localhost\r\n\r\n", "redis": b"PING\r\n",
        # The length in four bytes, the operation after its length, and no arguments.
        "nigh": struct.pack(">I", 13) + bytes([8]) + b"__ping__" + struct.pack(">I", 0)}


def connect(port, ping, context=None, session=None):
    """Opens one connection and sends one request. Returns the session to resume, and whether `session` was resumed."""
    plain = socket.create_connection(("127.0.0.1", port), 5)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if context is None:
        plain.sendall(ping)
        assert plain.recv(4096), "no answer"
        plain.close()
        return None, False
    secured = context.wrap_socket(plain, server_hostname="localhost", session=session)
    secured.sendall(ping)
    assert secured.recv(4096), "no answer"
    found = secured.session, secured.session_reused
    secured.close()
    return found


def context_of(args, version=None):
    context = ssl.create_default_context(cafile=args.directory / "cert.pem")
    if version:
        context.minimum_version = context.maximum_version = version
    return context


def handshakes(args):
    """Rows of the table of handshakes: CPU time of the server per connection."""
    rows = []
    secured, open_to_all = nigh(args, args.directory, True), nigh(args, args.directory, False)
    wanted = [("nigh http", secured, open_to_all, "http", "http", "http"), ("nigh binary", secured, open_to_all, "tcp", "tcp", "nigh")]
    if shutil.which("nginx"):
        peer = nginx(args, args.directory)
        wanted.append(("nginx http", peer, peer, "http", "plain", "http"))
    if shutil.which("redis-server"):
        wanted.append(("redis", redis(args, args.directory, True), redis(args, args.directory, False), "tcp", "tcp", "redis"))
    os.sched_setaffinity(0, [args.client_cpu])
    versions = {"1.3": ssl.TLSVersion.TLSv1_3, "1.2": ssl.TLSVersion.TLSv1_2}
    for turn in range(args.turns):
        for name, server, plain, port, plain_port, ping in wanted:
            for kind in ("plain", "full 1.3", "resumed 1.3", "full 1.2", "resumed 1.2"):
                context, session = None, None
                target, at = (plain, plain_port) if kind == "plain" else (server, port)
                if kind != "plain":
                    context = context_of(args, versions[kind.split()[1]])
                if kind.startswith("resumed"):
                    session, _ = connect(target.ports[at], PING[ping], context)
                before, started, resumed = target.cpu_s(), time.perf_counter(), 0
                for _ in range(args.connections):
                    new, is_resumed = connect(target.ports[at], PING[ping], context, session)
                    resumed += is_resumed
                    session = new if kind.startswith("resumed") else None
                wall = time.perf_counter() - started
                rows.append({"server": name, "kind": kind, "turn": turn, "resumed": resumed / args.connections,
                             "cpu_us": (target.cpu_s() - before) / args.connections * 1e6, "per_s": args.connections / wall})
                print(json.dumps(rows[-1]), flush=True)
    os.sched_setaffinity(0, range(os.cpu_count()))
    for program in {id(one): one for _, server, plain, *_ in wanted for one in (server, plain)}.values():
        program.stop()
    return rows


def paced(args, server, is_tls, beside=None, token=None):
    """Latency of GETs at a fixed rate on open connections, while `beside` runs until it is told to stop."""
    stopping = threading.Event()
    helper = threading.Thread(target=beside, args=(stopping,)) if beside else None
    if helper:
        helper.start()
        time.sleep(0.3)
    words = ["--reads", 100, "--mode", "open", "--rate", args.rate, "--connections", 16, "--seconds", args.seconds, "--warmup", 0.5]
    stretch = bench(args, kv_words(args, server, is_tls, words, token))["stretches"][0]
    stopping.set()
    if helper:
        helper.join()
    return {"p50_us": stretch["all"]["latency"]["p50_us"], "p99_us": stretch["all"]["latency"]["p99_us"],
            "late_p99_us": stretch["generator"]["late_p99_us"]}


ARRIVALS = """
import sys, time
sys.path.insert(0, {here!r})
import tls
args = tls.arguments([])
args.directory = tls.Path({directory!r})
context = tls.context_of(args) if {is_tls} else None
due = time.perf_counter()
while True:
    tls.connect({port}, tls.PING["nigh"], context)
    due += 1 / {rate}
    time.sleep(max(0, due - time.perf_counter()))
    print("x", end="", flush=True)
"""


def arrivals(args, server, is_tls, counted):
    """A function that has other processes connect until it is told to stop. It appends the number of connections per second to `counted`."""
    def run(stopping):
        source = ARRIVALS.format(here=str(Path(__file__).parent), directory=str(args.directory), is_tls=is_tls, port=server.ports["tcp"],
                                 rate=args.arrivals / 4)
        command = ["nice", "-n", "19", "taskset", "-c", str(args.client_cpu), sys.executable, "-c", source]
        started = time.perf_counter()
        helpers = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(4)]
        stopping.wait()
        for helper in helpers:
            helper.kill()
        counted.append(sum(len(helper.communicate()[0]) for helper in helpers) / (time.perf_counter() - started))
    return run


def others(args):
    """Rows of the table of open connections while others arrive."""
    rows = []
    secured, plain = nigh(args, args.directory, True), nigh(args, args.directory, False)
    for is_tls, server in ((True, secured), (False, plain)):
        bench(args, kv_words(args, server, is_tls, ["--preload", "--seconds", 0]))
    for turn in range(args.turns):
        for beside in ("nothing", "handshakes", "plain connections"):
            # Plain connections arrive at a server of their own, whose core they share with nobody.
            counted, target = [], plain if beside == "plain connections" else secured
            run = None if beside == "nothing" else arrivals(args, target, beside == "handshakes", counted)
            found = paced(args, target, target is secured, run)
            rows.append({"beside": beside, "turn": turn, **found, "arrived_per_s": counted[0] if counted else 0})
            print(json.dumps(rows[-1]), flush=True)
    secured.stop()
    plain.stop()
    return rows


def frame(token, operation, arguments):
    body = bytes([2, len(token)]) + token + bytes([len(operation)]) + operation + struct.pack(">I", len(arguments)) + arguments
    return struct.pack(">I", len(body)) + body


def strangers(server, requests, counted):
    """A function that sends `requests` requests with wrong tokens, 64 at a time, each with a token of its own."""
    def run(_stopping):
        done = 0
        with socket.create_connection(("127.0.0.1", server.ports["tcp"]), 30) as stream:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            received = b""
            while done < requests:
                stream.sendall(b"".join(frame(b"wrong-%08d" % (done + number), b"get", b"\0\1k") for number in range(64)))
                answers = 0
                while answers < 64:
                    received += stream.recv(1 << 16)
                    while len(received) >= 4 and len(received) >= 4 + struct.unpack(">I", received[:4])[0]:
                        length = 4 + struct.unpack(">I", received[:4])[0]
                        assert received[4] == 4, received[:length]
                        received, answers = received[length:], answers + 1
                done += 64
        counted.append(done)
    return run


def refused(args):
    """Rows about requests with wrong tokens."""
    keys = args.directory / "keys.json"
    keys.write_text(json.dumps([{"token": TOKEN, "tenant": "*", "scopes": ["*:*"]}]))
    keys.chmod(0o600)
    server, rows = nigh(args, args.directory, False, keys), []
    bench(args, kv_words(args, server, False, ["--preload", "--seconds", 0], TOKEN))
    alone = [paced(args, server, False, None, TOKEN) for _ in range(args.turns)]
    before, counted, cpu = server.resident(), [], server.cpu_s()
    os.sched_setaffinity(0, [args.client_cpu])
    thread = threading.Thread(target=strangers(server, args.refused, counted), args=(None,))
    thread.start()
    while thread.is_alive():
        found = paced(args, server, False, None, TOKEN)
        if thread.is_alive():
            rows.append({"beside": "refused requests", **found, "resident": server.resident()})
            print(json.dumps(rows[-1]), flush=True)
    os.sched_setaffinity(0, range(os.cpu_count()))
    after = server.resident()
    result = {"alone": alone, "beside": rows, "requests": sum(counted), "resident_before": before, "resident_after": after,
              "cpu_s": server.cpu_s() - cpu}
    server.stop()
    return result


def middle(rows, key, **wanted):
    found = [row[key] for row in rows if all(row[name] == value for name, value in wanted.items())]
    return statistics.median(found) if found else None


def text(args, host, record):
    lines = [f"# {args.name}", "",
             f"{machine_text(host)}. Medians of {args.turns} turns; servers on processor {args.server_cpu}, clients on processor {args.client_cpu}. "
             "Written by `benches/tls.py`.", "", "## Requests", "",
             "GET, 64 connections, one core. The share is the CPU time of a request in plain text divided by that of one over TLS.", "",
             "| server | value | pipeline | plain ops/s | TLS ops/s | plain CPU ns/op | TLS CPU ns/op | share |", "|---|--:|--:|--:|--:|--:|--:|--:|"]
    rows = record["requests"]
    for server in dict.fromkeys(row["server"] for row in rows):
        for value in (64, 1024):
            for pipeline in (1, 16):
                at = {"server": server, "value": value, "pipeline": pipeline}
                rates = [middle(rows, "operations_per_s", tls=is_tls, **at) for is_tls in (False, True)]
                cpu = [middle(rows, "server_cpu_ns", tls=is_tls, **at) for is_tls in (False, True)]
                lines.append(f"| {server} | {value} | {pipeline} | {rates[0]:,.0f} | {rates[1]:,.0f} | {cpu[0]:,.0f} | {cpu[1]:,.0f} | {cpu[0] / cpu[1]:.2f} |")
    rows = record["searches"]
    plain, secured = (middle(rows, "per_cpu_s", tls=is_tls) for is_tls in (False, True))
    lines += ["", f"Searches over HTTP, binary bodies, 20,000 vectors of 384 components, ef_search 64, recall {middle(rows, 'recall', tls=True):.3f}: "
              f"{plain:,.0f} a CPU second in plain text, {secured:,.0f} over TLS ({secured / plain:.2f})."]
    rows = record["handshakes"]
    lines += ["", "## Connections", "", "CPU time of the server for a connection with one request, in microseconds.", ""]
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    lines += [f"| server | {' | '.join(kinds)} |", "|---|" + "--:|" * len(kinds)]
    for server in dict.fromkeys(row["server"] for row in rows):
        cells = []
        for kind in kinds:
            at = {"server": server, "kind": kind}
            note = "" if not kind.startswith("resumed") or middle(rows, "resumed", **at) > 0.99 else " (not resumed)"
            cells.append(f"{middle(rows, 'cpu_us', **at):,.0f}{note}")
        lines.append(f"| {server} | {' | '.join(cells)} |")
    rows = record["others"]
    lines += ["", "## Others", "", f"GETs at {args.rate:,} a second on 16 open connections, while other connections arrive.", "",
              "| arriving | arrived a second | p50 µs | p99 µs | generator late p99 µs |", "|---|--:|--:|--:|--:|"]
    for beside in dict.fromkeys(row["beside"] for row in rows):
        cells = [middle(rows, key, beside=beside) for key in ("arrived_per_s", "p50_us", "p99_us", "late_p99_us")]
        lines.append(f"| {beside} | {' | '.join(f'{cell:,.0f}' for cell in cells)} |")
    found = record["refused"]
    alone = statistics.median(row["p99_us"] for row in found["alone"])
    beside = statistics.median(row["p99_us"] for row in found["beside"]) if found["beside"] else float("nan")
    lines += ["", "## Refused", "",
              f"{found['requests']:,} requests with wrong tokens: memory {found['resident_before'] / 2**20:.1f} MiB before and "
              f"{found['resident_after'] / 2**20:.1f} MiB after. GETs with a valid token at {args.rate:,} a second: p99 {alone:,.0f} µs alone, {beside:,.0f} µs beside.", ""]
    return "\n".join(lines)


def arguments(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nigh", default=str(Path(__file__).parent.parent / "target/release/nigh"))
    parser.add_argument("--server-cpu", type=int, default=0)
    parser.add_argument("--client-cpu", type=int, default=1)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--connections", type=int, default=500, help="connections of each kind in a turn")
    parser.add_argument("--rate", type=int, default=5000, help="GETs a second on the open connections")
    parser.add_argument("--arrivals", type=int, default=500, help="connections a second that arrive meanwhile")
    parser.add_argument("--refused", type=int, default=1_000_000, help="requests with wrong tokens")
    parser.add_argument("--name", default="tls")
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args(words)


def main():
    args = arguments()
    host = machine()
    with tempfile.TemporaryDirectory() as directory:
        args.directory = Path(directory)
        certificate(args.directory)
        record = {"machine": host, "requests": requests(args), "searches": searches(args), "handshakes": handshakes(args), "others": others(args),
                  "refused": refused(args)}
    write(args.out, args.name, record, text(args, host, record))


if __name__ == "__main__":
    main()
