#!/usr/bin/env python3
"""Key-value servers side by side: Nigh, memcached and Redis, one generator (`nigh bench kv`), one run.

    cargo build --release -p nigh
    python3 benches/kv.py [--server-cpus 0 0,1] [--client-cpus 1] [--name NAME]

For each set of processors in `--server-cpus` (`taskset`; as many threads in Nigh and memcached, `--redis-io-threads` in Redis, which
carries out commands on one) the installed programs are started on free ports and fill the same keys; then they take turns for every value size, operation, pipeline and number of connections, `--turns`
times, one under load at a time. Medians over turns are quoted, per program: operations per second, CPU time of the server per
operation, and p99 as the generator sees it. A rate at which the generator was busy for more than nine tenths of the time is marked:
the server may do more. Where generator and server share a processor, rates and latencies say how both share it, and CPU per operation
is the figure to compare. A wrong answer ends the script.

The durable part writes with every answer on disk: Nigh with `-data` beside Redis with `--appendonly yes --appendfsync always`, and
Nigh without `-data`, each after at least three seconds of the same. Files lie in `--directory`, whose time for one synchronous write of 4 KiB is quoted too.

Writes NAME.json (every measurement) and NAME.md (tables) into `--out`. What is not installed, or does not start, is left out, and a
line says so.
"""

import argparse
import json
import os
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from http_share import free_port
from report import RESULTS, machine, machine_text, write

TICKS = os.sysconf("SC_CLK_TCK")
BUSY = 0.9
DURABLE = {"pipeline": 16, "connections": 64}
# Seconds: logs have been cut and memory has been touched by then. The other part has that from one case to the next.
DURABLE_WARMUP = 3


class Absent(Exception):
    """A program that cannot take part, and why."""


class Server:
    """A program on its own port and processors, until `stop`."""

    def __init__(self, args, program, cpus, directory=None):
        self.program, self.protocol, self.directory = program, "nigh" if program == "before" else program, directory
        self.port = free_port()
        self.log = tempfile.TemporaryFile()
        command = ["taskset", "-c", cpus, *self.command(args, len(cpu_list(cpus)))]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        try:
            self.wait()
        except Absent:
            self.stop()
            raise

    def command(self, args, threads):
        binary = binary_of(args, self.program)
        port, host = str(self.port), "127.0.0.1"
        if self.protocol == "nigh":
            data = ["-data", self.directory] if self.directory else []
            return [binary, "-tcp", f"{host}:{port}", "-http", f"{host}:{free_port()}", "-cores", str(threads), *data]
        if self.program == "memcached":
            return [binary, "-l", host, "-p", port, "-t", str(threads), "-U", "0", "-u", "nobody", "-m", str(args.memory), "-c", "4096"]
        durable = ["--appendonly", "yes", "--appendfsync", "always", "--dir", self.directory] if self.directory else ["--appendonly", "no"]
        return [binary, "--port", port, "--bind", host, "--save", "", "--io-threads", str(args.redis_io_threads), *durable]

    def wait(self):
        for _ in range(200):
            if self.process.poll() is not None:
                self.log.seek(0)
                last = " ".join(self.log.read().decode(errors="replace").strip().splitlines()[-1:])
                raise Absent(f"it ended at start: {last.split('msg=')[-1].strip(chr(34))}")
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise Absent("it does not listen")

    def cpu_s(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return sum(map(int, fields[11:13])) / TICKS

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()


def cpu_list(cpus):
    """The processors of a list like `0,2-3`."""
    spans = [part.split("-") for part in cpus.split(",")]
    return [cpu for span in spans for cpu in range(int(span[0]), int(span[-1]) + 1)]


def binary_of(args, program):
    name = {"nigh": args.nigh, "before": args.before, "memcached": "memcached", "redis": "redis-server"}[program]
    found = shutil.which(name)
    if not found:
        raise Absent(f"{name} is not installed")
    return found


def version_of(args, program):
    flag = {"nigh": "-version", "before": "-version", "memcached": "-V", "redis": "--version"}[program]
    return subprocess.run([binary_of(args, program), flag], capture_output=True, text=True).stdout.strip()


def all_busy_s():
    user, nice, system, _idle, _wait, irq, soft, stolen = Path("/proc/stat").read_text().split("\n")[0].split()[1:9]
    return sum(map(int, (user, nice, system, irq, soft, stolen))) / TICKS


def children_s():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def bench(args, server, *flags):
    """One run of the generator, its report, and what other programs took of the processors meanwhile."""
    command = ["taskset", "-c", args.client_cpus, args.generator or args.nigh, "bench", "kv", "--protocol", server.protocol,
               "--address", f"127.0.0.1:{server.port}", "--pid", server.process.pid, "--keys", args.keys,
               "--threads", args.threads, "--json", *flags]
    wall, busy, own = time.perf_counter(), all_busy_s(), children_s() + server.cpu_s()
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{server.program}: {done.stderr.strip() or done.stdout}")
    wall = time.perf_counter() - wall
    others = (all_busy_s() - busy - (children_s() + server.cpu_s() - own)) / wall
    return json.loads(done.stdout), others


def fill(args, server, value):
    report, _ = bench(args, server, "--value-size", value, "--preload", "--seconds", 0, "--connections", 8)
    return report["preload"]


def measure(args, server, value, operation, pipeline, connections, warmup):
    reads = {"GET": 100, "SET": 0}[operation]
    # A generator thread without a connection would only wait.
    report, others = bench(args, server, "--value-size", value, "--reads", reads, "--pipeline", pipeline,
                           "--connections", connections, "--threads", min(args.threads, connections),
                           "--seconds", args.seconds, "--warmup", warmup)
    stretch = report["stretches"][0]
    if operation == "GET" and stretch["misses"]:
        sys.exit(f"{server.program}: {stretch['misses']} of {stretch['operations']} keys that were written are not there")
    side = stretch["server"]
    return {"operations_per_s": stretch["operations_per_s"], "p50_us": stretch["all"]["latency"]["p50_us"],
            "p99_us": stretch["all"]["latency"]["p99_us"], "server_cpu_ns": side["cpu_ns_per_operation"],
            "server_processors": side["processors"], "resident_bytes": side["resident_bytes"],
            "generator_busy": stretch["generator"]["busy_share"],
            "generator_cpu_ns": stretch["generator"]["cpu_ns_per_operation"], "others": others}


def start_all(args, cpus, wanted):
    """Servers by their key in `wanted`, which says program and directory; lines about those that are left out."""
    servers, absent = {}, []
    for key, (program, directory) in wanted.items():
        try:
            servers[key] = Server(args, program, cpus, directory)
        except Absent as reason:
            absent.append(f"{key} is left out: {reason}.")
            print(absent[-1], flush=True)
    return servers, absent


def in_turns(args, servers, cpus, cases, part, warmup):
    """Every case `--turns` times; in each turn all servers, one after the other, beginning with another one each time."""
    rows = []
    for value in args.values:
        for key, server in servers.items():
            row = {"part": part, "cpus": cpus, "server": key, "value": value, "fill": fill(args, server, value)}
            rows.append(row)
        for turn in range(args.turns):
            order = list(servers.items())
            order = order[turn % len(order):] + order[:turn % len(order)]
            for operation, pipeline, connections in cases:
                for key, server in order:
                    row = {"part": part, "cpus": cpus, "server": key, "value": value, "turn": turn, "operation": operation,
                           "pipeline": pipeline, "connections": connections,
                           **measure(args, server, value, operation, pipeline, connections, warmup)}
                    rows.append(row)
                    print(json.dumps(row), flush=True)
    return rows


def sync_us(directory):
    """Median of one synchronous write of 4 KiB."""
    times = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(200):
            start = time.perf_counter()
            os.pwrite(file.fileno(), bytes(4096), 0)
            os.fdatasync(file.fileno())
            times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times)


def cells(rows):
    """Medians of a server's turns, as cells."""
    middle = {key: statistics.median(row[key] for row in rows)
              for key in ("operations_per_s", "server_cpu_ns", "p99_us", "generator_busy")}
    mark = " \\*" if middle["generator_busy"] > BUSY else ""
    return f"{middle['operations_per_s']:,.0f}{mark} | {middle['server_cpu_ns']:,.0f} | {middle['p99_us']:,.0f}"


def table(rows, lead, keys):
    """One line per value of the `keys`, three columns per server."""
    servers = list(dict.fromkeys(row["server"] for row in rows))
    columns = " | ".join(f"{server} ops/s | CPU ns/op | p99 µs" for server in servers)
    lines = [f"| {' | '.join(lead)} | {columns} |", "|" + "--:|" * (len(lead) + 3 * len(servers))]
    for case in dict.fromkeys(tuple(row[key] for key in keys) for row in rows):
        own = [row for row in rows if tuple(row[key] for key in keys) == case]
        middle = " | ".join(cells([row for row in own if row["server"] == server]) for server in servers)
        lines.append(f"| {' | '.join(map(str, case))} | {middle} |")
    return lines


def text(args, host, record):
    rows = [row for row in record["rows"] if "turn" in row]
    others = [row["others"] for row in rows]
    lines = [
        f"# {args.name}",
        "",
        f"{args.keys:,} keys of 16 bytes, uniform; {machine_text(host)}. Medians of {args.turns} turns of {args.seconds:g} s, in which "
        f"other programs used {statistics.median(others):.2f} processors (at most {max(others):.2f}); generator on processor "
        f"{args.client_cpus}, {args.threads} thread. \\*: the generator was busy for more than {BUSY:.0%} of the time. "
        "Written by `benches/kv.py`.",
        "",
        *(f"* {version}" for version in record["versions"].values()),
        *(f"* {line}" for line in record["absent"]),
    ]
    for cpus in args.server_cpus:
        for value in args.values:
            own = [row for row in rows if (row["part"], row["cpus"], row["value"]) == ("volatile", cpus, value)]
            if own:
                lines += ["", f"## In memory, values of {value} bytes, servers on processor {cpus}", "",
                          *table(own, ["operation", "pipeline", "connections"], ["operation", "pipeline", "connections"])]
    own = [row for row in rows if row["part"] == "durable"]
    if own:
        lines += ["", "## Every answer on disk", "",
                  f"SET, pipeline {DURABLE['pipeline']}, {DURABLE['connections']} connections, servers on processor {own[0]['cpus']}; one "
                  f"synchronous write of 4 KiB takes {record['sync_us']:.0f} µs.", "", *table(own, ["value"], ["value"])]
    return "\n".join(lines) + "\n"


def stop_all(servers):
    for server in servers.values():
        server.stop()


def main():
    every = sorted(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nigh", default="target/release/nigh", help="server, and generator unless --generator is given")
    parser.add_argument("--generator", help="build that generates, so that builds of the server can be compared by one")
    parser.add_argument("--programs", nargs="+", default=["nigh", "memcached", "redis"], choices=["nigh", "memcached", "redis"])
    parser.add_argument("--before", help="an older build of the server, which takes part as a program of its own in the part without files")
    parser.add_argument("--server-cpus", nargs="+", default=[str(every[0]), ",".join(map(str, every[:2]))], metavar="LIST")
    parser.add_argument("--client-cpus", default=str(every[-1]), metavar="LIST")
    parser.add_argument("--threads", type=int, default=1, help="of the generator")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--values", type=int, nargs="+", default=[64, 1024])
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 8, 64, 256])
    parser.add_argument("--pipelines", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--operations", nargs="+", default=["GET", "SET"], choices=["GET", "SET"])
    parser.add_argument("--memory", type=int, default=1024, help="MiB that memcached may use")
    parser.add_argument("--redis-io-threads", type=int, default=1, help="Redis has one by default, and advises more from four cores on")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--warmup", type=float, default=0.5)
    parser.add_argument("--directory", help="where the durable part writes; by default that of temporary files")
    parser.add_argument("--parts", nargs="+", default=["volatile", "durable"], choices=["volatile", "durable"])
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="kv")
    args = parser.parse_args()
    if not shutil.which(args.generator or args.nigh):
        sys.exit(f"{args.generator or args.nigh} is not there: nothing generates load")

    # Where files lie on this machine says nothing about the figures.
    settings = {key: str(value) for key, value in vars(args).items() if key not in ("nigh", "before", "generator", "directory", "out")}
    record = {"machine": machine(), "settings": settings, "versions": {}, "absent": [], "rows": []}

    def carry_out(part, cpus, wanted, cases, warmup):
        servers, absent = start_all(args, cpus, wanted)
        record["absent"] += [line for line in absent if line not in record["absent"]]
        try:
            for server in servers.values():
                record["versions"].setdefault(server.program, version_of(args, server.program))
            record["rows"] += in_turns(args, servers, cpus, cases, part, warmup)
        finally:
            stop_all(servers)

    if "volatile" in args.parts:
        cases = [(operation, pipeline, connections) for operation in args.operations for pipeline in args.pipelines
                 for connections in args.connections]
        wanted = [*args.programs, *(["before"] if args.before else [])]
        for cpus in dict.fromkeys(args.server_cpus):
            carry_out("volatile", cpus, {program: (program, None) for program in wanted}, cases, args.warmup)
    if "durable" in args.parts:
        with tempfile.TemporaryDirectory(dir=args.directory) as directory:
            record["sync_us"] = sync_us(directory)
            wanted = {}
            if "nigh" in args.programs:
                wanted["nigh -data"] = ("nigh", os.path.join(directory, "nigh"))
            if "redis" in args.programs:
                wanted["redis appendfsync always"] = ("redis", os.path.join(directory, "redis"))
            if "nigh" in args.programs:
                wanted["nigh in memory"] = ("nigh", None)
            for name in ("nigh", "redis"):
                os.makedirs(os.path.join(directory, name))
            case = ("SET", DURABLE["pipeline"], DURABLE["connections"])
            carry_out("durable", args.server_cpus[0], wanted, [case], max(args.warmup, DURABLE_WARMUP))
    if not any("turn" in row for row in record["rows"]):
        sys.exit("nothing was measured")
    write(args.out, args.name, record, text(args, record["machine"], record))


if __name__ == "__main__":
    main()
