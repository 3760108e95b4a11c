"""Routers against the count of experts: a router has a row for each routed expert. Pure.

A class builds routers as high as config.json says, and loaders compare shapes. Experts beyond the count are skipped by
some of them, so that the router alone tells.
"""

from __future__ import annotations

from collections.abc import Iterable

from mtpfix.frozen import dataclass
from mtpfix.model import StoredModule
from mtpfix.names import brief


@dataclass(frozen=True, slots=True)
class OddRouter:
    """A router, the rows that are stored, and those that the config's `key` makes an engine build."""

    name: str
    stored: int
    rows: int
    key: str

    @property
    def words(self) -> str:
        """What contradicts what."""
        return f"{brief(self.name)} has {self.stored} rows, and engines build {self.rows} by {self.key}"


def odd_router(modules: Iterable[StoredModule], ending: str, rows: int, key: str) -> OddRouter | None:
    """The first router that is stored plain, in a file that the index names, with another number of rows."""
    for module in modules:
        if module.name.endswith(ending) and module.plain and module.raw.listed:
            found = next((c.shape[0] for c in module.raw.cells if c.suffix == "weight" and len(c.shape) == 2), rows)
            if found != rows:
                return OddRouter(module.name, found, rows, key)
    return None
