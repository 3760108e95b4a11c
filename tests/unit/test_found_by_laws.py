"""What the long runs of the laws found: checkpoints that broke one, and what is right for them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from checkpoints import ABSENT, MODELS, build, glm4_moe, glm5_next, qwen3_5, rewritten, right_list
from recorded import MAKERS, recorded

from mtpfix.analysis import analyse
from mtpfix.model import Checkpoint, Report


def draft(report: Report, engine: str, release: str) -> str:
    rows = report.after or report.engines
    return next(row.verdict for row in rows if row.engine == engine and row.part == "draft" and release in row.releases)


@pytest.mark.parametrize("family", ["gemma4_assistant", "qwen3_5"])
def test_shards_are_named_one_by_one_where_nothing_else_is_taken(family: str) -> None:
    """SGLang's MXFP8 takes an entry for a whole name, stars to the letter, and asks for each shard of a fused linear
    (sglang-0.5.23 srt/layers/quantization/fp8.py:288-296, utils.py:48-100)."""
    made = MODELS[family]()
    report = analyse(build(made, "mxfp8", list(made.kept)), scope="all")
    assert report.status == "fixable"
    assert draft(report, "sglang", "0.5.23") == draft(report, "vllm", "0.33.0") == "loads"
    added = {edit.value.rpartition(".")[2] for edit in report.plan.edits}
    assert {"gate_proj", "up_proj", "q_proj", "k_proj", "v_proj"} <= added


def test_shards_that_sglang_knows_by_itself_are_completed() -> None:
    """The EAGLE class of Llama tells no packed mapping; SGLang from 0.5.11 on knows gate_up_proj's shards itself
    (sglang-0.5.11 srt/layers/quantization/utils.py is_layer_skipped) and stops where the list names one of two."""
    listed = [f"layers.0.{name}_proj" for name in ("self_attn.k", "self_attn.q", "self_attn.o", "mlp.up")]
    report = analyse(build(recorded("eagle_llama"), "modelopt-fp8", listed), scope="all")
    assert report.status == "fixable"
    assert draft(report, "sglang", "0.5.23") == draft(report, "sglang", "0.5.9") == "loads"


def test_what_stays_once_a_broken_list_is_mended_is_no_error_of_the_list() -> None:
    """vLLM 0.17 has no MXFP8 experts, whatever the list says; other releases load the checkpoint after the plan."""
    made = qwen3_5()
    report = analyse(build(made, "mxfp8", [*made.kept, {"lm_head": 1}]), scope="all")
    assert report.status == "fixable"
    assert {finding.rule for finding in report.findings if finding.fix != "safe"} == {"MTP008"}
    assert not [finding for finding in report.findings if finding.fix != "safe" and finding.severity == "error"]


def test_a_list_that_stops_an_engine_hides_no_name_that_two_modules_share() -> None:
    """SGLang looks EXAONE's draft up as model.layers.0 (sglang-0.5.23 srt/models/exaone_moe_mtp.py), a target's layer:
    that is said before the list is there, not only after."""
    report = analyse(build(recorded("exaone_moe"), "fbgemm-fp8", ABSENT), scope="all")
    assert report.status == "partly-fixable"
    assert "MTP015" in {finding.rule for finding in report.findings if finding.fix == "none"}


def test_an_entry_that_one_engine_needs_stays_though_it_harms_another() -> None:
    """Without its star SGLang below 0.5.18 takes a leaf of latent attention for every layer's, with it SGLang's MXFP8
    from 0.5.18 on takes it for none; vLLM still gets the name that it asks for."""
    made = recorded("bailing")
    leaf = "attention.kv_b_proj"
    draft_names = [name for name in made.draft if not name.endswith("down_proj")]
    stored = {**dict.fromkeys(draft_names, "mxfp8"), f"model.layers.1.{leaf}": "bf16"}
    kept = [name for name in made.kept if ".mlp.gate" in name or name == "lm_head"]
    report = analyse(build(made, "mxfp8", [*kept, f"model.layers.1.{leaf}"], stored=stored), scope="all")
    assert "remove" not in {edit.op for edit in report.plan.edits}
    assert "model.layers.1.self_attn.kv_b_proj" in {str(edit.value).rstrip("*") for edit in report.plan.edits}


def test_a_fault_of_a_module_beside_goes_with_the_entry_that_made_it_plain() -> None:
    """SGLang refuses FP8 gate and up projections of shared experts beside a plain down projection (sglang-0.5.23
    srt/models/glm5_next.py:1829-1850); once `down_proj` is gone the draft lacks entries alone: one plan has both."""
    made = glm5_next()
    stored = {**dict.fromkeys(made.draft, "mxfp8"), "lm_head": "mxfp8"}
    listed = ["model.language_model.layers.1.mlp.gate", "model.decoder.*", "down_proj"]
    report = analyse(build(made, "mxfp8", listed, sidecar=listed, stored=stored), scope="all")
    assert report.status == "fixable"
    assert {edit.op for edit in report.plan.edits} == {"remove", "add"}
    assert draft(report, "sglang", "0.5.23") == "loads"


def blamed(report: Report, module: str) -> set[tuple[str, bool]]:
    """The rules that name a module, and whether they show a place in a file for it."""
    return {(found.rule, bool(found.locations)) for found in report.findings if module in found.modules}


@pytest.mark.parametrize("stored", ["mxfp4", "bf16"])
def test_an_entry_is_not_at_fault_for_what_a_method_leaves_alone(stored: str) -> None:
    """Quark asks its list first and never quantizes a head, listed or not (vllm-0.33.0 quantization/quark/quark.py:219,
    sglang-0.5.23 srt/layers/quantization/quark/quark.py): no entry is to blame for one that is stored quantized."""
    made = MODELS["glm4_moe"](drafts=2)
    unlisted = analyse(build(made, "quark", ABSENT, stored={"lm_head": stored}), scope="all")
    listed = analyse(build(made, "quark", [*made.kept, *made.draft], stored={"lm_head": stored}), scope="all")
    for report in (unlisted, listed):
        left = {rule for rule, _ in blamed(report, "lm_head")} - {"MTP010"}  # a config without a list stops vLLM
        assert left == ({"MTP008"} if stored == "mxfp4" else set())
    assert blamed(listed, "lm_head") == ({("MTP008", False)} if stored == "mxfp4" else set())


def test_an_entry_is_at_fault_for_what_it_alone_makes_plain() -> None:
    """The same method quantizes a linear that its list does not name: then the entry is to go."""
    made = MODELS["glm4_moe"](drafts=2)
    name = next(name for name in made.body if name.endswith("o_proj"))
    entries = [*made.kept, *made.draft, name]
    report = analyse(build(made, "quark", entries), scope="all")
    assert blamed(report, name) == {("MTP005", True)}
    gone = f"/quantization_config/exclude/{len(entries) - 1}"
    assert ("remove", gone) in {(edit.op, edit.pointer) for edit in report.plan.edits}


@pytest.mark.parametrize("dense", [False, True])
def test_no_entry_makes_plain_experts_load_in_w8a8_int8(dense: bool) -> None:
    """Experts that are ignored get the method of linears there, and SGLang stops (sglang-0.5.23
    srt/layers/quantization/w8a8_int8.py:111): a draft that has some stays as it is, another gets its entries."""
    made = qwen3_5(dense=dense)
    report = analyse(build(made, "w8a8-int8", list(made.kept)), scope="all")
    assert report.status == ("fixable" if dense else "not-fixable")
    assert draft(report, "sglang", "0.5.23") == ("loads" if dense else "degrades")
    listed = analyse(build(made, "w8a8-int8", [*made.kept, "re:^mtp.*"]), scope="all")
    assert draft(listed, "sglang", "0.5.23") == ("loads" if dense else "fails")


@pytest.mark.parametrize("dense", [False, True])
def test_listed_experts_stop_releases_that_give_them_the_method_of_linears(dense: bool) -> None:
    """What holds experts asserts that their method is one of experts (vllm-0.11.1
    model_executor/layers/fused_moe/layer.py:548); Quark's exclusions give them such a one from 0.26.0 on
    (quantization/quark/utils.py:26)."""
    made = qwen3_5(dense=dense)
    report = analyse(build(made, "quark", [*made.kept, "re:^mtp.*"]), scope="all")
    assert draft(report, "vllm", "0.25.0") == ("loads" if dense else "fails")
    assert draft(report, "vllm", "0.26.0") == "loads"


def test_a_shard_that_is_described_is_not_described_twice() -> None:
    """vLLM-Ascend asks the description for all shards of a fused linear (vllm-ascend-0.24.0rc1
    quantization/modelslim_config.py); its entries end in `.weight`, where others name the module."""
    made = recorded("pangu_ultra_moe")
    listed = ["model.layers.3.mlp.shared_experts.up_proj.weight", "model.layers.3.self_attn.kv_a_proj_with_mqa.weight"]
    report = analyse(build(made, "modelslim", listed), scope="all")
    added = {edit.pointer.rpartition("/")[2] for edit in report.plan.edits}
    assert "model.layers.3.mlp.shared_experts.gate_proj.weight" in added
    assert added.isdisjoint(listed)
    assert {edit.op for edit in report.plan.edits} == {"add"}


QKVR = tuple(f"model.mtp.layers.0.transformer_block.attn.{name}" for name in ("wq_du", "wk_dv", "wv_dv", "wr_du"))


def test_a_listed_shard_is_at_fault_itself_and_not_the_first_of_its_linear() -> None:
    """vLLM goes by all shards of a fused linear and knows no entry but the first shard's for it (vllm-0.33.0
    quantization/utils/quant_utils.py:596-693). The entry that is wrong, before the plan and after, is the one for the
    shard that is stored quantized."""
    made = MAKERS["inkling"](layers=2, experts=2, drafts=1)
    checkpoint = build(made, "mxfp8-method", [*made.kept, *QKVR], stored={QKVR[2]: "mxfp8"})
    first = analyse(checkpoint, scope="all")
    second = analyse(rewritten(checkpoint, first.plan.after), scope="all")
    for report in (first, second):
        found = [finding for finding in report.findings if finding.rule in ("MTP004", "MTP005")]
        assert [finding.rule for finding in found] == ["MTP005"]
        assert found[0].modules == (QKVR[2],)
        places = {place.pointer for place in found[0].locations}
        assert places == {f"/quantization_config/ignored_layers/{len(made.kept) + 2}"}


def test_an_engine_that_stops_on_shards_is_not_made_to_build_a_quantized_one_plain() -> None:
    """vLLM stops where some shards of a fused linear are listed (vllm-0.33.0 quantization/utils/quant_utils.py:596);
    with the plain ones listed beside the quantized one it would build all of them plain."""
    made = MAKERS["inkling"](layers=2, experts=2, drafts=1)
    checkpoint = build(made, "mxfp8-method", [*made.kept, QKVR[2]], stored={QKVR[2]: "mxfp8"})
    report = analyse(checkpoint, scope="all")
    assert report.status == "partly-fixable"
    assert not {edit.value for edit in report.plan.edits} & set(QKVR)
    assert {finding.fix for finding in report.findings if finding.rule == "MTP010"} == {"none"}


@pytest.mark.parametrize("times", [1, 2])
def test_an_entry_that_nobody_misses_goes_though_another_has_to_stay(times: int) -> None:
    """TensorRT-LLM reads the sidecar alone. Shards of the draft are stored unlike: `model.layers.3*` is wrong for
    some and right for others; `model.layers.0.*` is wrong for all and keeps the target from loading."""
    made = MODELS["glm4_moe"](layers=3)
    mixed = {f"model.layers.3.self_attn.{name}_proj": "mxfp8" for name in ("k", "v", "o")}
    listed = ["lm_head", "model.layers.1.mlp.gate", "model.layers.2.mlp.gate", "model.layers.3*"]
    listed += ["model.layers.0.*"] * times
    report = analyse(build(made, "mxfp8", ABSENT, sidecar=listed, stored=mixed), scope="all")
    edits = {(edit.file, edit.op, edit.pointer) for edit in report.plan.edits}
    gone = {f"/quantization/exclude_modules/{4 + number}" for number in range(times)}
    assert {place for file, op, place in edits if (file, op) == ("hf_quant_config.json", "remove")} == gone
    assert {row.verdict for row in report.after if (row.engine, row.part) == ("tensorrt-llm", "target")} == {"loads"}


def test_a_listed_shard_gets_the_others_beside_a_subtree() -> None:
    """vLLM's ModelOpt asks for whole names first and stops where one shard of two is listed, whatever stars say about
    the fused name (vllm-0.33.0 quantization/utils/quant_utils.py:664-683): one plan has the subtree and the shard."""
    made = recorded("hy_v3")
    drafts = sorted(made.draft)
    shard = next(name for name in drafts if name.endswith("shared_mlp.gate_proj"))
    checkpoint = build(made, "w4a16-nvfp4", [*made.kept, shard, "*mtp*"])
    report = analyse(checkpoint, scope="all")
    added = [edit.value for edit in report.plan.edits]
    assert shard.replace("gate_proj", "up_proj") in added
    assert any(str(entry).endswith("*") and shard.startswith(str(entry)[:-1]) for entry in added)
    again = analyse(rewritten(checkpoint, report.plan.after), scope="all")
    assert (again.status, again.plan.edits) == ("clean", ())


def test_a_list_that_is_emptied_is_filled_with_all_that_the_engine_would_find() -> None:
    """vLLM fills an empty AWQ list with the modules whose tensors are plain, the draft's own among them
    (vllm-0.33.0 quantization/auto_awq.py:370-388). A shard that is not stored is not among them, and vLLM stops on the
    fused linear. The one entry goes, as the draft is stored quantized; once any comes, all that is plain has to."""
    made = MAKERS["inkling"](layers=1, experts=0, drafts=1)
    made = replace(made, body={name: shape for name, shape in made.body.items() if not name.endswith("wr_du")})
    shards = {f"model.llm.layers.0.attn.{name}": "bf16" for name in ("wq_du", "wk_dv", "wv_dv")}
    checkpoint = build(made, "awq", ["model.mtp.layers.0."], stored={**dict.fromkeys(made.draft, "awq4"), **shards})
    report = analyse(checkpoint, scope="all")
    assert report.status == "fixable"
    assert {row.verdict for row in report.after if row.engine == "vllm" and "0.33.0" in row.releases} == {"loads"}
    added = {edit.value for edit in report.plan.edits if edit.op == "add"}
    assert added > {*shards, "model.mtp.layers.0.input_proj"}
    again = analyse(rewritten(checkpoint, report.plan.after), scope="all")
    assert (again.status, again.plan.edits) == ("clean", ())


@pytest.mark.parametrize(("fmt", "scheme"), [("awq", "awq4"), ("gptq", "gptq4")])
def test_what_an_engine_finds_in_the_headers_has_no_place_in_a_file(fmt: str, scheme: str) -> None:
    """vLLM makes an empty list of AWQ's and of GPTQ's from the headers, and stops where shards of one linear are stored
    unlike (vllm-0.33.0 quantization/utils/quant_utils.py:664-683): no entry is to blame, and none is shown."""
    made = MAKERS["inkling"](layers=1, experts=0, drafts=1)
    plain = "model.llm.layers.0.attn.wq_du"
    report = analyse(build(made, fmt, [], stored={**dict.fromkeys(made.draft, scheme), plain: "bf16"}), scope="all")
    assert ("MTP010", False) in blamed(report, plain)


@pytest.mark.parametrize(("fmt", "scheme"), [("fp8-block", "fp8-block"), ("mxfp8", "mxfp8")])
def test_a_module_that_is_stored_fused_is_named_by_the_shards_that_sglang_knows(fmt: str, scheme: str) -> None:
    """Bailing stores queries, keys and values as one; SGLang calls them qkv_proj, and from 0.5.11 on asks its list for
    q_proj, k_proj and v_proj in its place (sglang-0.5.11 srt/layers/quantization/utils.py:60), which no tensor has."""
    made = recorded("bailing")
    stored = {**dict.fromkeys(made.draft, scheme), "model.layers.2.attention.query_key_value": "bf16"}
    report = analyse(build(made, fmt, list(made.kept), stored=stored), scope="all")
    assert report.status == "fixable"
    added = {edit.value for edit in report.plan.edits}
    assert added > {f"model.layers.2.attention.{name}_proj" for name in ("q", "k", "v")}
    verdicts = {(row.engine, row.verdict) for row in report.after if row.part == "target" and row.latest}
    assert verdicts >= {("sglang", "loads"), ("vllm", "loads")}


def test_an_entry_that_the_list_has_is_not_written_again() -> None:
    """vLLM's ModelOpt stops where one shard of a fused linear is listed by name and the others by a star alone
    (vllm-0.33.0 quantization/utils/quant_utils.py:664-683): the subtree was spelled once more for it."""
    made = MAKERS["inkling"](layers=2, experts=2, drafts=1)
    block = "model.mtp.layers.0.transformer_block"
    listed = ["model.mtp.layers.0*", f"{block}.attn.wq_du", f"{block}.attn.*"]
    report = analyse(build(made, "nvfp4", listed), scope="all")
    assert {edit.op for edit in report.plan.edits} == {"add"}
    assert {edit.value for edit in report.plan.edits}.isdisjoint(listed)


def test_an_entry_that_others_hide_goes_with_them() -> None:
    """vLLM asks for the shards of `fused_qkv_a_proj` one by one and stops where one of two is listed (vllm-0.33.0
    compressed_tensors/utils.py should_ignore_layer). Subtrees hide that `re:.*kv_a_proj_with_mqa$` names one alone; for
    SGLang, which loads one draft layer only, none of the three makes a difference. All of the draft is quantized."""
    made = MODELS["deepseek_v3"](layers=4, drafts=2)
    made = replace(made, body={name: shape for name, shape in made.body.items() if "self_attn" not in name})
    wrong = [r"re:^model\.layers\.4\..*", r"re:^model\.layers\.5\..*", "re:.*kv_a_proj_with_mqa$"]
    stored = dict.fromkeys(made.draft, "fp8-channel")
    report = analyse(build(made, "ct-fp8", [*made.kept, *wrong], stored=stored), scope="all")
    assert report.status == "fixable"
    assert draft(report, "vllm", "0.33.0") == "loads"
    places = {f"/quantization_config/ignore/{len(made.kept) + number}" for number in range(3)}
    assert {(edit.op, edit.pointer) for edit in report.plan.edits} == {("remove", place) for place in places}


def mixed_glm() -> tuple[Checkpoint, list[str]]:
    """A GLM of two draft layers, each stored in part; all entries but the first cover what is stored quantized."""
    made = MODELS["glm_moe_dsa"](layers=2, drafts=2)
    quantized = [
        f"model.layers.{layer}.self_attn.indexer.{name}" for layer, name in [(2, "wq_b"), (2, "wk"), (3, "wq_b")]
    ]
    quantized += [f"model.layers.3.mlp.shared_experts.{name}_proj" for name in ("gate", "up", "down")]
    listed = ["re:.*layers.2.*", "*down_proj", "2", "mlp"]
    return build(made, "mxfp8", listed, sidecar=listed, stored=dict.fromkeys(quantized, "mxfp8")), listed


def test_what_nobody_misses_once_others_have_come_goes_in_the_same_plan() -> None:
    """`*down_proj` serves TensorRT-LLM for layer 2 until `model.layers.2.mlp.*` has come, `2` serves vLLM (for which it
    is a substring) until the names of that layer have: no entry can go at first, and each of them in the end."""
    checkpoint, listed = mixed_glm()
    report = analyse(checkpoint, scope="all")
    gone = {(edit.file, edit.pointer.rpartition("/")[2]) for edit in report.plan.edits if edit.op == "remove"}
    at_fault = {str(at) for at, entry in enumerate(listed) if entry != "re:.*layers.2.*"}
    assert gone == {(file, at) for file in ("config.json", "hf_quant_config.json") for at in at_fault}
    assert draft(report, "vllm", "0.33.0") == "loads"
    again = analyse(rewritten(checkpoint, report.plan.after), scope="all")
    assert again.plan.edits == ()


def test_a_shard_beside_one_that_is_stored_otherwise_is_told_alike_before_and_after() -> None:
    """Before 0.25.0 vLLM's draft class says that `up_proj` and `down_proj` make `gate_up_proj` (vllm-0.10.2
    model_executor/models/qwen3_next_mtp.py:214): with both in the list a quantized `gate_proj` becomes plain; later
    releases stop. Without any list all of them stop, and one comes that names what is plain. No entry of it is too
    broad, and no release could do better: shards of one linear are stored unlike, MTP010 before the plan and after."""
    made = MODELS["qwen3_next"]()
    quantized = "mtp.layers.0.mlp.shared_expert.gate_proj"
    checkpoint = build(made, "quark", ABSENT, stored={quantized: "mxfp4"})
    first = analyse(checkpoint, scope="all")
    second = analyse(rewritten(checkpoint, first.plan.after), scope="all")
    for report in (first, second):
        stays = [found for found in report.findings if found.fix == "none" and quantized in found.modules]
        told = {(found.rule, engine) for found in stays for engine in found.engines if engine.startswith("vllm")}
        assert told == {("MTP010", "vllm")}


def test_where_the_entry_at_fault_goes_in_vain_the_one_that_stays_is_told() -> None:
    """The name of a quantized module of the draft harms the target in SGLang, which takes a leaf of latent attention
    for that of every layer, and goes; vLLM builds it plain for the subtree that the rest of the draft needs: MTP004."""
    made = MODELS["deepseek_v3"]()
    odd = next(name for name in made.draft if name.endswith(".self_attn.q_b_proj"))
    listed = [*made.kept, odd, odd.replace(".self_attn.q_b_proj", "*")]
    checkpoint = build(made, "nvfp4", listed, stored={odd: "nvfp4"})
    first = analyse(checkpoint, scope="all")
    assert [edit.pointer for edit in first.plan.edits] == [f"/quantization_config/ignore/{len(made.kept)}"]
    for report in (first, analyse(rewritten(checkpoint, first.plan.after), scope="all")):
        told = [found.rule for found in report.findings if odd in found.modules and "vllm" in found.engines]
        assert told == ["MTP004"]


def test_two_files_with_one_list_part_where_their_engines_need_different_ones() -> None:
    """`model.layers.2.self_attn.kv_a_proj_with_mqa` serves TensorRT-LLM, which reads the sidecar. SGLang takes it for
    the projection of every layer, the target's included, which is stored quantized (sglang-0.5.23
    srt/layers/quantization/modelopt_quant.py:416-422): it goes from config.json alone. That the files decide unlike
    each other from then on is told before the plan as after it, and a second plan is empty."""
    made = MODELS["deepseek_v3"](layers=2, drafts=2)
    odd = [f"model.layers.2.self_attn.{name}_proj" for name in ("q_a", "q_b")]
    listed = ["lm_head", "model.layers.2.self_attn.kv_a_proj_with_mqa"]
    checkpoint = build(made, "modelopt-fp8", listed, sidecar=listed, stored=dict.fromkeys(odd, "fp8"))
    first = analyse(checkpoint, scope="all")
    gone = [(edit.file, edit.pointer) for edit in first.plan.edits if edit.op == "remove"]
    assert gone == [("config.json", "/quantization_config/ignore/1")]
    added = {(edit.file, edit.value) for edit in first.plan.edits if edit.op == "add"}
    assert {(file, "model.layers.3.*") for file in ("config.json", "hf_quant_config.json")} < added
    second = analyse(rewritten(checkpoint, first.plan.after), scope="all")
    assert second.plan.edits == ()
    for report in (first, second):
        assert "none" in [found.fix for found in report.findings if found.rule == "MTP003"]


def test_an_entry_for_what_should_be_plain_and_is_stored_quantized_goes_where_an_engine_can_build_it() -> None:
    """EXAONE-MoE keeps `mtp.fc` in full precision, and SGLang builds it so whatever the lists say: MTP007. vLLM asks
    its list for it (vllm-0.33.0 model_executor/models/exaone_moe_mtp.py:63-76) and loads it quantized, once the entry
    that names it has gone."""
    made = recorded("exaone_moe")
    stored = dict.fromkeys([*made.draft, "mtp.fc"], "fp8-channel")
    report = analyse(build(made, "ct-fp8", [*made.kept, "re:mtp.fc"], stored=stored), scope="all")
    assert report.status == "partly-fixable"
    place = f"/quantization_config/ignore/{len(made.kept)}"
    assert [(edit.op, edit.pointer) for edit in report.plan.edits] == [("remove", place)]
    assert draft(report, "vllm", "0.14.0") == draft(report, "vllm", "0.33.0") == "loads"
    assert {(found.rule, found.fix, found.engines) for found in report.findings} == {
        ("MTP005", "safe", ("vllm>=0.14.0",)),
        ("MTP007", "none", ("sglang",)),
    }


def test_a_layer_that_cannot_be_listed_as_a_whole_is_listed_in_smaller_parts() -> None:
    """vLLM's draft class of Bailing asks for the target's head as `model.layers.4.shared_head.head` (vllm-0.33.0
    model_executor/models/bailing_moe_mtp.py load_lm_head), and that is stored quantized: `model.layers.4.*` cannot
    come, and what is stored plain beside it is named as the checkpoint names it all the same."""
    made = recorded("bailing")
    report = analyse(build(made, "modelopt-fp8", list(made.kept), stored={"lm_head": "fp8"}), scope="all")
    added = [edit.value for edit in report.plan.edits]
    assert "model.layers.4.*" not in added
    assert {"model.layers.4.attention.*", "model.layers.4.eh_proj"} <= set(added)
    assert draft(report, "vllm", "0.33.0") == "loads"


@pytest.mark.parametrize("listed", [["model", "gate_proj"], ["gate_proj", "model"]])
def test_an_entry_for_a_shard_that_sglang_knows_by_itself_goes_in_either_order(listed: list[str]) -> None:
    """`model` hides `gate_proj` where it comes first. SGLang from 0.5.11 on takes `gate_up_proj` apart though LongCat's
    class tells no such mapping (sglang-0.5.11 srt/layers/quantization/utils.py:60) and stops where one of two is
    listed."""
    made = recorded("longcat_flash")
    report = analyse(build(made, "modelopt-fp8", [*made.kept, *listed]), scope="all")
    places = {f"/quantization_config/ignore/{len(made.kept) + number}" for number in range(2)}
    assert places == {edit.pointer for edit in report.plan.edits if edit.op == "remove"}
    told = [found.engines for found in report.findings if "not all shards" in found.message and found.fix == "none"]
    assert not told


def test_releases_that_ask_alike_and_load_otherwise_are_judged_apart() -> None:
    """SGLang asks for a DeepSeek draft alike from 0.5.12 on. Up to 0.5.18 its class reads `gate_up_proj.weight` of the
    shared experts, which packed ones lack (sglang-0.5.18 srt/models/deepseek_v2.py), and no list helps; from 0.5.19 on
    it loads with its own names for what is plain, which were not offered for the sake of the older ones."""
    made = recorded("deepseek_v32")
    plain = ("eh_proj", "down_proj", "kv_a_proj_with_mqa", "self_attn.q_a_proj", "weights_proj", "mlp.gate")
    packed = [name for name in made.draft if ".experts." in name or not name.endswith(plain)]
    report = analyse(build(made, "auto-round", list(made.kept), stored=dict.fromkeys(packed, "gptq4")), scope="all")
    assert draft(report, "sglang", "0.5.12") == draft(report, "sglang", "0.5.18") == "fails"
    assert draft(report, "sglang", "0.5.19") == draft(report, "sglang", "0.5.23") == "loads"


def test_smaller_parts_are_named_without_the_wrapper_too() -> None:
    """An expert of GLM-5-Next's second draft layer is stored quantized; SGLang from 0.5.21 on takes a list for the one
    decoder layer of the draft, so that `model.layers.45*` cannot come. What can, comes by both names of the draft."""
    made = MODELS["glm5_next"](layers=45, drafts=2)
    odd = "model.language_model.layers.46.mlp.experts.0.up_proj"
    listed = [*made.kept, "model.language_model.layers.45*"]
    report = analyse(build(made, "modelopt-fp8", listed, stored={odd: "fp8"}), scope="all")
    added = {edit.value for edit in report.plan.edits if edit.op == "add"}
    assert "model.layers.45*" not in added
    for name in ("shared_experts*", "self_attn*"):
        assert any(entry.startswith("model.layers.46.") and entry.endswith(name) for entry in added)
    assert any(entry.startswith("model.layers.45.self_attn") for entry in added)


def test_many_layers_are_listed_where_one_entry_cannot_come() -> None:
    """A list that lacks the attention of 45 layers, and one entry of hundreds that would harm a release: the others
    come. To try each by itself took more decisions than a list may take, and nothing was repaired."""
    made = MODELS["glm5_next"](layers=45, drafts=2)
    odd = "model.language_model.layers.46.mlp.experts.0.up_proj"
    checkpoint = build(made, "modelopt-fp8", ["model.language_model.layers.45*"], stored={odd: "fp8"})
    report = analyse(checkpoint, scope="all")
    added = {edit.value for edit in report.plan.edits if edit.op == "add"}
    assert added >= {f"model.language_model.layers.{layer}.self_attn*" for layer in range(45)}
    target = {row.verdict for row in report.after if row.part == "target" and row.engine in ("vllm", "sglang")}
    assert target == {"loads", "unsupported"}
    assert not any("takes too long" in note for note in report.notes)


def test_a_list_that_takes_too_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    made = MODELS["qwen3_next"]()
    checkpoint = build(made, "nvfp4", list(made.kept))
    assert analyse(checkpoint, scope="all").status == "fixable"
    monkeypatch.setattr("mtpfix.solving.trials.MOST_DECISIONS", 1)
    monkeypatch.setattr("mtpfix.solving.trials.FEW_TRIALS", 1)
    report = analyse(checkpoint, scope="all")
    assert report.status == "not-fixable"
    assert any(note.startswith("config.json: its list takes too long") for note in report.notes)


def test_what_is_no_text_goes_with_the_entries_that_have_to_come_then() -> None:
    """SGLang stops on `true` in a list (sglang-0.5.23 srt/layers/quantization/fp8.py); without it nothing is right yet,
    as the list names nothing of the draft. Both are mended in one plan."""
    made = MODELS["gemma4_assistant"]()
    checkpoint = build(made, "fp8-block", ["mtp.layers.0*", True])
    report = analyse(checkpoint, scope="all")
    assert ("remove", "/quantization_config/modules_to_not_convert/1") in {
        (edit.op, edit.pointer) for edit in report.plan.edits
    }
    assert draft(report, "sglang", "0.5.23") == draft(report, "vllm", "0.33.0") == "loads"
    assert analyse(rewritten(checkpoint, report.plan.after), scope="all").plan.edits == ()


def test_two_files_with_one_list_in_another_order_are_one() -> None:
    """Where `in_proj_qkv` is plain and `in_proj_z` is not, no list helps vLLM and SGLang; TensorRT-LLM loads the draft
    once the sidecar's `*` is gone, and of config.json it goes as well: the two hold the same, whatever their order."""
    made = MODELS["qwen3_5"]()
    qkv, z = ("model.language_model.layers.0.linear_attn.in_proj_" + name for name in ("qkv", "z"))
    some = [qkv, "mtp.layers.0.*", "mtp.fc", "model.language_model.mtp.layers.0.self_attn.q_proj", "*"]
    other = [*some[2:0:-1], *some[3:], some[0]]
    stored = {z: "nvfp4"}
    same = analyse(build(made, "mixed", some, sidecar=some, stored=stored), scope="all")
    apart = analyse(build(made, "mixed", some, sidecar=other, stored=stored), scope="all")
    gone = {("config.json", 0), ("config.json", 4), ("hf_quant_config.json", 3), ("hf_quant_config.json", 4)}
    assert {(edit.file, int(edit.pointer.rpartition("/")[2])) for edit in apart.plan.edits} == gone
    assert {edit.op for edit in apart.plan.edits} == {"remove"}
    assert (apart.status, apart.after) == (same.status, same.after)


def test_an_entry_that_stands_twice_in_one_of_two_files_goes_from_both_places() -> None:
    made = MODELS["qwen3_5"]()
    listed = [*made.kept, "mtp.*"]
    stored = dict.fromkeys(made.draft, "nvfp4")
    report = analyse(build(made, "nvfp4", listed, sidecar=["mtp.*", *listed], stored=stored), scope="all")
    places = sorted((edit.file, edit.pointer) for edit in report.plan.edits if edit.op == "remove")
    last = len(made.kept)
    assert places == [
        ("config.json", f"/quantization_config/ignore/{last}"),
        ("hf_quant_config.json", "/quantization/exclude_modules/0"),
        ("hf_quant_config.json", f"/quantization/exclude_modules/{last + 1}"),
    ]


def test_a_head_that_the_draft_never_reads_keeps_no_alias_from_its_own() -> None:
    """vLLM asks for the draft's head as `model.layers.3.head` and reads tensors of the draft's layers alone, not the
    target's head (vllm-0.33.0 model_executor/models/glm4_moe_lite_mtp.py load_weights). That it is packed is no reason
    to leave the entry out."""
    made = recorded("glm4_moe_lite")
    stored = {name: "nvfp4" for name in made.draft if "experts." not in name or "shared" in name}
    made = replace(made, kept={**made.kept, "model.layers.3.shared_head.head": (256, 128)})
    checkpoint = build(made, "nvfp4", ABSENT, sidecar=["model.layers.3.*"], stored={**stored, "lm_head": "nvfp4"})
    report = analyse(checkpoint, scope="all")
    added = {str(edit.value) for edit in report.plan.edits if edit.op == "add" and edit.file == "hf_quant_config.json"}
    assert "model.layers.3.head" in added
    assert draft(report, "vllm", "0.33.0") == "loads"


def test_what_another_error_hides_is_told_by_its_own_reason() -> None:
    """SGLang stops on `{"lm_head": 1}` in a list; once it is gone, the draft's experts cannot be plain in INT8, as
    ignored experts get the method of linears (sglang-0.5.23 srt/layers/quantization/compressed_tensors)."""
    made = MODELS["deepseek_v3"]()
    checkpoint = build(made, "w8a8-int8", [*made.kept, {"lm_head": 1}])
    report = analyse(checkpoint, scope="all")
    again = analyse(rewritten(checkpoint, report.plan.after), scope="all")
    assert report.status == "partly-fixable"
    left = {(found.rule, found.modules) for found in again.findings if found.severity == "error"}
    errors = [found for found in report.findings if found.severity == "error"]
    assert {(found.rule, found.modules) for found in errors if found.fix == "none"} == left
    assert {rule for rule, _ in left} == {"MTP008"}


def test_shards_that_harm_together_do_not_come_one_by_one() -> None:
    """SGLang looks Qwen3-Next's draft up by the target's names: `gate_proj` of the target's shared expert alone makes
    it stop, `up_proj` after it makes the draft's packed one plain. Neither comes, and vLLM gets a list all the same."""
    made = MODELS["qwen3_next"](layers=4, drafts=2)
    shards = [f"layers.0.mlp.shared_expert.{name}_proj" for name in ("gate", "up")]
    stored = {f"mtp.{name}": "fp8" for name in shards} | {f"model.{name}": "bf16" for name in shards}
    listed = ["lm_head", *(f"model.{name}" for name in shards), "mtp.layers.0.*", "mtp.layers.1.*", "mtp.fc"]
    checkpoint = build(made, "modelopt-fp8", ABSENT, sidecar=listed, stored=stored)
    report = analyse(checkpoint, scope="all")
    assert draft(report, "vllm", "0.33.0") == "loads"
    added = [entry for edit in report.plan.edits if edit.file == "config.json" for entry in edit.value]
    assert "mtp.fc" in added
    assert not {f"model.{name}" for name in shards}.intersection(added)


def test_an_entry_that_comes_where_a_broken_one_stood_is_none() -> None:
    """Listed experts get the method of linears in SGLang's W8A8 INT8, with the entry that is no text or without it
    (sglang-0.5.23 srt/layers/quantization/w8a8_int8.py:111): what stays is the engine's fault, not the list's."""
    made = glm4_moe()
    report = analyse(build(made, "w8a8-int8", [*right_list(made, "w8a8-int8"), ["lm_head"]]), scope="mtp")
    assert report.plan.edits
    assert {finding.rule for finding in report.findings if finding.fix != "safe"} == {"MTP008"}


def test_what_a_lost_draft_had_by_accident_and_loses_by_the_plan_is_told() -> None:
    """Shards of one linear that are stored unlike each other load nowhere. What the entry `0` made plain in older
    releases of SGLang is quantized there once it goes, and is told as what stays."""
    made = MODELS["qwen3_next"]()
    target = {name: shape for name, shape in made.kept.items() if "mlp." not in name}  # no name that the draft asks too
    made = replace(made, kept=target, body={name: made.body[name] for name in made.body if "mlp.shared" not in name})
    attention = "mtp.layers.0.self_attn"
    packed = (f"{attention}.q_proj", f"{attention}.o_proj", "mtp.layers.0.mlp.experts.0.gate_proj")
    stored = dict.fromkeys((*packed, "mtp.layers.0.mlp.experts.1.down_proj"), "fp8-channel")
    listed = ["model.layers.0.linear_attn.in_proj_qkvz", "mtp.layers.0.*", "fc", "model.layers.0.*", "0"]
    report = analyse(build(made, "fbgemm-fp8", listed, stored=stored), scope="all")
    assert ("remove", "/quantization_config/modules_to_not_convert/4") in {
        (edit.op, edit.pointer) for edit in report.plan.edits
    }
    told = [found for found in report.findings if found.fix == "none" and f"{attention}.k_proj" in found.modules]
    assert {"sglang", "sglang<0.5.16"} & {engine for found in told for engine in found.engines}


def test_an_entry_is_told_where_it_stands_though_a_class_makes_another_config_of_the_file() -> None:
    """vLLM makes an fp8 config of a Quark export of DeepSeek-V4 (vllm-0.27.0 models/deepseek_v4/quant_config.py:29):
    what its list holds stands in the `exclude` of the file, with or without what is no text before it."""
    made = recorded("deepseek_v4")
    listed = [None, "layers.0.attn.wq_a"]
    report = analyse(build(made, "quark", listed, stored={"layers.0.attn.wq_a": "bf16"}), scope="all")
    places = {place.pointer for found in report.findings for place in found.locations}
    assert not any("ignored_layers" in place for place in places)
    assert "/quantization_config/exclude/1" in places


def test_what_is_mended_by_a_name_without_the_wrapper_gets_its_own_name_too() -> None:
    """A shard's own name does harm as long as the name of another one without the wrapper is not there."""
    mixed = ("language_model.layers.2.mlp.experts.1.gate_proj", "language_model.layers.3.mlp.shared_experts.gate_proj")
    listed = ["model.language_model.layers.1.self_attn.kv_b_proj", *["model.language_model.layers.3*"] * 2]
    made = glm5_next(layers=2, experts=2, drafts=2)
    report = analyse(
        build(made, "modelopt-fp8", listed, stored={f"model.{name}": "fp8" for name in mixed}), scope="all"
    )
    added = {edit.value for edit in report.plan.edits if edit.file == "config.json"}
    shared = "layers.2.mlp.shared_experts.down_proj"
    assert {f"model.{shared}", f"model.language_model.{shared}"} <= added


def test_an_entry_that_goes_for_nothing_stays_in_either_order() -> None:
    """A LongCat draft in NVFP4 that no engine loads: its module is named twice, by an entry of the target's, which
    gets a wider one, and by one that serves nobody."""
    names = [f"model.layers.1.self_attn.{name}" for name in ("0.kv_b_proj", "0.q_b_proj", "1.kv_b_proj")]
    made = recorded("longcat_flash")
    made = replace(made, body={name: made.body[name] for name in names}, kept={"lm_head": made.kept["lm_head"]})
    stored = dict.fromkeys(made.draft, "nvfp4-w4a16") | dict.fromkeys(names, "bf16")
    vain = "model.decoder.self_attn.q_b_proj"
    others = ("0", "model.mtp.layers.0.transformer_layer.mlp.up_proj", "mtp.layers.0*", "model.layers.0.*")
    for listed in (["lm_head", *names, vain, *others], ["lm_head", vain, *names, *others]):
        report = analyse(build(made, "w4a16-nvfp4", listed, sidecar=ABSENT, stored=stored), scope="all")
        removed = {listed[int(edit.pointer.rpartition("/")[2])] for edit in report.plan.edits if edit.op == "remove"}
        assert removed == set(names)


def test_what_stays_is_told_by_the_entry_that_stays() -> None:
    """`model` hides the entry for a shard beside one that is stored quantized; it goes, and the shards stay unlike."""
    linear = "model.language_model.layers.0.linear_attn"
    made = MAKERS["intern_s2_preview"]()
    listed = [*(name for name in made.kept if not name.endswith("in_proj_z")), "model"]
    checkpoint = build(made, "awq", listed, stored={f"{linear}.in_proj_z": "awq4"})
    first = analyse(checkpoint, scope="all")
    second = analyse(rewritten(checkpoint, first.plan.after), scope="all")
    assert {"MTP010"} <= {found.rule for found in first.findings if found.fix == "none"}
    for report in (first, second):
        stays = [found for found in report.findings if found.fix != "safe" and f"{linear}.in_proj_z" in found.modules]
        assert {found.rule for found in stays} == {"MTP008", "MTP010"}


def test_an_alias_of_the_draft_does_not_make_a_quantized_shard_of_the_target_plain() -> None:
    """vLLM asks for MiniMax-M3's draft as model.layers.0, and AutoRound's rules are searched for anywhere in a name:
    one for `qkv_proj` would take the target's, on whose shards vLLM stops (vllm-0.33.0 quantization/inc.py)."""
    made = recorded("minimax_m3")
    attention = "language_model.model.layers.0.self_attn"
    listed = ["language_model.lm_head", *(f"{attention}.{name}_proj" for name in "kov")]
    listed += [r".*language_model\\.model\\.mtp\\.layers\\.0\\..*"]
    report = analyse(build(made, "auto-round", listed, stored={f"{attention}.q_proj": "gptq4"}), scope="mtp")
    assert report.plan.edits
    assert not [edit for edit in report.plan.edits if edit.pointer.endswith("qkv_proj")]
    assert {"MTP010"} == {found.rule for found in report.findings if f"{attention}.q_proj" in found.modules}


def test_what_a_class_stops_on_once_another_module_is_right_is_told_before() -> None:
    """SGLang compares the sizes of blocks of a shared expert's gate and up with those of down_proj, which has none
    where it is plain (sglang-0.5.23 srt/models/deepseek_v2.py)."""
    made = recorded("gigachat3_5")
    plain = [name for name in made.body if ".1.mlp.experts." in name] + ["model.layers.1.mlp.shared_experts.down_proj"]
    stored = {**dict.fromkeys(plain, "bf16"), "model.layers.3.eh_proj": "fp8-channel"}
    checkpoint = build(made, "ct-fp8", ABSENT, stored=stored)
    first = analyse(checkpoint, scope="mtp")
    second = analyse(rewritten(checkpoint, first.plan.after), scope="mtp")
    for report in (first, second):
        told = [found for found in report.findings if found.fix == "none" and found.rule == "MTP008"]
        assert [found.modules for found in told] == [
            tuple(f"model.layers.1.mlp.shared_experts.{name}_proj" for name in ("gate", "up"))
        ]
