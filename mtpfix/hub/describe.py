"""A pull request for its reviewer: title, description, and a fingerprint that a program finds again. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import mtpfix
from mtpfix.frozen import dataclass
from mtpfix.model import Edit, Plan, Report
from mtpfix.output import human, markdown
from mtpfix.output.base import RuleText
from mtpfix.output.markdown import block, code, escaped
from mtpfix.output.text import listed
from mtpfix.patch import tokens

_MARK = re.compile(r"^<!-- mtpfix-repair: sha256=([0-9a-f]{64}) -->\s*$", re.MULTILINE)
# The Hub takes longer descriptions; a reviewer does not.
_LONGEST = 60_000


@dataclass(frozen=True, slots=True)
class Description:
    """What a pull request says of itself. `fingerprint` stands in the body, where `marks` finds it."""

    title: str
    body: str
    fingerprint: str


def fingerprint(plan: Plan) -> str:
    """The hash of what a plan changes, whatever repository, revision or place in a list it is about."""
    changes = sorted([edit.file, edit.op, *_change(plan, edit)] for edit in plan.edits)
    if plan.index:
        changes += [[plan.index.file, *row] for row in sorted(plan.index.listings)]
    return hashlib.sha256(json.dumps(changes, ensure_ascii=True).encode()).hexdigest()


def _change(plan: Plan, edit: Edit) -> tuple[str, str]:
    """The place without a position in a list, and the value that comes or goes."""
    *front, last = tokens(edit.pointer)
    holder: Any = json.loads(plan.before[edit.file].decode("utf-8-sig"))
    for token in front:
        holder = holder[int(token)] if isinstance(holder, list) else holder.get(token, {})
    if not isinstance(holder, list):
        return edit.pointer, json.dumps(edit.value, sort_keys=True)
    # Removals come last place first and before additions, so that each place is the file's own.
    value = holder[int(last)] if edit.op == "remove" else edit.value
    return edit.pointer.rpartition("/")[0], json.dumps(value, sort_keys=True)


def mark(found: str) -> str:
    """The line of a description that carries a fingerprint."""
    return f"<!-- mtpfix-repair: sha256={found} -->"


def marks(text: str) -> tuple[str, ...]:
    """The fingerprints that a text carries, each on a line of its own, where no foreign name can be."""
    return tuple(_MARK.findall(text.replace("\r\n", "\n")))


def describe(before: Report, after: Report, rules: Sequence[RuleText] = ()) -> Description:
    """The pull request of a checked checkpoint; `after`: the report of the same checkpoint with the plan applied."""
    found = fingerprint(before.plan)
    body = "\n".join(_lines(before, after, {rule.code: rule for rule in rules}))
    if len(body) > _LONGEST:
        body = body[: body.rfind("\n", 0, _LONGEST)] + "\n\n(shortened)"
    return Description(_title(before.plan), f"{body}\n\n{mark(found)}\n", found)


def _title(plan: Plan) -> str:
    files = listed(list(plan.files))
    if not plan.certificate.entries_added and not plan.certificate.entries_removed:
        return f"Make {files} say what is stored"
    if not plan.certificate.entries_removed:
        return f"List what is stored in full precision in {files}"
    return f"Correct the list of full-precision modules in {files}"


def _lines(before: Report, after: Report, rules: dict[str, RuleText]) -> Iterator[str]:
    plan = before.plan
    files = listed([code(name) for name in plan.files])
    yield "The quantization metadata of this repository says something else than what its weights are."
    yield f"This edits {files} and nothing else; no weight is touched."
    yield from ("", "### What is stored", "")
    yield from markdown.table(["", ""], ([name, text] for name, text in markdown.fact_cells(before)))
    yield from ("", "### What is declared, and what comes of it", "")
    for finding in before.findings:
        if finding.severity != "note":
            yield from markdown.finding_lines(finding, rules.get(finding.rule))
    yield from ("", "### What the engines do before and after", "")
    yield from markdown.matrix_lines(before.engines, after.engines)
    causes = markdown.cause_lines(before.engines)
    yield from ["", "Before:", "", *causes] if causes else []
    yield from ("", f"### The edit: {escaped(human.changes(plan))}", "")
    yield from markdown.entry_lines(plan)
    yield from ("", "### What was checked", "")
    yield escaped(" ".join(human.certificate_lines(plan, markdown.PAGE)))
    yield from _left(after)
    yield from ("", "### How to verify", "")
    yield from _verify(before)


def _left(after: Report) -> Iterator[str]:
    """What the edit does not mend."""
    left = [finding for finding in after.findings if finding.severity == "error"]
    if left:
        yield from ("", "What this does not mend:", "")
    for finding in left:
        yield f"- {escaped(finding.rule)}: {escaped(finding.message)}"


def _verify(before: Report) -> Iterator[str]:
    name, commit = before.source.id, before.source.revision or "main"
    yield "Safetensors headers and JSON files are enough; nothing large is downloaded."
    yield "N is the number of this pull request:"
    yield ""
    yield from block(
        f"pip install mtpfix\nmtpfix check {name}@{commit}\nmtpfix check {name}@refs/pr/N\nmtpfix review {name} N"
    )
    yield ""
    yield f"Made by mtpfix {mtpfix.__version__} from commit {code(commit)}."
