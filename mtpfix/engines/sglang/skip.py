"""`is_layer_skipped`: the test of a list that SGLang's ModelOpt and FP8 classes share."""

from __future__ import annotations

from collections.abc import Iterator

from mtpfix.engines.listing import Entry, Runs, Within, firsts, picked, texts
from mtpfix.engines.sglang.switches import on
from mtpfix.model import Packed

_KNOWN_SHARDS: Packed = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}


Tests = tuple[bool, bool, bool, bool]


def tests_of(release: str) -> Tests:
    """How a release searches a list: without trailing dots, by components, shards known by itself, experts besides."""
    return (
        on("skip-strips-dots", release),
        on("skip-components", release),
        on("skip-known-shards", release),
        on("skip-experts-add", release),
    )


def table_of(entries: tuple[Entry, ...], strips: bool, components: bool) -> Runs | Within:
    """A list ready to be searched: for entries that are whole components of a name, or any part of it."""
    tested = texts(entries)
    if strips and ".\n" in "\n".join((*tested, "")):
        tested = [text.rstrip(".") for text in tested]
    return (Runs if components else Within)(tested)


class Skips:
    """One list under one packed mapping, as the releases search it in which these `tests` are the same."""

    __slots__ = ("_adds", "_entries", "_exact", "_experts", "_known", "_packed", "_strips", "_table")

    def __init__(
        self, entries: tuple[Entry, ...], packed: Packed, tests: Tests, table: Runs | Within | None = None
    ) -> None:
        """`table`: what `table_of` gives for this list, where it is there already."""
        strips, components, known, adds = tests
        self._entries = entries
        self._packed = packed
        self._known = _KNOWN_SHARDS if known else {}
        self._strips = strips
        self._adds = adds
        self._exact = firsts(entries)
        self._table = table or table_of(entries, strips, components)
        self._experts = "\n".join([text for text in texts(entries) if "experts" in text])

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
        halves = [self._exact.get(prefix.replace("gate_up_proj", half)) for half in ("gate_proj", "up_proj")]
        return self._entries[halves[0]] if halves[0] is not None and halves[1] is not None else None

    def _of_experts(self, prefix: str, found: Entry | None) -> Entry | None:
        if found and self._adds:
            return found
        return next(self._above(prefix), None) if prefix in self._experts else None

    def _above(self, prefix: str) -> Iterator[Entry]:
        return (entry for entry in self._entries if "experts" in entry.text and prefix in entry.text)
