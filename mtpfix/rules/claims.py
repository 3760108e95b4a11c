"""Which rule answers for which mismatch: every one has exactly one home.

A mismatch that the plan mends belongs to the rule that says what was wrong with the lists; one that no list mends
belongs to the rule that says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mtpfix.decisions import AskedNames, Judge, Row, Table, list_in
from mtpfix.engines.sources import Fragment
from mtpfix.families.base import LIST_LAYERS
from mtpfix.families.conditions import holds_all
from mtpfix.formats.base import ExclusionList, Format
from mtpfix.model import Answer, DecisionKind, Location
from mtpfix.patch import pointer
from mtpfix.rules.base import Claim, key_of
from mtpfix.rules.entries import malformed, meant
from mtpfix.solving.solution import rewritten
from mtpfix.verdicts import Mismatch
from mtpfix.world import World, layer_of


def claims(
    world: World,
    tables: Sequence[Table],
    after_plan: Sequence[Table],
    found: Iterable[Mismatch],
    left: Iterable[Mismatch],
) -> Mapping[str, Sequence[Claim]]:
    """The mismatches by rule code. `left`: what is still wrong after the plan.

    A module that is wrong in another way after the plan than before is two claims: the lists' fault, which is mended,
    and what no list mends.
    """
    found, left = tuple(found), tuple(left)
    still = {key_of(item): item for item in left}
    fragments = {id(table.judge): table.fragment for table in tables}
    home = _Home(world, tables, after_plan, left, _rows_listed((*found, *left)))
    out: dict[str, list[Claim]] = {}
    for item in found:
        after = still.pop(key_of(item), None)
        fragment = fragments[id(item.judge)]
        same = _alike(item, after) and home.breaks(item, fragment) is (
            after is not None and home.breaks(after, fragment)
        )
        told, at_fault = item, home.entry_at_fault(item, fragment)
        if same and after and (stays := home.entry_that_stays(after, fragment))[0]:  # what was at fault goes in vain
            told, at_fault = after, stays
        claim = Claim(told, not same, *at_fault, home.collision(item.judge), home.beside(item, fragment))
        out.setdefault(home.rule(claim, fragment), []).append(claim)
        if after is not None and not same:
            rest = Claim(after, False, *home.entry_that_stays(after, fragment), beside=home.beside(after, fragment))
            out.setdefault(home.rule(rest, fragment), []).append(rest)
    for lost in _by_judge(still.values()):
        name = next((home.clash(item) for item in lost if home.clash(item)), "")
        fragment = fragments[id(lost[0].judge)]
        for item in lost:
            claim = Claim(item, False, collision=name)
            out.setdefault("MTP015" if name else home.rule(claim, fragment), []).append(claim)
    return out


def _by_judge(found: Iterable[Mismatch]) -> Iterable[list[Mismatch]]:
    """What a plan takes from a draft that is lost anyway and had it by accident; and what a class that could not load
    a part comes to stop on once another module of it is right (SGLang's sizes of blocks beside a plain down_proj)."""
    out: dict[int, list[Mismatch]] = {}
    for item in found:
        if item.kind == "fault" or (item.judge.part == "draft" and item.kind == "unlisted"):
            out.setdefault(id(item.judge), []).append(item)
    return out.values()


def _alike(before: Mismatch, after: Mismatch | None) -> bool:
    """Whether a module is still wrong in the same way; an entry that was at fault is so no longer where it went."""
    if after is None or (before.kind, before.answer.decision) != (after.kind, after.answer.decision):
        return False
    if before.answer.error != after.answer.error:
        return False
    return bool(after.answer.cause.pointer) or not before.answer.cause.pointer


def _rows_listed(found: Iterable[Mismatch]) -> Mapping[int, Sequence[Row]]:
    """The rows that each judge builds plain because of an entry though they are stored otherwise."""
    out: dict[int, list[Row]] = {}
    for item in found:
        if item.kind == "unexpected" and item.answer.cause.pointer:
            out.setdefault(id(item.judge), []).append(item.row)
    return out


class _Home:
    """Finds the rule for a claim; remembers what it learned about entries and names."""

    def __init__(
        self,
        world: World,
        tables: Sequence[Table],
        after_plan: Sequence[Table],
        left: Iterable[Mismatch],
        listed: Mapping[int, Sequence[Row]],
    ) -> None:
        self.world = world
        self._left = frozenset(map(id, left))
        self._planned = {id(table.judge): table.fragment for table in after_plan}
        self._listed = listed
        self._unlisted_plain: dict[int, frozenset[str]] = {}
        self._bare: dict[int, tuple[Fragment, Mapping[str, Any], dict[Any, Any]]] = {}
        self.tables = tables
        self.after_plan = after_plan
        self._names: dict[tuple[int, bool], AskedNames] = {}
        self._others: dict[tuple[object, ...], Sequence[AskedNames]] = {}
        self._askers: dict[int, tuple[object, Mapping[str, Sequence[Row]]]] = {}
        self._fitting: dict[tuple[str, str], frozenset[str]] = {}
        self._beside: dict[str, dict[str, str]] = {}
        self._meanings: dict[tuple[str, int], list[str]] = {}
        self._collisions: dict[int, str] = {}
        self._readings: dict[tuple[str, str], set[str]] = {}
        self._broad: dict[tuple[str, str], bool] = {}
        self._lists: dict[tuple[str, str, int], tuple[Format | None, ExclusionList | None]] = {}
        self._entries: dict[int, tuple[str, ...]] = {}

    def rule(self, claim: Claim, fragment: Fragment | None) -> str:
        item = claim.mismatch
        stored = item.row.unit.stored
        if stored.scheme.kind == "odd" or stored.scheme.extra or (self.must_be_plain(claim) and not claim.fixed):
            return "MTP007"
        if item.fault is not None and self._goes_with_the_count(item):
            return "MTP013"
        if item.kind in ("scales", "scheme"):
            if claim.beside or self._built_as_stored(item):
                return "MTP008"
            return "MTP012" if item.kind == "scales" else "MTP009"
        if item.kind == "error":
            return self._error(claim, fragment)
        if item.kind == "unexpected":
            return self._unexpected(claim, fragment)
        return self._unlisted(claim, fragment) if claim.fixed else self._cannot(claim)

    def plain_anyhow(self, item: Mismatch, fragment: Fragment | None) -> bool:
        """Whether an engine that builds a module plain because of an entry does so without any entry as well.

        An engine may ask its list before it looks at the kind of layer, and leave the kind alone whatever it finds:
        Quark's `lm_head` (vllm-0.33.0 Q/quark/quark.py:219). Then no entry is at fault.
        """
        if item.kind != "unexpected" or not item.answer.cause.pointer or fragment is None:
            return False
        at = id(item.judge)
        if at not in self._unlisted_plain:
            self._unlisted_plain[at] = self._plain_without_list(item.judge, fragment)
        return item.row.unit.name in self._unlisted_plain[at]

    def _plain_without_list(self, judge: Judge, fragment: Fragment) -> frozenset[str]:
        """Of the rows that a judge builds plain because of an entry those that an empty list leaves plain."""
        where, rows = self._where(fragment), self._listed.get(id(judge), ())
        if where is None:
            return frozenset()
        if id(fragment) not in self._bare:
            value = rewritten(fragment.value, where, (*where.places, *where.broken), ())
            self._bare[id(fragment)] = fragment, value, {}
        _, value, shared = self._bare[id(fragment)]
        answers = zip(rows, judge.answers(self.world, value, rows, shared), strict=True)
        return frozenset(row.unit.name for row, answer in answers if answer.decision == "plain")

    def entry_at_fault(self, item: Mismatch, fragment: Fragment | None) -> tuple[Location | None, str]:
        """The place of the entry that decided, or of the one that names the module itself."""
        cause = item.answer.cause
        if not cause.pointer or fragment is None or self.plain_anyhow(item, fragment):
            return None, ""
        own = self._own(item, fragment)
        return (
            self._listed_at(own, fragment)
            if own
            else (Location(fragment.file, fragment.pointer + cause.pointer), cause.entry)
        )

    def entry_that_stays(self, item: Mismatch, fragment: Fragment | None) -> tuple[Location | None, str]:
        """The place, before the plan, of an entry that is still at fault after it; nothing for one that comes."""
        entry, planned = item.answer.cause.entry, self._planned.get(id(item.judge))
        if not entry or fragment is None or planned is None or self.plain_anyhow(item, fragment):
            return None, ""
        return self._listed_at(self._own(item, planned) or entry, fragment)

    def _own(self, item: Mismatch, fragment: Fragment) -> str:
        """The entry for a shard of a fused module that is listed where the engine cites the first shard's, or ""."""
        name, ask, cited = item.row.unit.name, item.row.ask, item.answer.cause.entry
        fmt, entries = self._list_of(fragment)
        if fmt is None or ask is None or ask.runtime.rpartition(".")[2] not in item.judge.packed:
            return ""
        if item.kind != "unexpected" or fmt.covers(cited, name):
            return ""
        return next((entry for entry in entries if fmt.covers(entry, name)), "")

    def _listed_at(self, entry: str, fragment: Fragment) -> tuple[Location | None, str]:
        """The place of an entry of the list, if it holds it."""
        where = self._where(fragment)
        if where is None or entry not in where.entries:
            return None, ""
        step = pointer(entry) if where.keyed else f"/{where.places[where.entries.index(entry)]}"
        return Location(fragment.file, fragment.pointer + where.pointer + step), entry

    def _built_as_stored(self, item: Mismatch) -> bool:
        """Whether the newest release of the same engine builds a module in the very scheme that is stored, once the
        lists are what they should be."""
        at = (item.judge.engine.name, item.judge.part)
        if at not in self._fitting:
            self._fitting[at] = frozenset(
                name
                for table in self.after_plan
                if table.judge.profile.latest and (table.judge.engine.name, table.judge.part) == at
                for row, answer in table.decided
                if answer.scheme == row.unit.stored.scheme.name
                for name in row.names
            )
        return item.row.unit.name in self._fitting[at] and not item.row.unit.stored.scheme.missing

    def beside(self, item: Mismatch, fragment: Fragment | None) -> str:
        """A file that this engine does not read and by which the newest release of another builds a module as it is
        stored, or "": `quantized_layers` in hf_quant_config.json alone, which SGLang looks for in config.json."""
        if item.kind != "scheme" or fragment is None or item.row.unit.stored.scheme.missing:
            return ""
        if fragment.file not in self._beside:
            self._beside[fragment.file] = {
                row.unit.name: table.fragment.file
                for table in self.after_plan
                if table.judge.profile.latest and table.fragment is not None and table.fragment.file != fragment.file
                for row, answer in table.decided
                if answer.scheme == row.unit.stored.scheme.name
            }
        return self._beside[fragment.file].get(item.row.unit.name, "")

    def _goes_with_the_count(self, item: Mismatch) -> bool:
        """Whether a fault is there because the config counts other draft layers than are stored."""
        world, fault = self.world, item.fault
        if fault is None or not fault.when or world.config_as_stored is world.config:
            return False
        fragment = next((table.fragment for table in self.tables if table.judge is item.judge), None)
        return not holds_all(fault.when, fragment.value if fragment else {}, world.config_as_stored, world.layers)

    def must_be_plain(self, claim: Claim) -> bool:
        """Whether a module that its family keeps in full precision is stored quantized."""
        unit, family = claim.mismatch.row.unit, self.world.family
        if family is None or not unit.stored.quantized:
            return False
        return family.full_precision.find(unit.key, self.world.layers) is not None

    def _error(self, claim: Claim, fragment: Fragment | None) -> str:
        if claim.mismatch.answer.error == "re.error" or self.breaks(claim.mismatch, fragment):
            return "MTP016"
        if claim.fixed and claim.mismatch.answer.error == "KeyError":
            return self._unlisted(claim, fragment)  # the engine asks a table for it that names nothing of it
        if claim.fixed or self._stored_unlike(claim):
            return "MTP010"
        return "MTP008"

    def breaks(self, item: Mismatch, fragment: Fragment | None) -> bool:
        """Whether the engine stops on something in the list that is no text, or on what stands in the list's place."""
        read = self._planned.get(id(item.judge)) if id(item) in self._left else fragment
        answer, where = item.answer, self._where(read)  # its places are those of the list that was read
        if where is None or not where.broken or answer.error not in ("TypeError", "AttributeError", "ValueError"):
            return False
        at = answer.cause.pointer.rpartition("/")[2]
        return not (at and at not in map(str, where.broken)) and (answer.error != "ValueError" or not where.present)

    def _stored_unlike(self, claim: Claim) -> bool:
        return len({row.unit.stored.quantized for row in self._asked_alike(claim.mismatch)}) > 1

    def _asked_alike(self, item: Mismatch) -> Sequence[Row]:
        """The rows of a judge that ask by the same name as a module: the shards of a fused linear, experts."""
        rows = item.judge.rows
        if id(rows) not in self._askers:
            found: dict[str, list[Row]] = {}
            for row in item.judge.every(self.world):
                if row.ask is not None:
                    found.setdefault(row.ask.runtime, []).append(row)
            self._askers[id(rows)] = rows, found
        return self._askers[id(rows)][1].get(item.row.ask.runtime, ()) if item.row.ask else ()

    def _goes_with_another_shard(self, claim: Claim, fragment: Fragment | None) -> bool:
        """Whether a module is plain for the sake of an entry that names, rightly, another shard of its fused linear."""
        item, (fmt, _) = claim.mismatch, self._list_of(fragment)
        cited, name = item.answer.cause.entry, item.row.unit.name
        if claim.fixed or not cited or fmt is None or item.row.ask is None or item.row.ask.layer != "linear":
            return False
        if self.plain_anyhow(item, fragment) or any(fmt.covers(entry, name) for entry in (cited, claim.entry) if entry):
            return False
        return any(row.unit.stored.plain and fmt.covers(cited, row.unit.name) for row in self._asked_alike(item))

    def _unexpected(self, claim: Claim, fragment: Fragment | None) -> str:
        if not claim.fixed and claim.mismatch.judge.part == "draft" and self.clash(claim.mismatch):
            return "MTP015"
        if self._goes_with_another_shard(claim, fragment):
            return "MTP010"
        if not claim.location:
            return "MTP008"
        place = (claim.location.file, claim.location.pointer)
        if place not in self._broad:
            self._broad[place] = self._covers_plain(claim.location, claim.entry, claim.mismatch.row.unit.name)
        return "MTP004" if self._broad[place] else "MTP005"

    def _covers_plain(self, location: Location, entry: str, name: str) -> bool:
        """Whether an entry is meant for modules that are stored plain: it covers a whole layer of them, or more of them
        than of quantized ones, of which `name` is one."""
        quantized = {name}
        plain: set[str] = set()
        for table in self.tables:
            if table.fragment is not None and table.fragment.file == location.file:
                fmt, _ = self._list_of(table.fragment)
                plain |= self._named(fmt, entry)
                for row, answer in table.every(self.world):
                    if answer.cause.entry == entry and answer.decision == "plain":
                        (quantized if row.unit.stored.quantized else plain).add(row.unit.name)
        whole = {layer_of(name) for name in plain} - {layer_of(name) for name in quantized} - {None}
        return bool(whole) or len(plain) >= len(quantized)

    def _named(self, fmt: Format | None, entry: str) -> set[str]:
        """Plain modules that an entry names in its format's own reading."""
        if fmt is not None and (fmt.name, entry) not in self._readings:
            names = (unit.name for unit in self.world.units if unit.stored.plain)
            self._readings[fmt.name, entry] = {name for name in names if fmt.covers(entry, name)}
        return self._readings[fmt.name, entry] if fmt else set()

    def _unlisted(self, claim: Claim, fragment: Fragment | None) -> str:
        name = claim.mismatch.row.unit.name
        fmt, entries = self._list_of(fragment)
        meant = self._meant(name, entries)
        if fmt is not None and any(malformed(fmt, entry) for entry in meant):
            return "MTP016"
        if meant:
            return "MTP002"
        others = [self._list_of(other) for other in self._fragments() if other is not fragment]
        return "MTP003" if any(self._meant(name, listed) for _, listed in others) else "MTP001"

    def _meant(self, name: str, entries: tuple[str, ...]) -> list[str]:
        """The entries that are meant for a module."""
        at = (name, id(entries))
        if at not in self._meanings:
            self._meanings[at] = meant(entries, name)
        return self._meanings[at]

    def _cannot(self, claim: Claim) -> str:
        """Why no list mends it: no list or a colliding name (MTP015), or this engine (MTP008)."""
        item = claim.mismatch
        asked = item.row.ask
        if item.kind == "fault" or asked is None or asked.layer not in LIST_LAYERS:
            return "MTP008"
        fragment = next((table.fragment for table in self.tables if table.judge is item.judge), None)
        fmt, _ = self._list_of(fragment)
        if fmt is None or self._where(fragment) is None:
            return "MTP015"
        return "MTP015" if self.collision(item.judge) else "MTP008"

    def collision(self, judge: Judge) -> str:
        """A name that this judge asks for a module, and for one of the other part that is stored otherwise.

        One is enough: the part does not load without it, so that entries for the rest would be half a repair.
        """
        if id(judge) not in self._collisions:
            both = (*self.tables, *self.after_plan)  # a list that stops an engine hides what it then looks up
            rows = (row for table in both if table.judge is judge for row in table.decided)
            found = (row.ask.runtime for row, answer in rows if row.ask and self._clashes(judge, row, answer))
            self._collisions[id(judge)] = next(found, "")
        return self._collisions[id(judge)]

    def clash(self, item: Mismatch) -> str:
        """The name that a module has in common with one of the other part that is stored otherwise, or ""."""
        asked = item.row.ask
        return asked.runtime if asked and self._clashes(item.judge, item.row, item.answer) else ""

    def _clashes(self, judge: Judge, row: Row, answer: Answer) -> bool:
        """Whether a decision is not how a module is stored, and how one of the other part with its name is."""
        stored = row.unit.stored
        wanted: DecisionKind = "quantized" if stored.plain else "plain"
        if row.ask is None or row.ask.layer not in LIST_LAYERS or answer.decision != wanted:
            return False
        return any(row.ask.runtime in names for names in self._other_names(judge, quantized=stored.plain))

    def _other_names(self, judge: Judge, *, quantized: bool) -> Sequence[AskedNames]:
        """Runtime names that the other part of the same profile asks for modules that are stored so."""
        at = (judge.profile, judge.part, quantized)
        if at not in self._others:
            tables = (table.judge for table in self.tables if table.judge.profile == judge.profile)
            others = (other for other in tables if other.part != judge.part)
            self._others[at] = [self._stored_names(other, quantized) for other in others]
        return self._others[at]

    def _stored_names(self, judge: Judge, quantized: bool) -> AskedNames:
        """Runtime names that a judge asks for modules that are stored so; many judges ask the same."""
        at = (id(judge.rows), quantized)
        if at not in self._names:
            stored = ((row, row.unit.stored) for row in judge.rows)
            rows = (row for row, held in stored if (held.quantized if quantized else held.plain))
            self._names[at] = AskedNames(rows)
        return self._names[at]

    def _fragments(self) -> list[Fragment]:
        return list({(t.fragment.file, t.fragment.pointer): t.fragment for t in self.tables if t.fragment}.values())

    def _list_of(self, fragment: Fragment | None) -> tuple[Format | None, tuple[str, ...]]:
        fmt, where = self._read(fragment)
        return fmt, self._entries[id(where)] if where else ()

    def _where(self, fragment: Fragment | None) -> ExclusionList | None:
        return self._read(fragment)[1]

    def _read(self, fragment: Fragment | None) -> tuple[Format | None, ExclusionList | None]:
        if fragment is None:
            return None, None
        at = (fragment.file, fragment.pointer, id(fragment.value))
        if at not in self._lists:
            self._lists[at] = list_in(self.world, fragment.value)
            where = self._lists[at][1]
            self._entries[id(where)] = self.world.live(where.entries) if where else ()
        return self._lists[at]
