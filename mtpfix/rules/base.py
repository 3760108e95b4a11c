"""What a rule is, and what it may look at.

A rule knows no engine and no format: it reads the decisions before and after the plan, already set against storage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from mtpfix import releases
from mtpfix.decisions import Judge, Table
from mtpfix.engines.sources import Fragment
from mtpfix.formats.base import Format
from mtpfix.frozen import dataclass, field
from mtpfix.model import Answer, Contrast, EngineRow, Finding, FixKind, Location, Part, Rename, Severity
from mtpfix.names import brief
from mtpfix.verdicts import LONGEST, Mismatch
from mtpfix.world import Unit, World

if TYPE_CHECKING:
    from mtpfix.rebuild import Rebuild
    from mtpfix.solving.solution import Solution

Key = tuple[str, tuple[str, ...], Part, str]


@dataclass(frozen=True, slots=True)
class Claim:
    """A mismatch that a rule answers for.

    fixed      the plan mends it
    entry      the entry at fault, if one is
    collision  a name that this engine asks for a module of this part and for another one that is stored otherwise
    beside     a file that this engine does not read, by which another engine builds the module as it is stored
    """

    mismatch: Mismatch
    fixed: bool
    location: Location | None = None
    entry: str = ""
    collision: str = ""
    beside: str = ""


@dataclass(frozen=True)
class Context:
    """Everything rules look at.

    claims   the mismatches by rule code (see claims.py)
    sidecar  what hf_quant_config.json decides wrongly and config.json decides rightly
    reindex  whether the index can be written again from the headers, or why not; None where it is in step
    renames  tensors that --unsafe-fixes gives the name that engines look for
    """

    world: World
    fmt: Format | None
    before: tuple[Table, ...]
    rows_before: tuple[EngineRow, ...]
    rows_after: tuple[EngineRow, ...]
    solutions: tuple[Solution, ...]
    claims: Mapping[str, Sequence[Claim]] = field(default_factory=dict)
    sidecar: tuple[Claim, ...] = ()
    reindex: Rebuild | None = None
    renames: tuple[Rename, ...] = ()

    def loads_somewhere(self, part: Part) -> bool:
        """Whether, after the plan, some engine's newest release loads a part."""
        return any(row.verdict == "loads" and row.latest and row.part == part for row in self.rows_after)

    def fragments(self) -> tuple[Fragment, ...]:
        """The quantization configs that some judge reads, each once."""
        seen = {
            (table.fragment.file, table.fragment.pointer): table.fragment for table in self.before if table.fragment
        }
        return tuple(seen.values())


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: code, name, kind (a letter of the design's table), its usual severity and fix, and its texts."""

    code: str
    name: str
    kind: str
    severity: Severity
    fix: FixKind
    summary: str
    explanation: str
    check: Callable[[Context], Iterable[Finding]]


def key_of(mismatch: Mismatch) -> Key:
    """What makes two mismatches the same before and after a plan."""
    judge = mismatch.judge
    return judge.engine.name, judge.profile.releases, judge.part, mismatch.row.unit.name


def spans(judges: Iterable[Judge]) -> tuple[str, ...]:
    """Profiles as release ranges: `vllm>=0.17,<0.25`. Neighbouring profiles are joined."""
    names: dict[str, set[str]] = {}
    for judge in judges:
        names.setdefault(judge.engine.name, set()).update(judge.profile.releases)
    return tuple(text for engine, found in names.items() for text in releases.ranges(engine, found))


def modules_of(claims: Iterable[Claim]) -> tuple[tuple[str, ...], int]:
    """The modules of some claims, each once, and how many they are with every expert counted."""
    units = {claim.mismatch.row.unit.name: claim.mismatch.row.unit for claim in claims}
    names = tuple(name for unit in units.values() for name in unit.members)
    return names, len(names)


def contrasts_of(claims: Iterable[Claim]) -> tuple[Contrast, ...]:
    """What is stored set against what is built, modules that share both in the same releases together."""
    seen: dict[tuple[str, str, str], tuple[Unit, dict[int, Judge]]] = {}
    for claim in claims:
        item = claim.mismatch
        unit, answer = item.row.unit, item.answer
        built = answer.scheme if answer.decision == "quantized" and answer.scheme else answer.decision
        key = unit.name, unit.stored.scheme.name, built
        seen.setdefault(key, (unit, {}))[1].setdefault(id(item.judge), item.judge)
    alike: dict[tuple[str, str, tuple[int, ...]], tuple[list[str], Iterable[Judge]]] = {}
    for (_, stored, built), (unit, found) in seen.items():
        alike.setdefault((stored, built, tuple(found)), ([], found.values()))[0].extend(unit.members)
    return tuple(
        Contrast(stored, built, spans(found), tuple(names)) for (stored, built, _), (names, found) in alike.items()
    )


def stored_as(claims: Iterable[Claim]) -> str:
    """The stored schemes of some claims, in words."""
    return ", ".join(sorted({claim.mismatch.row.unit.stored.scheme.name for claim in claims}))


def locations_of(claims: Iterable[Claim]) -> tuple[Location, ...]:
    """Where the entries at fault stand, each place once."""
    return tuple(dict.fromkeys(claim.location for claim in claims if claim.location))


def by_part(claims: Iterable[Claim]) -> Mapping[Part, list[Claim]]:
    """Claims by the part of the model that they are about, the draft first."""
    out: dict[Part, list[Claim]] = {}
    for claim in sorted(claims, key=lambda claim: claim.mismatch.judge.part):
        out.setdefault(claim.mismatch.judge.part, []).append(claim)
    return out


def by_state(claims: Iterable[Claim]) -> Iterator[tuple[Part, bool, list[Claim]]]:
    """Claims by part and by whether the plan mends them, the mended ones first."""
    for part, mine in by_part(claims).items():
        for fixed in (True, False):
            some = [claim for claim in mine if claim.fixed is fixed]
            if some:
                yield part, fixed, some


def finding(
    rule: str,
    claims: Sequence[Claim],
    message: str,
    *,
    hint: str = "",
    severity: Severity = "error",
    fix: FixKind = "none",
    locations: Sequence[Location] = (),
) -> Finding:
    """A finding about some claims of one part."""
    names, count = modules_of(claims)
    return Finding(
        rule=rule,
        severity=severity,
        fix=fix,
        message=brief(message, LONGEST),
        hint=hint,
        part=claims[0].mismatch.judge.part,
        engines=spans(claim.mismatch.judge for claim in claims),
        modules=names,
        module_count=count,
        locations=tuple(locations) or locations_of(claims),
        contrasts=contrasts_of(claims),
    )


def list_locations(context: Context) -> tuple[Location, ...]:
    """The exclusion lists that the plan changes, else those that engines read."""
    changed = [Location(item.fragment.file, item.fragment.pointer + item.where.pointer) for item in context.solutions
               if not item.empty]  # fmt: skip
    if changed or context.fmt is None:
        return tuple(changed)
    found = ((fragment, context.fmt.exclusions(fragment.value)) for fragment in context.fragments())
    return tuple(Location(fragment.file, fragment.pointer + where.pointer) for fragment, where in found if where)


def evidence(claim: Claim) -> str:
    """One module with what is stored against what the engine makes of it."""
    item = claim.mismatch
    stored = item.row.unit.stored
    shape = " × ".join(map(str, stored.shape)) or "scalar"
    makes = {"quantized": f"builds it {item.answer.scheme}", "plain": "builds it plain", "error": "stops on it"}
    built = makes.get(item.answer.decision, item.answer.decision)
    asked = item.row.ask.runtime if item.row.ask else ""
    as_name = f" (asked as {asked})" if asked and asked != stored.name else ""
    return f"{brief(stored.name)}: stored {stored.scheme.name} [{shape}], {item.judge.engine.name} {built}{as_name}"


def plural(count: int, noun: str) -> str:
    """`1 module`, `4 modules`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def workaround(context: Context, claims: Sequence[Claim]) -> str:
    """Releases that build a module in full precision by themselves, whatever the lists say, as a sentence; or ""."""
    names = {claim.mismatch.row.unit.name for claim in claims}
    special = [(table.judge, _special(context.world, table, names)) for table in context.before]
    found = {
        answer.cause.rule: judge
        for judge, answers in special
        for answer in answers
        if answer.decision == "plain" and answer.cause.rule
    }
    judges = [judge for judge, answers in special if any(answer.cause.rule in found for answer in answers)]
    if not found:
        return ""
    return f" Worked around in {', '.join(spans(judges))}: {next(iter(found))}."


def _special(world: World, table: Table, names: set[str]) -> list[Answer]:
    """The answers for some modules about which a model class may decide by itself."""
    rows = [row for row, _ in table.decided if row.specials and not names.isdisjoint(row.names)]
    decided = table.every(world, rows) if any(row.others for row in rows) else table.decided
    return [answer for row, answer in decided if row.specials and row.unit.name in names]


def way_out(context: Context, part: str) -> str:
    """Where a part loads as it is stored once the plan is applied, as advice."""
    good = [row for row in context.rows_after if row.part == part and row.verdict == "loads"]
    if not good:
        return f"no release that was looked at loads the {part} as it is stored"
    names: dict[str, set[str]] = {}
    for row in good:
        names.setdefault(row.engine, set()).update(row.releases)
    places = " and ".join(text for engine, found in names.items() for text in releases.ranges(engine, found))
    return f"the {part} loads in {places}"
