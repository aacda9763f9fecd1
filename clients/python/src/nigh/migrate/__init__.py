"""`python -m nigh migrate`: vectors of files, libraries and other databases into a collection."""

from ._run import MigrationError, migrate
from ._sources import Batch, Source, open_source

__all__ = ["Batch", "MigrationError", "Source", "migrate", "open_source"]
