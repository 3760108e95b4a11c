"""JSON, version 1: a contract of its own, whose documents `schema_v1` describes, never a dump of internal values."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import mtpfix
from mtpfix import releases
from mtpfix.frozen import replace
from mtpfix.model import Certificate, Contrast, DecisionRow, DecisionRows, EngineRow, Explanation, Finding, Plan, Report
from mtpfix.output.base import (
    Applied,
    CheckResult,
    DecisionText,
    Disagreement,
    EngineFacts,
    Format,
    Grafted,
    OverrideText,
    Page,
    ProposalText,
    ProposedText,
    Replayed,
    ReviewedText,
    RuleText,
    Symptom,
    TensorRow,
)
from mtpfix.output.collapse import collapse
from mtpfix.patch import ops

if TYPE_CHECKING:
    from mtpfix.output.schema_v1 import (
        AppliedV1,
        CertificateV1,
        ChangeV1,
        CheckpointV1,
        ContrastV1,
        DecisionChangeV1,
        DecisionV1,
        DisagreementV1,
        EngineFactsV1,
        EnginesV1,
        EngineV1,
        EntryCauseV1,
        ExplanationV1,
        FindingOfV1,
        FindingV1,
        GraftV1,
        IndexV1,
        OverrideV1,
        PlanV1,
        PreviewV1,
        ProfileV1,
        ProposalV1,
        RenameV1,
        ReplayV1,
        ReportV1,
        ReviewV1,
        RulesV1,
        RuleV1,
        ScanRowV1,
        SymptomsV1,
        SymptomV1,
        TensorsV1,
        TensorV1,
        UnreadableRowV1,
    )

VERSION: Literal[1] = 1
_DECISIONS = '"decisions": ['
_NO_DECISIONS, _NAMELESS = f"{_DECISIONS}]", '{"module": "", '


def report(value: Report, rules: Mapping[str, RuleText]) -> ReportV1:
    """A report in its published shape; rule names and kinds come from `rules`."""
    return {
        "schema_version": VERSION,
        "mtpfix": mtpfix.__version__,
        "source": {"kind": value.source.kind, "id": value.source.id, "revision": value.source.revision},
        "checkpoint": _checkpoint(value),
        "status": value.status,
        "engines": _engines(value.engines),
        "findings": [_finding(finding, rules.get(finding.rule)) for finding in value.findings],
        "plan": _plan(value.plan),
        "notes": list(value.notes),
        "after": _engines(value.after),
    }


def _checkpoint(value: Report) -> CheckpointV1:
    draft = value.draft
    return {
        "family": value.family,
        "format": value.format,
        "schemes": dict(value.schemes),
        "tensors": value.tensors,
        "shards": value.shards,
        "draft": {
            "declared": draft.declared,
            "stored": draft.stored,
            "tensors": draft.tensors,
            "dtypes": dict(draft.dtypes),
            "modules": draft.modules,
        },
    }


def _engines(rows: Iterable[EngineRow]) -> list[EngineV1]:
    """Rows of the matrix; many share their modules, which can be tens of thousands."""
    found = tuple(rows)
    braced = {names: collapse(names) for names in {row.modules for row in found}}
    return [_engine(row, braced[row.modules]) for row in found]


def _is_newest(row: EngineRow | DecisionRow) -> bool:
    """Whether a row holds the newest release that is modelled, whatever was asked about."""
    return row.latest and not releases.after(row.engine, row.releases[-1])


def _engine(row: EngineRow, modules: Sequence[str]) -> EngineV1:
    return {
        "engine": row.engine,
        "version": row.version,
        "releases": list(row.releases),
        "latest": _is_newest(row),
        "part": row.part,
        "verdict": row.verdict,
        "reason": row.reason,
        "modules": list(modules),
        "error": row.error,
    }


def _finding(finding: Finding, rule: RuleText | None) -> FindingV1:
    return {
        "rule": finding.rule,
        "name": rule.name if rule else "",
        "kind": rule.kind if rule else "",
        "severity": finding.severity,
        "fix": finding.fix,
        "message": finding.message,
        "hint": finding.hint,
        "engines": list(finding.engines),
        "modules": list(finding.modules),
        "module_count": finding.module_count,
        "locations": [{"file": place.file, "pointer": place.pointer} for place in finding.locations],
        "contrasts": [_contrast(one) for one in finding.contrasts],
    }


def _contrast(value: Contrast) -> ContrastV1:
    return {
        "stored": value.stored,
        "built": value.built,
        "engines": list(value.engines),
        "modules": list(value.modules),
    }


def _plan(plan: Plan) -> PlanV1:
    return {
        "files": ops(plan.edits),
        "certificate": _certificate(plan.certificate),
        "held_back": list(plan.held_back),
        "index": _index(plan),
        "renames": _renames(plan),
    }


def _index(plan: Plan) -> IndexV1 | None:
    change = plan.index
    if change is None:
        return None
    groups: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for row in change.listings:
        groups[row.before, row.after].append(row.tensor)
    return {
        "file": change.file,
        "created": change.created,
        "changes": [
            {"names": list(collapse(names)), "count": len(names), "before": old or None, "after": new or None}
            for (old, new), names in groups.items()
        ],
        "total_size": change.size,
        "sha256": hashlib.sha256(plan.after[change.file]).hexdigest(),
    }


def _renames(plan: Plan) -> list[RenameV1]:
    groups: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    for row in plan.renames:
        groups[row.shard, row.old.rpartition(".")[2], row.new.rpartition(".")[2]].append(row.old.rpartition(".")[0])
    return [
        {"shard": shard, "names": list(collapse(names)), "count": len(names), "before": old, "after": new}
        for (shard, old, new), names in groups.items()
    ]


def _certificate(value: Certificate) -> CertificateV1:
    return {
        "modules": value.modules,
        "quantized_modules": value.quantized_modules,
        "decisions": dict(value.decisions),
        "newly_plain_quantized": value.newly_plain_quantized,
        "entries_added": value.entries_added,
        "entries_removed": value.entries_removed,
        "tensors_renamed": value.tensors_renamed,
        "names_listed": value.names_listed,
        "names_unlisted": value.names_unlisted,
    }


def explanation(found: Explanation) -> ExplanationV1:
    """Decisions in their published shape."""
    return {
        "schema_version": VERSION,
        "decisions": [_decision(row) for row in found.rows],
        "understood": [
            {"asked": one.asked, "kind": one.kind, "modules": list(one.modules), "engines": list(one.engines)}
            for one in found.readings
        ],
        "reason": found.reason,
    }


def _decision(row: DecisionRow) -> DecisionV1:
    by_entry: EntryCauseV1 = {"file": row.file, "pointer": row.pointer, "entry": row.entry}
    return {
        "module": row.module,
        "part": row.part,
        "engine": row.engine,
        "version": row.version,
        "releases": list(row.releases),
        "latest": _is_newest(row),
        "runtime_name": row.runtime_name,
        "decision": row.decision,
        "decided_by": by_entry if row.file else {"rule": row.rule},
        "stored": row.stored,
    }


def tensors(rows: Iterable[TensorRow]) -> TensorsV1:
    """The draft's tensors in their published shape."""
    return {"schema_version": VERSION, "tensors": [_tensor(row) for row in rows]}


def _tensor(row: TensorRow) -> TensorV1:
    return {
        "name": row.name,
        "dtype": row.dtype,
        "shape": list(row.shape),
        "shard": row.shard,
        "stored": row.stored,
        "declared": row.declared,
    }


def rules(values: Iterable[RuleText]) -> RulesV1:
    """Rules in their published shape."""
    return {"schema_version": VERSION, "rules": [_rule(rule) for rule in values]}


def symptoms(values: Iterable[Symptom]) -> SymptomsV1:
    """Lines of a log in their published shape."""
    return {"schema_version": VERSION, "symptoms": [_symptom(each) for each in values]}


def _symptom(value: Symptom) -> SymptomV1:
    codes = [rule.code for rule in value.rules]
    return {"line": value.line, "means": value.means, "rules": codes, "source": value.source}


def _rule(rule: RuleText) -> RuleV1:
    return {
        "code": rule.code,
        "name": rule.name,
        "kind": rule.kind,
        "severity": rule.severity,
        "fix": rule.fix,
        "summary": rule.summary,
        "explanation": rule.explanation,
    }


def engines(values: Iterable[EngineFacts]) -> EnginesV1:
    """Engines in their published shape."""
    return {"schema_version": VERSION, "engines": [_facts(facts) for facts in values]}


def _facts(facts: EngineFacts) -> EngineFactsV1:
    changes: defaultdict[str, list[ChangeV1]] = defaultdict(list)
    for point in facts.changes:
        changes[point.method].append({"release": point.release, "name": point.name, "source": point.source})
    profiles: defaultdict[str, list[ProfileV1]] = defaultdict(list)
    for profile in facts.profiles:
        names = [point.name for point in profile.changes]
        profiles[profile.method].append(
            {"first": profile.first, "last": profile.last, "recorded": profile.recorded, "changes": names}
        )
    return {
        "engine": facts.name,
        "releases": list(facts.releases),
        "changes": dict(changes),
        "profiles": dict(profiles),
    }


def replayed(result: Replayed) -> ReplayV1:
    """A replay in its published shape."""
    checked: dict[str, dict[str, dict[str, int]]] = {}
    for (engine, method, release), count in result.checked.items():
        checked.setdefault(engine, {}).setdefault(method, {})[release] = count
    return {
        "schema_version": VERSION,
        "checked": checked,
        "skipped": result.skipped,
        "disagreements": [_disagreement(found) for found in result.disagreements],
    }


def _disagreement(found: Disagreement) -> DisagreementV1:
    return {
        "place": found.place,
        "engine": found.engine,
        "method": found.method,
        "release": found.release,
        "runtime": found.runtime,
        "recorded": found.recorded,
        "modelled": found.modelled,
        "why": found.why,
    }


def override(found: OverrideText) -> OverrideV1:
    """Serve-time flags in their published shape."""
    return {
        "schema_version": VERSION,
        "engine": found.engine,
        "release": found.release,
        "works": found.works,
        "flags": list(found.flags),
        "reason": found.reason,
        "hint": found.hint,
    }


def graft(found: Grafted) -> GraftV1:
    """A graft in its published shape."""
    return {
        "schema_version": VERSION,
        "outcome": found.status,
        "directory": found.directory,
        "base": {"kind": found.base.kind, "id": found.base.id, "revision": found.base.revision},
        "reason": found.reason,
        "shard": found.shard,
        "size": found.size,
        "written": found.written,
        "tensors": [
            {
                "name": row.name,
                "dtype": row.dtype,
                "shape": list(row.shape),
                "shard": row.shard,
                "stored": row.stored,
                "why": row.why,
            }
            for row in found.tensors
        ],
        "replaced": [
            {"name": row.name, "dtype": row.dtype, "shape": list(row.shape), "shard": row.shard, "read": read}
            for row, read in found.replaced
        ],
        "rewritten": list(found.rewritten),
        "removed": list(found.removed),
        "lacking": list(found.lacking),
        "notes": list(found.notes),
        "files": list(found.files),
        "plan": _plan(found.plan),
        "report": report(found.report, found.rules),
    }


def applied(found: Applied) -> AppliedV1:
    """A repair, made or planned, in its published shape."""
    return {
        "schema_version": VERSION,
        "outcome": found.outcome,
        "files": list(found.files),
        "diff": found.diff,
        "report": report(found.report, found.rules),
        "afterwards": report(found.afterwards, found.rules) if found.afterwards else None,
    }


def proposal(outcome: ProposalText) -> ProposalV1:
    """What became of a pull request in its published shape."""
    found = outcome.pull_request
    return {
        "schema_version": VERSION,
        "outcome": outcome.kind,
        "repository": outcome.repository,
        "revision": outcome.revision,
        "pull_request": {"num": found.num, "url": found.url, "author": found.author} if found else None,
        "fingerprint": outcome.fingerprint,
        "reason": outcome.reason,
        "status": outcome.after.status,
    }


def preview(before: Report, after: Report, text: ProposedText, diff: str) -> PreviewV1:
    """A pull request that was not sent in its published shape."""
    return {
        "schema_version": VERSION,
        "outcome": "would-open",
        "repository": before.source.id,
        "revision": before.source.revision or "",
        "fingerprint": text.fingerprint,
        "title": text.title,
        "description": text.body,
        "diff": diff,
        "status": after.status,
    }


def review(found: ReviewedText) -> ReviewV1:
    """A reviewed pull request in its published shape."""
    own, pull = found.review, found.pull_request
    return {
        "schema_version": VERSION,
        "repository": own.before.source.id,
        "pull_request": {"num": pull.num, "url": pull.url, "author": pull.author},
        "base": found.base,
        "head": found.head,
        "effect": own.effect,
        "only_lists": own.only_lists,
        "files": [{"name": one.name, "kind": one.kind, "pointers": list(one.pointers)} for one in own.files],
        "decisions": [_decision_change(change) for change in own.decisions],
        "newly_plain_quantized": list(own.newly_plain_quantized),
        "findings": {
            "mended": [_finding_of(one) for one in own.mended],
            "left": [_finding_of(one) for one in own.left],
            "new": [_finding_of(one) for one in own.new],
        },
        "status": {"before": own.before.status, "after": own.after.status},
    }


def _decision_change(change: DecisionText) -> DecisionChangeV1:
    return {
        "engine": change.engine,
        "part": change.part,
        "releases": [{"first": first, "last": last} for first, last in change.spans],
        "before": change.before,
        "after": change.after,
        "stored": change.stored,
        "right": change.right,
        "modules": list(change.modules),
    }


def _finding_of(found: Finding) -> FindingOfV1:
    return {"rule": found.rule, "part": found.part, "message": found.message}


def scan_row(repository: str, value: Report) -> ScanRowV1:
    """A scanned repository in its published shape."""
    last = {row.engine: row.version for row in sorted(value.engines, key=lambda row: releases.key(row.version))}
    newest = [row for row in value.engines if row.version == last[row.engine]]
    certificate = value.plan.certificate
    return {
        "schema_version": VERSION,
        "mtpfix": mtpfix.__version__,
        "repository": repository,
        "revision": value.source.revision,
        "status": value.status,
        "family": value.family,
        "format": value.format,
        "findings": dict(Counter(finding.rule for finding in value.findings if finding.severity == "error")),
        "warnings": dict(Counter(finding.rule for finding in value.findings if finding.severity == "warning")),
        "engines": {
            name: {row.part: row.verdict for row in newest if row.engine == name}
            for name in dict.fromkeys(row.engine for row in newest)
        },
        "entries": {"added": certificate.entries_added, "removed": certificate.entries_removed},
    }


def unreadable_row(repository: str, error: str, hint: str) -> UnreadableRowV1:
    """A repository that could not be inspected in its published shape."""
    return {
        "schema_version": VERSION,
        "mtpfix": mtpfix.__version__,
        "repository": repository,
        "revision": None,
        "status": "unreadable",
        "error": error,
        "hint": hint,
    }


def _check_text(result: CheckResult, _page: Page) -> str:
    documents = [report(value, result.rules) for value in result.reports]
    if result.several:
        return line(documents)
    return "".join(map(line, documents))


def _explained(found: Explanation, _page: Page) -> str:
    """The explanation as a line, written piece by piece: what modules that are decided alike share is made once."""
    rows = found.rows
    told = rows.told if isinstance(rows, DecisionRows) else tuple((row.module, (row,)) for row in rows)
    head, tail = line(explanation(replace(found, rows=()))).split(_NO_DECISIONS, 1)
    made: dict[int, list[str]] = {}
    parts: list[str] = []
    for name, held in told:
        if id(held) not in made:  # what is told holds it
            made[id(held)] = [json.dumps({**_decision(row), "module": ""}).removeprefix(_NAMELESS) for row in held]
        start = f'{{"module": {json.dumps(name)}, '
        for part in made[id(held)]:
            parts += (start, part, ", ")
    return "".join((head, _DECISIONS, *parts[:-1], "]", tail))


def line(document: object) -> str:
    """One line of pure ASCII: no terminal and no pipe can spoil it."""
    return json.dumps(document, ensure_ascii=True) + "\n"


FORMAT = Format(
    name="json",
    check=_check_text,
    explain=_explained,
    tensors=lambda listing, _page: line(tensors(listing.rows)),
    rules=lambda chosen, _page: line(rules(chosen.rules)),
    symptoms=lambda found, _page: line(symptoms(found)),
    engines=lambda facts, _page: line(engines(facts)),
    replayed=lambda result, _page: line(replayed(result)),
    override=lambda found, _page: line(override(found)),
    graft=lambda found, _page: line(graft(found)),
)
