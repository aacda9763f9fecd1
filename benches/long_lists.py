#!/usr/bin/env python3
"""Searches with very long `in` lists, and what they cost everybody else.

    cargo build --release -p nigh
    pip install 'numpy<2'
    python3 benches/long_lists.py --data DIRECTORY

Loads `docs.f16.npy` with a number and a string per point into a server of its own. Then searches with 1,000,000 numbers and with
100,000 strings, of which all or few exist, compares each answer with the exact one, and meanwhile times plain searches on
other connections: their worst and their p99 is what a long list costs others. With fewer processors than processes a client
also waits for its own turn to run; the kernel counts that, and it is taken off.
"""

import argparse
import http.client
import json
import multiprocessing
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np

from server import Server, bulk_body

K = 10


def others(port, body, over, sender):
    """A client in a process of its own, as this one's interpreter is busy with long bodies, that searches without a filter."""
    connection, took = http.client.HTTPConnection("127.0.0.1", port), []
    while not over.is_set():
        waited, began = own_wait(), time.perf_counter()
        connection.request("POST", "/v1/collections/lists/points/search", body, {"Content-Type": "application/json"})
        connection.getresponse().read()
        took.append((time.perf_counter() - began, own_wait() - waited))
        time.sleep(0.0005)
    sender.send(took)


def own_wait():
    """Seconds this process has been ready to run, and not run."""
    with open("/proc/self/schedstat") as counts:
        return int(counts.read().split()[1]) / 1e9


def load(server, vectors):
    server.call("POST", "/v1/collections", {"name": "lists", "config": {"dim": vectors.shape[1]}})
    for first in range(0, len(vectors), 2000):
        part = vectors[first:first + 2000]
        payloads = [{"n": {"kind": "int", "int": n}, "s": {"kind": "string", "str": name(n)}}
                    for n in range(first, first + len(part))]
        server.call("POST", "/v1/collections/lists/points/bulk", binary=bulk_body(first, part, payloads))
    server.call("POST", "/v1/collections/lists/points/bulk/build", {"workers": 0})


def name(n):
    return f"document-{n * 2654435761 % 2**32:010}"


def cases(count, rng):
    some = rng.permutation(count)
    absent = count + np.arange(1_000_000)
    def numbers(found):
        return {"kind": "ints", "ints": np.concatenate([found, absent[:1_000_000 - len(found)]]).tolist()}
    def strings(found):
        return {"kind": "strings", "strs": [name(int(n)) for n in np.concatenate([found, absent[:100_000 - len(found)]])]}
    everyone, few = min(count, 100_000), max(10, count // 1000)
    yield "1,000,000 numbers, every point", "n", numbers(np.arange(count)), np.arange(count)
    yield f"1,000,000 numbers, {few} points", "n", numbers(some[:few]), some[:few]
    yield f"100,000 strings, {everyone} points", "s", strings(some[:everyone]), some[:everyone]
    yield f"100,000 strings, {few} points", "s", strings(some[:few]), some[:few]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--nigh", default="target/release/nigh")
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    vectors = np.load(arguments.data / "docs.f16.npy").astype("f4")
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    query = np.load(arguments.data / "queries.f16.npy").astype("f4")[0]
    with tempfile.TemporaryDirectory() as directory:
        server = Server(arguments.nigh, directory)
        try:
            load(server, vectors)
            stalls(server, "loading")
            plain = json.dumps({"query": query.tolist(), "k": K})
            measure(server, "no filter", [plain] * arguments.rounds, plain, None)
            near = vectors @ (query / np.linalg.norm(query))
            for title, field, value, found in cases(len(vectors), np.random.default_rng(1)):
                body = json.dumps({"query": query.tolist(), "k": K, "filter": {"op": "in", "field": field, "value": value}})
                wanted = set(found[np.argsort(-near[found])[:K]].tolist())
                measure(server, title, [body] * arguments.rounds, plain, wanted)
            stalls(server, "all of it")
        finally:
            server.process.terminate()
            server.process.wait()


def stalls(server, title):
    """The server's own account: a core that the kernel does not run stalls as well, but uses no CPU."""
    page = urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics").read().decode()
    def values(name):
        return [float(line.split()[1]) for line in page.splitlines() if line.startswith(f"svc_core_{name}{{")]
    print(f"{title:40} stalls of cores (10 ms and more): {sum(values('stalls_total')):.0f},"
          f" longest {max(values('stall_longest_seconds')) * 1e3:.1f} ms,"
          f" most CPU time in one {max(values('stall_busiest_seconds')) * 1e3:.1f} ms", flush=True)


def measure(server, title, bodies, plain, wanted):
    over = multiprocessing.Event()
    pipes = [multiprocessing.Pipe(False) for _ in range(4)]
    for _, sender in pipes:
        multiprocessing.Process(target=others, args=(server.port, plain, over, sender), daemon=True).start()
    time.sleep(0.3)
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    took, recall = [], []
    for body in bodies:
        began = time.perf_counter()
        connection.request("POST", "/v1/collections/lists/points/search", body, {"Content-Type": "application/json"})
        answer = json.load(connection.getresponse())
        took.append(time.perf_counter() - began)
        if wanted is not None:
            recall.append(len(wanted & {hit["id"] for hit in answer["results"]}) / len(wanted))
        time.sleep(0.02)
    over.set()
    theirs, own = (np.concatenate([receiver.recv() for receiver, _ in pipes]) * 1e3).T
    served = np.maximum(theirs - own, 0)
    print(f"{title:40} body {len(bodies[0]) / 1e6:5.1f} MB, answered in {np.median(took) * 1e3:7.1f} ms"
          f"{f', recall {np.mean(recall):.3f}' if recall else '':14}; others: median {np.median(theirs):5.2f},"
          f" p99 {np.percentile(theirs, 99):6.2f}, worst {theirs.max():6.2f} ms; less their own waits"
          f" {np.median(served):5.2f}, {np.percentile(served, 99):6.2f}, {served.max():6.2f} ms", flush=True)


if __name__ == "__main__":
    main()
