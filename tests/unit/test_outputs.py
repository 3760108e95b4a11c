"""The registry of formats says what each file can write, without importing it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import factories
import pytest

from mtpfix import output
from mtpfix.output import FORMATS
from mtpfix.output.base import CheckResult, Format, Page

WRITERS = [name for name in Format.__match_args__ if name not in ("name", "uploaded", "mapped", "unread", "load")]  # type: ignore[attr-defined]


def written() -> list[Format]:
    """`FORMAT` of every file in the folder that has one."""
    files = Path(output.__path__[0]).glob("*.py")
    modules = [import_module(f"mtpfix.output.{file.stem}") for file in files if file.stem != "__init__"]
    return [module.FORMAT for module in modules if hasattr(module, "FORMAT")]


def test_every_format_is_registered_once() -> None:
    assert sorted(form.name for form in FORMATS) == sorted(form.name for form in written())


@pytest.mark.parametrize("form", written(), ids=lambda form: form.name)
def test_what_is_registered_is_what_the_file_can_write(form: Format) -> None:
    (row,) = [row for row in FORMATS if row.name == form.name]
    assert (row.uploaded, row.mapped, row.unread) == (form.uploaded, form.mapped, form.unread)
    able = {what: getattr(form, what) is not None for what in WRITERS}
    assert {what: getattr(row, what) is not None for what in WRITERS} == able


@pytest.mark.parametrize("form", written(), ids=lambda form: form.name)
def test_a_registered_writer_is_the_one_of_the_file(form: Format) -> None:
    (row,) = [row for row in FORMATS if row.name == form.name]
    assert row.load().FORMAT is form  # type: ignore[attr-defined]
    result = CheckResult((factories.fixable(),), {rule.code: rule for rule in factories.RULES})
    assert row.check(result, Page()) == form.check(result, Page())
