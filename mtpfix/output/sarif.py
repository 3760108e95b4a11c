"""SARIF 2.1.0 for code scanning: rules, results at the lists they are about, and the repair as text replacements.

Columns count code points. A checkpoint has one repair, which mends all its fixable findings together, so only the
first of them carries it: a viewer that applies every fix it is offered must not add an entry twice.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any
from urllib.parse import quote

import mtpfix
from mtpfix.model import Finding, Location, Plan, Report, Severity, Source
from mtpfix.output.base import CheckResult, Format, Page, RuleText
from mtpfix.output.places import Places, Region, Replacement, path, replacements
from mtpfix.output.text import clean, plural

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS: dict[Severity, str] = {"error": "error", "warning": "warning", "note": "note"}
_PAGE = Page()
_MOST_MODULES = 1000
_SAFE = "/-_.~!$&'()*+,;=:@"

Json = dict[str, Any]


def _check(result: CheckResult, _page: Page) -> str:
    return json.dumps(_log(result), indent=2, ensure_ascii=True) + "\n"


def _log(result: CheckResult) -> Json:
    codes = tuple(dict.fromkeys(finding.rule for report in result.reports for finding in report.findings))
    run: Json = {
        "tool": {"driver": _driver([result.rules[code] for code in codes if code in result.rules])},
        "columnKind": "unicodeCodePoints",
        "artifacts": [_artifact(report, name) for report in result.reports for name in report.texts],
        "results": [item for report in result.reports for item in _results(report, codes)],
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _driver(rules: Sequence[RuleText]) -> Json:
    homes = _homes()
    home = homes.get("homepage") or homes.get("documentation")
    return {
        "name": "mtpfix",
        "version": mtpfix.__version__,
        "semanticVersion": mtpfix.__version__,
        **({"informationUri": home} if home else {}),
        "rules": [_rule(rule, homes.get("documentation", "")) for rule in rules],
    }


def _homes() -> dict[str, str]:
    """The project's addresses by their names in small letters, as its package declares them; none if it does not."""
    from importlib.metadata import PackageNotFoundError, metadata

    try:
        declared = metadata("mtpfix").get_all("Project-URL") or []
    except PackageNotFoundError:
        return {}
    return {name.strip().casefold(): address.strip() for name, _, address in (line.partition(",") for line in declared)}


def _rule(rule: RuleText, documentation: str) -> Json:
    """A rule's texts; the same that `mtpfix rule CODE` prints."""
    level = _LEVELS.get(rule.severity, "none")  # type: ignore[call-overload]
    help_uri = {"helpUri": f"{documentation.rstrip('/')}/rules/{rule.code}/"} if documentation else {}
    return {
        "id": rule.code,
        "name": _pascal(rule.name),
        "shortDescription": {"text": f"{rule.summary[:1].upper()}{rule.summary[1:]}."},
        "fullDescription": {"text": rule.explanation},
        "help": {
            "text": rule.explanation,
            "markdown": f"**{rule.code} {rule.name}**: {rule.summary}\n\n{rule.explanation}",
        },
        **help_uri,
        "defaultConfiguration": {"level": level},
        "properties": {"tags": ["quantization", "checkpoint"], "fix": rule.fix, "kind": rule.kind},
    }


def _pascal(name: str) -> str:
    """`draft-not-excluded` as SARIF's viewers expect a rule's name: DraftNotExcluded."""
    return "".join(part.capitalize() for part in name.split("-"))


def _artifact(report: Report, name: str) -> Json:
    return {"location": {"uri": _uri(report.source, name)}, "sourceLanguage": "json"}


def _uri(source: Source, name: str) -> str:
    """A file's address: relative to where mtpfix ran, `file:` for an absolute path, `hf:` for one on the Hub."""
    where = path(source, name).replace("\\", "/")
    if source.kind == "hub":
        return quote(where, safe=_SAFE)
    front = "file://" if where.startswith("/") else ""
    return front + quote(where.removeprefix("./"), safe=_SAFE.replace(":", ""), errors="surrogateescape")


def _results(report: Report, codes: Sequence[str]) -> list[Json]:
    """The findings of a report; the first that the repair mends carries it."""
    places = Places(report)
    found = [_result(report, finding, places, codes) for finding in report.findings]
    mended = (at for at, finding in enumerate(report.findings) if finding.fix == "safe")
    at = next(mended, None)
    if at is not None and report.plan.after:
        found[at]["fixes"] = [_fix(report)]
    return found


def _result(report: Report, finding: Finding, places: Places, codes: Sequence[str]) -> Json:
    text = clean(finding.message, _PAGE) + (f" Help: {clean(finding.hint, _PAGE)}." if finding.hint else "")
    modules = [clean(name, _PAGE) for name in finding.modules[:_MOST_MODULES]]
    where = places.of(finding)
    return {
        "ruleId": finding.rule,
        "ruleIndex": codes.index(finding.rule),
        "kind": "fail",
        "level": _LEVELS[finding.severity],
        "message": {"text": text},
        "locations": [_location(report.source, where[0], places.region(where[0]), modules[:1])],
        "relatedLocations": [
            {"id": number, **_location(report.source, place, places.region(place), [])}
            for number, place in enumerate(where[1:], 1)
        ],
        "partialFingerprints": {"mtpfixFinding/v1": _fingerprint(report.source, finding)},
        "properties": {
            "source": report.source.id,
            "part": finding.part,
            "engines": list(finding.engines),
            "modules": modules,
            "moduleCount": finding.module_count,
            "fix": finding.fix,
        },
    }


def _location(source: Source, place: Location, region: Region, modules: Sequence[str]) -> Json:
    found: Json = {
        "physicalLocation": {
            "artifactLocation": {"uri": _uri(source, place.file)},
            "region": _region(region),
        }
    }
    if modules:
        found["logicalLocations"] = [{"fullyQualifiedName": name, "kind": "module"} for name in modules]
    return found


def _region(region: Region) -> Json:
    return {
        "startLine": region.line,
        "startColumn": region.column,
        "endLine": region.end_line,
        "endColumn": region.end_column,
    }


def _fingerprint(source: Source, finding: Finding) -> str:
    """The same for a finding as long as it is about the same modules of the same checkpoint, however it is worded."""
    about = [source.id, finding.rule, finding.part, *sorted(finding.modules)]
    return sha256(json.dumps(about).encode()).hexdigest()


def _fix(report: Report) -> Json:
    plan: Plan = report.plan
    changes = [
        {
            "artifactLocation": {"uri": _uri(report.source, name)},
            "replacements": [_replacement(one) for one in replacements(plan.before[name], new)],
        }
        for name, new in plan.after.items()
    ]
    text = f"The whole repair of {report.source.id}: {plural(len(plan.edits), 'edit')}; the same as mtpfix apply."
    return {"description": {"text": clean(text, _PAGE)}, "artifactChanges": changes}


def _replacement(one: Replacement) -> Json:
    deleted = _region(one.region)
    return {"deletedRegion": deleted, **({"insertedContent": {"text": one.text}} if one.text else {})}


FORMAT = Format(name="sarif", check=_check, uploaded=True)
