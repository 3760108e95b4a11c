"""`mtpfix.testing`: what an exporter's own tests ask."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import mtpfix
from mtpfix.testing import assert_loads

EXAMPLES = Path(__file__).parents[2] / "examples"
BROKEN = EXAMPLES / "GLM-5.3-Flash-NVFP4"


@pytest.fixture
def repaired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = shutil.copytree(BROKEN, tmp_path / "c")
    mtpfix.ensure(folder)
    return folder


def test_what_loads_gives_its_report(repaired: Path) -> None:
    report = assert_loads(repaired, engine=["vllm>=0.30", "sglang>=0.5.20"])
    assert {row.engine for row in report.engines} == {"vllm", "sglang"}


def test_what_does_not_load_says_where_why_and_what_helps() -> None:
    with pytest.raises(AssertionError) as raised:
        assert_loads(BROKEN, engine="vllm>=0.30")
    text = str(raised.value)
    assert text.startswith(f"{BROKEN} does not load in vllm>=0.30\n  vllm 0.30.0–0.33.0: draft fails: packed and ")
    assert "  error MTP001: 9 modules of the draft" in text
    assert text.endswith("    help: add the entries of the plan: mtpfix apply")


def test_a_release_without_the_model_does_not_load_it(repaired: Path) -> None:
    with pytest.raises(AssertionError, match=r"vllm 0\.29\.0: target and draft unsupported"):
        assert_loads(repaired, engine="vllm>=0.29")


def test_every_release_of_vllm_and_sglang_is_meant_by_default(repaired: Path) -> None:
    with pytest.raises(AssertionError, match="does not load in vllm, sglang\n") as raised:
        assert_loads(repaired)
    assert "sglang 0.5.9–0.5.19: target and draft unsupported" in str(raised.value)


def test_wrong_use_is_no_failed_assertion(tmp_path: Path) -> None:
    with pytest.raises(mtpfix.UsageError):
        assert_loads(BROKEN, engine="vlm")
    with pytest.raises(mtpfix.UnreadableError):
        assert_loads(tmp_path, engine="vllm")
