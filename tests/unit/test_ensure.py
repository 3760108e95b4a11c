"""`mtpfix.ensure` at the end of an export: with a base, what the export left out is restored by the same line."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from checkpoints import glm4_moe, on_disk

import mtpfix
from mtpfix.errors import FindingsError, RefusedError, UsageError

MADE = glm4_moe()
TARGET = ("lm_head", "*self_attn*", "*.mlp.gate")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return on_disk(tmp_path / "base", MADE, seed=2)


def export(folder: Path, made: Any = MADE, **more: Any) -> Path:
    return on_disk(folder, made, "nvfp4", TARGET, sidecar=TARGET, seed=1, **more)


def test_a_draft_that_the_export_dropped(tmp_path: Path, base: Path, caplog: pytest.LogCaptureFixture) -> None:
    out = export(tmp_path / "out", MADE.without_draft())
    with pytest.raises(FindingsError, match="MTP006"):
        mtpfix.ensure(out)
    with caplog.at_level(logging.WARNING, logger="mtpfix"):
        report = mtpfix.ensure(out, base=base)
    drafts = [name for name in names_in(out) if name.startswith("model.layers.2.")]
    words = f"{len(drafts)} tensors restored from {base} into model_mtp.safetensors"
    assert (report.status, report.notes[0]) == ("clean", words)
    assert caplog.messages == [f"{out}: {words}"]
    again = mtpfix.ensure(out, base=base)
    assert words not in again.notes
    assert len(caplog.messages) == 1


def names_in(folder: Path) -> list[str]:
    return list(json.loads((folder / "model.safetensors.index.json").read_bytes())["weight_map"])


def test_a_draft_that_is_there_is_only_listed(tmp_path: Path, base: Path, caplog: pytest.LogCaptureFixture) -> None:
    out = export(tmp_path / "out")
    assert mtpfix.check(out).status == "fixable"
    assert mtpfix.ensure(out, base=base).status == "clean"
    assert not caplog.messages
    assert not list(out.glob("model_mtp*"))


def test_a_base_without_a_draft_does_not_help(tmp_path: Path) -> None:
    bare = on_disk(tmp_path / "bare", MADE.without_draft(), seed=2)
    with pytest.raises(FindingsError, match="MTP006"):
        mtpfix.ensure(export(tmp_path / "out", MADE.without_draft()), base=bare)


def test_a_base_of_another_size_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    out = export(tmp_path / "out", MADE.without_draft())
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    other = on_disk(tmp_path / "other", glm4_moe(experts=4), seed=2)
    with pytest.raises(RefusedError):
        mtpfix.ensure(out, base=other)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_what_was_packed_takes_leave_to_rewrite(tmp_path: Path, base: Path) -> None:
    projection = "model.layers.2.eh_proj"
    listed = (*TARGET, "model.layers.2.*")
    out = on_disk(tmp_path / "out", MADE, "nvfp4", listed, sidecar=listed, stored={projection: "nvfp4"}, seed=1)
    with pytest.raises(RefusedError, match="old tensors"):
        mtpfix.ensure(out, base=base)
    report = mtpfix.ensure(out, base=base, rewrite=True)
    assert report.notes[0].startswith("1 tensor restored from ")


def test_a_text_that_stands_alone_is_one_and_a_word_that_is_none_is_refused(tmp_path: Path) -> None:
    out = export(tmp_path / "out")
    assert mtpfix.check(out, engines="vllm>=0.30").asked == mtpfix.check(out, engines=["vllm>=0.30"]).asked
    with pytest.raises(UsageError, match="no such scope: mpt"):
        mtpfix.check(out, scope="mpt")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no such way: froce"):
        mtpfix.undo(out, way="froce")  # type: ignore[arg-type]
