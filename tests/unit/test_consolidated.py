"""Mistral's `consolidated*.safetensors` beside the files that the index names: vLLM opens them alone.

Seen with vLLM 0.33.0 on a CPU, load format `auto`, GLM-4 MoE in NVFP4: without the draft's tensors in them the draft's
parameters stay unwritten, with a head alone the target's too, a whole copy loads.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoints import dumped, glm4_moe, header, parts, read, right_list

import mtpfix
from mtpfix.analysis import analyse
from mtpfix.api import snapshot
from mtpfix.checkpoint.index import consolidated_beside, shard_names
from mtpfix.model import Report

GLM = glm4_moe()
COPY = "consolidated.safetensors"


def report(keeps: Callable[[str], bool], rename: Callable[[str], str] = str) -> Report:
    files, shards = parts(GLM, "nvfp4", right_list(GLM, "nvfp4"))
    copy = {rename(name): spec for name, spec in shards["model.safetensors"].items() if keeps(name)}
    index = dict.fromkeys(shards["model.safetensors"], "model.safetensors")
    return analyse(read(files, {**shards, COPY: copy} if copy else shards, index=index))


def vllm(found: Report) -> dict[str, set[str]]:
    parts = {row.part for row in found.engines}
    return {part: {row.verdict for row in found.engines if (row.engine, row.part) == ("vllm", part)} for part in parts}


def in_draft(name: str) -> bool:
    return ".layers.2." in name


SEEN = [
    (lambda _: True, "loads", "loads"),
    (lambda name: not in_draft(name), "loads", "degrades"),
    (lambda name: name == "lm_head.weight", "degrades", "degrades"),
    (lambda name: not name.endswith("experts.1.up_proj.weight") or in_draft(name), "degrades", "loads"),
]


@pytest.mark.parametrize(("keeps", "target", "draft"), SEEN)
def test_vllm_reads_them_and_nothing_else(keeps: Callable[[str], bool], target: str, draft: str) -> None:
    found = report(keeps)
    assert vllm(found) == {"target": {target}, "draft": {draft}}
    assert {row.verdict for row in found.engines if row.engine == "sglang"} == {"loads"}
    assert any(note.startswith("consolidated*.safetensors lie beside") for note in found.notes)


def test_other_names_are_not_guessed_at() -> None:
    found = report(lambda _: True, lambda name: name.replace("model.layers", "layers"))
    assert vllm(found) == {"target": {"unknown"}, "draft": {"unknown"}}
    assert found.status == "clean"


def test_without_them_all_is_as_it_was() -> None:
    found = report(lambda _: False)
    assert vllm(found) == {"target": {"loads"}, "draft": {"loads"}}
    assert not found.notes


def test_where_nothing_else_is_there_they_are_the_checkpoint() -> None:
    assert shard_names([COPY]) == (COPY,)
    assert consolidated_beside([COPY]) == ()
    assert consolidated_beside([COPY, "model.safetensors", f".{COPY}", "README.md"]) == (COPY,)


def test_a_bundle_says_the_same(tmp_path: Path) -> None:
    files, shards = parts(GLM, "nvfp4", right_list(GLM, "nvfp4"))
    folder = tmp_path / "a"
    folder.mkdir()
    copy = {name: spec for name, spec in shards["model.safetensors"].items() if not in_draft(name)}
    for name, value in files.items():
        (folder / name).write_bytes(value if isinstance(value, bytes) else dumped(value))
    for name, tensors in {**shards, COPY: copy}.items():
        _, raw, size = header(name, tensors)
        (folder / name).write_bytes(len(raw).to_bytes(8, "little") + raw + bytes(size - 8 - len(raw)))
    (tmp_path / "a.mtpb").write_bytes(snapshot(folder))
    one, other = mtpfix.check(folder), mtpfix.check(tmp_path / "a.mtpb")
    assert one.engines == other.engines
    assert vllm(other) == {"target": {"loads"}, "draft": {"degrades"}}


def test_a_config_that_only_a_flag_makes_engines_read_is_noted(tmp_path: Path) -> None:
    files, shards = parts(GLM)
    beside = {"quantize_config.json": json.dumps({"bits": 4}).encode()}
    found = analyse(read({**files, **beside}, shards))
    assert any(
        note.startswith("quantize_config.json: engines read it only where --quantization") for note in found.notes
    )
    quantized, shards = parts(GLM, "gptq", right_list(GLM, "gptq"))
    assert not analyse(read({**quantized, **beside}, shards)).notes
