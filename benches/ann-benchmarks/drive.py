#!/usr/bin/env python3
"""Does with `module.py` and `config.yml` what the runner of ann-benchmarks does with them, without its containers and data sets.

    NIGH_BINARY=target/release/nigh python3 benches/ann-benchmarks/drive.py [--points 20000] [--dim 64] [--metric angular]

Needs the client for Python and pyyaml. The vectors lie around random centres, as those of models do. One line of JSON for each run of `config.yml`:
the time of the build, and for each value of its query arguments the recall of ten neighbours, queries per second one by one, and in batches.
"""

import argparse
import importlib.util
import itertools
import json
import sys
import time
import types
from pathlib import Path

import numpy as np
import yaml

HERE = Path(__file__).parent
COUNT = 10


class BaseANN:
    """Of the class of ann-benchmarks, what its runner takes from it where an algorithm has none of its own."""

    def done(self):
        pass

    def get_additional(self):
        return {}

    def __str__(self):
        return self.name


def algorithms():
    """The module, loaded under the name and beside the base that it has in ann-benchmarks."""
    for name in ("ann_benchmarks", "ann_benchmarks.algorithms", "ann_benchmarks.algorithms.base", "ann_benchmarks.algorithms.nigh"):
        sys.modules.setdefault(name, types.ModuleType(name)).__path__ = []
    base = types.ModuleType("ann_benchmarks.algorithms.base.module")
    base.BaseANN = BaseANN
    sys.modules[base.__name__] = base
    spec = importlib.util.spec_from_file_location("ann_benchmarks.algorithms.nigh.module", HERE / "module.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def definitions(metric):
    """Each constructor with its arguments and the groups of its query arguments, as the configuration spells them out."""
    for one in yaml.safe_load((HERE / "config.yml").read_text())["float"]["any"]:
        base = [metric if argument == "@metric" else argument for argument in one["base_args"]]
        for group in one["run_groups"].values():
            for args in itertools.product(*group["args"]):
                yield one["constructor"], [*base, *args], list(itertools.product(*group["query-args"]))


def true_neighbours(train, test, metric):
    if metric == "angular":
        train, test = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in (train, test))
    distances = (train * train).sum(1)[None] - 2 * test @ train.T
    return np.argsort(distances, axis=1, kind="stable")[:, :COUNT]


def recall(found, true):
    return sum(len(set(map(int, one)) & set(other.tolist())) for one, other in zip(found, true)) / true.size


def run(algorithm, queries, train, test, true):
    """One algorithm through all of its query arguments."""
    try:
        began = time.perf_counter()
        algorithm.fit(train)
        out = {"build_s": round(time.perf_counter() - began, 2), "memory_kb": algorithm.get_memory_usage(), "runs": []}
        for arguments in queries:
            algorithm.set_query_arguments(*arguments)
            began = time.perf_counter()
            single = [algorithm.query(vector, COUNT) for vector in test]
            middle = time.perf_counter()
            algorithm.batch_query(test, COUNT)
            ended = time.perf_counter()
            batch = algorithm.get_batch_results()
            out["runs"].append({"name": str(algorithm), "recall": round(recall(single, true), 4), "per_s": round(len(test) / (middle - began)),
                                "batch_recall": round(recall(batch, true), 4), "batch_per_s": round(len(test) / (ended - middle))})
        return out
    finally:
        algorithm.done()


def data(points, dim, queries, seed=7):
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((max(1, points // 100), dim))
    near = [centres[rng.integers(len(centres), size=count)] + 0.5 * rng.standard_normal((count, dim)) for count in (points, queries)]
    return [part.astype(np.float32) for part in near]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=20_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--metric", choices=["angular", "euclidean"], default="angular")
    args = parser.parse_args()
    module = algorithms()
    train, test = data(args.points, args.dim, args.queries)
    true = true_neighbours(train, test, args.metric)
    for constructor, arguments, queries in definitions(args.metric):
        print(json.dumps(run(getattr(module, constructor)(*arguments), queries, train, test, true)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
