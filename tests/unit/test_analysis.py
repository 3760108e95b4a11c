"""A checkpoint to a report: engines that are asked for, scopes, states, odd checkpoints, and the cost of long lists."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from checkpoints import (
    MODELS,
    Model,
    build,
    deepseek_v3,
    glm4_moe,
    llama,
    qwen3_5,
    qwen3_moe,
    qwen3_next,
    read,
    rewritten,
    right_list,
)

from mtpfix.analysis import analyse, draft_rows, status_of, wanted_releases
from mtpfix.checkpoint.limits import FEW_ENTRIES
from mtpfix.errors import UsageError
from mtpfix.explaining import explain
from mtpfix.model import Checkpoint, Finding
from mtpfix.releases import modelled

Q35, GLM, NEXT, DS = qwen3_5(), glm4_moe(), qwen3_next(), deepseek_v3()
C = "config.json"


def both(made: Model, fmt: str, entries: Sequence[Any], **rest: Any) -> Checkpoint:
    return build(made, fmt, list(entries), sidecar=list(entries), **rest)


def rules(checkpoint: Checkpoint, **rest: Any) -> set[str]:
    return {finding.rule for finding in analyse(checkpoint, **rest).findings}


# --- engines ----------------------------------------------------------------------------------------------------------


def test_every_modelled_release_counts_unless_told_otherwise() -> None:
    assert wanted_releases((), "fp8") == {name: frozenset(modelled(name)) for name in ("vllm", "sglang")}
    assert set(wanted_releases((), "modelopt")) == {"vllm", "sglang", "tensorrt-llm"}


SPECS = [
    (["vllm"], {"vllm": modelled("vllm")}),
    (["vllm>=0.24"], {"vllm": [name for name in modelled("vllm") if name.startswith(("0.24", "0.25", "0.26", "0.27",
                                                                                     "0.28", "0.29", "0.3"))]}),
    (["vllm>=0.20,<0.22"], {"vllm": ["0.20.0", "0.20.1", "0.20.2", "0.21.0"]}),
    (["vllm==0.33.0"], {"vllm": ["0.33.0"]}),
    (["vllm <= 0.13.0"], {"vllm": ["0.12.0", "0.13.0"]}),
    (["sglang>0.5.22"], {"sglang": ["0.5.23"]}),
    (["sglang==0.5.10", "sglang==0.5.11"], {"sglang": ["0.5.10", "0.5.11"]}),
    (["sglang>=0.5.10,<0.5.11"], {"sglang": ["0.5.10", "0.5.10.post1"]}),
    (["tensorrt-llm>=snapshot-2"], {"tensorrt-llm": ["snapshot-2", "snapshot-3"]}),
    (["transformers"], {"transformers": ["5.24.0"]}),
    (["vllm==0.33.0", "sglang==0.5.23"], {"vllm": ["0.33.0"], "sglang": ["0.5.23"]}),
]  # fmt: skip


@pytest.mark.parametrize(("specs", "wanted"), SPECS)
def test_ranges_of_releases(specs: list[str], wanted: dict[str, Sequence[str]]) -> None:
    assert wanted_releases(specs, "fp8") == {name: frozenset(found) for name, found in wanted.items()}


@pytest.mark.parametrize(
    "spec", ["", "vlm", "vllm>", "vllm=0.33", "vllm>=9", "vllm 0.33", "vllm<0.1", "VLLM", "vllm,sglang"]
)
def test_what_is_no_range(spec: str) -> None:
    with pytest.raises(UsageError):
        wanted_releases([spec], "fp8")
    with pytest.raises(UsageError):
        analyse(build(llama(), "nvfp4", ["lm_head"]), engines=[spec])


MISSPELT = [
    ("vllm=>0.24", "malformed range of releases", "write 'vllm>=0.24'"),
    ("vllm=0.33", "malformed range of releases", "write 'vllm==0.33'"),
    ("vllm 0.33", "malformed range of releases", "write 'vllm==0.33'"),
    ("vllm@v0.24.0", "malformed range of releases", "write 'vllm==0.24.0'"),
    ("vllm~=0.24", "malformed range of releases", "write 'vllm>=0.24'"),
    ("vllm=>0.20,=<0.26", "malformed range of releases", "write 'vllm>=0.20,<=0.26'"),
    ("tensorrt-llm=snapshot-2", "malformed range of releases", "compare with"),
    ("vllm!=0.24", "malformed range of releases", "compare with"),
    ("vllm>=latest", "malformed range of releases", "compare with"),
    ("vllm>=", "malformed range of releases", "compare with"),
    ("vllm,sglang", "malformed range of releases", "--engine vllm --engine sglang"),
    ("vllm>=9", "no modelled release of vllm fits", "modelled are 0.12.0 to 0.33.0"),
    ("vlm>=0.24", "no such engine: vlm>=0.24", "do you mean vllm?"),
    ("VLLM", "no such engine: VLLM", "do you mean vllm?"),
    ("tensorrt_llm", "no such engine", "do you mean tensorrt-llm?"),
    ("llama.cpp", "no such engine", "write one of vllm, sglang"),
]


@pytest.mark.parametrize(("spec", "message", "hint"), MISSPELT)
def test_what_is_misspelt_is_named_with_the_right_spelling(spec: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as raised:
        wanted_releases([spec], "fp8")
    assert str(raised.value).startswith(message)
    assert hint in raised.value.hint
    if raised.value.hint.startswith("write '"):
        assert wanted_releases([raised.value.hint.split("'")[1]], "fp8")


def test_a_range_may_name_releases_as_their_tags_do() -> None:
    assert wanted_releases(["vllm>=v0.24,<v0.26"], "") == wanted_releases(["vllm>=0.24,<0.26"], "")


def test_a_narrow_report_says_so_and_speaks_of_nobody_else() -> None:
    checkpoint = both(NEXT, "nvfp4", [entry for entry in right_list(NEXT, "nvfp4") if entry != "mtp.fc"])
    wide, old, new = (analyse(checkpoint, engines=asked) for asked in ([], ["vllm>=0.20,<0.24"], ["vllm>=0.30"]))
    assert not any("asked about" in note for note in wide.notes)
    assert old.notes[0].startswith("only vllm>=0.20.0,<0.24.0 was asked about: other engines and releases may differ")
    shown = {release for row in old.engines for release in row.releases}
    assert shown == wanted_releases(["vllm>=0.20,<0.24"], "")["vllm"]
    assert {text for found in old.findings for text in found.engines} == {"vllm>=0.20.0,<0.24.0"}
    for one, own in ((wide, {"vLLM", "SGLang"}), (old, {"vLLM"}), (new, set())):
        assert {note.split(" ")[0] for note in one.notes} & {"vLLM", "SGLang"} == own


def test_only_the_engines_that_were_asked_for_are_shown_and_satisfied() -> None:
    checkpoint = both(NEXT, "nvfp4", [entry for entry in right_list(NEXT, "nvfp4") if entry != "mtp.fc"])
    new = analyse(checkpoint, engines=["vllm>=0.25"])  # builds mtp.fc plain by itself (engine facts, 7.28)
    old = analyse(checkpoint, engines=["vllm<0.25"])
    assert (new.status, old.status) == ("clean", "fixable")
    assert not new.plan.edits
    assert {row.engine for row in new.engines} == {"vllm"}
    assert set(old.plan.certificate.decisions) == {f"vllm {name}" for name in modelled("vllm") if name < "0.25"}


# --- states -----------------------------------------------------------------------------------------------------------


def finding(severity: Any, fix: Any) -> Finding:
    return Finding("MTP001", severity, fix, "")


STATES = [
    ([], "clean"),
    ([("warning", "none"), ("note", "none")], "clean"),
    ([("error", "safe"), ("warning", "none")], "fixable"),
    ([("error", "safe"), ("error", "none")], "partly-fixable"),
    ([("error", "safe"), ("error", "unsafe")], "partly-fixable"),
    ([("error", "none")], "not-fixable"),
    ([("error", "unsafe")], "not-fixable"),
    ([("warning", "safe")], "clean"),
]


@pytest.mark.parametrize(("found", "status"), STATES)
def test_the_status_counts_errors_only(found: list[tuple[str, str]], status: str) -> None:
    assert status_of([finding(*item) for item in found]) == status


def test_what_can_be_mended_is_mended_though_more_is_wrong() -> None:
    """partly-fixable: the draft gets its entries, the count stays wrong."""
    checkpoint = both(GLM, "nvfp4", right_list(GLM, "nvfp4", draft=False), changes={"num_nextn_predict_layers": 2})
    report = analyse(checkpoint)
    assert report.status == "partly-fixable"
    again = analyse(rewritten(checkpoint, report.plan.after))
    assert [(item.rule, item.engines) for item in again.findings] == [("MTP013", ("sglang",))]
    assert (again.status, again.plan.edits) == ("not-fixable", ())


@pytest.mark.parametrize(
    ("key", "value", "severity", "said"),
    [
        ("num_nextn_predict_layers", "1", "error", "num_nextn_predict_layers is '1', the headers hold 1 draft layer"),
        ("num_nextn_predict_layers", -1, "error", "no number of layers"),
        ("num_nextn_predict_layers", True, "error", "no number of layers"),
        ("num_nextn_predict_layers", 1.0, "error", "no number of layers"),
        ("num_mtp_layers", 3, "warning", "num_mtp_layers is 3, the headers hold 1 draft layer"),
        ("num_mtp_layers", 0, "warning", "only vLLM's Transformers backend reads it"),
        ("num_mtp_layers", "x", "error", "no number of layers"),
    ],
)
def test_a_count_by_which_no_engine_of_the_family_counts(key: str, value: Any, severity: str, said: str) -> None:
    checkpoint = both(GLM, "nvfp4", right_list(GLM, "nvfp4"), changes={key: value})
    report = analyse(checkpoint)
    found = [item for item in report.findings if item.rule == "MTP013"]
    assert [(item.severity, item.fix) for item in found] == [(severity, "unsafe")]
    assert said in found[0].message
    assert [place.pointer for place in found[0].locations] == [f"/{key}"]
    assert ("mtpfix graft" in found[0].hint) == (value == 3)
    assert report.plan.edits == ()
    plan = analyse(checkpoint, unsafe=True).plan
    assert [(edit.pointer, edit.value) for edit in plan.edits] == [(f"/{key}", 1)]
    again = analyse(rewritten(checkpoint, plan.after))
    assert (again.status, rules(rewritten(checkpoint, plan.after))) == ("clean", set())


def test_a_count_that_is_right_or_that_nothing_contradicts() -> None:
    assert "MTP013" not in rules(both(GLM, "nvfp4", right_list(GLM, "nvfp4"), changes={"num_mtp_layers": 1}))
    bare = GLM.without_draft()
    changes = {"num_nextn_predict_layers": 0, "num_mtp_layers": 3}
    assert "MTP013" not in rules(both(bare, "nvfp4", right_list(bare, "nvfp4"), changes=changes))


# --- clean ones -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", sorted(MODELS))
def test_full_precision_is_clean(family: str) -> None:
    report = analyse(build(MODELS[family]()))
    assert report.status == "clean"
    assert {item.severity for item in report.findings} <= {"note"}
    assert (report.format, report.plan.edits) == ("", ())
    assert {row.verdict for row in report.engines if row.latest} <= {"loads", "unsupported", "unknown"}


def test_full_precision_with_other_faults_is_not() -> None:
    assert rules(build(NEXT.without_draft())) == {"MTP006"}
    assert "MTP013" in rules(build(NEXT, changes={"num_nextn_predict_layers": 2}))
    names = {f"{name}.weight": "model.safetensors" for name in NEXT.shapes}
    assert "MTP011" in rules(build(NEXT, index=names))  # the norms are not listed


# Lists that right exporters write and that every engine loads (law 9): nothing to say.
WRITTEN = [
    (qwen3_moe(), "nvfp4"),
    (qwen3_moe(), "fp8-block"),
    (qwen3_moe(), "ct-fp8"),
    (qwen3_moe(), "gptq"),
    (llama(), "nvfp4"),
    (llama(), "ct-w4a16"),
    (llama(), "modelopt-fp8"),
    (GLM, "nvfp4"),
    (DS, "nvfp4"),
]


@pytest.mark.parametrize(("made", "fmt"), WRITTEN, ids=[f"{made.config['model_type']} {fmt}" for made, fmt in WRITTEN])
def test_what_right_exporters_write_is_clean(made: Model, fmt: str) -> None:
    assert analyse(both(made, fmt, right_list(made, fmt))).findings == ()


# --- odd ones ---------------------------------------------------------------------------------------------------------


def test_an_unknown_family_is_told_and_left_alone() -> None:
    report = analyse(both(GLM, "nvfp4", ["lm_head"], changes={"model_type": "riddle"}))
    assert (report.family, report.status, report.plan.edits) == ("unknown", "clean", ())
    assert "riddle" in report.family_reason
    assert any("riddle" in note for note in report.notes)
    assert {row.verdict for row in report.engines} == {"unknown"}
    assert report.schemes["nvfp4"] == len(GLM.body)


@pytest.mark.parametrize("layers", [None, "two", -1, 2.5, True, []])
def test_a_family_without_its_number_of_layers(layers: Any) -> None:
    report = analyse(both(GLM, "nvfp4", ["lm_head"], changes={"num_hidden_layers": layers}))
    assert (report.family, report.plan.edits) == ("unknown", ())
    assert "num_hidden_layers" in report.family_reason


CONFIGS = [
    {},
    {"model_type": None},
    {"model_type": ["llama"]},
    {"model_type": "glm4_moe", "num_hidden_layers": 2, "quantization_config": None},
    {"model_type": "glm4_moe", "num_hidden_layers": 2, "quantization_config": []},
    {"model_type": "glm4_moe", "num_hidden_layers": 2, "quantization_config": {}},
    {"model_type": "glm4_moe", "num_hidden_layers": 2, "quantization_config": {"quant_method": None}},
    {"model_type": "glm4_moe", "num_hidden_layers": 2, "quantization_config": {"quant_method": "riddle"}},
    {"model_type": "glm4_moe", "num_hidden_layers": 2, "quantization_config": {"quant_method": "fp8"}},
    {"model_type": "glm4_moe", "num_hidden_layers": 2, "quantization_config": {"quant_method": "gptq", "dynamic": 3}},
    {"model_type": "glm4_moe", "num_hidden_layers": 2, "quantization_config": {"config_groups": []}},
    {"model_type": "glm4_moe", "num_hidden_layers": 0, "num_nextn_predict_layers": "one", "architectures": "x"},
    {"model_type": "qwen3_5", "text_config": [], "num_hidden_layers": 10**9},
]


@pytest.mark.parametrize("config", CONFIGS)
def test_no_config_of_any_shape_makes_the_analysis_stop(config: dict[str, Any]) -> None:
    for made in (GLM, Q35):
        whole = build(made, "nvfp4", ["lm_head"])
        names = {f"{name}.weight": ("BF16", (16, 32)) for name in whole.modules}
        report = analyse(read({C: config}, {"model.safetensors": names}))
        assert not report.plan.edits
        found = explain(read({C: config}, {"model.safetensors": names}), ["lm_head"])
        assert bool(found.rows) != bool(found.reason)


def test_a_format_without_a_file_is_named() -> None:
    report = analyse(build(GLM, "fp8-block", [], quant={"quant_method": "riddle"}))
    assert report.format == "riddle"
    assert not report.plan.edits


# --- scope ------------------------------------------------------------------------------------------------------------


def test_the_narrow_scope_keeps_what_stops_the_target() -> None:
    """A plain head that nobody listed stops the target (vLLM quantizes heads of ModelOpt checkpoints)."""
    checkpoint = both(llama(), "nvfp4", [])
    assert rules(checkpoint) == rules(checkpoint, scope="all") == {"MTP001"}


def test_the_wide_scope_tells_of_old_releases_too() -> None:
    """SGLang before 0.5.17 builds Qwen3.5's attention plain under NVFP4: in the matrix, no finding of the draft's."""
    checkpoint = both(Q35, "nvfp4", right_list(Q35, "nvfp4"))
    assert rules(checkpoint) == set()
    assert rules(checkpoint, scope="all") == {"MTP008"}
    verdicts = {row.verdict for row in analyse(checkpoint).engines if (row.engine, row.part) == ("sglang", "target")}
    assert verdicts == {"fails", "loads"}


# --- the report -------------------------------------------------------------------------------------------------------


def test_the_draft_is_counted() -> None:
    draft = analyse(both(GLM, "nvfp4", right_list(GLM, "nvfp4"))).draft
    assert (draft.declared, draft.stored) == (1, 1)
    assert draft.tensors == len(GLM.draft) + len(GLM.bare) + 2  # two norms
    assert draft.dtypes == {"BF16": draft.tensors}
    none = analyse(build(llama(), "nvfp4", ["lm_head"])).draft
    assert (none.declared, none.stored, none.tensors) == (None, 0, 0)


def test_a_checkpoint_without_a_draft_has_target_rows_only() -> None:
    assert {row.part for row in analyse(build(llama())).engines} == {"target"}
    assert {row.part for row in analyse(build(MODELS["gemma4_assistant"]())).engines} == {"draft"}
    assert {row.part for row in analyse(build(GLM)).engines} == {"target", "draft"}
    assert {row.part for row in analyse(build(glm4_moe(drafts=0))).engines} == {"target"}


def test_errors_come_first_and_the_draft_before_the_target() -> None:
    report = analyse(both(GLM, "modelopt-fp8", [], changes={"num_nextn_predict_layers": 2}))
    keys = [(item.severity != "error", item.severity == "note", item.part != "draft") for item in report.findings]
    assert keys == sorted(keys)


def test_every_release_has_exactly_one_row_a_part() -> None:
    report = analyse(both(GLM, "nvfp4", right_list(GLM, "nvfp4")))
    for engine in ("vllm", "sglang", "tensorrt-llm", "transformers"):
        for part in ("target", "draft"):
            rows = [row for row in report.engines if (row.engine, row.part) == (engine, part)]
            assert [name for row in rows for name in row.releases] == list(modelled(engine))
            assert [row.latest for row in rows] == [False] * (len(rows) - 1) + [True]


def test_listing() -> None:
    checkpoint = both(GLM, "nvfp4", right_list(GLM, "nvfp4"))
    listed = {row.name: (row.stored, row.declared) for row in draft_rows(checkpoint)}
    assert listed["model.layers.2.eh_proj.weight"] == ("bf16", "plain")
    assert len(listed) == analyse(checkpoint).draft.tensors


# --- cost -------------------------------------------------------------------------------------------------------------


LONG = FEW_ENTRIES - 100  # as long as a list may be in a small checkpoint
SPELLED = {
    "nvfp4": "model.layers.{}.mlp.experts.{}.up_proj",
    "fp8-block": "model.layers.{}.mlp.experts.{}.up_proj",
    "ct-w4a16": "model.layers.{}.mlp.experts.{}.up_proj",
}


@pytest.mark.parametrize("fmt", sorted(SPELLED))
def test_the_longest_list_is_read_in_seconds(fmt: str) -> None:
    """Linear in entries: none of them is tried against every module in turn."""
    idle = [SPELLED[fmt].format(1000 + number // 500, number % 500) for number in range(LONG)]
    started = time.process_time()
    report = analyse(build(GLM, fmt, [*right_list(GLM, fmt), *idle]), engines=["vllm==0.33.0", "sglang==0.5.23"])
    assert time.process_time() - started < 20
    assert report.status in ("clean", "fixable")


# --- which files engines open -----------------------------------------------------------------------------------------


def _spread(part: str) -> Checkpoint:
    """GLM-4 MoE with its draft in a file of its own that the index does not name, or names in a folder below."""
    weights = {f"{name}.weight": part if "layers.2." in name else "model.safetensors" for name in GLM.shapes}
    listed = {name: shard for name, shard in weights.items() if shard != "mtp.safetensors"}
    return build(GLM, shard_of=lambda name: part if "layers.2." in name else "model.safetensors", index=listed)


def _draft(checkpoint: Checkpoint) -> dict[tuple[str, str], str]:
    return {(row.engine, row.version): row.verdict for row in analyse(checkpoint).engines if row.part == "draft"}


def test_sglang_opens_mtp_safetensors_of_glm4_though_the_index_does_not_name_it() -> None:
    """sglang-0.5.9 to sglang-0.5.23 srt/model_loader/weight_utils.py maybe_add_mtp_safetensors."""
    found = _draft(_spread("mtp.safetensors"))
    assert {verdict for (engine, _), verdict in found.items() if engine == "sglang"} == {"loads"}
    assert "loads" not in {verdict for (engine, _), verdict in found.items() if engine == "vllm"}
    assert "MTP011" in rules(_spread("mtp.safetensors"))


def test_files_in_folders_below_are_missing_for_vllm_and_unread_in_sglang() -> None:
    """vllm-0.33.0 model_executor/model_loader/weight_utils.py:604-613; sglang-0.5.23 the same file:799."""
    checkpoint = _spread("draft/mtp.safetensors")
    verdicts = {(row.engine, row.verdict) for row in analyse(checkpoint).engines if row.latest}
    assert {("vllm", "fails"), ("sglang", "degrades")} <= verdicts
    assert ("vllm", "loads") not in verdicts
    assert "MTP011" in rules(checkpoint)


@pytest.mark.parametrize("family", ["glm4_moe", "deepseek_v3", "qwen3_5"])
def test_layers_that_only_the_sidecar_names_are_out_of_sglang_s_sight(family: str) -> None:
    """vLLM from 0.17.0 and TensorRT-LLM read them there; SGLang picks a class by config.json alone (sglang-0.5.23
    srt/configs/model_config.py:1855-1865). Nothing stored is wrong, and vLLM serves it."""
    whole = build(MODELS[family](), "mixed", [], sidecar=[])
    config = json.loads(whole.files[C].raw)
    del config["quantization_config"]["quantized_layers"]
    report = analyse(rewritten(whole, {C: json.dumps(config).encode()}))
    verdicts = {(row.engine, row.verdict) for row in report.engines if row.latest and row.part == "target"}
    assert {("vllm", "loads"), ("sglang", "fails")} <= verdicts
    assert (report.status, {item.rule for item in report.findings if item.severity != "note"}) == ("clean", {"MTP008"})
    assert "hf_quant_config.json" in {item.hint.split()[-2] for item in report.findings if item.part == "target"}


def test_a_pair_of_projections_stands_in_for_one() -> None:
    """Qwen4Exp stores `mtp.fc_embedding` and `mtp.fc_hidden` where Qwen3.5 stores `mtp.fc` (vllm-0.33.0
    vllm/models/qwen4_exp/nvidia/mtp.py); either of the pair alone is a draft that lacks the other."""
    made = qwen3_5()
    half = {name: shape for name, shape in made.bare.items() if name != "mtp.fc"}
    pair = {"mtp.fc_embedding": (128, 128), "mtp.fc_hidden": (128, 128)}
    config = {**made.config, "model_type": "qwen4_exp", "architectures": ["Qwen4ExpForConditionalGeneration"]}
    whole = replace(made, config=config, bare={**half, **pair})
    assert "MTP006" not in rules(build(whole))
    assert "MTP006" in rules(build(replace(whole, bare={**half, "mtp.fc_hidden": (128, 128)})))
    assert "MTP006" in rules(build(replace(whole, bare=half)))
