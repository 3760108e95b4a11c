"""Hostile weight files: the safetensors library is the referee.

In the short run some of those that are only large; all with MTPFIX_LONG=1.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from safetensors import SafetensorError, safe_open

from .headers import larger, lies, padded, tensor, weighty
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


def test_what_is_read_is_cheap(place: Path, sandbox: Sandbox) -> None:
    """Two of them in the short run, with `check` alone."""
    shard, bundle = place / "model.safetensors", place.parent / "bundle"
    commands = (("check",), ("list",), ("check", "--format", "json"), ("snapshot", "-o", str(bundle)))
    for number, (what, lie) in enumerate(weighty()):
        if not LONG and number > 1:
            break
        lie.write(shard)
        for command in commands if LONG else commands[:1]:
            done = sandbox.run(*command, place)
            try:
                civil(done)
                assert done.code != 3, done.err
            except AssertionError as error:
                raise AssertionError(f"{what}, {' '.join(command)}: {error}") from error
    shard.unlink()
    bundle.unlink(missing_ok=True)


def test_all_headers_of_a_checkpoint_have_a_limit(place: Path, sandbox: Sandbox) -> None:
    """A header costs nothing on a disk as often as it is linked to."""
    padded(b'{"a":%s}' % json.dumps(tensor()).encode(), 1).write(place / "m-0.safetensors")
    (place / "m-1.safetensors").symlink_to("m-0.safetensors")
    done = sandbox.run("check", place)
    civil(done)
    assert done.code == 3
    assert "all are 200,0" in done.err
    for shard in place.glob("*.safetensors"):
        shard.unlink()
