"""The client for VectorDBBench does what that benchmark's runners ask of it; only where the package is installed."""

from __future__ import annotations

import copy
import importlib.util
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HERE = Path(__file__).parent.parent


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("LOG_FILE", str(tmp_path / "log"))  # It would write one into the working directory.
    pytest.importorskip("vectordb_bench.backend.clients.api", exc_type=ImportError)
    path = Path(os.environ.get("NIGH_ROOT", HERE.parent.parent)) / "benches/vectordb-bench/nigh_vectordb.py"
    if "NIGH_ROOT" not in os.environ and not path.exists():
        pytest.skip(f"there is no {path}: the client's directory is alone")
    spec = importlib.util.spec_from_file_location("nigh_vectordb", path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made  # Objects are pickled by the names of their modules.
    spec.loader.exec_module(made)
    return made


@pytest.mark.parametrize("metric", ["COSINE", "L2", "IP"])
def test_it_runs(module: Any, server: Any, name: str, metric: str) -> None:
    if server.limited:
        pytest.skip("the server that is asked is open")
    filters = importlib.import_module("vectordb_bench.backend.filter")
    vectors = np.random.default_rng(3).standard_normal((500, 16)).astype(np.float32)
    config = module.NighConfig(url=server.url).to_dict()
    case = module.NighIndexConfig(metric_type=metric)
    made = module.Nigh(16, config, case, name, drop_old=True, with_scalar_labels=True)
    with made.init():
        for first in range(0, 500, 200):
            part, ids = vectors[first : first + 200], list(range(first, min(first + 200, 500)))
            labels = ["label_50p" if at % 2 == 0 else "other" for at in ids]
            assert made.insert_embeddings(part.tolist(), ids, labels_data=labels) == (len(ids), None)
        made.optimize(data_size=500)
        count, error = made.insert_embeddings([[1.0]], [7])
        assert count == 0 and error is not None, "a vector of another dimension"
    # As the runners do: a copy is searched in another process, or thread, after it was opened there.
    pickle.dumps(made)
    other = copy.deepcopy(made)
    a = vectors if metric != "COSINE" else vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    distances = -a @ a.T if metric != "L2" else (a * a).sum(1)[None] - 2 * a @ a.T
    with other.init():
        for kind, allowed in [
            (filters.non_filter, np.ones(500, dtype=bool)),
            (filters.NewIntFilter(filter_rate=0.5, int_value=250), np.arange(500) >= 250),
            (filters.LabelFilter(label_percentage=0.5), np.arange(500) % 2 == 0),
        ]:
            assert other.filter_supported(kind)
            other.prepare_filter(kind)
            found = [other.search_embedding(query.tolist(), 10) for query in vectors[:20]]
            true = [np.argsort(np.where(allowed, row, np.inf))[:10].tolist() for row in distances[:20]]
            assert sum(len(set(x) & set(y)) for x, y in zip(found, true, strict=True)) >= 198
    again = module.Nigh(16, config, case, name, drop_old=True)
    with again.init():
        assert again.search_embedding(vectors[0].tolist(), 10) == []
