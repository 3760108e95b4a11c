"""Hostile weight files: the safetensors library is the referee.

In the short run some of those that are only large; all with MTPFIX_LONG=1.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from safetensors import SafetensorError, safe_open

from .headers import larger, lies
from .sandbox import Sandbox, civil

CONFIG = {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "num_hidden_layers": 2,
    "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]},
}
LONG = bool(os.environ.get("MTPFIX_LONG"))
TABS, ENDS = (f"100 MB of {blank!r}" for blank in (b"\t", b"\n"))
CASES = {what: lie for what, lie in lies() if LONG or not what.startswith((TABS, ENDS))}


def accepted(path: Path) -> bool:
    """What the library says."""
    try:
        with safe_open(path, "numpy") as file:
            file.keys()
    except (SafetensorError, OSError, ValueError):
        return False
    return True


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


@pytest.mark.parametrize("what", CASES)
def test_what_the_library_accepts_is_read_and_nothing_else(place: Path, sandbox: Sandbox, what: str) -> None:
    shard = place / "model.safetensors"
    CASES[what].write(shard)
    done = sandbox.run("check", place)
    civil(done)
    assert (done.code != 3) == accepted(shard), (done.code, done.err[-500:])
    if done.code == 3:
        assert "model.safetensors" in done.err


def test_both_kinds_are_among_them(place: Path) -> None:
    wanted = {True, False}
    for lie in (lie for what, lie in CASES.items() if "MB" not in what and wanted):
        lie.write(place / "model.safetensors")
        wanted.discard(accepted(place / "model.safetensors"))
    assert not wanted


def test_what_no_model_needs_is_refused(place: Path, sandbox: Sandbox) -> None:
    shard = place / "model.safetensors"
    for number, (what, lie) in enumerate(larger()):
        if not LONG and number % 16:
            continue
        lie.write(shard)
        assert accepted(shard), what
        done = sandbox.run("check", place)
        civil(done)
        assert done.code == 3, what
        assert "limit" in done.err or "more than" in done.err, (what, done.err)
    shard.unlink()
