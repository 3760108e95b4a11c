"""The smallest sound set of entries for one exclusion list (pure).

Candidates come from the module tree in the format's own dialect; every engine profile judges each of them over
every module. What is added never makes a module worse that was right before, and what can be left out is.

The order of work: take out entries that make quantized modules plain or break an engine; add the faithful spelling
(the checkpoint's own names) of what is then missing, the stripped spelling where the draft sits under a wrapper; add
aliases (an engine's own names) for what is still missing; drop every alias that nothing needs.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

from mtpfix import late
from mtpfix.alike import NONE, Alike
from mtpfix.decisions import Judge, Row, idle_in, listed, names_asked, recalled
from mtpfix.engines.base import KNOWN_SHARDS, Matcher
from mtpfix.engines.sources import Fragment
from mtpfix.families.base import LIST_LAYERS
from mtpfix.formats.base import ExclusionList, Format, Reach
from mtpfix.formats.coverage import Coverage
from mtpfix.frozen import dataclass, replace
from mtpfix.model import Answer, Cause, Part
from mtpfix.modules import EXPERT_NUMBER
from mtpfix.patch import put
from mtpfix.regexes import is_valid, unsigned
from mtpfix.rules.entries import means
from mtpfix.verdicts import Mismatch, faults_of, leaves_beside, mismatch
from mtpfix.world import Unit, World

Role = Literal["faithful", "stripped", "alias"]
Verdicts = tuple[tuple[Answer, ...], ...]
_Seat = tuple[tuple[object, ...], int, tuple[int, ...]]
PARTS: tuple[Part, ...] = ("target", "draft")
EXPERT_PROJECTIONS = ("gate_proj", "up_proj", "down_proj")
MANY = 500  # entries from which on it pays to set aside those without effect
FEW = 40  # entries at fault up to which each is tried by itself, where all of them together cannot go
# What a list is worked out with at most: decisions of all trials together, in that many trials in any case. The largest
# models take 3,000; a checkpoint with hundreds of draft layers would take minutes.
MOST_DECISIONS, FEW_TRIALS = 200_000, 8
ROUNDS, TURNS, SHORT = 3, 20, 100
_DEPTHS = (1, 2, 3)  # dots in a name that is written for all that is under it, once its root was tried
_LEVELS = (1, 2, 3, 4, 5, SHORT)  # the same of subtrees in what cannot come as a whole; at last each name by itself
_WORD = late.pattern(r"[^.*]+")
_UNSPECIFIC = frozenset({"model", "language_model", "layers", "mtp", "re:", "weight"})


@dataclass(frozen=True, slots=True)
class Added:
    """An entry that the plan adds. `node`: what it stands for; `engines`: who needs an alias ("" for the others)."""

    entry: str
    role: Role
    node: str
    part: Part
    engine: str = ""


@dataclass(frozen=True, slots=True)
class Solution:
    """What becomes of one exclusion list: the places of the entries that go, and the entries that come.

    vetoed    whether something is still wrong, and what was tried for it is harmless to the engines of the first bench
    given_up  whether it was not worked out to the end, since that takes more than any model needs
    """

    fragment: Fragment
    where: ExclusionList
    removed: tuple[int, ...]
    added: tuple[Added, ...]
    vetoed: bool = False
    given_up: bool = False

    @property
    def empty(self) -> bool:
        return not self.removed and not self.added

    @property
    def texts(self) -> tuple[str, ...]:
        """The entries that go and those that come."""
        return (*_entries_at(self.where, self.removed), *(item.entry for item in self.added))

    def value(self) -> Mapping[str, Any]:
        """The quantization config after the change."""
        return rewritten(self.fragment.value, self.where, self.removed, [item.entry for item in self.added])


@dataclass(frozen=True, slots=True)
class Leaf:
    """A name that an entry can stand for, and what is known about it."""

    name: str
    reach: Reach
    part: Part
    impure: bool
    covered: bool
    wanted: bool


def contradicts(unit: Unit, answer: Answer) -> bool:
    """Whether a decision is not how the module is stored."""
    if unit.stored.plain:
        return answer.decision in ("quantized", "error")
    return answer.decision in ("plain", "error")


def rewritten(
    value: Mapping[str, Any], where: ExclusionList, removed: Iterable[int], added: Sequence[str]
) -> Mapping[str, Any]:
    """A quantization config with entries out of its exclusion list and others in; what is no list becomes one."""
    gone = set(removed)
    out: Mapping[str, Any] = value
    if gone or added:
        out = _changed(value, where.pointer.split("/")[1:], where, gone, added)
    return out


def _changed(old: Any, path: Sequence[str], where: ExclusionList, gone: set[int], added: Sequence[str]) -> Any:
    if path:
        held = old.get(path[0])
        return {**old, path[0]: _changed(held, path[1:], where, gone, added)}
    if not where.keyed:
        return [*_kept(list(old) if where.present else where.entries, gone), *added]
    items = _kept(list(old.items()) if where.present else [(entry, where.value) for entry in where.entries], gone)
    new = dict.fromkeys(added, where.value)
    return {**new, **{name: value for name, value in items if name not in new}}


def is_broken(entry: str) -> bool:
    """Whether no engine can take an entry for a regular expression, were it meant to be one."""
    return not is_valid(unsigned(entry.removeprefix("re:")))


def _entries_at(where: ExclusionList, places: Iterable[int]) -> tuple[str, ...]:
    """The entries at some places of a list."""
    gone = set(places)
    return tuple(entry for place, entry in zip(where.places, where.entries, strict=True) if place in gone)


def _kept(items: Sequence[Any], gone: set[int]) -> list[Any]:
    return [item for place, item in enumerate(items) if place not in gone]


@dataclass(frozen=True, slots=True)
class Bench:
    """Judges that see the list in one quantization config: the file's own, or config.json's with the list put in."""

    judges: tuple[Judge, ...]
    value: Mapping[str, Any]
    where: ExclusionList

    def full(self, world: World) -> Bench:
        """The bench with a row for each unit."""
        return replace(self, judges=tuple(replace(judge, rows=judge.every(world)) for judge in self.judges))


class _Spent(Exception):
    """Working a list out takes more than any model needs."""


class Solver:
    """Works one list out; holds the judges so that each trial costs only the matching.

    `told_apart`, once it is done: whether something came up that makes a difference between layers of which one stands
    for others. Then the solution is void, and the list has to be worked out with a row for each unit.
    """

    def __init__(
        self,
        world: World,
        fmt: Format,
        fragment: Fragment,
        where: ExclusionList,
        benches: Sequence[Bench],
        alike: Alike = NONE,
    ) -> None:
        self.world, self.fmt, self.fragment, self.where, self.alike = world, fmt, fragment, where, alike
        self.told_apart = False
        compacted = _Compacted()

        def seat(judge: Judge, bench: Bench) -> _Seat:
            """Judges of one seat answer alike, and what they answer is wrong in the same way."""
            return judge.signature, id(bench), tuple(map(id, faults_of(world, judge)))

        seats = {
            seat(judge, bench): (bench, *compacted.of(judge))
            for bench in benches
            for judge in reversed(bench.judges)
            if judge.view and not judge.method.error
        }
        newest = {seat(judge, bench) for bench in benches for judge in bench.judges if judge.profile.latest}
        self.newest = tuple(at for at, taken in enumerate(seats) if taken in newest)
        self.judges = tuple(judge for _, judge, _, _ in seats.values())
        self.members = tuple(names for _, _, names, _ in seats.values())
        self._places = tuple((signature, held[3]) for (signature, *_), held in seats.items())
        firsts: dict[tuple[object, int], int] = {}
        self._answering = tuple(firsts.setdefault(taken[:2], at) for at, taken in enumerate(seats))
        self.weights = tuple(tuple(row.questions for row in judge.rows) for judge in self.judges)
        self._benches = tuple(bench for bench, *_ in seats.values())
        self._spent = 0
        self._vetoes: set[int] = set()
        self._known: dict[tuple[tuple[int, ...], tuple[str, ...]], Verdicts] = {}
        self._missed: dict[int, tuple[Verdicts, frozenset[str]]] = {}
        self._judged: dict[tuple[int, int, str, tuple[str, ...]], bool] = {}
        self._leaves = tuple(leaves_beside(world, judge) for judge in self.judges)
        self._plain: dict[tuple[int, int], set[str]] = {}
        self._matchers: dict[tuple[int, tuple[int, ...]], Matcher] = {}
        self._coverage: tuple[tuple[str, ...], Coverage] | None = None
        self._without: dict[tuple[int, tuple[int, ...]], tuple[Mapping[str, Any], dict[Any, Any]]] = {}
        lost = colliding(benches)
        self._ceded = {at for at, taken in enumerate(seats) if taken[:2] in lost}
        self._left: dict[int, tuple[tuple[int, ...], list[tuple[int, Any]]]] = {}
        self._idle = self._stood_for()
        if len(where.entries) - len(self._idle) > MANY:
            self._idle = (*self._idle, *self._without_effect())
        self.base = self._try((), ())

    def solve(self, malformed: Callable[[str], bool], start: Solution | None = None) -> Solution:
        """The change that mends most and harms nothing; `start`, or an empty one, where nothing more can be mended.

        An entry that is at fault in one engine and serves another stays where no other spelling suits both.
        """
        found = start or Solution(self.fragment, self.where, (), ())
        try:
            gone = self._gone(malformed)
            while (better := self._better(found, gone)) is not None:
                found = better
                if set(gone).issubset(found.removed):
                    break
        except _Spent:
            return replace(found, given_up=True)
        left = self._faults(self._try(found.removed, self._entries(found.added))) > 0
        vetoed = any(id(bench) in self._vetoes for bench in self._benches if bench is not self._benches[0])
        return replace(found, vetoed=left and vetoed)

    def _better(self, found: Solution, gone: tuple[int, ...]) -> Solution | None:
        """A change that mends more than the one that was found, and leaves nothing worse; None where there is none."""
        tried = (self._worked_out(removed, found) for removed in self._removals(found, gone))
        return next((better for better in tried if better is not None), None)

    def _removals(self, found: Solution, gone: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Places of entries to take out: all that are at fault, those of them that nobody misses, those found."""
        most = tuple(dict.fromkeys((*found.removed, *gone)))
        yield most
        some = self._unmissed(found, most)
        if set(some) not in (set(most), set(found.removed)):
            yield some
        if most != found.removed:
            yield found.removed

    def _unmissed(self, found: Solution, gone: tuple[int, ...]) -> tuple[int, ...]:
        """The places whose entries can go one after the other, mend something and harm nothing, of some few."""
        entries = self._entries(found.added)
        removed, state = found.removed, self._try(found.removed, entries)
        texts = dict.fromkeys(_entries_at(self.where, set(gone).difference(removed)))
        for text in texts if len(texts) <= FEW else ():
            more = tuple(sorted({*removed, *_places(self.where, {text})}))
            after = self._try(more, entries)
            if not self._harmed(state, after) and self._faults(after) < self._faults(state):
                removed, state = more, after
        return removed

    def _worked_out(self, removed: tuple[int, ...], found: Solution) -> Solution | None:
        """A change that was found with more entries gone, and what has to come then; None where it harms something or
        mends nothing more."""
        before = self._try(found.removed, self._entries(found.added))
        added = self._faithful(removed, found.added)
        if removed or added or not self._settled():
            added = self._aliases(removed, added)
        added = self._pruned(removed, self._owned(removed, added))
        removed, added = self._cancelled(removed, added)
        after = self._try(removed, self._entries(added))
        if self._faults(after) >= self._faults(before) or self._harmed(before, after):
            return None
        if before is not self.base and self._harmed(self.base, after):
            return None
        return Solution(self.fragment, self.where, removed, added)

    # -- trials ------------------------------------------------------------------------------------------------

    def _try(self, removed: Iterable[int], entries: Sequence[str]) -> Verdicts:
        at = (tuple(removed), tuple(entries))
        if at not in self._known:
            self.told_apart = self.told_apart or self.alike.told_apart((*_entries_at(self.where, at[0]), *at[1]))
            self._known[at] = self._decided((*at[0], *self._idle), at[1])
            self._spent += sum(len(self._known[at][first]) for first in set(self._answering))
            if self._spent > MOST_DECISIONS and len(self._known) > FEW_TRIALS:
                raise _Spent
        return self._known[at]

    def _decided(self, removed: Iterable[int], entries: Sequence[str]) -> Verdicts:
        gone = tuple(removed)
        benches = {id(bench): bench for bench in self._benches}
        values = {at: self._value(bench, gone, entries) for at, bench in benches.items()}
        shared: dict[int, dict[Any, Any]] = {at: {} for at in benches}
        as_it_is = gone == self._idle and not entries
        found = {
            at: (as_it_is and self._recalled(at, bench))
            or judge.answers(self.world, values[id(bench)], shared=shared[id(bench)])
            for at, (judge, bench) in enumerate(zip(self.judges, self._benches, strict=True))
            if self._answering[at] == at
        }
        for held in shared.values():
            held.clear()  # matchers hold what they share: a list would stay for each trial
        return tuple(found[at] for at in self._answering)

    def _recalled(self, at: int, bench: Bench) -> tuple[Answer, ...]:
        """What a judge says of the list as it is, where it was asked about that with all of its rows; else nothing."""
        signature, places = self._places[at]
        decided = recalled(self.world, signature, bench.value)
        return tuple(decided[place][1] for place in places) if decided else ()

    def _value(self, bench: Bench, gone: tuple[int, ...], entries: Sequence[str]) -> Mapping[str, Any]:
        """A bench's config for a trial. What is idle is taken out of a list once, not for each trial."""
        if bench.where.keyed or not bench.where.present or len(gone) < len(self._idle) or not self._idle:
            return rewritten(bench.value, bench.where, gone, entries)
        at = id(bench)
        if at not in self._left or self._left[at][0] is not self._idle:
            idle, held = set(self._idle), listed(bench.value, bench.where)
            self._left[at] = self._idle, [(place, item) for place, item in enumerate(held) if place not in idle]
        out = set(gone)
        kept = [item for place, item in self._left[at][1] if place not in out]
        found: Mapping[str, Any] = put(bench.value, bench.where.pointer.split("/")[1:], [*kept, *entries])
        return found

    def _stood_for(self) -> tuple[int, ...]:
        """Places of entries that fall on no name that is asked: of layers for which others stand, and doubles."""
        where, found = self.where, set(self._doubles)
        if not any(judge.reads_headers for judge in self.judges):  # rows of these stand for nobody
            found.update(self.alike.idle(where.entries, self._doubles))
        return tuple(where.places[at] for at in sorted(found))

    @cached_property
    def _doubles(self) -> frozenset[int]:
        """The indices of entries that fall on no name that is asked and read like an earlier one."""
        names = names_asked(judge.rows for judge in self.judges)
        return idle_in(self.world, self.fragment.value, self.where, names)

    @cached_property
    def _live(self) -> tuple[tuple[int, str], ...]:
        """The places and entries of the list without these."""
        listed = enumerate(zip(self.where.places, self.where.entries, strict=True))
        return tuple(pair for at, pair in listed if at not in self._doubles)

    @cached_property
    def _covering_nothing(self) -> frozenset[str]:
        """The texts of the list that stand among these alone."""
        live = {entry for _, entry in self._live}
        return frozenset(entry for at in self._doubles if (entry := self.where.entries[at]) not in live)

    def _without_doubles(self, entries: Iterable[str]) -> Iterator[str]:
        """Entries that may cover a name, each once: those of the list, and those that come."""
        gone = self._covering_nothing
        return (entry for entry in dict.fromkeys(entries) if entry not in gone) if self._doubles else iter(entries)

    def _without_effect(self) -> tuple[int, ...]:
        """Places of entries that decide nothing in any engine, not even by themselves: trials go without them.

        Those are looked for among entries with a number or a word that no engine asks for. What decides after all is
        set aside, for a few rounds, until a list of the rest decides as one of them alone does, which stays: a list
        without any entry may mean something of its own.
        """
        idle, asked = set(self._idle), self._asked_words()
        rest = {at: text for at, text in self._live if at not in idle and not _has_only(asked, text)}
        for _ in range(ROUNDS):
            if len(rest) < 2:
                break
            first = next(iter(rest))
            bare, state = (self._decided(self._all_but(kept), ()) for kept in ({first}, rest))
            told = {new.cause.entry for old, new in _differing(bare, state)}
            told |= {rest[first]} & {answer.cause.entry for answers in bare for answer in answers}
            if not told:
                return tuple(rest)[1:]
            rest = {at: text for at, text in rest.items() if text not in told}
        return ()

    def _all_but(self, kept: Container[int]) -> tuple[int, ...]:
        """All places of the list but some."""
        return (*self.where.broken, *(at for at in self.where.places if at not in kept))

    def _asked_words(self) -> frozenset[str]:
        """The words and numbers of the names that are asked, shards of fused modules included."""
        asked = {
            (id(row.unit), row.ask, judge.packed.get(row.ask.runtime.rpartition(".")[2])): (judge, row)
            for judge in self.judges
            for row in judge.rows
            if row.ask is not None
        }
        names = {name for judge, row in asked.values() for name in _shard_names(judge, row)}
        names |= {ask.runtime for _, ask, _ in asked}
        return frozenset(word for name in names for word in _words(name)).union(_UNSPECIFIC)

    def _wrong(self, at: int, row: Row, answer: Answer, state: Verdicts) -> bool:
        """Whether a judge's decision contradicts how the module is stored, in a way that hurts in this engine."""
        if not contradicts(row.unit, answer):
            return False
        beside = self._beside(at, row, state) if self._leaves[at] else ()
        key = (id(row), at, answer.decision + answer.scheme, beside)
        if key not in self._judged:
            self._judged[key] = self._hurts(at, row, answer, beside)
        return self._judged[key]

    def _hurts(self, at: int, row: Row, answer: Answer, beside: tuple[str, ...]) -> bool:
        """Whether a decision keeps a module from loading, and a fault that strikes every decision alike does not."""
        found = self._mismatch(at, row, answer, beside)
        if found is None or found.fault is None or not row.unit.stored.plain:
            return found is not None
        listed = self._mismatch(at, row, Answer("plain", Cause()), beside)
        return listed is None or listed.fault is not found.fault

    def _mismatch(self, at: int, row: Row, answer: Answer, beside: tuple[str, ...]) -> Mismatch | None:
        return mismatch(self.world, self.judges[at], self._benches[at].value, row, answer, beside)

    def _beside(self, at: int, row: Row, state: Verdicts) -> tuple[str, ...]:
        """Of the leaves beside a module by which a judge's faults go, those that are decided plain."""
        leaves = self._leaves[at]
        if leaves and (at, id(state)) not in self._plain:  # a state lives as long as the solver
            self._plain[at, id(state)] = {
                name
                for answer, names in zip(state[at], self.members[at], strict=True)
                if answer.decision == "plain"
                for name in names
                if name.rpartition(".")[2] in leaves
            }
        head = row.unit.name.rpartition(".")[0]
        return tuple(leaf for leaf in leaves if f"{head}.{leaf}" in self._plain[at, id(state)])

    def _pairs(self, state: Verdicts) -> Iterator[tuple[int, Row, Answer]]:
        for at, (judge, answers) in enumerate(zip(self.judges, state, strict=True)):
            for row, answer in zip(judge.rows, answers, strict=True):
                yield at, row, answer

    def _faults(self, state: Verdicts) -> int:
        return sum(
            weight
            for at, (judge, answers, weights) in enumerate(zip(self.judges, state, self.weights, strict=True))
            if at not in self._ceded
            for row, answer, weight in zip(judge.rows, answers, weights, strict=True)
            if self._wrong(at, row, answer, state)
        )

    def _harmed(self, before: Verdicts, after: Verdicts) -> bool:
        """Whether anything that was right is wrong after a change, or anything not plain is newly taken for plain, or
        stopped on: the first shard of a fused module that is listed does that, and the second makes it plain.

        What a draft got right by accident, under names that are the target's (`colliding`), may become wrong: a plain
        module that was taken for plain.
        """
        harmed = (
            at
            for (at, row, old), (_, _, new) in zip(self._pairs(before), self._pairs(after), strict=True)
            if self._leaves[at] or old.decision != new.decision or old.scheme != new.scheme
            if (at not in self._ceded and self._wrong(at, row, new, after) and not self._wrong(at, row, old, before))
            or (not row.unit.stored.plain and _taken(old, new))
        )
        first = next(harmed, None)
        if first is not None:
            self._vetoes.add(id(self._benches[first]))
        return first is not None

    def _settled(self) -> bool:
        """Whether the newest release of every engine takes the list rightly as it is.

        Then what an older one lacks is that release's fault; the list is not rewritten in its words alone.
        """
        return bool(self.newest) and not any(
            self._wrong(at, row, answer, self.base)
            for at in self.newest
            for row, answer in zip(self.judges[at].rows, self.base[at], strict=True)
        )

    # -- entries that have to go -------------------------------------------------------------------------------

    def _gone(self, malformed: Callable[[str], bool]) -> tuple[int, ...]:
        """Places of entries that make a quantized module plain, break an engine, or can never match.

        Taking one out may bring another to light, so that this is asked until nothing new comes. A malformed entry
        goes only where it was meant for a module that is decided wrongly, and no engine makes sense of it.
        """
        missing = self._missing_names(self.base)
        cited = self._deciding(self.base)
        texts = {
            entry
            for _, entry in self._live
            if entry not in cited and malformed(entry) and any(means(entry, name) for name in missing)
        }
        self.told_apart = self.told_apart or self.alike.told_apart(texts)
        broken = self._breaking()
        patience = max(TURNS * SHORT // max(len(self.where.entries), SHORT), 2)
        named = set(cited)
        for turn in range(3 * patience):  # no list of a model's hides an entry behind as many others
            removed = (*broken, *_places(self.where, texts))
            new = self._bad(removed) - texts
            if not new:
                break
            named |= self._deciding(self._try(removed, ()))
            texts |= self._kin(new) if turn > patience else new
        return (*broken, *_places(self.where, texts - self._vain(removed, texts & named)))

    def _kin(self, texts: set[str]) -> set[str]:
        """Entries that differ from some in the number of an expert alone, since a list may name thousands one by one;
        and where one is no regular expression, all that are none."""
        kinds = {EXPERT_NUMBER.sub("", text) for text in texts}
        broken = any(is_broken(text) for text in texts)
        return {
            entry
            for entry in self.where.entries
            if EXPERT_NUMBER.sub("", entry) in kinds or (broken and is_broken(entry))
        }

    def _breaking(self) -> tuple[int, ...]:
        """Places of what is no text, where an engine stops on it: what it then decides may have to be listed."""
        broken = self.where.broken
        without = self._try(broken, ()) if broken else self.base
        goes_on = any(old.decision == "error" != new.decision for old, new in _differing(self.base, without))
        return broken if goes_on or self._faults(without) < self._faults(self.base) else ()

    def _vain(self, removed: tuple[int, ...], named: set[str]) -> set[str]:
        """Of entries that decide something those that go for nothing: every module that they made plain is built in a
        scheme that does not fit it.

        One that stays may be at fault for more once the others have gone: that is asked until no more are useful.
        """
        state, vain = self._try(removed, ()), named
        while vain:
            stays = set(_places(self.where, vain))
            useful = vain & self._useful(self._try((at for at in removed if at not in stays), ()), state)
            if not useful:
                break
            vain = vain - useful
        return vain

    def _useful(self, kept: Verdicts, state: Verdicts) -> set[str]:
        """Entries without which a module fits that does not with them, or an engine does not stop on."""
        return {
            entry
            for (at, row, old), (_, _, new) in zip(self._pairs(kept), self._pairs(state), strict=True)
            for entry in _cited(self.judges[at], row, old)
            if old.decision != "plain" or row.unit.stored.plain or not self._misfits(at, row, new, state)
        }

    def _deciding(self, state: Verdicts) -> frozenset[str]:
        """The entries that decide anything in any engine."""
        pairs = self._pairs(state)
        return frozenset(entry for at, row, answer in pairs for entry in _cited(self.judges[at], row, answer))

    def _misfits(self, at: int, row: Row, answer: Answer, state: Verdicts) -> bool:
        return self._mismatch(at, row, answer, self._beside(at, row, state)) is not None

    def _bad(self, removed: tuple[int, ...]) -> set[str]:
        """Entries that are at fault once some are gone; where one shard's entry goes, those of the others go too."""
        found: set[str] = set()
        state = self._try(removed, ())
        for at, (judge, answers) in enumerate(zip(self.judges, state, strict=True)):
            for row, answer, first, names in zip(judge.rows, answers, self.base[at], self.members[at], strict=True):
                if not self._wrong(at, row, answer, state):
                    continue
                self._alone(row)
                if answer.error == "re.error" or (answer.decision == "plain" and answer.cause.pointer):
                    found.add(answer.cause.entry)
                elif answer.decision == "error" and (first.decision != "error" or self._all_quantized(judge, row)):
                    found.update(self._shard_entries(at, _shards(judge, row, names), removed))
        return found & set(self.where.entries)

    def _alone(self, row: Row) -> None:
        """Notes that what follows holds for one unit and not for those that it stands for."""
        self.told_apart = self.told_apart or bool(row.others)

    def _all_quantized(self, judge: Judge, row: Row) -> bool:
        """Whether every shard of the fused module that a row asks for is stored quantized."""
        asked = row.ask.runtime if row.ask else ""
        same = [other for other in judge.rows if other.ask is not None and other.ask.runtime == asked]
        return all(other.unit.stored.quantized for other in same)

    def _shard_entries(self, at: int, shards: Iterable[str], removed: tuple[int, ...]) -> set[str]:
        """Entries that name some shards of a fused module."""
        judge, bench = self.judges[at], self._benches[at]
        if (id(bench), removed) not in self._without:
            self._without[id(bench), removed] = rewritten(bench.value, bench.where, removed, ()), {}
        if (at, removed) not in self._matchers:
            self._matchers[at, removed] = judge.engine.matcher(
                judge.query(self.world, *self._without[id(bench), removed])
            )
        matcher = self._matchers[at, removed]
        answers = [matcher.decide(name, "linear") for name in shards]
        return {answer.cause.entry for answer in answers if answer.decision == "plain" and answer.cause.pointer}

    # -- entries that have to come -----------------------------------------------------------------------------

    def _entries(self, added: Iterable[Added]) -> list[str]:
        return [item.entry for item in added]

    def _faithful(self, removed: tuple[int, ...], found: tuple[Added, ...]) -> tuple[Added, ...]:
        """What was found, and the checkpoint's own spelling of every plain module that some engine would quantize."""
        gone, entries = set(removed), self._entries(found)
        listed = zip(self.where.places, self.where.entries, strict=True)
        kept = (*(entry for place, entry in listed if place not in gone), *entries)
        state = self._try(removed, entries)
        wanted, halved = self._missing_names(state), self._halved(state)
        choices = self._choices(kept, wanted, halved)
        while exposed := self._exposed(removed, entries, choices) - wanted:
            wanted |= exposed
            choices = self._choices(kept, wanted, halved)
        if not choices:
            return found
        added = self._accepted(removed, found, choices)
        wider = self._accepted(removed, added, self._wider(removed, added, kept))
        whole = self._outgrown(removed, wider, wider[len(added) :])
        return self._completed(removed, self._smaller(removed, whole, kept), kept)

    def _choices(
        self, kept: tuple[str, ...], wanted: set[str], halved: set[str], depth: int = 0
    ) -> list[tuple[tuple[Added, ...], ...]]:
        """What is to be spelled, each with its alternatives; subtrees from a number of dots in their name on."""
        if not wanted:
            return []
        covered, held = self._covered_by(kept), frozenset(kept)

        def exactly(name: str) -> bool:
            return name in held or not held.isdisjoint(self.fmt.spellings(name, "leaf", kept)[:1])

        def leaf(unit: Unit, name: str) -> Leaf:
            return self._leaf(unit, name, exactly if unit.name in halved else covered, wanted)

        leaves = merged(leaf(unit, unit.name) for unit in self.world.units)
        nodes = [node for part in PARTS for node in self._nodes(leaves, part, depth)]
        bare = merged(leaf(unit, name) for unit, name in self._stripped())
        return [
            *(self._spelled(node, "faithful", kept) for node in nodes),
            *(self._spelled(node, "stripped", kept) for node in self._nodes(bare, "draft", depth)),
        ]

    def _covered_by(self, kept: tuple[str, ...]) -> Coverage:
        """What some entries cover in the format's own reading; the last answer is kept, as one list is asked often."""
        if self._coverage is None or self._coverage[0] != kept:
            self._coverage = kept, Coverage(self.fmt, self._without_doubles(kept))
        return self._coverage[1]

    def _completed(
        self, removed: tuple[int, ...], added: tuple[Added, ...], kept: tuple[str, ...]
    ) -> tuple[Added, ...]:
        """The entries with shards by their own names where an engine still stops: a subtree is not enough for it."""
        state = self._try(removed, self._entries(added))
        halved = self._halved(state)
        if not halved:
            return added
        choices = self._choices((*kept, *self._entries(added)), halved, halved)
        found = self._accepted(removed, added, choices)
        return found if self._faults(self._try(removed, self._entries(found))) < self._faults(state) else added

    def _halved(self, state: Verdicts) -> set[str]:
        """Units that an engine stops on: the list names some shards of their fused module, and a glob is not enough."""
        return {
            name
            for judge, answers, members in zip(self.judges, state, self.members, strict=True)
            for row, answer, names in zip(judge.rows, answers, members, strict=True)
            if _halves(answer) and row.unit.stored.plain
            for name in names
        }

    def _wider(
        self, removed: tuple[int, ...], added: tuple[Added, ...], kept: tuple[str, ...]
    ) -> list[tuple[tuple[Added, ...], ...]]:
        """Subtrees around what could not be listed by itself, though parts of them are covered.

        SGLang takes some leaves of latent attention for those of every layer.
        """
        covered, more = self._covered_by(kept), Coverage(self.fmt, self._entries(added))
        still = self._missing_names(self._try(removed, self._entries(added)))
        stuck = {name for name in still if not (covered(name) or more(name))}
        nothing = frozenset[str]().__contains__
        leaves = merged(self._leaf(unit, unit.name, nothing, stuck) for unit in self.world.units) if stuck else []
        return [self._spelled(node, "faithful", kept) for part in PARTS for node in self._nodes(leaves, part)]

    def _smaller(self, removed: tuple[int, ...], added: tuple[Added, ...], kept: tuple[str, ...]) -> tuple[Added, ...]:
        """The entries with smaller subtrees and single names, where one that holds them all cannot come: an engine asks
        by such a name for what is stored elsewhere, quantized (vLLM's `shared_head.head` for `lm_head`)."""
        for depth in _LEVELS:
            still = self._missing_names(self._try(removed, self._entries(added)))
            choices = self._choices((*kept, *self._entries(added)), still, set(), depth)
            if not choices or self._spent > MOST_DECISIONS // 2:
                break
            added = self._accepted(removed, added, choices)
        return added

    def _exposed(
        self, removed: tuple[int, ...], entries: Sequence[str], choices: Sequence[tuple[tuple[Added, ...], ...]]
    ) -> set[str]:
        """Units that a list's first entries leave missing: without a list vLLM finds AWQ's plain modules by itself.

        So it does with a list of which everything goes.
        """
        if not choices or not set(self.where.places).issubset(removed):
            return set()
        firsts = [item.entry for choice in choices if choice for item in choice[0]]
        return self._missing_names(self._try(removed, [*entries, *firsts]))

    def _stripped(self) -> Iterator[tuple[Unit, str]]:
        """The units under the draft's wrapper, with their names without it; the target's are there to be kept apart."""
        wrapper = self.world.family.wrapper if self.world.family else None
        if wrapper:
            for unit in self.world.units:
                if unit.name.startswith(wrapper[0]):
                    yield unit, wrapper[1] + unit.name.removeprefix(wrapper[0])

    def _missing_names(self, state: Verdicts) -> set[str]:
        """Units that are stored plain and that some judge would not build plain."""
        if id(state) not in self._missed:
            found: set[str] = set()
            for at, (judge, answers, members) in enumerate(zip(self.judges, state, self.members, strict=True)):
                for row, answer, names in zip(judge.rows, answers, members, strict=True):
                    if self._missing(at, row, answer, state):
                        found.update(names)
            self._missed[id(state)] = state, frozenset(found)  # a state lives as long as its id counts
        return set(self._missed[id(state)][1])

    def _missing(self, at: int, row: Row, answer: Answer, state: Verdicts) -> bool:
        return answer.decision != "plain" and row.unit.stored.plain and self._wrong(at, row, answer, state)

    def _mended(self, start: Verdicts, final: Verdicts) -> set[str]:
        """Units that some judge would not build plain before and does after."""
        found: set[str] = set()
        for at, (judge, old, new, members) in enumerate(zip(self.judges, start, final, self.members, strict=True)):
            for row, before, after, names in zip(judge.rows, old, new, members, strict=True):
                if self._missing(at, row, before, start) and not self._missing(at, row, after, final):
                    found.update(names)
        return found

    def _outgrown(
        self, removed: tuple[int, ...], added: tuple[Added, ...], wider: tuple[Added, ...]
    ) -> tuple[Added, ...]:
        """The entries without those that a wider one has made idle; listed alone, single shards of it do harm."""
        state = self._try(removed, self._entries(added))
        inside = tuple(
            item for item in added if any(item.node.startswith(f"{node.node}.") for node in wider if node is not item)
        )
        fewer = tuple(item for item in added if item not in inside)
        after = self._try(removed, self._entries(fewer))
        return fewer if inside and not self._harmed(state, after) else added

    def _leaf(self, unit: Unit, name: str, covers: Callable[[str], bool], wanted: set[str]) -> Leaf:
        node, reach = holder(name)
        part: Part = "draft" if unit.draft else "target"
        covered = unit.stored.plain and covers(name)
        return Leaf(node, reach, part, not unit.stored.plain, covered, unit.name in wanted and not covered)

    def _nodes(self, leaves: list[Leaf], part: Part, depth: int = 0) -> Iterator[Leaf]:
        """What stands for the wanted leaves of a part; subtrees from a number of dots in their name on."""
        if not any(leaf.wanted and leaf.part == part for leaf in leaves):
            return

        def allowed(prefix: str, below: Sequence[Leaf]) -> bool:
            if any(leaf.part != part for leaf in below) or not self.fmt.spellings(prefix, "below", ()):
                return False
            if prefix.count(".") < depth:
                return False
            numbered = any(step.isdecimal() for step in prefix.split("."))
            if part == "draft":
                return bool(prefix) and (numbered or self.fmt.container())
            last = prefix.rpartition(".")[2]
            return self.fmt.name == "modelopt" and numbered and not last.isdecimal() and len(below) > 1

        yield from (node for node in summarised(leaves, allowed) if node.part == part)

    def _spelled(self, node: Leaf, role: Role, kept: tuple[str, ...]) -> tuple[tuple[Added, ...], ...]:
        """A node's alternatives, best first; each is a set of entries that come together."""
        entries = self.fmt.spellings(node.name, node.reach, kept)
        return tuple((Added(entry, role, node.name, node.part),) for entry in entries)

    def _accepted(
        self,
        removed: tuple[int, ...],
        added: tuple[Added, ...],
        choices: Sequence[tuple[tuple[Added, ...], ...]],
    ) -> tuple[Added, ...]:
        """Takes the first alternative of each choice that harms nothing: all first ones at once where that is sound,
        else those of one half and then of the other."""
        start = self._try(removed, self._entries(added))
        for items in _together(choices):
            trial = (*added, *items)
            if not self._harmed(start, self._try(removed, self._entries(trial))):
                return trial
        if len(choices) < 2:
            return added
        middle = len(choices) // 2
        return self._accepted(removed, self._accepted(removed, added, choices[:middle]), choices[middle:])

    def _aliases(self, removed: tuple[int, ...], added: tuple[Added, ...]) -> tuple[Added, ...]:
        """Engines' own names for what is still missing, one judge after the other, the newest releases first.

        A judge whose part would still not load with them gets none: half a repair is only noise in the list.
        """
        for at in sorted(range(len(self.judges)), key=lambda at: at not in self.newest):
            state = self._try(removed, self._entries(added))
            if self._short(at, state) and not self._collides(at, state):
                trial, after = self._aliased(removed, added, at, state)
                fits = not self._short(at, after) and self._fits(at, after)
                added = trial if fits else added
        return added

    def _owned(self, removed: tuple[int, ...], added: tuple[Added, ...]) -> tuple[Added, ...]:
        """The entries, and those for what others mend alone, where the checkpoint's own names do no harm any more.

        A shard's name may do harm as long as another's is not there.
        """
        if all(item.role == "faithful" for item in added):
            return added
        mended = self._mended(self._try(removed, ()), self._try(removed, self._entries(added)))
        listed = zip(self.where.places, self.where.entries, strict=True)
        kept = tuple(entry for place, entry in listed if place not in removed)
        for depth in (0, *_LEVELS):
            choices = self._choices((*kept, *self._entries(added)), mended, set(), depth)
            if not choices or self._spent > MOST_DECISIONS // 2:
                break
            added = self._accepted(removed, added, choices)
        return added

    def _short(self, at: int, state: Verdicts) -> bool:
        """Whether a judge would still build something quantized that is stored plain."""
        rows = zip(self.judges[at].rows, state[at], strict=True)
        return any(
            (answer.decision == "quantized" or _halves(answer)) and self._missing(at, row, answer, state)
            for row, answer in rows
        )

    def _fits(self, at: int, state: Verdicts) -> bool:
        """Whether what a judge builds quantized fits what is stored: names do not mend another scheme."""
        return not any(
            answer.decision == "quantized" and row.unit.stored.quantized and self._misfits(at, row, answer, state)
            for row, answer in zip(self.judges[at].rows, state[at], strict=True)
        )

    def _collides(self, at: int, state: Verdicts) -> bool:
        """Whether a module that is missing shares its runtime name with one that is stored otherwise: nothing helps."""
        judge = self.judges[at]
        taken = {
            row.ask.runtime
            for other in self.judges
            if other.profile == judge.profile
            for row in other.rows
            if row.ask is not None and row.ask.layer in LIST_LAYERS and not row.unit.stored.plain
        }
        rows = zip(judge.rows, state[at], strict=True)
        return any(
            row.ask is not None and row.ask.runtime in taken and self._missing(at, row, answer, state)
            for row, answer in rows
        )

    def _aliased(
        self, removed: tuple[int, ...], added: tuple[Added, ...], at: int, state: Verdicts
    ) -> tuple[tuple[Added, ...], Verdicts]:
        """The entries with every alias that helps one judge and harms nothing, and what is decided with them."""
        for offered in (self._runtime_choices, self._completions):
            for choice in offered(at, state):
                for items in choice:
                    trial = (*added, *items)
                    after = self._try(removed, self._entries(trial))
                    if not self._harmed(state, after) and self._faults(after) < self._faults(state):
                        added, state = trial, after
                        break
        return added, state

    def _runtime_choices(self, at: int, state: Verdicts) -> Iterator[list[tuple[Added, ...]]]:
        """The spellings of a judge's own nodes, best first."""
        engine = self.judges[at].engine.name
        for node in self._runtime_nodes(at, state):
            entries = self.fmt.aliases(node.name, node.reach)
            yield [(Added(entry, "alias", node.name, node.part, engine),) for entry in entries]

    def _completions(self, at: int, state: Verdicts) -> Iterator[list[tuple[Added, ...]]]:
        """All shards of a fused module, the ones that are not stored too: the list names some of them, or the engine
        takes each by its whole name alone (SGLang's MXFP8). The fused name comes along where others need it."""
        judge = self.judges[at]
        part, engine = judge.part, judge.engine.name
        for row, answer, names in zip(judge.rows, state[at], self.members[at], strict=True):
            if row.ask is None or not self._missing(at, row, answer, state):
                continue
            shards: tuple[str, ...] = ()
            if row.ask.layer == "linear" or _halves(answer):
                shards = _shards(judge, row, names)
            if shards and self.fmt.aliases(shards[0], "leaf"):
                self._alone(row)
                named = [tuple(Added(self.fmt.aliases(name, "leaf")[0], "alias", name, part, engine) for name in group)
                         for group in (shards, (*shards, row.ask.runtime))]  # fmt: skip
                yield named

    def _runtime_nodes(self, at: int, state: Verdicts) -> Iterator[Leaf]:
        """The nodes of a judge's own names that are missing: whole subtrees first, then what is in them.

        Then come subtrees of which a part is covered: where shards are asked one by one, they alone say all. Last come
        lower ones, for names whose root means more to an engine than the part it begins.
        """
        judge = self.judges[at]
        asked = [(row, answer) for row, answer in zip(judge.rows, state[at], strict=True)
                 if row.ask is not None and row.ask.layer in LIST_LAYERS]  # fmt: skip
        wanted = [self._missing(at, row, answer, state) for row, answer in asked]
        if not any(wanted):
            return
        found = [
            (one, self._runtime_leaf(judge, one, row, answer, missing))
            for (row, answer), missing in zip(asked, wanted, strict=True)
            for one in row.each()
        ]
        leaves = [leaf for _, leaf in sorted(found, key=lambda pair: self.world.place[pair[0].unit.name])]
        others = self._other_names(judge)

        def allowed(prefix: str, below: Sequence[Leaf]) -> bool:
            return bool(prefix) and not any(name == prefix or name.startswith(f"{prefix}.") for name in others)

        yield from summarised(leaves, allowed)
        yield from (leaf for leaf in leaves if leaf.wanted)
        bare = [replace(leaf, covered=False) for leaf in leaves]
        yield from summarised(bare, allowed)
        for depth in _DEPTHS:

            def lower(prefix: str, below: Sequence[Leaf], depth: int = depth) -> bool:
                return prefix.count(".") >= depth and allowed(prefix, below)

            yield from summarised(bare, lower)

    def _runtime_leaf(self, judge: Judge, one: Row, row: Row, answer: Answer, missing: bool) -> Leaf:
        """The leaf of one of the units that a row stands for."""
        assert one.ask is not None
        reach: Reach = "experts" if one.ask.layer == "moe" else "leaf"
        right = answer.decision == "plain" and bool(answer.cause.pointer)
        return Leaf(one.ask.runtime, reach, judge.part, not row.unit.stored.plain, right, missing)

    def _other_names(self, judge: Judge) -> set[str]:
        """Names that the other part of the same engine profile asks for, without the dot that some leave in front."""
        return {
            row.ask.runtime.removeprefix(".")
            for other in self.judges
            if other.profile == judge.profile and other.part != judge.part
            for row in other.every(self.world)
            if row.ask is not None
        }

    # -- what can be left out ----------------------------------------------------------------------------------

    def _pruned(self, removed: tuple[int, ...], added: tuple[Added, ...]) -> tuple[Added, ...]:
        """Drops doubles, what the list has already, and every alias that nothing needs, the last one added first."""
        held = self._held(removed)
        added = tuple({item.entry: item for item in reversed(added) if item.entry not in held}.values())[::-1]
        faults = self._faults(self._try(removed, self._entries(added)))
        for item in reversed([item for item in added if item.role == "alias"]):
            fewer = tuple(other for other in added if other is not item)
            if self._faults(self._try(removed, self._entries(fewer))) <= faults:
                added = fewer
        mended = self._mended(self._try(removed, ()), self._try(removed, self._entries(added)))
        return tuple(
            item
            for item in added
            if item.role == "alias" or self._serves(item, mended) or self._guards(item, removed, added)
        )

    def _held(self, removed: tuple[int, ...]) -> frozenset[str]:
        """The entries that stay in the list; none of a table, in which a member may come first or get another word."""
        listed = zip(self.where.places, self.where.entries, strict=True)
        return frozenset(entry for place, entry in listed if place not in removed and not self.where.keyed)

    def _guards(self, item: Added, removed: tuple[int, ...], added: tuple[Added, ...]) -> bool:
        """Whether without an entry the others would leave something wrong that was right."""
        fewer = self._entries(other for other in added if other is not item)
        return self._harmed(self._try(removed, self._entries(added)), self._try(removed, fewer))

    def _serves(self, item: Added, mended: set[str]) -> bool:
        """Whether a faithful or stripped entry stands for something that the change mends in some engine."""
        wrapper = self.world.family.wrapper if self.world.family else None
        node = item.node
        if item.role == "stripped" and wrapper:
            node = wrapper[0] + node.removeprefix(wrapper[1])
        return any(name == node or name.startswith(f"{node}.") for name in mended)

    def _cancelled(
        self, removed: tuple[int, ...], added: tuple[Added, ...]
    ) -> tuple[tuple[int, ...], tuple[Added, ...]]:
        """An entry that goes and comes again stays where it is."""
        listed = zip(self.where.places, self.where.entries, strict=True)
        place_of = {entry: place for place, entry in listed if place in removed}
        back = {item.entry for item in added} & place_of.keys()
        stays = {place_of[entry] for entry in back}
        return tuple(place for place in removed if place not in stays), tuple(
            item for item in added if item.entry not in back
        )


def _differing(one: Verdicts, other: Verdicts) -> Iterator[tuple[Answer, Answer]]:
    """The answers that are not the same under two lists."""
    for old, new in zip(one, other, strict=True):
        yield from (pair for pair in zip(old, new, strict=True) if pair[0] != pair[1])


def _words(text: str) -> Iterator[str]:
    """The words and numbers between dots and stars; an expert's number is left out."""
    if "*" not in text:
        steps = text.split(".")
        yield from (
            step for before, step in zip(["", *steps], steps, strict=False) if step and before[-7:] != "experts"
        )
        return
    for found in _WORD.finditer(text):
        if not text.endswith("experts.", 0, found.start()):
            yield found[0]


def _has_only(known: frozenset[str], text: str) -> bool:
    """Whether all words and numbers of a text are known."""
    if "*" not in text and "experts." not in text:
        return known.issuperset(filter(None, text.split(".")))
    return known.issuperset(_words(text))


def _taken(old: Answer, new: Answer) -> bool:
    """Whether a module that is not stored plain is newly built plain, or stopped on.

    An engine that stopped on the shards of a fused module told of it at least; what is then plain by an entry is not.
    """
    if old.decision == "error":
        return new.decision == "plain" and bool(new.cause.pointer) and "shards of" in old.cause.rule
    return old.decision == "quantized" != new.decision


def _halves(answer: Answer) -> bool:
    """Whether an engine stops since an entry names some shards of a fused module."""
    return answer.decision == "error" and "not all shards" in answer.cause.rule


def _cited(judge: Judge, row: Row, answer: Answer) -> Iterator[str]:
    """The entry that decided, and the same entry for the other shards of a fused module."""
    entry = answer.cause.entry
    yield entry
    shards = judge.packed.get(row.ask.runtime.rpartition(".")[2], ()) if row.ask and entry else ()
    for shard in shards:
        if shard in entry:
            yield from (entry.replace(shard, other) for other in shards)


def colliding(benches: Iterable[Bench]) -> set[tuple[object, int]]:
    """Draft judges (signature and bench) that ask for a plain module by the name of a target's quantized one.

    No list can make such a draft load: an entry that it needs takes the target's module along, and the target has
    the name. One release of a signature that has no such name is enough to leave its judges out.
    """
    found: dict[tuple[object, int], bool] = {}
    known: dict[tuple[int, str], frozenset[str]] = {}

    def names(rows: Sequence[Row], kind: str) -> frozenset[str]:
        at = (id(rows), kind)
        if at not in known:
            known[at] = _names(rows, kind)
        return known[at]

    for bench in benches:
        targets = {judge.profile: judge.rows for judge in bench.judges if judge.part == "target"}
        for judge in bench.judges:
            if judge.part == "draft" and judge.view and not judge.method.error:
                at = (judge.signature, id(bench))
                taken = names(targets.get(judge.profile, ()), "quantized")
                found[at] = found.get(at, True) and not taken.isdisjoint(names(judge.rows, "plain"))
    return {at for at, hit in found.items() if hit}


def _names(rows: Sequence[Row], kind: str) -> frozenset[str]:
    """The names by which rows ask for modules of one kind of storage, where no class decides by itself."""
    return frozenset(
        row.ask.runtime
        for row in rows
        if row.ask is not None and row.ask.layer in LIST_LAYERS and not row.specials
        and row.unit.stored.scheme.kind == kind
    )  # fmt: skip


def _shard_names(judge: Judge, row: Row) -> Iterator[str]:
    """The names that a fused module's shards would be asked by: of a fused linear, or of a stack of experts."""
    assert row.ask is not None
    runtime = row.ask.runtime
    if row.ask.layer == "moe":
        for number in row.unit.stored.experts:
            yield from (f"{runtime}.{number}.{name}" for name in row.ask.projections or EXPERT_PROJECTIONS)
        return
    fused = runtime.rpartition(".")[2]
    yield from (runtime.removesuffix(fused) + shard for shard in judge.packed.get(fused, ()))


def _together(choices: Sequence[tuple[tuple[Added, ...], ...]]) -> Iterator[tuple[Added, ...]]:
    """What may come of some choices at once: the first alternatives of many, every one of a single one."""
    if len(choices) == 1:
        yield from choices[0]
    else:
        yield tuple(item for choice in choices if choice for item in choice[0])


def _shards(judge: Judge, row: Row, names: Iterable[str]) -> tuple[str, ...]:
    """The names of a fused module's shards: those that the class tells, or those that an engine knows by itself."""
    assert row.ask is not None
    return tuple(_shard_names(judge, row)) or _named_alike(row.ask.runtime, names)


def _named_alike(runtime: str, names: Iterable[str]) -> tuple[str, ...]:
    """The names of modules that are fused into one, where the class tells no shards of it: SGLang knows some itself.

    A module that is stored fused is taken apart as engines do it.
    """
    head, _, fused = runtime.rpartition(".")
    leaves = tuple(dict.fromkeys(name.rpartition(".")[2] for name in names))
    return tuple(f"{head}.{leaf}" for leaf in (leaves if len(leaves) > 1 else KNOWN_SHARDS.get(fused, ())))


class _Compacted:
    """Judges with one row for each question; what many judges ask is looked at once, and stays one object."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, tuple[Row, ...], tuple[tuple[str, ...], ...], tuple[int, ...]]] = {}

    def of(self, judge: Judge) -> tuple[Judge, tuple[tuple[str, ...], ...], tuple[int, ...]]:
        """The judge, the names of the units that ask each question, and the place of its row."""
        at = id(judge.rows)
        if at not in self._known:
            rows, names = compact(judge.rows)
            place = {id(row): at for at, row in enumerate(judge.rows)}
            self._known[at] = judge.rows, rows, names, tuple(place[id(row)] for row in rows)
        _, rows, names, places = self._known[at]
        return replace(judge, rows=rows), names, places


def compact(rows: Iterable[Row]) -> tuple[tuple[Row, ...], tuple[tuple[str, ...], ...]]:
    """One row for each question, and the names of the units that ask it.

    Units that ask alike and are stored alike (the shards of a fused linear, the experts of a layer) are judged once.
    """
    seen: dict[tuple[Any, ...], Row] = {}
    names: dict[tuple[Any, ...], list[str]] = {}
    for row in rows:
        kind = row.unit.stored.scheme.kind
        if row.ask is not None:
            at = (row.ask, kind, tuple(map(id, row.specials)))
            seen.setdefault(at, row)
            names.setdefault(at, []).extend(row.names)
    return tuple(seen.values()), tuple(map(tuple, names.values()))


def holder(name: str) -> tuple[str, Reach]:
    """The name an entry would stand for: an expert's is that of all experts of its layer."""
    head, found, _ = name.partition(".experts.")
    return (f"{head}.experts", "experts") if found else (name, "leaf")


def merged(leaves: Iterable[Leaf]) -> list[Leaf]:
    """One leaf for each name."""
    found: dict[str, Leaf] = {}
    for leaf in leaves:
        old = found.get(leaf.name)
        found[leaf.name] = leaf if old is None else _joined(old, leaf)
    return list(found.values())


def summarised(leaves: Iterable[Leaf], allowed: Callable[[str, Sequence[Leaf]], bool]) -> Iterator[Leaf]:
    """The highest allowed nodes that hold nothing impure and more that is wanted than covered; leaves elsewhere."""
    yield from _below("", merged(leaves), 0, allowed)


def _joined(one: Leaf, other: Leaf) -> Leaf:
    return replace(
        one,
        impure=one.impure or other.impure,
        covered=one.covered and other.covered,
        wanted=one.wanted or other.wanted,
    )


def _below(
    prefix: str, leaves: list[Leaf], depth: int, allowed: Callable[[str, Sequence[Leaf]], bool]
) -> Iterator[Leaf]:
    wanted = [leaf for leaf in leaves if leaf.wanted]
    if not wanted:
        return
    clean = not any(leaf.impure for leaf in leaves) and sum(leaf.covered for leaf in leaves) < len(wanted)
    if clean and len(leaves) > 1 and allowed(prefix, leaves):
        yield Leaf(prefix, "below", wanted[0].part, False, False, True)
        return
    children: dict[str, list[Leaf]] = {}
    for leaf in leaves:
        steps = leaf.name.split(".")
        if len(steps) == depth + 1:
            if leaf.wanted and not leaf.impure:
                yield leaf
        else:
            children.setdefault(".".join(steps[: depth + 1]), []).append(leaf)
    for child, below in children.items():
        if len(below) == 1 and below[0].wanted and not below[0].impure:
            yield below[0]
        else:
            yield from _below(child, below, depth + 1, allowed)


def _places(where: ExclusionList, texts: set[str]) -> tuple[int, ...]:
    """Every place at which one of some entries stands."""
    return tuple(place for place, entry in zip(where.places, where.entries, strict=True) if entry in texts)
