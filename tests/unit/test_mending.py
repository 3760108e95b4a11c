"""Index and headers mended: which scales are only misnamed, what the plan holds, and what it must not do."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from checkpoints import (
    FORMATS,
    INDEX,
    SCHEMES,
    Format,
    Memory,
    Model,
    Tensors,
    build,
    deepseek_v3,
    dumped,
    glm4_moe,
    header,
    qwen3_5,
    read,
    right_list,
    tensors_of,
)

from mtpfix.analysis import analyse, repaired
from mtpfix.checkpoint.local import read_local
from mtpfix.checkpoint.reading import read_checkpoint
from mtpfix.engines import openings
from mtpfix.frozen import replace
from mtpfix.mending import words
from mtpfix.model import Checkpoint, Report, Source
from mtpfix.rebuild import renamed
from mtpfix.releases import holds, modelled
from mtpfix.storage.renames import block_size

DS, GLM, Q35 = deepseek_v3(), glm4_moe(), qwen3_5()
C = "config.json"
LISTED = right_list(DS, "fp8-block", draft=False)
CT_BLOCK = {
    "config_groups": {"group_0": {
        "targets": ["Linear"],
        "weights": {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "block", "dynamic": False,
                    "block_structure": [128, 128]},
        "input_activations": {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "group",
                              "group_size": 128, "dynamic": True},
    }},
}  # fmt: skip


def stored(made: Model, scheme: str | Tensors) -> dict[str, str | Tensors]:
    return dict.fromkeys(made.draft, scheme)


def misnamed(scheme: str | Tensors = "fp8-block-ct", **rest: Any) -> Checkpoint:
    """DeepSeek-V3 in block FP8, the draft's scales under another name."""
    return build(DS, "fp8-block", LISTED, stored=stored(DS, scheme), **rest)


def mended(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint with its unsafe plan."""
    plan = analyse(checkpoint, unsafe=True).plan
    return repaired(renamed(checkpoint, plan.renames), plan.after)


def codes(report: Report) -> list[tuple[str, str]]:
    return [(finding.rule, finding.fix) for finding in report.findings if finding.severity == "error"]


# --- renames ----------------------------------------------------------------------------------------------------------


def test_scales_that_are_only_misnamed() -> None:
    checkpoint = misnamed()
    report = analyse(checkpoint)
    assert codes(report) == [("MTP012", "unsafe")]
    assert report.status == "not-fixable"
    assert report.plan.empty
    count = len(DS.draft)
    assert report.plan.held_back == (
        f"rename weight_scale to weight_scale_inv in the header of 1 shard: {count} tensors; no data byte changes",
    )
    plan = analyse(checkpoint, unsafe=True).plan
    assert {(row.old.rpartition(".")[2], row.new.rpartition(".")[2]) for row in plan.renames} == {
        ("weight_scale", "weight_scale_inv")
    }
    assert {row.old.rpartition(".")[0] for row in plan.renames} == set(DS.draft)
    assert (plan.certificate.tensors_renamed, plan.files, plan.held_back) == (count, ("model.safetensors",), ())
    again = analyse(mended(checkpoint), unsafe=True)
    assert (again.status, again.plan.empty) == ("clean", True)
    assert {row.verdict for row in again.engines if row.engine in ("vllm", "sglang")} == {"loads"}


def test_the_other_way_round_for_compressed_tensors() -> None:
    names = {"quantization_config": {"quant_method": "compressed-tensors", "format": "float-quantized",
                                     "ignore": [*DS.kept, *DS.bare], **CT_BLOCK}}  # fmt: skip
    checkpoint = build(DS, "fp8-block", [], config_list=False, changes=names, stored=stored(DS, "fp8-block"))
    plan = analyse(checkpoint, unsafe=True).plan
    assert {row.new.rpartition(".")[2] for row in plan.renames} == {"weight_scale"}
    assert {row.old.rpartition(".")[0] for row in plan.renames} == {*DS.draft, *DS.body}
    assert analyse(mended(checkpoint)).status == "clean"


def other(**changes: Any) -> Tensors:
    """A block of FP8 whose scale is called weight_scale, with something else about it."""
    return {**SCHEMES["fp8-block-ct"](128, 128), **changes}


@pytest.mark.parametrize(
    "scheme",
    [
        other(weight_scale=("F32", (2, 2))),  # blocks of 64
        other(weight_scale=("F8_E8M0", (1, 1))),  # exponents
        {"weight": ("F8_E4M3", (128, 128))},  # none at all
        {**SCHEMES["fp8-block"](128, 128), "weight_scale": ("F32", (1, 1))},  # both
        "ct-nvfp4",
        "nvfp4",
    ],
)
def test_what_is_no_matter_of_a_name(scheme: str | Tensors) -> None:
    plan = analyse(misnamed(scheme), unsafe=True).plan
    assert plan.renames == ()


def test_global_scales_are_reciprocals_and_stay() -> None:
    """compressed-tensors' weight_global_scale under a ModelOpt config, and ModelOpt's under compressed-tensors."""
    entries = right_list(GLM, "nvfp4")
    for fmt, scheme in (("nvfp4", "ct-nvfp4"), ("ct-nvfp4", "nvfp4")):
        checkpoint = build(GLM, fmt, right_list(GLM, fmt, draft=False), stored=stored(GLM, scheme), sidecar=entries)
        assert analyse(checkpoint, unsafe=True).plan.renames == ()


def test_engines_that_disagree_get_no_rename() -> None:
    """Where one of the wanted engines builds what is stored, the name is right for it."""
    checkpoint = misnamed()
    for only in (["vllm"], ["sglang"]):
        assert analyse(checkpoint, engines=only, unsafe=True).plan.renames
    quark = replace(
        checkpoint,
        files={C: replace(checkpoint.files[C], value={**checkpoint.files[C].value, "quantization_config": {}})},
    )
    assert analyse(quark, unsafe=True).plan.renames == ()


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ({"weight_block_size": [128, 64]}, (128, 64)),
        (CT_BLOCK, (128, 128)),
        ({}, None),
        ({"weight_block_size": [128]}, None),
        ({"weight_block_size": [128, 0]}, None),
        ({"weight_block_size": "128"}, None),
        ({**CT_BLOCK, "weight_block_size": [64, 64]}, None),
        ({"config_groups": {"a": None, "b": {"weights": []}}}, None),
    ],
)
def test_blocks(value: Mapping[str, Any], size: tuple[int, int] | None) -> None:
    assert block_size(value) == size


def test_the_index_follows_the_header() -> None:
    """Sharded, the index in step: names change in both."""

    def place(name: str) -> str:
        return "b.safetensors" if name.startswith("model.layers.2") else "a.safetensors"

    whole = misnamed(shard_of=place)
    shards: dict[str, Tensors] = {}
    for module in whole.modules.values():
        for cell in module.cells:
            tensor = f"{module.name}.{cell.suffix}"
            shards.setdefault(place(tensor), {})[tensor] = (cell.dtype, cell.shape)
    index = {"metadata": {"total_size": 5}, "weight_map": {name: place(name) for s in shards.values() for name in s}}
    texts = {C: whole.files[C].raw, INDEX: dumped(index)}
    files = Memory(texts, {name: header(name, tensors) for name, tensors in shards.items()})
    checkpoint = read_checkpoint(Source("local", "memory"), files, keep_index=True)
    plan = analyse(checkpoint, unsafe=True).plan
    assert plan.files == (INDEX, "b.safetensors")
    new = json.loads(plan.after[INDEX])
    assert set(new["weight_map"]) == {
        name.removesuffix("weight_scale") + "weight_scale_inv" if name in {row.old for row in plan.renames} else name
        for name in index["weight_map"]
    }
    assert set(new["weight_map"].values()) == {"a.safetensors", "b.safetensors"}
    again = repaired(renamed(checkpoint, plan.renames), plan.after)
    assert analyse(again).status == "clean"


def test_no_header_is_edited_on_the_hub() -> None:
    checkpoint = replace(misnamed(), source=Source("hub", "org/name", "0" * 40))
    report = analyse(checkpoint, unsafe=True)
    assert codes(report) == [("MTP012", "none")]
    assert "hf download" in report.findings[0].hint
    assert report.plan.empty
    assert report.plan.held_back == ()


# --- the index --------------------------------------------------------------------------------------------------------


def sharded(made: Model, entries: list[str], index: dict[str, str] | None, drop: str = "\0") -> Checkpoint:
    """NVFP4, the draft in a file of its own, under an index; `drop`: tensors that are not stored."""

    def place(name: str) -> str:
        return "mtp.safetensors" if name.startswith(("mtp", "model.layers.2.")) else "model.safetensors"

    names = tensors_of(made, "nvfp4")
    gone = [name for name in names if name.startswith(drop)]
    return build(made, "nvfp4", entries, sidecar=entries, shard_of=place, index=index, drop=gone)


def true_map(made: Model) -> dict[str, str]:
    names = tensors_of(made, "nvfp4")
    return {n: "mtp.safetensors" if n.startswith(("mtp", "model.layers.2.")) else "model.safetensors" for n in names}


def test_a_draft_that_the_index_leaves_out_and_no_list_names() -> None:
    """One plan for both: index and lists. The rebuilt index alone would make the draft fail."""
    made = Q35
    index = {name: shard for name, shard in true_map(made).items() if not name.startswith("mtp")}
    checkpoint = sharded(made, right_list(made, "nvfp4", draft=False), index)
    report = analyse(checkpoint, unsafe=True)
    assert set(report.plan.files) == {C, "hf_quant_config.json", INDEX}
    again = analyse(repaired(checkpoint, report.plan.after), unsafe=True)
    assert (again.status, again.plan.empty) == ("clean", True)
    assert {row.verdict for row in report.after if row.latest and row.engine in ("vllm", "sglang")} == {"loads"}


def test_a_draft_that_is_given_up_is_not_counted_any_more() -> None:
    checkpoint = sharded(GLM, right_list(GLM, "nvfp4"), true_map(GLM), drop="model.layers.2.")
    report = analyse(checkpoint)
    assert [finding.rule for finding in report.findings] == ["MTP011"]
    assert "1 file" not in report.findings[0].message
    assert report.plan.held_back[0] == "set /num_nextn_predict_layers to 0, as many as are stored"
    plan = analyse(checkpoint, unsafe=True).plan
    assert set(plan.files) == {C, INDEX}
    again = analyse(repaired(checkpoint, plan.after), unsafe=True)
    assert (again.status, again.plan.empty) == ("clean", True)


def test_missing_files_stop_engines_since_some_release() -> None:
    """vLLM 0.26.0 and SGLang 0.5.17 begin to stop; earlier ones load the target without the draft."""
    checkpoint = sharded(GLM, right_list(GLM, "nvfp4"), true_map(GLM), drop="model.layers.2.")
    report = analyse(checkpoint)
    assert "or restore the draft: mtpfix graft DIR --from BASE" in report.findings[0].hint
    rows = {(row.engine, release, row.part): row.verdict for row in report.engines for release in row.releases}
    for engine, last, first in (("vllm", "0.25.1", "0.26.0"), ("sglang", "0.5.16", "0.5.17")):
        assert (rows[engine, last, "target"], rows[engine, last, "draft"]) == ("loads", "degrades")
        assert (rows[engine, first, "target"], rows[engine, first, "draft"]) == ("fails", "fails")


def test_the_target_cannot_do_without_what_is_missing() -> None:
    gone = {name: "gone.safetensors" for name in true_map(GLM) if name.startswith("model.layers.1.")}
    checkpoint = sharded(GLM, right_list(GLM, "nvfp4"), {**true_map(GLM), **gone}, drop="model.layers.1.")
    report = analyse(checkpoint, unsafe=True)
    found = next(finding for finding in report.findings if finding.rule == "MTP011")
    assert (found.fix, report.plan.index) == ("none", None)
    assert "cannot be done without" in found.hint
    assert "graft" not in found.hint
    rows = {(row.engine, row.version, row.part): row.verdict for row in report.engines}
    assert rows["vllm", "0.12.0", "target"] == "degrades"
    assert rows["vllm", "0.26.0", "target"] == "fails"


@pytest.mark.parametrize("unsafe", [False, True])
def test_files_that_are_missing_by_their_numbers_where_no_index_tells(unsafe: bool) -> None:
    """vLLM and SGLang open what is there: without the first of three files layers stay unwritten, and no list helps. An
    index of the rest would hide it."""
    names = tensors_of(GLM, "nvfp4")
    right = right_list(GLM, "nvfp4")

    def place(name: str) -> str:
        return f"model-0000{1 if 'layers.0.' in name else 2 if 'layers.1.' in name else 3}-of-00003.safetensors"

    def without_index(drop: list[str]) -> Checkpoint:
        made = build(GLM, "nvfp4", right, sidecar=right, shard_of=place, drop=drop)
        return replace(made, index=None, files={name: file for name, file in made.files.items() if name != INDEX})

    assert analyse(without_index([])).status == "clean"
    part = without_index([name for name in names if "layers.0." in name])
    report = analyse(part, unsafe=unsafe)
    assert codes(report) == [("MTP011", "none")]
    assert "1 file of the checkpoint is missing, e.g. model-00001-of-00003.safetensors" in report.findings[0].message
    assert (report.status, report.plan.index) == ("not-fixable", None)


def test_a_shard_of_a_draft_alone_is_whole() -> None:
    """One numbered file with the draft, taken for a repository of its own: nothing of a target is there to miss."""
    right = right_list(GLM, "nvfp4")
    layers = [name for name in tensors_of(GLM, "nvfp4") if "layers." in name and "layers.2." not in name]
    taken = build(
        GLM, "nvfp4", right, sidecar=right, shard_of=lambda _: "model-00003-of-00003.safetensors", drop=layers
    )
    assert "MTP011" not in [finding.rule for finding in analyse(taken).findings]


def test_sglang_opens_mtp_safetensors_of_glm() -> None:
    """sglang-0.5.9 maybe_add_mtp_safetensors; of Qwen3.5's it knows nothing. TensorRT-LLM opens every file."""
    for made, wanted in ((GLM, "loads"), (Q35, "degrades")):
        front = ("mtp", "model.layers.2.")
        index = {name: shard for name, shard in true_map(made).items() if not name.startswith(front)}
        report = analyse(sharded(made, right_list(made, "nvfp4"), index))
        found = {row.engine: row.verdict for row in report.engines if row.latest and row.part == "draft"}
        assert (found["vllm"], found["sglang"], found["tensorrt-llm"]) == ("degrades", wanted, "loads")
        assert ("SGLang opens mtp.safetensors" in report.findings[0].message) == (wanted == "loads")


def test_names_without_consequence_are_told_as_such() -> None:
    """A ghost, and a tensor that is not listed though its file is: engines load all, and the index is mended."""
    index = {**true_map(GLM), "model.layers.7.weight": "mtp.safetensors"}
    del index["model.layers.2.eh_proj.weight"]
    checkpoint = sharded(GLM, right_list(GLM, "nvfp4"), index)
    report = analyse(checkpoint)
    assert {row.verdict for row in report.engines if row.engine in ("vllm", "sglang")} == {"loads"}
    assert codes(report) == [("MTP011", "unsafe")] * 2
    assert "engines load them all the same" in report.findings[0].message
    assert analyse(mended(checkpoint)).status == "clean"


def test_a_name_that_points_from_a_file_that_is_not_opened() -> None:
    """The index puts the draft's tensors into model.safetensors, and no name leads to the file that holds them."""
    index = dict.fromkeys(true_map(Q35), "model.safetensors")
    checkpoint = sharded(Q35, right_list(Q35, "nvfp4"), index)
    report = analyse(checkpoint)
    assert ["does not name mtp.safetensors" in finding.message for finding in report.findings] == [True]
    verdicts = {(row.engine, row.part): row.verdict for row in report.engines if row.latest}
    assert (verdicts["vllm", "target"], verdicts["vllm", "draft"]) == ("loads", "degrades")
    assert analyse(mended(checkpoint)).status == "clean"


def copies(
    first: str, second: str, index: dict[str, str] | None, shape: tuple[int, ...] = (128, 256), fmt: str = "nvfp4"
) -> Checkpoint:
    """The draft's projection in two files."""
    names = tensors_of(GLM, fmt)
    files = {first: dict(names), second: {"model.layers.2.eh_proj.weight": ("BF16", shape)}}
    value = {**GLM.config, "quantization_config": FORMATS[fmt].config(right_list(GLM, fmt))}
    return read({C: value}, files, index=index)


@pytest.mark.parametrize(
    ("first", "second", "meant", "shape", "severity"),
    [
        ("a", "b", "b", (128, 256), "warning"),  # the index means the one that is read last, in either order
        ("a", "b", "a", (128, 256), "error"),
        ("a", "b", "b", (128, 128), "error"),
        ("m-10", "m-9", "m-10", (128, 256), "error"),
        ("m-10", "m-9", "m-9", (128, 256), "error"),
    ],
)
def test_copies_that_do_no_harm(first: str, second: str, meant: str, shape: Any, severity: str) -> None:
    names = dict.fromkeys(tensors_of(GLM, "nvfp4"), f"{first}.safetensors")
    files = {"model.layers.2.eh_proj.weight": f"{meant}.safetensors", "more": f"{second}.safetensors"}
    report = analyse(copies(f"{first}.safetensors", f"{second}.safetensors", {**names, **files}, shape))
    found = [finding for finding in report.findings if "more than one file" in finding.message]
    assert [finding.severity for finding in found] == [severity]


@pytest.mark.parametrize(
    ("second", "fmt", "severity", "who"),
    [
        ("b", "fp8-block", "warning", "TensorRT-LLM opens it too"),
        ("b", "nvfp4", "error", "TensorRT-LLM opens it too"),  # which serves ModelOpt's checkpoints
        ("model", "fp8-block", "error", "transformers opens it instead"),
        ("mtp", "fp8-block", "error", "SGLang opens mtp.safetensors of this model all the same"),
    ],
)
def test_an_old_copy_that_the_index_leaves_out(second: str, fmt: str, severity: str, who: str) -> None:
    names = dict.fromkeys(tensors_of(GLM, fmt), "a.safetensors")
    report = analyse(copies("a.safetensors", f"{second}.safetensors", names, fmt=fmt))
    found = [finding for finding in report.findings if finding.rule == "MTP011"]
    assert [finding.severity for finding in found] == [severity]
    assert who in found[0].message


def test_which_copy_stays() -> None:
    names = dict.fromkeys(tensors_of(GLM, "nvfp4"), "model-10.safetensors")
    two = {**names, "model.layers.2.eh_proj.weight": "model-9.safetensors"}
    report = analyse(copies("model-10.safetensors", "model-9.safetensors", two), unsafe=True)
    message = next(finding.message for finding in report.findings if "more than one file" in finding.message)
    assert "The copy in model-10.safetensors is read last by vLLM 0.16.0 and later" in message
    assert "that in model-9.safetensors by SGLang 0.5.13 and later" in message
    assert report.plan.empty  # headers do not say which is right
    assert all(finding.fix == "none" for finding in report.findings)
    unlike = analyse(copies("a.safetensors", "b.safetensors", None, (128, 128)))
    assert "The copy in b.safetensors is read last and stays" in unlike.findings[0].message
    assert "Their dtypes or shapes differ" in unlike.findings[0].message


def test_an_old_copy_beside_the_shards() -> None:
    names = dict.fromkeys(tensors_of(GLM, "nvfp4"), "a.safetensors")
    report = analyse(copies("a.safetensors", "model.safetensors", names), unsafe=True)
    assert "transformers opens it instead" in report.findings[0].message
    assert report.plan.empty


def test_shards_without_an_index() -> None:
    """They load in vLLM and SGLang: a note, and an index for who asks."""
    files = {"a.safetensors": dict(tensors_of(GLM, "nvfp4"))}
    files["b.safetensors"] = {name: files["a.safetensors"].pop(name) for name in list(files["a.safetensors"])[-3:]}
    value = {**GLM.config, "quantization_config": FORMATS["nvfp4"].config(right_list(GLM, "nvfp4"))}
    rows = {name: header(name, tensors) for name, tensors in files.items()}
    checkpoint = read_checkpoint(Source("local", "memory"), Memory({C: dumped(value)}, rows))
    report = analyse(checkpoint)
    assert [(finding.rule, finding.severity, finding.fix) for finding in report.findings] == [
        ("MTP011", "note", "unsafe")
    ]
    assert report.status == "clean"
    plan = analyse(checkpoint, unsafe=True).plan
    assert (plan.files, plan.before) == ((INDEX,), {INDEX: b""})
    again = analyse(repaired(checkpoint, plan.after), unsafe=True)
    assert (again.findings, again.plan.empty) == ((), True)


def test_files_in_folders_below(tmp_path: Path) -> None:
    """vLLM lists the top folder only and takes the others for missing; SGLang does not open them."""
    index = {name: f"sub/{shard}" if "mtp" in shard else shard for name, shard in true_map(GLM).items()}
    names = tensors_of(GLM, "nvfp4")
    shards: dict[str, Tensors] = {"model.safetensors": {}, "sub/mtp.safetensors": {}}
    for name, cell in names.items():
        shards[index[name]][name] = cell
    value = {**GLM.config, "quantization_config": FORMATS["nvfp4"].config(right_list(GLM, "nvfp4"))}
    (tmp_path / "sub").mkdir()
    (tmp_path / C).write_bytes(dumped(value))
    (tmp_path / INDEX).write_bytes(dumped({"metadata": {}, "weight_map": index}))
    for name, raw, size in (header(name, tensors) for name, tensors in shards.items()):
        (tmp_path / name).write_bytes(len(raw).to_bytes(8, "little") + raw)
        os.truncate(tmp_path / name, size)
    report = analyse(read_local(tmp_path), unsafe=True)
    assert [(finding.rule, finding.fix) for finding in report.findings] == [("MTP011", "none")]
    assert report.plan.empty
    found = {(row.engine, row.part): row.verdict for row in report.engines if row.latest}
    assert (found["vllm", "target"], found["sglang", "target"], found["sglang", "draft"]) == (
        "fails", "loads", "degrades",
    )  # fmt: skip


# --- facts ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fact:
    engine: str
    release: str
    missing: str
    order: str


# Read off the functions' bodies in the wheels of each release.
FACTS = [
    Fact("vllm", "0.15.1", "passed over", "any"),
    Fact("vllm", "0.16.0", "passed over", "natural"),
    Fact("vllm", "0.25.1", "passed over", "natural"),
    Fact("vllm", "0.26.0", "stops", "natural"),
    Fact("sglang", "0.5.12.post1", "passed over", "any"),
    Fact("sglang", "0.5.13", "passed over", "alphabetical"),
    Fact("sglang", "0.5.16", "passed over", "alphabetical"),
    Fact("sglang", "0.5.17", "stops", "alphabetical"),
]


@pytest.mark.parametrize("fact", FACTS)
def test_how_files_are_chosen(fact: Fact) -> None:
    found = openings.opening(fact.engine, fact.release)
    assert (found.missing, found.order) == (fact.missing, fact.order)
    assert found.span.source


def test_every_modelled_release_is_covered_once() -> None:
    for engine in ("vllm", "sglang", "tensorrt-llm", "transformers"):
        for release in modelled(engine):
            rows = [row for row in openings.OPENINGS if row.engine == engine]
            assert sum(holds(release, row.span) for row in rows) == 1


def test_words_count_what_changes() -> None:
    from mtpfix.mending import Mending
    from mtpfix.model import IndexChange, Listing

    rows = (Listing("a", "", "x"), Listing("b", "x", "y"), Listing("c", "x", ""), Listing("d", "x", ""))
    found = Mending(misnamed(), IndexChange("i.json", rows), (), None, giving_up=True)
    assert words(found) == (
        "rebuild i.json from the headers: 1 name added, 2 names removed, 1 name moved; what it names and nothing holds "
        "is given up",
    )


def test_formats_of_these_tests_are_what_they_say() -> None:
    assert isinstance(FORMATS["fp8-block"], Format)
    assert FORMATS["fp8-block"].scheme == "fp8-block"
