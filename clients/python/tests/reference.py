"""Writes `docs/reference.md` and `docs/frameworks.md` from the docstrings: `python tests/reference.py`. A test compares the files with the
code.

The methods of the clients are made when their classes are, so that only a running Python knows them: the pages come from `inspect`, not
from the text of the sources."""

from __future__ import annotations

import enum
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nigh
from nigh import _commands, _operations, _types, client, filters, keys, migrate, text
from nigh.migrate import _sources

DOCS = Path(__file__).parent.parent / "docs"
ERRORS = [one for one in vars(_types).values() if isinstance(one, type) and issubclass(one, nigh.NighError)]
HEAD = "Made by `tests/reference.py` from the docstrings. Do not edit it: change the docstring and run `python tests/reference.py`."

_SHARED = ", ".join(f"`{name}`" for name in vars(_operations.Shared) if not name.startswith("_"))
# Their objects come with a client.
_NOT_MADE = (client.Named, client.MultiVector, keys.Vectors, keys.NamedVectors, keys.MultiVectors, nigh.Filter)
# The sections of the page: a title, what stands before its entries, and classes or functions with the names that they are shown by.
Section = tuple[str, str, list[tuple[str, Any]]]
SECTIONS: list[Section] = [
    (
        "Clients",
        "`AsyncClient` has the same methods and takes the same arguments; its methods are awaited, and those that give an iterator are "
        "used with `async for`. `NighClient` is another name of `Client`. `client.named` and `client.multivector` also have the methods of "
        f"`Client` that are called {_SHARED}.",
        [("Client", nigh.Client), ("client.named", client.Named), ("client.multivector", client.MultiVector),
         ("PrivateServer", nigh.PrivateServer)],
    ),
    (
        "What calls take and give",
        "",
        [(one.__name__, one) for one in (
            nigh.Point, nigh.NamedPoint, nigh.TokenDocument, nigh.Sparse, nigh.Geo, nigh.SearchResult, nigh.Document, nigh.MultiResult,
            nigh.Group, nigh.Results, nigh.ScrollPage, _types.SearchOptions, _types.WriteOptions,
        )],
    ),
    ("Errors", "", [(one.__name__, one) for one in ERRORS]),
    (
        "Filters",
        "",
        [("F", nigh.F), ("Filter", nigh.Filter), *((f"filters.{name}", getattr(filters, name)) for name in (
            "eq", "ne", "gt", "gte", "lt", "lte", "contains", "in_", "and_", "or_", "not_", "has_id", "min_should",
        ))],
    ),
    (
        "Keys",
        "`AsyncKeys` has the same methods, which are awaited, and takes the same arguments but `pool_maxsize`. `Nigh` and `NighKV` are "
        "other names of `Keys`. `nigh.keys.Commands` has a function of the name of each operation on keys, which gives it as a command. "
        "A pipeline has methods of these names too; they give None, and their results come from `execute`.",
        [("Keys", nigh.Keys), ("pipeline", keys._Pipeline), ("keys.vector", keys.Vectors),
         ("keys.vector.named", keys.NamedVectors), ("keys.vector.multivector", keys.MultiVectors), ("Row", keys.Row),
         ("NamedRow", keys.NamedRow), ("TokenRow", keys.TokenRow), ("Condition", keys.Condition),
         ("Operate", nigh.Operate), ("OperateResult", _commands.OperateResult),
         ("KeyPage", _commands.KeyPage), ("KeyIndex", _commands.KeyIndex)],
    ),
    (
        "Texts",
        "",
        [("TextStore", nigh.TextStore), ("Embedder", nigh.Embedder), ("FunctionEmbedder", nigh.FunctionEmbedder),
         ("OpenAIEmbedder", nigh.OpenAIEmbedder), ("text.point_id", text.point_id)],
    ),
    (
        "Migration",
        "What `python -m nigh migrate` does, for programs: sources of their own have the methods of `Source`.",
        [("migrate.migrate", migrate.migrate), ("migrate.open_source", migrate.open_source), ("migrate.Source", migrate.Source),
         ("migrate.Batch", migrate.Batch), ("migrate.Options", _sources.Options), ("migrate.MigrationError", migrate.MigrationError)],
    ),
]  # fmt: skip
# The modules of the adapters, and the modules of their frameworks.
FRAMEWORKS = {"nigh.langchain": "langchain_core", "nigh.llamaindex": "llama_index.core", "nigh.haystack": "haystack"}
TITLES = {"nigh.langchain": "LangChain", "nigh.llamaindex": "LlamaIndex", "nigh.haystack": "Haystack"}


def _type(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    shown = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", repr(annotation))
    return re.sub(r"^Unpack\[(\w+)\]$", r"\1", shown.replace("npt.NDArray[Any]", "numpy.ndarray"))


def _default(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return str(value)
    return "..." if repr(value) == "<factory>" else repr(value)


def _parameter(one: inspect.Parameter) -> str:
    stars = "*" if one.kind is one.VAR_POSITIONAL else "**" if one.kind is one.VAR_KEYWORD else ""
    kind = _type(one.annotation)
    made = f"{stars}{one.name}" + (f": {kind}" if kind else "")
    return made if one.default is one.empty else f"{made} = {_default(one.default)}"


def signature(name: str, function: Callable[..., Any], *, gives: bool = True) -> str:
    """A signature in lines of at most 110 columns."""
    found = inspect.signature(function)
    parts, star = list[str](), False
    for one in found.parameters.values():
        if one.name in ("self", "cls"):
            continue
        if one.kind is one.KEYWORD_ONLY and not star:
            parts.append("*")
        star = star or one.kind in (one.KEYWORD_ONLY, one.VAR_POSITIONAL)
        parts.append(_parameter(one))
    result = _type(found.return_annotation) if gives else ""
    end = f") -> {result}" if result else ")"
    line = f"{name}({', '.join(parts)}{end}"
    if len(line) <= 110:
        return line
    # Commas within brackets do not end a parameter.
    body = textwrap.wrap(", ".join(part.replace(" ", "\0") for part in parts) + ",", 106, break_long_words=False, break_on_hyphens=False)
    return "\n".join([f"{name}(", *("    " + part.replace("\0", " ") for part in body), end])


def methods(owner: type, own: bool = False) -> Iterator[tuple[str, Any]]:
    """The public methods and properties of a class as they are declared, `own` only those of the class itself."""
    seen = set(vars(_operations.Shared)) if _family(owner) else set(vars(_commands.Operations)) if owner is keys._Pipeline else set[str]()
    # What is declared for blocking and awaited classes alike comes before what a class has of its own.
    bases = sorted(owner.__mro__, key=lambda base: base.__module__ in (client.__name__, keys.__name__))
    for base in [owner] if own else bases:
        if base.__module__.split(".")[0] != "nigh":
            continue
        for name in vars(base):
            found = inspect.getattr_static(owner, name)
            function = getattr(owner, name) if isinstance(found, (classmethod, staticmethod)) else found
            if not name.startswith("_") and name not in seen and (inspect.isfunction(function) or inspect.ismethod(function)
                                                                  or isinstance(found, property)):  # fmt: skip
                seen.add(name)
                yield name, function


def _family(owner: type) -> bool:
    """Whether a class is one of the smaller families, whose pages leave out what `Client` has too."""
    return issubclass(owner, (_operations.Named, _operations.MultiVector))


def documentation(what: Any) -> str:
    """A docstring; that of a dataclass or an exception only if it is its own."""
    return inspect.cleandoc((vars(what) if isinstance(what, type) else {"__doc__": what.__doc__}).get("__doc__") or "")


def is_made(what: type) -> bool:
    """Whether callers make objects of a class."""
    shown = not (issubclass(what, Exception) or getattr(what, "_is_protocol", False) or issubclass(what, (dict, list)))
    return shown and not what.__name__.startswith("_") and what not in _NOT_MADE


def _entry(title: str, what: Any, own: bool = False) -> Iterator[str]:
    yield f"### `{title}`\n"
    called = title.rpartition(".")[2]
    if not isinstance(what, type):
        yield f"```python\n{signature(called, what)}\n```\n"
    elif is_made(what):
        # Frameworks replace the call of a class by their own.
        made: Any = next((vars(base)["__init__"] for base in what.__mro__ if "__init__" in vars(base)), what)
        yield f"```python\n{signature(called, made, gives=False)}\n```\n"
    yield documentation(what) + "\n"
    if not isinstance(what, type) or issubclass(what, dict):
        return
    for name, found in methods(what, own):
        if isinstance(found, property):
            kind = _type(found.fget.__annotations__.get("return", "")) if found.fget else ""
            yield f"```python\n.{name}: {kind}\n```\n"
        else:
            yield f"```python\n.{signature(name, found)}\n```\n"
        yield documentation(found) + "\n"


def page() -> str:
    """The reference of the client."""
    parts = ["# Reference of the Python client\n", HEAD + "\n", inspect.cleandoc(nigh.__doc__ or "") + "\n"]
    for title, head, entries in SECTIONS:
        parts += [f"## {title}\n", *([textwrap.fill(head, 140, break_on_hyphens=False) + "\n"] if head else [])]
        for name, what in entries:
            parts += _entry(name, what)
    return "\n".join(parts)


def adapters(module: str) -> list[tuple[str, Any]]:
    """The public classes of the adapters of a framework, in the order of the module."""
    found = vars(importlib.import_module(module)).values()
    return [(one.__name__, one) for one in found if isinstance(one, type) and one.__module__ == module and one.__name__.startswith("Nigh")]


def frameworks() -> str:
    """The reference of the adapters; their frameworks must be installed."""
    parts = ["# Reference of the adapters for frameworks\n", HEAD + "\n"]
    parts.append("Methods that only the framework declares are described there. Errors are those of [the client](reference.md#errors).\n")
    for module, title in TITLES.items():
        parts += [f"## {title}: `{module}`\n"]
        for name, what in adapters(module):
            parts += _entry(name, what, own=True)
    return "\n".join(parts)


def entries() -> Iterator[tuple[str, Any, str]]:
    """Everything public of the client that must be documented, with the docstring of its class, which may explain for it."""
    for _, _, found in SECTIONS:
        for name, what in found:
            yield name, what, documentation(what)
            if isinstance(what, type) and not issubclass(what, dict):
                for method, function in methods(what):
                    yield f"{name}.{method}", function, documentation(function) + documentation(what)


def unexplained(function: Callable[..., Any], said: str) -> list[str]:
    """The parameters that neither the docstring names nor the list of parameters that many methods share."""
    names = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
    shared = set(re.findall(r"`(\w+)`", nigh.__doc__ or ""))
    return [name for name in names if name not in shared and not re.search(rf"\b{name}\b", said)]


def main() -> int:
    """Writes the pages, that of the frameworks where they are installed."""
    DOCS.mkdir(exist_ok=True)
    (DOCS / "reference.md").write_text(page())
    try:
        (DOCS / "frameworks.md").write_text(frameworks())
    except ImportError as error:
        print(f"{error}: docs/frameworks.md was not written", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
