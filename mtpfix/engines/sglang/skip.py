"""`is_layer_skipped`: the test of a list that SGLang's ModelOpt and FP8 classes share."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from mtpfix.engines.base import KNOWN_SHARDS
from mtpfix.engines.listing import Entry, Runs, Within, first_of, picked, texts
from mtpfix.engines.sglang.switches import on
from mtpfix.model import Packed

Tests = tuple[bool, bool, bool, bool]


def tests_of(release: str) -> Tests:
    """How a release searches a list: without trailing dots, by components, shards known by itself, experts besides."""
    return (
        on("skip-strips-dots", release),
        on("skip-components", release),
        on("skip-known-shards", release),
        on("skip-experts-add", release),
    )


class Searched:
    """A list made ready to be searched in every way that a release knows, each once it is asked for."""

    def __init__(self, entries: tuple[Entry, ...]) -> None:
        self.entries = entries
        self._texts = texts(entries)
        self._tables: dict[tuple[bool, bool], Runs | Within] = {}

    @cached_property
    def exact(self) -> dict[str, int]:
        """Text -> index of the first entry with it."""
        return first_of(self._texts)

    @cached_property
    def experts(self) -> str:
        """The entries about experts, one a line."""
        return "\n".join([text for text in self._texts if "experts" in text])

    def table(self, strips: bool, components: bool) -> Runs | Within:
        """For entries that are whole components of a name, or any part of it."""
        tested = self._texts
        strips = strips and ".\n" in "\n".join((*tested, ""))
        if (strips, components) not in self._tables:
            tested = [text.rstrip(".") for text in tested] if strips else tested
            self._tables[strips, components] = (Runs if components else Within)(tested)
        return self._tables[strips, components]


class Skips:
    """One list under one packed mapping, as the releases search it in which these `tests` are the same."""

    __slots__ = ("_adds", "_entries", "_known", "_list", "_packed", "_strips", "_table")

    def __init__(self, searched: Searched, packed: Packed, tests: Tests) -> None:
        strips, components, known, adds = tests
        self._list = searched
        self._entries = searched.entries
        self._packed = packed
        self._known = KNOWN_SHARDS if known else {}
        self._strips = strips
        self._adds = adds
        self._table = searched.table(strips, components)

    def first(self, prefix: str) -> Entry | None:
        """The entry that skips a layer, or None. Raises ValueError where the shards of a fused layer disagree."""
        if not self._entries:
            return None
        leaf = prefix.rpartition(".")[2]
        shards = self._packed.get(leaf)
        if shards is None:
            shards = self._known.get(leaf)
        if shards is not None:
            return self._agreed(prefix, [prefix.replace(leaf, shard) for shard in shards])
        found = self._met(prefix)
        if "gate_up_proj" in prefix:
            return found or self._both(prefix)
        return self._of_experts(prefix, found) if "experts" in prefix else found

    def _met(self, name: str) -> Entry | None:
        index = self._table.first(name.rstrip(".") if self._strips else name)
        return picked(self._entries, index)

    def _agreed(self, prefix: str, names: list[str]) -> Entry | None:
        if not names:
            raise AssertionError("a fused layer without shards")
        found = self._met(names[0])
        for name in names[1:]:
            if (self._met(name) is None) != (found is None):
                raise ValueError(f"some but not all shards of {prefix} are listed")
        return found

    def _both(self, prefix: str) -> Entry | None:
        halves = [self._list.exact.get(prefix.replace("gate_up_proj", half)) for half in ("gate_proj", "up_proj")]
        return self._entries[halves[0]] if halves[0] is not None and halves[1] is not None else None

    def _of_experts(self, prefix: str, found: Entry | None) -> Entry | None:
        if found and self._adds:
            return found
        return next(self._above(prefix), None) if prefix in self._list.experts else None

    def _above(self, prefix: str) -> Iterator[Entry]:
        return (entry for entry in self._entries if "experts" in entry.text and prefix in entry.text)
