"""The least: one name a line, for other programs to read; nothing where nothing is wrong."""

from __future__ import annotations

from mtpfix.output.base import CheckResult, Format, Page, RuleList, Symptom, TensorList
from mtpfix.output.text import clean, page_text


def _check(result: CheckResult, page: Page) -> str:
    """The sources that have an error."""
    return page_text(clean(report.source.id, page) for report in result.reports if report.status != "clean")


def _tensors(listing: TensorList, page: Page) -> str:
    return page_text(clean(row.name, page) for row in listing.rows)


def _rules(chosen: RuleList, page: Page) -> str:
    return page_text(clean(rule.code, page) for rule in chosen.rules)


def _symptoms(found: tuple[Symptom, ...], page: Page) -> str:
    return page_text(dict.fromkeys(clean(rule.code, page) for symptom in found for rule in symptom.rules))


FORMAT = Format(name="quiet", check=_check, tensors=_tensors, rules=_rules, symptoms=_symptoms)
