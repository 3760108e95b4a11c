"""Serve-time flags: there only where the engine lets them reach what is wrong, and equal to the patch."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import tiny
from checkpoints import build, gemma4_assistant, glm4_moe
from click.testing import CliRunner

from mtpfix import override as module
from mtpfix.analysis import analyse, repaired
from mtpfix.checkpoint.local import read_local
from mtpfix.cli import main
from mtpfix.errors import UsageError
from mtpfix.model import Checkpoint
from mtpfix.override import FLAGS, override


@pytest.fixture
def broken() -> Checkpoint:
    return build(glm4_moe(), "nvfp4", ignore=["lm_head", "model.layers.1.mlp.gate"])


def test_vllm_gets_the_whole_config_of_the_patch(broken: Checkpoint) -> None:
    found = override(broken, "vllm")
    flag, argument = found.flags
    assert (found.works, flag) == (True, "--hf-overrides")
    plan = analyse(broken, engines=[f"vllm=={found.release}"]).plan
    config = json.loads(plan.after["config.json"])
    assert json.loads(argument) == {"quantization_config": config["quantization_config"]}
    assert shlex.split(found.text) == [flag, argument]


@pytest.mark.parametrize("spec", ["vllm==0.33.0", "vllm>=0.20", "vllm"])
def test_of_several_releases_the_newest_counts(broken: Checkpoint, spec: str) -> None:
    assert override(broken, spec) == override(broken, "vllm")


REFUSED = [
    ("vllm==0.24.0", "the flags of vllm==0.24.0 are not known", "known are those of vllm>=0.33.0"),
    ("sglang<0.5.20", "the flags of sglang<0.5.20 are not known", "mtpfix apply --engine 'sglang<0.5.20'"),
    ("tensorrt-llm", "no flags of tensorrt-llm are known", "known are vllm and sglang"),
    ("vllm=0.33.0", "malformed range of releases", "write 'vllm==0.33.0'"),
    ("vlm", "no such engine", "do you mean vllm?"),
]


@pytest.mark.parametrize(("spec", "message", "hint"), REFUSED)
def test_releases_whose_flags_are_not_known_are_refused(broken: Checkpoint, spec: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as raised:
        override(broken, spec)
    assert str(raised.value).startswith(message)
    assert hint in raised.value.hint


@pytest.mark.parametrize("engine", FLAGS)
def test_nothing_to_do_where_it_loads(broken: Checkpoint, engine: str) -> None:
    mended = repaired(broken, analyse(broken).plan.after)
    found = override(mended, engine)
    if found.works:
        assert found.flags == ()
        assert "loads it as it is" in found.reason


def test_a_draft_that_reads_its_own_config_is_not_reached(broken: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module._Case, "_draft_quant", lambda *_: "own")
    found = override(broken, "vllm")
    assert (found.works, found.flags) == (False, ())
    assert "target only" in found.reason


def test_a_draft_repository_without_a_config_needs_a_flag_in_sglang_only() -> None:
    checkpoint = build(gemma4_assistant())
    assert override(checkpoint, "sglang").flags == ("--speculative-draft-model-quantization", "unquant")
    vllm = override(checkpoint, "vllm")
    assert (vllm.works, vllm.flags) == (True, ())


def test_the_file_that_is_read_in_any_case_is_not_overridden() -> None:
    checkpoint = build(glm4_moe(), "mixed", ignore=[], sidecar=[])
    for engine in FLAGS:
        found = override(checkpoint, engine)
        assert found.flags == ()


def test_an_argument_that_linux_refuses_is_no_answer(broken: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST", 100)
    found = override(broken, "vllm")
    assert (found.works, found.flags) == (False, ())
    assert "bytes" in found.reason


def test_the_command(tmp_path: Path) -> None:
    folder = str(tiny.qwen3_next(tmp_path / "checkpoint"))
    for engine in FLAGS:
        result = CliRunner().invoke(main, ("override", folder, "--engine", engine))
        document = json.loads(
            CliRunner().invoke(main, ("override", folder, "--engine", engine, "--format", "json")).stdout
        )
        found = override(read_local(folder), engine)
        assert result.exit_code == (0 if found.works else 1)
        assert shlex.split(result.stdout) == list(found.flags) == document["flags"]
        assert result.stderr
