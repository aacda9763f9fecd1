"""What benches that write into results/ share: the machine, rates at a recall, files."""

import json
import math
import os
import platform
import sys
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def machine():
    """What the figures depend on."""
    info = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in info if line.startswith("model name")), platform.machine())
    return {"cpu": model, "cores": os.cpu_count(), "kernel": platform.release()}


def machine_text(host):
    return f"{host['cpu']}, {host['cores']} cores, Linux {host['kernel']}"


def recall(found, truth):
    """The share of the ids in `truth` that were found, over all queries."""
    return sum(len(set(ids) & set(best)) for ids, best in zip(found, truth)) / max(1, sum(map(len, truth)))


def blas_on_one_thread():
    """Restarts the script with BLAS on one thread. BLAS reads these variables only when numpy is loaded."""
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        if os.environ.get(variable) != "1":
            os.environ[variable] = "1"
            os.execv(sys.executable, [sys.executable, *sys.argv])


def rate_at(recall, points):
    """Rate where the curve of (recall, rate, knob) crosses `recall`: linear in recall and the logarithm of the rate. A curve that
    begins above the recall gives its first rate."""
    points = sorted(points)
    if points[0][0] >= recall:
        return points[0][1]
    for (r0, q0, _), (r1, q1, _) in zip(points, points[1:]):
        if r0 <= recall <= r1:
            part = (recall - r0) / max(r1 - r0, 1e-12)
            return math.exp(math.log(q0) + part * (math.log(q1) - math.log(q0)))
    return None


def write(directory, name, record, text):
    """NAME.json, every measurement, and NAME.md, the table of them; shows the latter."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.json").write_text(json.dumps(record, separators=(",", ":")) + "\n")
    (directory / f"{name}.md").write_text(text)
    print(text)
