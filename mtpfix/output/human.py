"""What a person reads on a terminal: the verdict, the matrix, the findings with their evidence, the way out."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from mtpfix import late
from mtpfix.model import (
    Contrast,
    Draft,
    EngineRow,
    Finding,
    IndexChange,
    Part,
    Plan,
    Rename,
    Report,
    Source,
    VerdictKind,
)
from mtpfix.output import listing, matrix
from mtpfix.output.base import CheckResult, Format, Page, RuleText
from mtpfix.output.collapse import Collapsed, collapsed
from mtpfix.output.text import (
    Cell,
    clean,
    labelled,
    listed,
    page_text,
    paint,
    paragraph,
    plural,
    table,
    typed,
)

_MOST_LINES = 8
_MOST_DIFFED = 60
_FEW = 3
_NAME = late.pattern("[<>=]")
_TROUBLE = ("fails", "degrades")
_SEVERITIES = {"error": "red", "warning": "yellow", "note": "cyan"}
FIXES = {"safe": "fixable", "unsafe": "fixable with --unsafe-fixes", "none": ""}
STATUS = {
    "clean": "clean",
    "fixable": "fixable",
    "partly-fixable": "partly fixable",
    "not-fixable": "not fixable",
}
_SYMBOLS: dict[VerdictKind, tuple[str, str, tuple[str, ...]]] = {
    "loads": ("✓", "+", ("green",)),
    "fails": ("✗", "x", ("red",)),
    "degrades": ("!", "!", ("yellow",)),
    "unsupported": ("–", "-", ("dim",)),
    "unknown": ("?", "?", ("dim",)),
}


def check_text(result: CheckResult, page: Page) -> str:
    """Every report, and one line about all of them where there are several."""
    blocks = [report_lines(report, result.rules, page) for report in result.reports]
    if result.several and result.reports:
        blocks.append(paragraph(_tally(result.reports), page))
    return page_text(line for at, block in enumerate(blocks) for line in ([""] if at else []) + block)


def summary(result: CheckResult) -> str:
    """The verdict in a phrase, or how many of several checkpoints have which."""
    if result.several:
        return _tally(result.reports).removesuffix(".")
    return "; ".join(f"{title(report.source)}: {_words(report)}" for report in result.reports)


def _words(report: Report) -> str:
    return f"{STATUS[report.status]}; {outlook(report)}"


def _tally(reports: Sequence[Report]) -> str:
    counts = Counter[str](report.status for report in reports)
    parts = [f"{counts[status]} {words}" for status, words in STATUS.items() if counts[status]]
    return f"{plural(len(reports), 'checkpoint')}: {', '.join(parts)}."


def report_lines(report: Report, rules: Mapping[str, RuleText], page: Page) -> list[str]:
    """One report."""
    lines = [*_verdict(report, page), "", *_facts(report, page)]
    if report.engines:
        lines += ["", *_matrix(report, page), *_causes(report, page)]
    for finding in sorted(report.findings, key=lambda finding: list(_SEVERITIES).index(finding.severity)):
        lines += ["", *finding_lines(finding, rules.get(finding.rule), page)]
    for note in report.notes:
        lines += ["", *paragraph(f"note: {note}", page, hanging="  ")]
    ending = [*_found(report, page), *_advice(report, page)]
    return [*lines, "", *ending] if ending else lines


def _verdict(report: Report, page: Page) -> list[str]:
    """The one sentence that says it all."""
    symbol, style = _symbol(mark(report), page)
    first, *rest = paragraph(f"{symbol} {title(report.source)}: {_words(report)}", page, hanging="  ")
    return [paint(first, page, "bold", *style), *(paint(line, page, "bold", *style) for line in rest)]


def mark(report: Report) -> VerdictKind:
    """The sign that a report stands under: not clean, clean though something does not load or nothing is known to,
    or simply clean."""
    if report.status != "clean":
        return "fails"
    newest = {row.verdict for row in report.engines if row.latest}
    if newest & {"fails", "degrades"}:
        return "degrades"
    if _newest(report.engines) or not report.engines:
        return "loads"
    return "unknown" if "unknown" in {row.verdict for row in report.engines} else "unsupported"


def title(source: Source) -> str:
    """What to call a checkpoint: a repository's name; the last part of a path, or all of it where that says nothing."""
    name = source.id.rstrip("/").rpartition("/")[2]
    return source.id if source.kind == "hub" or name in ("", ".", "..") else name


def _symbol(verdict: VerdictKind, page: Page) -> tuple[str, tuple[str, ...]]:
    fine, ascii_only, styles = _SYMBOLS[verdict]
    return (fine if page.unicode else ascii_only), styles


def outlook(report: Report) -> str:
    """What engines make of it, in one phrase: `draft fails in vllm, degrades in sglang and older vllm`.

    Of a checkpoint that is clean only what the newest releases make of it.
    """
    if report.status == "clean":
        return _newest(report.engines) or _nowhere(report)
    newest = [row for row in report.engines if row.latest]
    older = [row for row in report.engines if row.engine in _planned(report)]
    told = "; ".join(_troubles([*newest, *older])) or _newest(report.engines)
    return told or plural(_count(report, "error"), "error")


def prospect(report: Report) -> str:
    """What the newest releases make of it after the plan, in one phrase; "" without a plan, and where none is known."""
    return _newest(report.after)


def _newest(rows: Sequence[EngineRow]) -> str:
    """`loads in vllm; draft fails in sglang`: what the newest releases make of it."""
    newest = [row for row in rows if row.latest]
    engines = list(dict.fromkeys(row.engine for row in newest))
    fine = [name for name in engines if all(row.verdict == "loads" for row in newest if row.engine == name)]
    return "; ".join([*([f"loads in {listed(fine)}"] if fine else []), *_troubles(newest)])


def _nowhere(report: Report) -> str:
    return f"no {'release asked about' if report.asked else 'modelled engine'} is known to load it"


def _planned(report: Report) -> frozenset[str]:
    """The engines that the findings speak of."""
    return frozenset(_NAME.split(spec)[0] for finding in report.findings for spec in finding.engines)


def _troubles(rows: Sequence[EngineRow]) -> list[str]:
    """`target and draft fail in vllm`: a phrase a part, parts that share their troubles together."""
    alike: dict[tuple[tuple[str, tuple[str, ...]], ...], list[Part]] = {}
    for part in matrix.parts(rows):
        hit = ((verdict, _engines_with(rows, part, verdict)) for verdict in ("fails", "degrades"))
        alike.setdefault(tuple((verdict, engines) for verdict, engines in hit if engines), []).append(part)
    return [
        f"{listed(parts)} "
        + ", ".join(f"{_verb(verdict, len(parts))} in {listed(names)}" for verdict, names in troubles)
        for troubles, parts in alike.items()
        if troubles
    ]


def _verb(verdict: str, parts: int) -> str:
    """`draft fails`, `target and draft fail`."""
    return verdict.removesuffix("s") if parts > 1 and verdict in ("loads", "fails", "degrades") else verdict


def _told(parts: Sequence[Part], verdict: VerdictKind) -> str:
    return f"{listed(parts)} {_verb(verdict, len(parts))}"


def _engines_with(rows: Sequence[EngineRow], part: Part, verdict: str) -> tuple[str, ...]:
    """The engines whose newest releases have a verdict, then those where only older ones do: `older vllm`."""
    hit = [row for row in rows if row.part == part and row.verdict == verdict]
    newest = dict.fromkeys(row.engine for row in hit if row.latest)
    ill = {row.engine for row in rows if row.part == part and row.latest and row.verdict in ("fails", "degrades")}
    return (*newest, *dict.fromkeys(f"older {row.engine}" for row in hit if row.engine not in ill))


def _facts(report: Report, page: Page) -> list[str]:
    reason = f" ({report.family_reason})" if report.family_reason else ""
    source = report.source.id + (f" at {report.source.revision}" if report.source.revision else "")
    return labelled(
        [
            ("source", [source]),
            ("family", [f"{report.family or 'unknown'}{reason}"]),
            ("format", [report.format or "none"]),
            ("stored", [stored_text(report)]),
            ("draft", [draft_text(report.draft)]),
        ],
        page,
    )


def stored_text(report: Report) -> str:
    """What is stored in a phrase: tensors, shards, schemes."""
    schemes = ", ".join(f"{name} ×{count:,}" for name, count in report.schemes.items())
    return f"{plural(report.tensors, 'tensor')} in {plural(report.shards, 'shard')}: {schemes}"


def draft_text(draft: Draft) -> str:
    """The draft in a phrase: layers stored and declared, tensors, dtypes."""
    if not draft.stored and not draft.tensors and not draft.declared:
        return "none"
    declared = "no count declared" if draft.declared is None else f"{draft.declared} declared"
    dtypes = ", ".join(f"{dtype} ×{count:,}" for dtype, count in draft.dtypes.items())
    dtypes = f"all {next(iter(draft.dtypes))}" if len(draft.dtypes) == 1 else dtypes
    layers = f"{plural(draft.stored, 'layer')} stored, {declared}"
    if not draft.tensors:
        return layers
    return f"{layers}; {plural(draft.tensors, 'tensor')} in {plural(draft.modules, 'module')}: {dtypes}"


def _matrix(report: Report, page: Page) -> list[str]:
    """The verdict matrix; where the plan changes a verdict, what it will be."""
    parts = matrix.parts(report.engines)
    out = [[Cell(title, ("dim",)) for title in ("engine", "releases", *parts)]]
    shown = ""
    for row in matrix.compared(report.engines, report.after or report.engines):
        verdicts = [_verdict_cell(row.before.get(part), row.after.get(part), page) for part in parts]
        name = "" if row.engine == shown else clean(row.engine, page)
        out.append([Cell(name, ("bold",)), Cell(listing.span(row.first, row.last, page)), *verdicts])
        shown = row.engine
    return table(out, page)


def _verdict_cell(before: VerdictKind | None, after: VerdictKind | None, page: Page) -> Cell:
    if before is None:
        return Cell("")
    symbol, styles = _symbol(before, page)
    then = None if after in (None, before) else _verdict_cell(after, None, page)
    return Cell(f"{symbol} {before}", styles, then)


def _causes(report: Report, page: Page) -> list[str]:
    """Why it does not load, the engine's words below; then in small print why an engine says nothing about it."""
    found = matrix.causes(report.engines)
    told = frozenset(name for finding in report.findings for name in finding.modules)
    lines: list[str] = []
    for why in found:
        if why.verdict in _TROUBLE:
            lines += _cause(why, told, page)
    for line in silences(found, page):
        lines += [paint(piece, page, "dim") for piece in paragraph(line, page, indent="  ", hanging="    ")]
    return ["", *lines] if lines else []


def _cause(why: matrix.Why, told: frozenset[str], page: Page) -> list[str]:
    """What goes wrong in some releases; at which modules, unless a finding names them."""
    text = f"{why.engine} {listing.spans(why.spans, page)}: {_told(why.parts, why.verdict)}"
    lines = paragraph(f"{text}: {why.reason}" if why.reason else text, page, indent="  ", hanging="    ")
    if not told.issuperset(why.modules):
        lines += paragraph(f"at {first_few(why.modules)}", page, indent="    ", hanging="      ")
    if why.error:
        lines += [paint(line, page, "bold") for line in paragraph(why.error, page, "    ", "      ")]
    return lines


def silences(found: Iterable[matrix.Why], page: Page) -> list[str]:
    """Why engines say nothing about a part, a line a reason.

    `vllm 0.12.0–0.29.0, sglang 0.5.9–0.5.19: draft unsupported: this release does not know the format`
    """
    alike: dict[tuple[VerdictKind, str, tuple[Part, ...]], list[str]] = {}
    for why in (why for why in found if why.verdict not in _TROUBLE):
        place = f"{why.engine} {listing.spans(why.spans, page)}"
        alike.setdefault((why.verdict, why.reason, why.parts), []).append(place)
    return [
        f"{', '.join(places)}: {_told(parts, verdict)}: {reason}" for (verdict, reason, parts), places in alike.items()
    ]


def still_lines(
    rows: Sequence[EngineRow], findings: Iterable[Finding], rules: Mapping[str, RuleText], page: Page
) -> list[str]:
    """The releases that do not load a checkpoint although all was done that can be, and the warnings that say why."""
    found = [why for why in matrix.causes(rows) if why.verdict in _TROUBLE]
    lines: list[str] = []
    for why in found:
        reason = f": {why.reason}" if why.reason else ""
        text = f"Still {why.verdict}: {why.engine} {listing.spans(why.spans, page)}, {listed(why.parts)}{reason}."
        lines += [paint(line, page, "yellow") for line in paragraph(text, page, hanging="  ")]
    ill = {why.engine for why in found}
    for finding in findings:
        if finding.severity == "warning" and any(_NAME.split(spec)[0] in ill for spec in finding.engines):
            name = f" {rules[finding.rule].name}" if finding.rule in rules else ""
            why_not = finding.message.partition(". ")[0].rstrip(".")
            lines += paragraph(f"{finding.rule}{name}: {why_not}.", page, indent="  ", hanging="    ")
    return lines


def first_few(modules: Sequence[str]) -> str:
    """The first few brace forms of some names."""
    groups = collapsed(modules)
    names = ", ".join(group.pattern for group in groups[:_FEW])
    return f"{names} and {len(groups) - _FEW:,} more" if len(groups) > _FEW else names


def finding_lines(finding: Finding, rule: RuleText | None, page: Page) -> list[str]:
    """A finding with its evidence: rule, message, modules, engines, places, and what helps."""
    colour = _SEVERITIES[finding.severity]
    head = paint(f"{finding.severity}[{clean(finding.rule, page)}]", page, "bold", colour)
    name = paint(f" {clean(rule.name, page)}", page, "bold") if rule else ""
    fix = f" ({FIXES[finding.fix]})" if FIXES[finding.fix] else ""
    places = [f"{place.file} {place.pointer}".rstrip() for place in finding.locations]
    evidence = [
        *_contrasts(finding, page),
        ("where", _limited(places, page)),
        ("help", [finding.hint] if finding.hint else []),
    ]
    return [head + name + fix, *paragraph(finding.message, page, indent="  "), *labelled(evidence, page)]


def _contrasts(finding: Finding, page: Page) -> list[tuple[str, list[str]]]:
    """Stored against built, and the modules; the engines by themselves where they build nothing otherwise."""
    rows: list[tuple[str, list[str]]] = []
    for one in unlike(finding):
        rows.append(("stored", [f"{one.stored} → built {one.built} by {', '.join(one.engines)}"]))
        rows.append(("modules", _names(one.modules, len(one.modules), page)))
    engines = [", ".join(finding.engines)] if finding.engines else []
    return rows or [("modules", modules_listed(finding, page)), ("engines", engines)]


def unlike(finding: Finding) -> tuple[Contrast, ...]:
    """What is built otherwise than stored; none where that does not account for every module of the finding."""
    found = tuple(one for one in finding.contrasts if one.stored != one.built)
    named = {name for one in found for name in one.modules}
    return found if named.issuperset(finding.modules) else ()


def modules_listed(finding: Finding, page: Page) -> list[str]:
    """The modules in brace form, the long tail counted only."""
    return _names(finding.modules, finding.module_count, page)


def _names(modules: Sequence[str], count: int, page: Page) -> list[str]:
    groups = collapsed(modules)
    lines = [f"{group.pattern} ×{group.size:,}" if group.size > 1 else group.pattern for group in groups]
    total = sum(group.size for group in groups)
    if count > total and groups:
        lines.append(f"{plural(count, 'module')} in all")
    return _limited(lines, page)


def _limited(lines: list[str], page: Page) -> list[str]:
    if len(lines) <= _MOST_LINES:
        return lines
    dots = "…" if page.unicode else "..."
    return [*lines[: _MOST_LINES - 1], f"{dots} and {len(lines) - _MOST_LINES + 1:,} more (--format json lists all)"]


def _count(report: Report, severity: str) -> int:
    return sum(finding.severity == severity for finding in report.findings)


def _found(report: Report, page: Page) -> list[str]:
    parts = [plural(count, severity) for severity in _SEVERITIES if (count := _count(report, severity))]
    return paragraph(f"Found {listed(parts)}.", page) if parts else []


# How the repair of a source is applied: a repository gets a pull request, a bundle can only be looked at.
_HOW = {"local": "", "hub": "--create-pr ", "bundle": "--dry-run "}


def command(report: Report) -> str:
    """What to type to repair a checkpoint, or "" where nothing can be."""
    if report.plan.empty:
        return ""
    return f"mtpfix apply {_HOW[report.source.kind]}{typed(report.source.id)}{_asked(report)}"


def _asked(report: Report) -> str:
    """The options that ask about the same engines."""
    return "".join(f" --engine {shlex.quote(spec)}" for spec in report.asked)


def _advice(report: Report, page: Page) -> list[str]:
    """What to type next."""
    lines: list[str] = []
    if not report.plan.empty:
        lines += [paint(line, page, "bold") for line in paragraph(f"Fix: {command(report)}", page, hanging="  ")]
        lines += paragraph(f"changes {changes(report.plan)}", page, indent="  ")
        then = prospect(report)
        lines += paragraph(f"after it: {then}", page, indent="  ") if then else []
    elif report.status != "clean":
        whom = " for the engines that were asked about" if report.asked else ""
        lines += paragraph(f"No safe edit of the JSON files mends this{whom}; the help above says what would.", page)
    return [*lines, *_restoring(report, page), *held_back_lines(report, page)]


def _restoring(report: Report, page: Page) -> list[str]:
    """The command that restores tensors, where a finding speaks of it and the checkpoint can be written."""
    helped = any("mtpfix graft" in finding.hint for finding in report.findings if finding.severity == "error")
    if not helped or report.source.kind != "local":
        return []
    restore = f"Restore: mtpfix graft {typed(report.source.id)} --from BASE"
    told = "BASE is the checkpoint that this one was made from: a directory or org/name"
    return [
        *(paint(line, page, "bold") for line in paragraph(restore, page, hanging="  ")),
        *paragraph(told, page, indent="  "),
    ]


def held_back_lines(report: Report, page: Page) -> list[str]:
    """The fixes that only a flag releases, and the command that shows them."""
    held = report.plan.held_back
    if not held:
        return []
    lines = paragraph(f"{len(held)} {'fix is' if len(held) == 1 else 'fixes are'} held back as unsafe:", page)
    for words in held:
        lines += paragraph(f"- {words}", page, indent="  ", hanging="    ")
    command = f"mtpfix apply --unsafe-fixes --dry-run {typed(report.source.id)}{_asked(report)}"
    return [*lines, *paragraph(f"To see {'it' if len(held) == 1 else 'them'}: {command}", page, hanging="  ")]


def changes(plan: Plan) -> str:
    """`config.json, hf_quant_config.json: 4 entries added, 1 removed`."""
    proof, index = plan.certificate, plan.index
    counts = {"added": proof.entries_added, "removed": proof.entries_removed}
    told = [f"{count} entr{'y' if count == 1 else 'ies'} {what}" for what, count in counts.items() if count]
    if plan.edits and not told:
        told = [plural(len(plan.edits), "edit")]
    names = {"listed": proof.names_listed, "no longer listed": proof.names_unlisted} if index else {}
    told += [f"{plural(count, 'name')} {what}" for what, count in names.items() if count]
    told += [f"{plural(len(plan.renames), 'tensor')} renamed"] if plan.renames else []
    return f"{', '.join(plan.files)}: {', '.join(told)}"


def plan_text(plan: Plan, diff: str, page: Page) -> str:
    """What a plan changes: the diff of its JSON files, then what no diff shows well.

    An index can have a hundred thousand lines: where many of them change, its names are told in brace form instead.
    """
    return diff_text(diff, page) + page_text(weight_lines(plan, page))


def diff_of(plan: Plan) -> str:
    """The unified diff of a plan's JSON files, but for an index that changes in too many lines."""
    from mtpfix.diff import unified

    told = {plan.index.file} if plan.index and is_long(plan.index) else set()
    return unified(plan.before, {name: raw for name, raw in plan.after.items() if name not in told})


def weight_lines(plan: Plan, page: Page) -> Iterator[str]:
    """What no diff shows well, for a page."""
    for heading, rows in weight_changes(plan):
        yield paint(clean(heading, page), page, "bold")
        for row in rows:
            yield paint(f"  {clean(row, page)}", page, *{"+": ("green",), "-": ("red",)}.get(row[:1], ()))


def weight_changes(plan: Plan) -> Iterator[tuple[str, list[str]]]:
    """Changes of an index that are too many for a diff, and of headers: what they are about, and a line each."""
    index = plan.index
    if index is not None and is_long(index):
        rows = [*_rows("-", ((row.before, row.tensor) for row in index.listings if row.before))]
        rows += _rows("+", ((row.after, row.tensor) for row in index.listings if row.after))
        yield f"{index.file}: {plural(len(index.listings), 'name')}", _first(rows)
    shards: dict[str, list[Rename]] = {}
    for rename in plan.renames:
        shards.setdefault(rename.shard, []).append(rename)
    for shard, some in shards.items():
        groups = collapsed(row.old for row in some)
        new = {row.old.rpartition(".")[2]: row.new.rpartition(".")[2] for row in some}
        told = [f"{_group(group)} → {new[group.pattern.rpartition('.')[2]]}" for group in groups]
        yield f"{shard}: {plural(len(some), 'tensor')} renamed in the header, all data stay as they are", _first(told)


def is_long(index: IndexChange) -> bool:
    """Whether an index changes in too many lines for a diff that anybody reads."""
    return len(index.listings) > _MOST_DIFFED


def _rows(sign: str, placed: Iterable[tuple[str, str]]) -> list[str]:
    """Names in brace form, by file; all together where files cut through too many layers."""
    shards: dict[str, list[str]] = {}
    for shard, tensor in placed:
        shards.setdefault(shard, []).append(tensor)
    rows = [f"{sign} {_group(group)} in {shard}" for shard, names in shards.items() for group in collapsed(names)]
    if len(rows) <= _MOST_DIFFED:
        return rows
    where = f" in {plural(len(shards), 'file')}, {min(shards)} to {max(shards)}"
    together = sorted(name for names in shards.values() for name in names)
    every = [f"{sign} {_group(group)}" for group in collapsed(together)]
    return [f"{sign} {plural(sum(map(len, shards.values())), 'name')}{where}:", *every]


def _group(group: Collapsed) -> str:
    return f"{group.pattern} ×{group.size:,}" if group.size > 1 else group.pattern


def _first(rows: list[str]) -> list[str]:
    return rows if len(rows) <= _MOST_DIFFED else [*rows[:_MOST_DIFFED], f"and {len(rows) - _MOST_DIFFED:,} lines more"]


def certificate_lines(plan: Plan, page: Page) -> list[str]:
    """What was checked about a plan, for whoever reviews it."""
    proof = plan.certificate
    if not proof.modules:
        return []
    decided = sum(proof.decisions.values())
    return paragraph(
        f"Checked: {plural(proof.modules, 'module')}, {proof.quantized_modules:,} of them stored quantized; "
        f"{plural(decided, 'decision')} of {plural(len(proof.decisions), 'engine release')} before and after; "
        f"{plural(proof.newly_plain_quantized, 'quantized module')} became plain.{_header_proof(plan)}",
        page,
    )


def _header_proof(plan: Plan) -> str:
    """What a rename does to a shard, for whoever reviews it."""
    if not plan.renames:
        return ""
    shards = plural(len({row.shard for row in plan.renames}), "shard")
    return f" Only the header of {shards} changes: dtypes, shapes and every byte of data stay."


def diff_text(text: str, page: Page) -> str:
    """A unified diff for a terminal, of whatever colours: hostile characters escaped. A pipe gets the diff as it is."""
    if not (page.colour or page.terminal):
        return text
    return page_text(_diff_line(line, page) for line in text.removesuffix("\n").split("\n"))


def _diff_line(line: str, page: Page) -> str:
    shown = clean(line.removesuffix("\r").replace("\t", "    "), page)
    if line.startswith(("---", "+++")):
        return paint(shown, page, "bold")
    return paint(shown, page, *{"+": ("green",), "-": ("red",), "@": ("cyan",)}.get(line[:1], ()))


def unfixed_lines(findings: Iterable[Finding], rules: Mapping[str, RuleText], page: Page) -> list[str]:
    """Findings that stay, each with what would help, a line or two."""
    lines: list[str] = []
    for finding in findings:
        rule = rules.get(finding.rule)
        name = f" {rule.name}" if rule else ""
        lines += paragraph(f"{finding.severity}[{finding.rule}]{name}: {finding.message}", page, hanging="  ")
        if finding.hint:
            lines += paragraph(f"help: {finding.hint}", page, indent="  ", hanging="    ")
    return lines


FORMAT = Format(
    name="human",
    check=check_text,
    explain=listing.explain_text,
    tensors=listing.tensors_text,
    rules=listing.rules_text,
    symptoms=listing.symptoms_text,
    engines=listing.engines_text,
    replayed=listing.replayed_text,
    graft=lambda found, page: listing.graft_text(found, page) + diff_text(found.diff, page),
    override=lambda found, _page: f"{found.text}\n" if found.flags else "",
)
