"""The reference of the adapters is what their docstrings say."""

from __future__ import annotations

import pytest
import reference


def test_the_page_is_what_the_docstrings_say() -> None:
    for module in reference.FRAMEWORKS.values():
        pytest.importorskip(module)
    assert (reference.DOCS / "frameworks.md").read_text() == reference.frameworks(), "run `python tests/reference.py` in clients/python"


@pytest.mark.parametrize("module", reference.FRAMEWORKS)
def test_everything_public_is_documented(module: str) -> None:
    pytest.importorskip(reference.FRAMEWORKS[module])
    classes = reference.adapters(module)
    assert classes
    for name, what in classes:
        assert reference.documentation(what), name
        for method, function in reference.methods(what, own=True):
            assert reference.documentation(function), f"{name}.{method}"
