"""Plans: which places they may edit, the operations in their order, the bytes, the certificate."""

from __future__ import annotations

import json
import sys
import tracemalloc
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from checkpoints import ABSENT, Model, build, glm4_moe, qwen3_5, qwen3_next, read, rewritten, right_list

from mtpfix.analysis import analyse, repaired
from mtpfix.engines.registry import ENGINES
from mtpfix.formats.auto_round import AutoRound
from mtpfix.formats.gptq import Gptq
from mtpfix.model import Checkpoint, Edit, JsonFile
from mtpfix.planning import count_edits, editable, edits, in_config, reads_sidecar
from mtpfix.solving.solution import Added, Solution
from mtpfix.world import world_of

Q35, GLM, NEXT = qwen3_5(), glm4_moe(), qwen3_next()
C, H = "config.json", "hf_quant_config.json"


def target(made: Model, fmt: str) -> list[str]:
    return right_list(made, fmt, draft=False)


def plan_of(checkpoint: Checkpoint, **rest: Any) -> list[tuple[str, str, str, Any]]:
    return [(edit.file, edit.op, edit.pointer, edit.value) for edit in analyse(checkpoint, **rest).plan.edits]


# --- places -----------------------------------------------------------------------------------------------------------


def test_both_files_may_be_edited_and_nothing_else() -> None:
    files = build(GLM, "nvfp4", target(GLM, "nvfp4"), sidecar=[]).files
    assert [(item.file, item.pointer) for item in editable(files)] == [(C, "/quantization_config"), (H, "")]


PLACES = [
    ("quantization_config", "/quantization_config"),
    ("text_config.quantization_config", "/text_config/quantization_config"),
    ("compression_config", "/compression_config"),
]


@pytest.mark.parametrize(("place", "pointer"), PLACES)
def test_the_config_is_edited_where_it_stands(place: str, pointer: str) -> None:
    checkpoint = build(Q35, "ct-w4a16", target(Q35, "ct-w4a16"), place=place)
    assert (C, "add", f"{pointer}/ignore/-", r"re:^mtp\..*") in plan_of(checkpoint)
    assert {(file, where) for file, _, where, _ in plan_of(checkpoint)} == {(C, f"{pointer}/ignore/-")}
    assert analyse(rewritten(checkpoint, analyse(checkpoint).plan.after)).status == "clean"


def test_a_sidecar_alone_is_what_engines_read() -> None:
    checkpoint = build(Q35, "nvfp4", (), sidecar=target(Q35, "nvfp4"), config_list=False)
    assert plan_of(checkpoint) == [
        (H, "add", "/quantization/exclude_modules/-", "mtp.fc"),
        (H, "add", "/quantization/exclude_modules/-", "mtp.layers.0.*"),
    ]


def test_a_sidecar_about_the_cache_alone_leaves_config_json_to_tensorrt_llm() -> None:
    """It names no algorithm, so that TensorRT-LLM falls back to config.json (engine facts, 1.0)."""
    listed = build(GLM, "nvfp4", target(GLM, "nvfp4"))
    about_cache = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": None, "kv_cache_quant_algo": "FP8"}}
    files = {**listed.files, H: JsonFile(H, json.dumps(about_cache).encode(), about_cache)}
    assert not reads_sidecar(ENGINES["tensorrt-llm"], files)
    assert reads_sidecar(ENGINES["tensorrt-llm"], build(GLM, "nvfp4", [], sidecar=[]).files)
    assert not reads_sidecar(ENGINES["vllm"], files)


def test_the_sidecars_list_stands_in_for_the_configs() -> None:
    def stand_in(checkpoint: Checkpoint) -> Any:
        return in_config(world_of(checkpoint), checkpoint.files)

    found = stand_in(build(GLM, "nvfp4", ["a", None], sidecar=["b", "c"]))
    assert found is not None
    assert (found[0].file, found[0].value["ignore"], found[1].entries) == (C, ["b", "c"], ("b", "c"))
    assert stand_in(build(GLM, "nvfp4", ["a"])) is None
    assert stand_in(build(GLM, "nvfp4", (), sidecar=["a"], config_list=False)) is None


@pytest.mark.parametrize(("lacks", "reader"), [("quantized_layers", "vllm"), ("kv_cache_scheme", "sglang")])
def test_mixed_precision_of_the_sidecar_is_judged_as_its_readers_read_it(lacks: str, reader: str) -> None:
    """vLLM takes the sidecar where config.json lacks the table of layers, SGLang where it is silent about the cache."""
    whole = build(Q35, "mixed", ["lm_head"], sidecar=["lm_head", "*"])
    config = json.loads(whole.files[C].raw)
    del config["quantization_config"][lacks]
    checkpoint = rewritten(whole, {C: json.dumps(config).encode()})
    assert reads_sidecar(ENGINES[reader], checkpoint.files)
    report = analyse(checkpoint)
    assert [(edit.file, edit.op) for edit in report.plan.edits] == [(H, "remove")]
    again = analyse(rewritten(checkpoint, report.plan.after))
    assert {row.verdict for row in again.engines if row.engine == reader and row.latest} == {"loads"}


# --- operations -------------------------------------------------------------------------------------------------------


def test_entries_go_from_the_back_and_come_at_the_end() -> None:
    listed = ["*", *target(Q35, "nvfp4"), "model*"]
    found = plan_of(build(Q35, "nvfp4", listed))
    place = "/quantization_config/ignore"
    assert found[:2] == [(C, "remove", f"{place}/{len(listed) - 1}", None), (C, "remove", f"{place}/0", None)]
    assert [(op, pointer) for _, op, pointer, _ in found[2:]] == [("add", f"{place}/-")] * (len(found) - 2)


def test_rules_of_a_dictionary_come_before_the_others_in_their_order() -> None:
    fragment = editable(build(Q35, "gptq", {"+:a/b~": {"bits": 8}, "-:x": {}}).files)[0]
    where = Gptq().exclusions(fragment.value)
    assert where is not None
    added = tuple(Added(entry, "faithful", entry, "draft") for entry in ("-:1", "-:2"))
    place = "/quantization_config/dynamic"
    assert edits([Solution(fragment, where, (0,), added)]) == (
        Edit(C, "remove", f"{place}/+:a~1b~0"),
        Edit(C, "add", f"{place}/-:2", {}, first=True),
        Edit(C, "add", f"{place}/-:1", {}, first=True),
    )


LISTS = [
    (ABSENT, "add", []),
    (None, "replace", []),
    ("lm_head", "replace", ["lm_head"]),
    ({"lm_head": True}, "replace", ["lm_head"]),
    (7, "replace", []),
]


@pytest.mark.parametrize(("held", "op", "kept"), LISTS)
def test_what_is_no_list_gives_way_to_one(held: Any, op: str, kept: list[str]) -> None:
    checkpoint = build(Q35, "ct-w4a16", held)
    found = plan_of(checkpoint)
    assert [(file, used, pointer) for file, used, pointer, _ in found] == [(C, op, "/quantization_config/ignore")]
    assert found[0][3][: len(kept)] == kept
    assert r"re:^mtp\..*" in found[0][3]


@pytest.mark.parametrize("fmt", ["ct-w4a16", "fp8-block", "gptq", "nvfp4"])
@pytest.mark.parametrize("held", [None, "x", {"a": {}}, [["a"]], [None], [{}], [1.5, "lm_head"]])
def test_no_list_of_any_shape_makes_the_analysis_stop(fmt: str, held: Any) -> None:
    checkpoint = build(Q35, fmt, held, sidecar=held)
    report = analyse(checkpoint)
    again = analyse(rewritten(checkpoint, report.plan.after))
    assert not again.plan.edits
    assert report.status != "fixable" or again.status == "clean"


@pytest.mark.parametrize(
    "held", [None, 5, "modelopt", [], {"quant_algo": "NVFP4"}, {"quantization": None}, {"quantization": []}]
)
def test_no_sidecar_of_any_shape_makes_the_analysis_stop(held: Any) -> None:
    checkpoint = build(Q35, "nvfp4", target(Q35, "nvfp4"))
    files = {**checkpoint.files, H: JsonFile(H, json.dumps(held).encode(), held)}
    report = analyse(replace(checkpoint, files=files))
    assert {edit.file for edit in report.plan.edits} <= {C, H}
    assert C in {edit.file for edit in report.plan.edits}


# --- counts -----------------------------------------------------------------------------------------------------------


COUNTS = [
    (GLM, {"num_nextn_predict_layers": 2}, [("/num_nextn_predict_layers", 1)]),
    (GLM, {"num_nextn_predict_layers": 1}, []),
    (GLM.without_draft(), {}, [("/num_nextn_predict_layers", 0)]),
    (GLM.without_draft(), {"num_nextn_predict_layers": 0}, []),
    (GLM.without_draft(), {"num_nextn_predict_layers": None}, []),
    (Q35.without_draft(), {}, [("/text_config/mtp_num_hidden_layers", 0)]),
]


@pytest.mark.parametrize(("made", "changes", "wanted"), COUNTS)
def test_counts_are_set_to_what_is_stored(made: Model, changes: dict[str, Any], wanted: list[tuple[str, int]]) -> None:
    checkpoint = build(made, "nvfp4", right_list(made, "nvfp4"), changes=changes)
    assert [(edit.pointer, edit.value) for edit in count_edits(world_of(checkpoint))] == wanted
    held = analyse(checkpoint).plan
    assert not held.edits
    assert len(held.held_back) == len(wanted)
    asked = analyse(checkpoint, unsafe=True).plan
    assert [(edit.pointer, edit.value) for edit in asked.edits] == wanted
    assert not asked.held_back


@pytest.mark.parametrize(("made", "changes", "wanted"), COUNTS)
@pytest.mark.parametrize("entries", ["right", "none"])
def test_what_comes_of_a_count_that_is_set_is_what_a_second_look_finds(
    made: Model, changes: dict[str, Any], wanted: list[tuple[str, int]], entries: str
) -> None:
    listed = right_list(made, "nvfp4") if entries == "right" else ["lm_head"]
    checkpoint = build(made, "nvfp4", listed, changes=changes)
    report = analyse(checkpoint, unsafe=True)
    if wanted:
        assert report.after == analyse(repaired(checkpoint, report.plan.after), unsafe=True).engines
        assert report.after != report.engines


TYPES = [
    (["full_attention", "full_attention"], [("replace", "/0", "linear_attention")]),
    (["linear_attention"] * 4, [("replace", "/1", "full_attention"), ("remove", "/3", None), ("remove", "/2", None)]),
    (["linear_attention"], [("add", "/-", "full_attention")]),
    (["linear_attention", "full_attention"], []),
    (["linear_attention", "sliding_attention"], []),
    (["linear_attention", None], []),
    ("linear_attention", []),
]


@pytest.mark.parametrize(("declared", "wanted"), TYPES)
def test_layer_types_are_set_to_what_is_stored(declared: Any, wanted: list[tuple[str, str, Any]]) -> None:
    place = "/text_config/layer_types"
    text = {**Q35.config["text_config"], "layer_types": declared}
    checkpoint = build(Q35, "nvfp4", right_list(Q35, "nvfp4"), changes={"text_config": text})
    found = [(edit.op, edit.pointer, edit.value) for edit in count_edits(world_of(checkpoint))]
    assert found == [(op, place + at, value) for op, at, value in wanted]
    if wanted:
        report = analyse(checkpoint)
        assert report.plan.held_back == (f"make {place} say what each layer stores",)
        again = analyse(rewritten(checkpoint, analyse(checkpoint, unsafe=True).plan.after))
        assert again.status == "clean"
        assert {row.verdict for row in report.engines if (row.engine, row.part) == ("vllm", "target")} == {
            "fails", "unsupported",
        }  # fmt: skip


@pytest.mark.parametrize("count", [10_000_000, int("9" * sys.get_int_max_str_digits())], ids=["many", "digits"])
def test_more_layers_than_any_model_has_take_no_room(count: int) -> None:
    """Nothing is made for each layer that a config declares, and no number gets more digits than can be written."""
    text = {**Q35.config["text_config"], "layer_types": ["linear_attention"], "num_hidden_layers": count}
    checkpoint = build(Q35, "nvfp4", right_list(Q35, "nvfp4"), changes={"text_config": text})
    tracemalloc.start()
    try:
        analyse(checkpoint, unsafe=True)
        assert tracemalloc.get_traced_memory()[1] < 100_000_000
    finally:
        tracemalloc.stop()


# --- the plan ---------------------------------------------------------------------------------------------------------


def test_the_certificate_counts_what_was_compared() -> None:
    kept = target(GLM, "nvfp4")
    plan = analyse(build(GLM, "nvfp4", kept, sidecar=kept)).plan
    facts = plan.certificate
    assert facts.modules == len(GLM.shapes) - len(GLM.listless) + 1  # embeddings are matrices too
    assert facts.quantized_modules == len(GLM.body)
    assert facts.newly_plain_quantized == 0
    assert (facts.entries_added, facts.entries_removed) == (len(plan.edits), 0)
    assert {"vllm 0.33.0", "sglang 0.5.23", "tensorrt-llm snapshot-3"} <= set(facts.decisions)


def test_bytes_outside_the_edit_stay() -> None:
    whole = build(Q35, "nvfp4", target(Q35, "nvfp4"))
    config = json.loads(whole.files[C].raw)
    config["quantization_config"]["ignore"] = ["MARK"]
    head, _, tail = json.dumps(config, indent=3).partition('"MARK"')
    raw = f'{head}"lm_head"{tail}\n\n'.replace("\n", "\r\n").encode()
    plan = analyse(rewritten(whole, {C: raw})).plan
    before, after = plan.before[C], plan.after[C]
    assert before == raw
    front = raw.index(b'"lm_head"') + len(b'"lm_head"')
    assert after.startswith(raw[:front])
    assert after.endswith(raw[front:])
    assert b'"mtp.fc"' in after[front:]


def test_a_plan_that_mends_nothing_is_empty() -> None:
    plan = analyse(build(NEXT, "modelopt-fp8", right_list(NEXT, "modelopt-fp8"))).plan
    assert plan.edits == ()
    assert not plan.before
    assert not plan.after


def test_an_empty_checkpoint_has_no_plan() -> None:
    report = analyse(read({C: {"model_type": "llama", "num_hidden_layers": 2}}, {"model.safetensors": {}}))
    assert (report.status, report.plan.edits) == ("clean", ())


def test_the_list_of_a_config_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table may have thousands of keys; each is looked at to tell which ask for full precision. A finding that says
    where the list stands looks once more."""
    read: list[Mapping[str, Any]] = []
    exclusions = AutoRound.exclusions
    monkeypatch.setattr(AutoRound, "exclusions", lambda self, value: (read.append(value), exclusions(self, value))[1])
    made = glm4_moe()
    report = analyse(build(made, "auto-round", right_list(made, "auto-round", draft=False)))
    assert report.plan.edits
    assert len(read) <= len({id(value) for value in read}) + 1
