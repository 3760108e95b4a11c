"""For the tests of exporters: a checkpoint that an export wrote has to load.

    from mtpfix.testing import assert_loads

    def test_export(tmp_path):
        export(tmp_path)
        assert_loads(tmp_path, engine="vllm>=0.24")

Nothing but the headers and JSON files is read; no engine, no torch and no GPU is needed.
"""

from __future__ import annotations

from collections.abc import Sequence

from mtpfix import api
from mtpfix.model import Report
from mtpfix.output import matrix
from mtpfix.output.base import Page
from mtpfix.output.listing import spans
from mtpfix.output.text import listed

__all__ = ["assert_loads"]


def assert_loads(path: api.Pathish, engine: str | Sequence[str] = ("vllm", "sglang")) -> Report:
    """The report of a checkpoint whose target and draft load in every release that `engine` means.

    engine  `vllm>=0.24`, or several of its kind; a release that does not know the model, or of which too little is
            known, does not load it

    Raises AssertionError that names the releases, the reasons and the way out; UnreadableError where nothing can be
    concluded, UsageError for an engine that is none.
    """
    asked = api.each(engine)
    report = api.check(path, engines=asked)
    if not report.engines or any(row.verdict != "loads" for row in report.engines):
        raise AssertionError("\n".join(_lines(report, asked)))
    return report


def _lines(report: Report, asked: Sequence[str]) -> list[str]:
    page = Page()
    lines = [f"{report.source.id} does not load in {', '.join(asked)}"]
    for cause in matrix.causes(report.engines):
        where = f"{cause.engine} {spans(cause.spans, page)}"
        lines.append(f"  {where}: {listed(cause.parts)} {cause.verdict}: {cause.reason}")
    for finding in report.findings:
        lines.append(f"  {finding.severity} {finding.rule}: {finding.message}")
        lines += [f"    help: {finding.hint}"] if finding.hint else []
    return lines
