"""What is left after a repair, told on stderr: errors with what would help, else the engines that do not load it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from mtpfix.cli.terminal import page, talk
from mtpfix.model import EngineRow, Report


def tell_left(report: Report) -> bool:
    """Tell it of a report; whether errors are left."""
    from mtpfix.rules import BY_CODE

    errors = [finding for finding in report.findings if finding.severity == "error"]
    if errors:
        from mtpfix.output import human

        talk(*human.unfixed_lines(errors, BY_CODE, page(sys.stderr)))
    else:
        tell_still(report.engines, report)
    return bool(errors)


def tell_still(rows: Sequence[EngineRow], report: Report) -> None:
    """The engines that do not load it all the same, by the rows of a matrix; the report says why."""
    from mtpfix.output import human
    from mtpfix.rules import BY_CODE

    talk(*human.still_lines(rows, report.findings, BY_CODE, page(sys.stderr)))
