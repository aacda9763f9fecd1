"""The reference is what the docstrings say, and the docstrings say enough."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import reference

import nigh
from nigh import client, keys

RUN = "run `python tests/reference.py` in clients/python"


def test_the_page_is_what_the_docstrings_say() -> None:
    assert (reference.DOCS / "reference.md").read_text() == reference.page(), RUN


def test_everything_public_is_documented() -> None:
    """With a docstring; and each parameter in it, or in the list of those that many methods share."""
    faults = []
    for name, what, said in reference.entries():
        if not reference.documentation(what):
            faults.append(f"{name} has no docstring")
        elif callable(what) and (not isinstance(what, type) or reference.is_made(what)):
            faults += [f"{name}: {one} is not explained" for one in reference.unexplained(what, said)]
    assert not faults, "\n".join(faults)


def test_nothing_public_is_left_out() -> None:
    shown = {id(what) for _, _, entries in reference.SECTIONS for _, what in entries}
    others = {"AsyncClient", "AsyncKeys", "filters"}
    missing = [name for name in nigh.__all__ if name not in others and id(getattr(nigh, name)) not in shown]
    assert not missing, missing


def test_what_is_awaited_has_the_same_methods() -> None:
    pairs = [(client.Client, client.AsyncClient), (client.Named, client.AsyncNamed), (client.MultiVector, client.AsyncMultiVector),
             (keys.Keys, keys.AsyncKeys), (keys.Vectors, keys.AsyncVectors),
             (keys.NamedVectors, keys.AsyncNamedVectors), (keys.MultiVectors, keys.AsyncMultiVectors)]  # fmt: skip
    for blocking, awaited in pairs:
        one, other = (dict(reference.methods(owner)) for owner in (blocking, awaited))
        assert one.keys() == other.keys()
        for name, function in one.items():
            if not isinstance(function, property):
                assert inspect.signature(function).parameters == inspect.signature(other[name]).parameters, name


def test_a_parameter_without_a_word_is_found() -> None:
    def search(query: Any, depth: int) -> None:
        """Searches."""

    assert reference.unexplained(search, "Searches.") == ["depth"]
    assert reference.unexplained(search, "Searches to a `depth`.") == []


@pytest.mark.parametrize("page", sorted(Path(reference.DOCS).glob("*.md")), ids=lambda page: page.name)
def test_lines_are_no_longer_than_150_columns(page: Path) -> None:
    assert [line for line in page.read_text().splitlines() if len(line) > 150] == []
