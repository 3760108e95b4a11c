"""Laws of grafting, on checkpoints whose drafts lack and spoil modules at random.

1. undo ∘ graft = identity, byte for byte.
2. What is not grafted keeps its bytes; what is grafted has the base's.
3. The index names exactly what is stored, and no tensor lies in two files.
4. graft ∘ graft = graft.
5. A refused graft changes nothing.
6. No engine release loads a part worse than before.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import drawn
import pytest
from checkpoints import INDEX, Model, deepseek_v3, glm4_moe, on_disk, qwen3_5, qwen3_next
from hypothesis import event, given
from hypothesis import strategies as st
from lengths import many

import mtpfix
from mtpfix.checkpoint.local import read_local
from mtpfix.errors import RefusedError

MODELS = {"qwen3_next": qwen3_next, "qwen3_5": qwen3_5, "glm4_moe": glm4_moe, "deepseek_v3": deepseek_v3}
SHARDS = {
    "one": lambda name: "model.safetensors",
    "by layer": lambda name: f"part-{'layers.0' in name}.safetensors",
    "draft apart": lambda name: f"{'draft' if 'mtp' in name or 'layers.2' in name else 'rest'}.safetensors",
    "by hash": lambda name: f"part-{sum(name.encode()) % 3}.safetensors",
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def tensors(folder: Path) -> dict[str, bytes]:
    """Every tensor with its bytes; no name may be there twice."""
    found: dict[str, bytes] = {}
    for path in folder.glob("*.safetensors"):
        raw = path.read_bytes()
        front = 8 + int.from_bytes(raw[:8], "little")
        for name, row in json.loads(raw[8:front]).items():
            if name != "__metadata__":
                assert name not in found
                found[name] = raw[front + row["data_offsets"][0] : front + row["data_offsets"][1]]
    index = folder / INDEX
    if index.exists():
        assert json.loads(index.read_bytes())["weight_map"].keys() == found.keys()
    return found


@st.composite
def broken(draw: Any) -> tuple[Model, dict[str, Any]]:
    made = MODELS[draw(st.sampled_from(sorted(MODELS)))]()
    made = draw(drawn.slim(made)) if draw(st.integers(0, 5)) else made
    names = sorted([*made.draft, *made.bare])
    lost = draw(st.lists(st.sampled_from(names), unique=True, max_size=len(names)))
    spoilt = draw(st.lists(st.sampled_from(sorted(made.bare)), unique=True, max_size=2))
    if draw(st.booleans()):
        lost = names
    spoilt = [name for name in spoilt if name not in lost and made.bare[name][1] % 16 == 0]
    chosen = {
        "drop": [f"{name}.weight" for name in lost],
        "stored": dict.fromkeys(spoilt, "nvfp4"),
        "shard_of": SHARDS[draw(st.sampled_from(sorted(SHARDS)))],
        "ignore": ("lm_head", "*mlp.gate", "*linear_attn*", *draw(st.sampled_from([(), ("mtp*", "model.layers.2*")]))),
    }
    return made, chosen


@given(broken(), st.sampled_from(sorted(SHARDS)))
@many(20)
def test_laws(case: tuple[Model, dict[str, Any]], shards: str) -> None:
    made, chosen = case
    world = Path(tempfile.mkdtemp(prefix="mtpfix-"))
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_STATE_HOME", str(world / "state"))
            ignore = chosen.pop("ignore")
            here = on_disk(world / "here", made, "nvfp4", ignore, sidecar=ignore, seed=1, **chosen)
            _holds(here, on_disk(world / "base", made, seed=2, shard_of=SHARDS[shards]))
    finally:
        shutil.rmtree(world)


def _holds(here: Path, base: Path) -> None:
    old, own, theirs, before = content(here), tensors(here), tensors(base), mtpfix.check(here)
    try:
        found = mtpfix.graft(here, base, rewrite=True)
    except RefusedError as error:
        event(f"refused: {str(error)[:40]}")
        assert content(here) == old
        return
    event("grafted" if found.layout else "nothing")
    new, after = tensors(here), mtpfix.check(here)
    grafted = {row.row.name for row in found.origins}
    gone = {copy.tensor.name for copy in found.old} - grafted
    assert new == {name: data for name, data in own.items() if name not in gone} | {n: theirs[n] for n in grafted}
    read_local(here)
    assert _loading(before) <= _loading(after)
    again = content(here)
    assert mtpfix.graft(here, base, rewrite=True).layout is None
    assert content(here) == again
    if found.layout:
        mtpfix.undo(here)
    assert content(here) == old


def _loading(report: mtpfix.Report) -> set[tuple[str, str, str]]:
    return {
        (row.engine, release, row.part) for row in report.engines if row.verdict == "loads" for release in row.releases
    }
