"""Tables for a person: decisions, tensors, rules, engines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from mtpfix import late
from mtpfix.frozen import dataclass
from mtpfix.model import DecisionRow, DecisionRows, Explanation, Reading
from mtpfix.names import beginning
from mtpfix.output import matrix
from mtpfix.output.base import (
    EngineFacts,
    Grafted,
    Page,
    Profile,
    Replayed,
    RuleList,
    RuleText,
    Symptom,
    TensorList,
    TensorRow,
)
from mtpfix.output.collapse import collapsed
from mtpfix.output.text import Cell, clean, listed, page_text, paint, paragraph, plural, table

_FEW = 3
_DECLARED = "vllm builds"  # what the config declares, as vLLM's newest modelled release takes it
_WILD = frozenset("*?[")
_PLAIN = frozenset({"bf16", "f16", "f32"})
_NEITHER = frozenset({"", "odd", "other"})
_DOTTED = late.pattern(r"\b[A-Za-z_]\w*(?:\.\w+){2,}\b(?=['\"`])")  # a name as a traceback quotes it
_OPENING = late.pattern(r"\s*-|\s{4}|[A-Z][a-z ]{0,15}: ")
_MARKS = {"error": ("✗", "red"), "absent": ("–", "dim"), "unknown": ("?", "dim")}


def span(first: str, last: str, page: Page) -> str:
    """`0.12.0–0.24.0`, or the release where it is only one."""
    return first if first == last else f"{first}{'–' if page.unicode else '-'}{last}"


def spans(runs: Iterable[tuple[str, str]], page: Page) -> str:
    """Several ranges of releases."""
    return ", ".join(span(first, last, page) for first, last in runs)


@dataclass(frozen=True, slots=True)
class _Decided:
    """A decision that a range of releases shares; everything of it but the runtime name."""

    part: str
    engine: str
    releases: tuple[tuple[str, str], ...]
    decision: str
    scheme: str
    cause: str


def explain_text(found: Explanation, page: Page) -> str:
    """How names were understood, unless they are modules'; then for each module: engine, releases, decision, runtime
    name, what decided. Modules decided alike are one block."""
    told = [words for reading in found.readings if (words := _reading(reading))]
    head = [line for words in told for line in paragraph(words, page, hanging="  ")]
    if found.reason:
        head += paragraph(f"Nothing is known of what engines decide: {found.reason}.", page)
    blocks = [*([head] if head else []), *_blocks(found.rows, page)]
    return page_text(line for at, block in enumerate(blocks) for line in ([""] if at else []) + block)


def _reading(reading: Reading) -> str:
    """How a name was understood, as a sentence; "" where it is plainly a module's."""
    modules, engines = [group.pattern for group in collapsed(reading.modules)], listed(reading.engines)
    few = listed(modules) if len(modules) <= _FEW else plural(len(reading.modules), "module")
    looks = "looks" if len(reading.engines) == 1 else "look"
    return {
        "module": "",
        "tensor": f"{reading.asked}: {'tensors' if _WILD & set(reading.asked) else 'a tensor'} of {few}",
        "runtime-name": f"{reading.asked}: the name that {engines} {looks} up for {few}",
        "holder": f"{reading.asked}: a path with {plural(len(reading.modules), 'module')} below it",
        "parameter": f"{reading.asked}: no tensor of this name is stored; it would be a parameter of {few}",
        "namesake": f"{reading.asked}: {engines} {looks} up this name for {few} too",
    }[reading.kind]


def _blocks(rows: Sequence[DecisionRow], page: Page) -> list[list[str]]:
    modules = dict(rows.told) if isinstance(rows, DecisionRows) else _by_module(rows)
    different = [row for own in {id(own): own for own in modules.values()}.values() for row in own]
    engines = dict.fromkeys(row.engine for row in different)
    known = {engine: matrix.releases(row for row in different if row.engine == engine) for engine in engines}
    alike: dict[tuple[str, tuple[_Decided, ...]], dict[str, tuple[str, ...]]] = {}
    made: dict[int, list[tuple[_Decided, str]]] = {}
    for module, own in modules.items():
        if own and id(own) not in made:  # what was told is held by its module
            made[id(own)] = _decided(own, known)
        decided = made.get(id(own), [])
        if decided:
            alike.setdefault((own[0].stored, tuple(one for one, _ in decided)), {})[module] = tuple(
                name for _, name in decided
            )
    return [_block(stored, decided, names, page) for (stored, decided), names in alike.items()]


def _by_module(rows: Iterable[DecisionRow]) -> Mapping[str, Sequence[DecisionRow]]:
    modules: dict[str, list[DecisionRow]] = {}
    for row in rows:
        modules.setdefault(row.module, []).append(row)
    return modules


def _decided(rows: Sequence[DecisionRow], known: Mapping[str, Sequence[str]]) -> list[tuple[_Decided, str]]:
    """The decisions on one module and the runtime name of each; equal ones are one."""
    groups: dict[tuple[str, str, str, str, str, str], list[DecisionRow]] = {}
    for row in rows:
        same = (row.part, row.engine, row.decision, row.scheme, _cause(row), row.runtime_name)
        groups.setdefault(same, []).append(row)
    found = [
        (_Decided(part, engine, matrix.spans(matrix.releases(own), known[engine]), decision, scheme, cause), name)
        for (part, engine, decision, scheme, cause, name), own in groups.items()
    ]
    order = list(known)
    return sorted(found, key=lambda one: (order.index(one[0].engine), one[0].part != "target"))


def _cause(row: DecisionRow) -> str:
    return f'{row.file} {row.pointer} "{row.entry}"' if row.file else row.rule


def _block(stored: str, decided: Sequence[_Decided], names: Mapping[str, Sequence[str]], page: Page) -> list[str]:
    """A set of modules and a table of what the engines decide about them."""
    lines = [paint(line, page, "bold") for line in _patterns(names, page)]
    parts = list(dict.fromkeys(one.part for one in decided))
    lines += paragraph(f"{listed(parts)}, stored {stored}", page, "  ")
    rows: list[list[Cell]] = []
    for at, one in enumerate(decided):
        runtime = ", ".join(group.pattern for group in collapsed(own[at] for own in names.values()))
        head = [Cell(clean(one.engine, page), ("bold",)), Cell(clean(spans(one.releases, page), page))]
        head += [Cell(one.part)] if len(parts) > 1 else []
        rows.append([*head, _decision_cell(one, stored, page), Cell(clean(runtime or "(no name)", page))])
        rows.append([*[Cell("")] * (len(head) + 1), Cell(clean(one.cause, page), ("dim",))])
    return lines + table(rows, page)


def _decision_cell(one: _Decided, stored: str, page: Page) -> Cell:
    """The decision, marked where it is right or wrong for what is stored."""
    what = f"{one.decision} {one.scheme}".rstrip() if one.decision == "quantized" else one.decision
    mark, style = _MARKS.get(one.decision, ("", ""))
    if not mark and stored not in _NEITHER:
        right = one.decision == ("plain" if stored in _PLAIN else "quantized")
        mark, style = ("✓", "green") if right else ("✗", "red")
    return Cell(clean(f"{mark} {what}".lstrip(), page), (style,) if style else ())


def _patterns(names: Iterable[str], page: Page) -> list[str]:
    """Names in brace form, a line or more for each."""
    lines = []
    for group in collapsed(names):
        times = f" ×{group.size:,}" if group.size > 1 else ""
        lines += paragraph(group.pattern + times, page, hanging="  ")
    return lines


def tensors_text(listing: TensorList, page: Page) -> str:
    """The draft's tensors, those of one kind as one row unless every tensor is asked for."""
    if not listing.rows:
        return ""
    rows = _every_tensor(listing.rows, page) if listing.every else _tensor_kinds(listing.rows, page)
    shards = list(dict.fromkeys(row.shard for row in listing.rows))
    where = shards[0] if len(shards) == 1 else plural(len(shards), "shard")
    title = paragraph(f"{plural(len(listing.rows), 'draft tensor')} in {where}", page)
    return page_text([*(paint(line, page, "bold") for line in title), *table(rows, page)])


def _head(*titles: str) -> list[Cell]:
    return [Cell(title, ("dim",)) for title in titles]


def _every_tensor(rows: Sequence[TensorRow], page: Page) -> list[list[Cell]]:
    out = [_head("tensor", "dtype", "shape", "stored", _DECLARED, "shard")]
    for row in rows:
        texts = (row.name, row.dtype, shape(row.shape), row.stored)
        declared = _declared_cell(row.declared, row.stored, page)
        out.append([*(Cell(clean(text, page)) for text in texts), declared, Cell(clean(row.shard, page))])
    return out


def _declared_cell(declared: str, stored: str, page: Page) -> Cell:
    """What is declared of a tensor's module, marked where it is not what is stored."""
    known = declared in ("plain", "quantized") and stored not in _NEITHER
    if known and declared != ("plain" if stored in _PLAIN else "quantized"):
        return Cell(clean(f"✗ {declared}", page), ("red",))
    return Cell(clean(declared, page))


def _tensor_kinds(rows: Sequence[TensorRow], page: Page) -> list[list[Cell]]:
    kinds: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        kinds.setdefault((row.dtype, shape(row.shape), row.stored, row.declared), []).append(row.name)
    out = [_head("tensor", "dtype", "shape", "stored", _DECLARED)]
    for line in _grouped(kinds, page):
        *others, stored, declared = line
        out.append([*others, stored, _declared_cell(declared.text, stored.text, page)])
    return out


def _grouped(kinds: Mapping[tuple[str, ...], Sequence[str]], page: Page) -> list[list[Cell]]:
    out = []
    for kind, names in kinds.items():
        for group in collapsed(names):
            times = f" ×{group.size:,}" if group.size > 1 else ""
            out.append([Cell(clean(text, page)) for text in (group.pattern + times, *kind)])
    return out


def graft_text(found: Grafted, page: Page) -> str:
    """The tensors that are grafted, those of one kind as one row, and what becomes of the files."""
    if not found.tensors:
        return ""
    base = f"{found.base.id}@{beginning(found.base.revision, 12)}" if found.base.revision else found.base.id
    title = f"{plural(len(found.tensors), 'tensor')} from {base}, {bytes_text(found.size)}, to {found.shard}"
    kinds: dict[tuple[str, ...], list[str]] = {}
    for row in found.tensors:
        kinds.setdefault((row.dtype, shape(row.shape), row.stored, row.why), []).append(row.name)
    rows = [_head("tensor", "dtype", "shape", "base", "here"), *_grouped(kinds, page)]
    lines = [paint(line, page, "bold") for line in paragraph(title, page)] + table(rows, page)
    for name in found.rewritten:
        lines += paragraph(f"{name} is written again without the old tensors", page)
    for name in found.removed:
        lines += paragraph(f"{name} goes: nothing in it counts any longer", page)
    return page_text(lines)


def bytes_text(count: int) -> str:
    """`7.3 GB`, `12 kB`."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return plural(count, "byte")


def shape(dims: Sequence[int]) -> str:
    """`2048×4096`; a tensor without dimensions is a `scalar`."""
    return "×".join(map(str, dims)) or "scalar"


def rules_text(chosen: RuleList, page: Page) -> str:
    """A table of rules, or whole rules."""
    if chosen.whole:
        blocks = [_whole_rule(rule, page) for rule in chosen.rules]
        return page_text(line for at, block in enumerate(blocks) for line in ([""] if at else []) + block)
    rows = [_head("code", "name", "severity", "fix", "what")]
    for rule in chosen.rules:
        texts = (rule.code, rule.name, rule.severity, rule.fix, rule.summary)
        rows.append([Cell(clean(text, page), ("bold",) if at == 0 else ()) for at, text in enumerate(texts)])
    return page_text(table(rows, page, indent=""))


def _whole_rule(rule: RuleText, page: Page) -> list[str]:
    lines = [paint(clean(f"{rule.code} {rule.name}", page), page, "bold")]
    lines += paragraph(f"severity {rule.severity}, fix {rule.fix}, kind {rule.kind}", page, indent="  ")
    lines += ["", *paragraph(rule.summary, page)]
    for block in rule.explanation.strip().split("\n\n"):
        lines += ["", *_explained(block, page)]
    return lines


def _explained(block: str, page: Page) -> list[str]:
    """A paragraph of an explanation, filled; a line with a label (`By hand: ...`) or a dash begins a new one."""
    chunks: list[str] = []
    for line in block.splitlines():
        if chunks and not _OPENING.match(line):
            chunks[-1] += f" {line.strip()}"
        else:
            chunks.append(line)
    lines = []
    for chunk in chunks:
        indent = chunk[: len(chunk) - len(chunk.lstrip())]
        hanging = indent + ("  " if chunk.lstrip().startswith("-") else "")
        lines += paragraph(chunk, page, indent=indent, hanging=hanging)
    return lines


def symptoms_text(found: tuple[Symptom, ...], page: Page) -> str:
    """For each line of a log what it means and the rules that it can come from."""
    lines: list[str] = []
    for symptom in found:
        lines += [""] if lines else []
        lines += [paint(line, page, "bold") for line in paragraph(clean(symptom.line, page), page)]
        lines += paragraph(f"{symptom.means}.", page, indent="  ")
        lines += table([[Cell(text) for text in (rule.code, rule.name, rule.summary)] for rule in symptom.rules], page)
        lines += paragraph(f"Source: {symptom.source}", page, indent="  ")
    advice = "mtpfix check CHECKPOINT says which of them it is; mtpfix rule CODE explains one."
    name = next((hit[0] for symptom in found if (hit := _DOTTED.search(symptom.line))), "")
    if name:
        advice += f" mtpfix explain CHECKPOINT {name} says what that is and what decides about it."
    return page_text([*lines, "", *paragraph(advice, page)])


def engines_text(engines: tuple[EngineFacts, ...], page: Page) -> str:
    """For each engine its releases, and by method the ranges of them that match alike, with what changed at each."""
    lines: list[str] = []
    for facts in engines:
        ends = span(facts.releases[0], facts.releases[-1], page) if facts.releases else ""
        title = f"{facts.name}: {plural(len(facts.releases), 'modelled release')}, {ends}"
        lines += [""] if lines else []
        lines += [paint(line, page, "bold") for line in paragraph(title, page)]
        lines += paragraph(" ".join(facts.releases), page, indent="  ")
        lines += table(_profiles(facts.profiles, page), page)
    return page_text(lines)


def _profiles(profiles: Iterable[Profile], page: Page) -> list[list[Cell]]:
    """A row for each change; a range of releases and its recorded decisions stand in the first of its rows."""
    rows: list[list[Cell]] = []
    method = ""
    for profile in profiles:
        recorded = f"{profile.recorded} recorded" if profile.recorded else ""
        heads = [
            (profile.method if profile.method != method else "", span(profile.first, profile.last, page), recorded)
        ]
        method = profile.method
        changes = [(point.name, point.source) for point in profile.changes] or [("", "")]
        for head, change in zip_longest(heads, changes, fillvalue=("", "", "")):
            name, *rest = (clean(text, page) for text in (*head, *change))
            rows.append([Cell(name, ("cyan",)), *map(Cell, rest)])
    return rows


def replayed_text(result: Replayed, page: Page) -> str:
    """Each disagreement, then for each engine and method how many recorded decisions the model agrees with."""
    lines: list[str] = []
    for found in result.disagreements:
        asked = f"{found.place}: {found.engine} {found.release} {found.method}, asked as {found.runtime or '(no name)'}"
        lines += paragraph(asked, page)
        why = f" ({found.why})" if found.why else ""
        lines += paragraph(f"recorded {found.recorded}, modelled {found.modelled}{why}", page, indent="  ")
    lines += [""] if lines else []
    lines += table(_totals(result, page), page)
    lines += paragraph(_summary(result), page)
    return page_text(lines)


def _totals(result: Replayed, page: Page) -> list[list[Cell]]:
    wrong = Counter((found.engine, found.method) for found in result.disagreements)
    rows = Counter[tuple[str, str]]()
    for (engine, method, _), count in result.checked.items():
        rows[engine, method] += count
    return [
        [
            Cell(clean(engine, page), ("bold",)),
            Cell(clean(method, page)),
            Cell(f"{count - wrong[engine, method]}/{count}"),
        ]
        for (engine, method), count in sorted(rows.items())
    ]


def _summary(result: Replayed) -> str:
    checked, wrong = sum(result.checked.values()), len(result.disagreements)
    text = f"{plural(checked, 'recorded decision')}: {checked - wrong} agree, {wrong} disagree."
    more = f" {plural(result.skipped, 'row')} of engines that are not modelled left out." if result.skipped else ""
    return text + more
