"""`python -m nigh migrate KIND SOURCE COLLECTION`."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from ._types import NighError
from .client import Client
from .migrate import MigrationError, migrate, open_source
from .migrate._sources import SOURCES, Options


def _setting(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form key=value")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m nigh", description="Tools beside the client of Nigh.")
    tool = parser.add_subparsers(dest="tool", required=True, metavar="TOOL").add_parser(
        "migrate",
        help="copy vectors of files, libraries and other databases into a collection",
        description="Copies all rows of a source into a new collection, shows how far it is, and compares counts and sampled searches at "
        "the end. If it is interrupted, the same command goes on where it ended.",
    )
    tool.add_argument("kind", choices=list(SOURCES), help="what the source is")
    tool.add_argument("source", help="the file or directory, or the URL of Redis or PostgreSQL")
    tool.add_argument("collection", help="the collection to make")
    tool.add_argument("--url", default="http://127.0.0.1:8080", help="the server; %(default)s")
    tool.add_argument("--api-key", default=os.environ.get("NIGH_API_KEY"), help="an API key or token; NIGH_API_KEY of the environment")
    tool.add_argument("--metric", choices=["cosine", "l2", "dot"], help="the metric, where the source does not know it; cosine")
    tool.add_argument("--config", type=_setting, action="append", default=[], metavar="KEY=VALUE", help="a parameter of the collection")
    tool.add_argument("--batch-size", type=int, default=1000, help="rows in a request; %(default)s")
    tool.add_argument("--state", help="the file that keeps how far it is; nigh-migrate-COLLECTION.json")
    tool.add_argument("--name", help="the collection or table in the source, where it has several")
    tool.add_argument("--prefix", default="", help="what keys of Redis begin with")
    tool.add_argument("--id-field", default="id", help="the field of ids; %(default)s")
    tool.add_argument("--vector-field", default="vector", help="the field of vectors; %(default)s")
    tool.add_argument("--content-field", help="the field of texts, which become searchable with --config full_text=true")
    tool.add_argument("--ids", help="a .npy file with the ids of npy, hnswlib and faiss")
    tool.add_argument("--payloads", help="a file with a line of JSON for each row of npy, hnswlib and faiss")
    return parser


def _shown(source: str) -> str:
    """What tells a source apart from others and may be kept in a file: an absolute path, or a URL without its password."""
    if "://" not in source:
        return os.path.abspath(source)
    return re.sub(r"([?&]password=)[^&]*", r"\1", re.sub(r"(://[^:/@]*):[^/]*@", r"\1@", source))


class _Lines:
    """Progress where tqdm is not installed."""

    def __init__(self, total: int) -> None:
        self._total, self._done = total, 0

    def update(self, count: int) -> None:
        self._done += count
        print(f"{self._done} of {self._total} rows", file=sys.stderr)

    def close(self) -> None:
        pass


def _bar(total: int) -> Any:
    try:
        from tqdm import tqdm
    except ImportError:
        return _Lines(total)
    return tqdm(total=total, unit="rows")


def main(arguments: Sequence[str] | None = None) -> int:
    """Carries out a command line; the exit code."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    if asked.batch_size < 1:
        parser.error(f"--batch-size is {asked.batch_size}; it must be at least 1")
    options = Options(
        asked.ids, asked.payloads, asked.name, asked.prefix, asked.id_field, asked.vector_field, asked.content_field, asked.metric
    )
    bar: Any = None
    try:
        source = open_source(asked.kind, asked.source, options)
        bar = _bar(source.total)
        update: Callable[[int], Any] = bar.update
        about = {"kind": asked.kind, "source": _shown(asked.source), "name": asked.name}
        with Client(asked.url, asked.api_key) as client:
            done = migrate(
                source, client, asked.collection, metric=asked.metric, batch_size=asked.batch_size, state=asked.state, about=about,
                config=dict(asked.config), progress=update,
            )  # fmt: skip
    except (MigrationError, NighError, ValueError, OSError) as error:
        print(f"nigh migrate: {error}", file=sys.stderr)
        return 1
    finally:
        if bar is not None:
            bar.close()
    print(f"{done['rows']} rows are in {asked.collection} ({done['metric']}); counts and sampled searches fit, recall {done['recall']:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
