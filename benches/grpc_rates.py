#!/usr/bin/env python3
"""Compares gRPC with REST in one run: searches with 64 requests in flight on one connection, and inserts of 100 points.

    cargo build --release -p nigh
    pip install 'numpy<2' grpcio grpcio-tools
    python3 benches/grpc_rates.py --data DIRECTORY [--name NAME]

`DIRECTORY` holds docs.f16.npy and queries.f16.npy. The server has one CPU and the client another. Rates are requests per second of CPU time of the
server; the two transports take turns, and the median of each is quoted. The stubs are generated from the `.proto` files of the tree.

* Searches compare gRPC's `Search`, called from 64 threads over one connection, with binary bodies (`RVQ1`) over one HTTP/1.1 connection, in
  pipelines of 64.
* Inserts compare gRPC's `UpsertBatch` of 100 points with `points/batch` and a JSON body of the same points, each with one request at a time. The
  points go to a new collection whose index is never trained, so that no indexing takes place during the measurement. The collection is dropped after
  each turn, and the next turn begins when background work has finished.

The script writes NAME.json (every measurement) and NAME.md (a table) into `--out`.
"""

import argparse
import concurrent.futures
import importlib
import json
import os
import socket
import statistics
import struct
import sys
import tempfile
from pathlib import Path

import numpy as np

from binary import Nigh, cpu_seconds
from http_share import free_port
from report import RESULTS, machine, machine_text, write
from server import bulk_body

PROTO = Path(__file__).parent.parent / "net" / "proto"
K, IN_FLIGHT, BATCH = 10, 64, 100
CONFIG = {"metric": "cosine", "seed": 1}


def stubs(directory):
    """The messages and the client of the service, generated into `directory`."""
    from grpc_tools import protoc

    files = [str(path.relative_to(PROTO)) for path in sorted((PROTO / "svc" / "v1").glob("*.proto"))]
    if protoc.main(["protoc", f"-I{PROTO}", f"--python_out={directory}", f"--grpc_python_out={directory}", *files]):
        sys.exit("the stubs could not be generated")
    sys.path.insert(0, directory)
    load = lambda name: importlib.import_module(f"svc.v1.{name}_pb2")
    return load("search"), load("points"), importlib.import_module("svc.v1.service_pb2_grpc")


class Http:
    """One HTTP/1.1 connection."""

    def __init__(self, server):
        self.socket = socket.create_connection(("127.0.0.1", server.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = self.socket.makefile("rb")

    @staticmethod
    def request(path, kind, body):
        head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body

    def response(self):
        status, length = self.reader.readline(), 0
        while (line := self.reader.readline()) != b"\r\n":
            name, value = line.split(b":", 1)
            if name.lower() == b"content-length":
                length = int(value)
        body = self.reader.read(length)
        if b" 200 " not in status:
            sys.exit(f"refused: {status} {body}")
        return body

    def send(self, requests, depth):
        for first in range(0, len(requests), depth):
            part = requests[first : first + depth]
            self.socket.sendall(b"".join(part))
            for _ in part:
                yield self.response()


def measured(server, count, work):
    before = cpu_seconds(server.pid)
    result = work()
    return count / (cpu_seconds(server.pid) - before), result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nigh", default="target/release/nigh")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--points", type=int, default=30_000)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="grpc")
    args = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    import grpc

    documents = np.load(args.data / "docs.f16.npy")[: args.points].astype(np.float32)
    queries = np.load(args.data / "queries.f16.npy")[: args.queries].astype(np.float32)
    dim = documents.shape[1]
    with tempfile.TemporaryDirectory() as directory:
        search_pb2, points_pb2, service = stubs(directory)
        port = free_port()
        server = Nigh(args.nigh, arguments=["-grpc", f"127.0.0.1:{port}"])
        http = Http(server)
        channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.max_receive_message_length", 64 << 20)])
        client = service.VectorServiceStub(channel)

        server.call("POST", "/v1/collections", {"name": "docs", "config": {"dim": dim, **CONFIG}})
        octets = "application/octet-stream"
        loads = [http.request("/v1/collections/docs/points/batch", octets, bulk_body(i, documents[i : i + 1000], []))
                 for i in range(0, len(documents), 1000)]
        list(http.send(loads, 1))
        server.settle()

        binary = [http.request("/v1/collections/docs/points/search", octets,
                               b"RVQ1" + struct.pack(">IIIBBHQ", 0, K, dim, 0, 0, 0, 0) + query.astype(">f4").tobytes())
                  for query in queries]
        messages = [search_pb2.SearchRequest(collection="docs", query=query.tolist(), k=K) for query in queries]
        searches = {"REST, binary": [], "gRPC": []}
        with concurrent.futures.ThreadPoolExecutor(IN_FLIGHT) as pool:
            for _ in range(args.turns):
                rate, bodies = measured(server, len(binary), lambda: list(http.send(binary, IN_FLIGHT)))
                searches["REST, binary"].append(rate)
                rate, answers = measured(server, len(messages), lambda: list(pool.map(client.Search, messages)))
                searches["gRPC"].append(rate)
        over_rest = [[hit["id"] for hit in json.loads(body)["results"]] for body in bodies]
        over_grpc = [[hit.id for hit in answer.results] for answer in answers]
        if over_rest != over_grpc:
            sys.exit("the two transports do not find the same points")

        def batch(first):
            return range(first, first + BATCH)

        json_bodies = [http.request("/v1/collections/new/points/batch", "application/json", json.dumps(
            {"upsert": True, "points": [{"id": i, "vector": documents[i].tolist()} for i in batch(first)]}).encode())
            for first in range(0, args.batches * BATCH, BATCH)]
        messages = [points_pb2.UpsertBatchRequest(collection="new", upsert=True, points=[
            points_pb2.BatchPoint(id=i, vector=documents[i].tolist()) for i in batch(first)])
            for first in range(0, args.batches * BATCH, BATCH)]
        inserts = {"REST, JSON": [], "gRPC": []}
        for _ in range(args.turns):
            for name, work in (("REST, JSON", lambda: list(http.send(json_bodies, 1))),
                               ("gRPC", lambda: [client.UpsertBatch(message) for message in messages])):
                # An inverted-list index that is never trained leaves all points in the tail, so that no indexing runs during the measurement.
                config = {"dim": dim, "index_type": "ivf", "ivf_train_threshold": 1_000_000, **CONFIG}
                server.call("POST", "/v1/collections", {"name": "new", "config": config})
                rate, _ = measured(server, len(messages), work)
                inserts[name].append(rate)
                server.call("DELETE", "/v1/collections/new")
                server.settle()
        channel.close()
        server.stop()
    record = {"machine": machine(), "points": len(documents), "dim": dim, "searches": searches, "inserts": inserts}
    write(args.out, args.name, record, page(record))


def page(record):
    out = ["# gRPC beside REST", "",
           f"`benches/grpc_rates.py`; {machine_text(record['machine'])}; {record['points']:,} points of {record['dim']} components. "
           "Requests per CPU second of the server, medians.", "",
           "| requests | REST | gRPC | gRPC / REST |", "|---|--:|--:|--:|"]
    for name, kind, rates in ((f"searches, {IN_FLIGHT} in flight, k {K}", "REST, binary", record["searches"]),
                              (f"inserts of {BATCH} points", "REST, JSON", record["inserts"])):
        rest, grpc = statistics.median(rates[kind]), statistics.median(rates["gRPC"])
        out.append(f"| {name} | {rest:,.0f} ({kind.split(', ')[1]}) | {grpc:,.0f} | {grpc / rest:.2f} |")
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    main()
