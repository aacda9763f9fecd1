"""The module for ann-benchmarks does what that benchmark's runner asks of it."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent.parent


@pytest.fixture
def drive() -> Any:
    pytest.importorskip("yaml")
    path = Path(os.environ.get("NIGH_ROOT", HERE.parent.parent)) / "benches/ann-benchmarks/drive.py"
    if "NIGH_ROOT" not in os.environ and not path.exists():
        pytest.skip(f"there is no {path}: the client's directory is alone")
    spec = importlib.util.spec_from_file_location("drive", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("metric", ["angular", "euclidean"])
def test_it_runs(drive: Any, metric: str) -> None:
    train, test = drive.data(2000, 16, 50)
    true = drive.true_neighbours(train, test, metric)
    module = drive.algorithms()
    found = list(drive.definitions(metric))
    assert len(found) == 5
    for constructor, arguments, queries in (found[1], found[-1]):
        out = drive.run(getattr(module, constructor)(*arguments), queries[-2:], train, test, true)
        assert out["memory_kb"] > 1000 and len(out["runs"]) == 2
        for one in out["runs"]:
            assert one["recall"] > 0.98 and one["batch_recall"] > 0.98 and "ef_search" in one["name"]


def test_a_metric_that_there_is_not_is_refused(drive: Any) -> None:
    with pytest.raises(NotImplementedError, match="hamming"):
        drive.algorithms().Nigh("hamming", 16, 200)
