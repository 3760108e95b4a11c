"""What is refused for its size, and that a checkpoint of its own size is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny import contents, qwen3_next, write_safetensors

from mtpfix import apply, check
from mtpfix.api import explain, override, snapshot
from mtpfix.checkpoint import jsonfiles, limits
from mtpfix.checkpoint.index import MOST_FILES, read_index
from mtpfix.checkpoint.jsonfiles import parse_json
from mtpfix.checkpoint.local import read_local
from mtpfix.errors import UnreadableError
from mtpfix.rebuild import MOST_LOST

SIDECAR = "hf_quant_config.json"


def changed(folder: Path, **fields: object) -> Path:
    place = qwen3_next(folder, "mtp.layers.0*")
    config = json.loads((place / "config.json").read_text())
    config["quantization_config"] |= fields
    (place / "config.json").write_text(json.dumps(config))
    return place


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"ignore": ["a.b"] * 10_001}, "'ignore' holds 10,001 entries"),
        ({"quantized_layers": {f"a.{at}": {} for at in range(10_001)}}, "'quantized_layers' holds 10,001 entries"),
        ({"ignore": [f"*a{at}*" for at in range(2001)]}, "'ignore' holds 2,001 patterns"),
        ({"ignore": [f"re:.*a{at}.*b" for at in range(2001)]}, "'ignore' holds 2,001 patterns"),
        ({"ignore": [f"re:^a{at}" for at in range(5001)]}, "'ignore' holds 5,001 regular expressions"),
        ({"dynamic": {f"-:a.{at}.(x|y)": {} for at in range(5001)}}, "'dynamic' holds 5,001 regular expressions"),
        ({"dynamic": {rf"-:a\d.{at}": {} for at in range(5001)}}, "'dynamic' holds 5,001 regular expressions"),
        ({"dynamic": {f"-:a.{at}": {} for at in range(5001)}}, "'dynamic' holds 5,001 regular expressions"),
        ({"dynamic": {rf"-:a\.{at}": {} for at in range(10_001)}}, "'dynamic' holds 10,001 entries"),
        ({"extra_config": {f"*.{at}": {} for at in range(1001)}}, "'extra_config' holds 1,001 patterns"),
        ({"extra_config": {f"a.{at}$": {} for at in range(1001)}}, "'extra_config' holds 1,001 patterns"),
        ({"ignore": ["a" * 501] * 20}, "'ignore' holds 10,020 letters of long entries"),
        ({"exclude": ["." * 17] * 600}, "'exclude' holds 10,200 letters of long entries"),
        ({"extra_config": {"." * 10_001: {}}}, "'extra_config' holds 10,001 letters of long entries"),
        ({"exclude": ["a.b"] * 5000, "layer_quant_config": {f"a.{at}": {} for at in range(5001)}}, "in all its lists"),
        ({"ignore": "a" * 10_001}, "'ignore' holds 10,001 letters"),
        ({"ignore": [["a"] * 2001]}, "'ignore' holds 2,001 inner values"),
        ({"ignore": [{"a": [{"b": "c" * 1_000_000}]}]}, "'ignore' holds 2,001 inner values"),
        ({"config_groups": {"a": {"targets": [f"re:{'a' * 500}"] * 20}}}, "holds 10,060 letters of long targets"),
        ({"config_groups": {str(at): {} for at in range(101)}}, "'config_groups' holds 101 groups"),
        ({"config_groups": {"a": {"targets": ["b"] * 1800}, "c": {"targets": ["d"] * 201}}}, "holds 2,001 targets"),
    ],
)
def test_longer_than_any_model_needs(tmp_path: Path, fields: dict[str, object], told: str) -> None:
    with pytest.raises(UnreadableError, match=r"config\.json: .*holds") as caught:
        check(changed(tmp_path / "m", **fields))
    assert told in str(caught.value)
    assert "up to" in caught.value.hint


@pytest.mark.parametrize(
    "entries",
    [
        [f"model.layers.{at}.mlp*" for at in range(5000)],  # ModelOpt
        [f"*layers.{at}.mlp" for at in range(5000)],
        [rf"re:model\.layers\.{at}\.mlp$" for at in range(5000)],  # compressed-tensors, AutoRound
        [rf"-:model\.layers\.{at}\..*" for at in range(5000)],  # GPTQ
    ],
)
def test_what_a_table_finds_is_no_pattern(tmp_path: Path, entries: list[str]) -> None:
    read_local(changed(tmp_path / "m", ignore=entries))


def test_rules_that_need_not_be_compiled_may_be_more(tmp_path: Path) -> None:
    rules = {rf"-:^model\.layers\.{at}\.mlp$": {} for at in range(5001)} | {f"+:^x.{at}.y": {} for at in range(4980)}
    read_local(changed(tmp_path / "m", dynamic=rules))


def test_a_large_checkpoint_may_have_long_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many entries as it has modules, or as its index names tensors that lie in files which are not here."""
    monkeypatch.setattr(limits, "FEW_ENTRIES", 10)
    place = changed(tmp_path / "m")
    entries = list(read_local(place).modules)
    read_local(changed(tmp_path / "m", ignore=entries))
    with pytest.raises(UnreadableError):
        read_local(changed(tmp_path / "m", ignore=entries * 3))
    weight_map = {f"a.{at}.weight": "other.safetensors" for at in range(3 * len(entries))}
    (place / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    read_local(place)


@pytest.mark.parametrize("kind", ["entries", "bytes"])
def test_no_repair_makes_a_file_that_is_not_read_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """It could be neither checked nor repaired again."""
    place = changed(tmp_path / "m")
    before = contents(place)
    held = json.loads(before["config.json"])["quantization_config"]["ignore"]
    if kind == "entries":
        monkeypatch.setattr(limits, "FEW_ENTRIES", 0)
        monkeypatch.setattr(limits, "MOST_ENTRIES", len(held))
    else:
        monkeypatch.setattr(jsonfiles, "MAX_TEXT", 500)
        monkeypatch.setattr(jsonfiles, "MAX_CONFIG_BYTES", len(before["config.json"]) + len(before[SIDECAR]))
    read_local(place)
    for _ in range(2):
        with pytest.raises(UnreadableError, match=r"config\.json: .*once it is repaired"):
            apply(check(place))
        assert contents(place) == before
    assert override(place, "vllm").works  # writes nothing


def test_no_index_is_written_that_is_not_read_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is checked is the checkpoint; the index that it lacks is nothing that could be too large."""
    place = changed(tmp_path / "m", ignore=["lm_head", "mtp*", "model.layers.0.linear_attn*"])
    write_safetensors(place / "other.safetensors", {f"vision.{at}.weight": ("BF16", [0]) for at in range(200)})
    assert check(place, unsafe=True).plan.index is not None
    longest = max(len(raw) for name, raw in contents(place).items() if name.endswith(".json"))
    monkeypatch.setattr(jsonfiles, "MAX_TEXT", longest)
    monkeypatch.setattr(jsonfiles, "MAX_VALUES", 100)
    report = check(place, unsafe=True)
    assert report.plan.index is None
    assert report.status == check(place).status


def test_an_index_of_more_files_than_any_model_has() -> None:
    named = {f"a{at}": f"{at}.safetensors" for at in range(MOST_FILES + 1)}
    with pytest.raises(UnreadableError, match="10,001 files are named") as caught:
        read_index("model.safetensors.index.json", json.dumps({"weight_map": named}).encode())
    assert caught.value.hint


@pytest.mark.parametrize(
    ("name", "raw", "told"),
    [
        ("config.json", b'{"a": "' + b"x" * 300 + b'"}', "above the limit of 200 for a config"),
        ("model.safetensors.index.json", b'{"a": "' + b"x" * 300 + b'"}', ""),
        ("model.safetensors.index.json", b'{"a": "' + b"x" * 500 + b'"}', "above the limit of 400 for JSON"),
        ("quant_model_description.json", b'{"a": "' + b"x" * 300 + b'"}', ""),
        ("config.json", '{"a": "é'.encode() + b"x" * 150 + b'"}', "above the limit of 100 for JSON that is not ASCII"),
        ("config.json", b'{"a": [' + b"{}, " * 24 + b"{}]}", "51 values are above the limit of 50"),
    ],
)
def test_files_too_large(monkeypatch: pytest.MonkeyPatch, name: str, raw: bytes, told: str) -> None:
    """Before anything is made of them."""
    for limit, value in (("TEXT", 50), ("CONFIG_BYTES", 200), ("JSON_BYTES", 400), ("WIDE_BYTES", 100), ("VALUES", 50)):
        monkeypatch.setattr(jsonfiles, f"MAX_{limit}", value)
    with pytest.raises(UnreadableError) as caught:
        parse_json(name, raw)
    assert (told or "a text of") in str(caught.value)  # texts are looked at last


@pytest.mark.parametrize(
    ("limit", "names", "told"),
    [
        ("CONFIG_BYTES", (SIDECAR, "quant_config.json", "quantize_config.json"), "bytes of all configs"),
        ("ALL_BYTES", (SIDECAR, "quant_model_description.json"), "bytes of all JSON files"),
        ("ALL_BYTES", ("model.safetensors.index.json",), "bytes of all JSON files"),
        ("ALL_VALUES", (SIDECAR, "quant_model_description.json"), "values of all JSON files"),
        ("ALL_VALUES", ("model.safetensors.index.json",), "values of all JSON files"),
    ],
)
def test_files_that_are_too_large_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, names: tuple[str, ...], told: str
) -> None:
    """Each is small enough; with the limit as high as one of them takes, and half as much again, all are refused."""
    place = changed(tmp_path / "m")
    config = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps({**config, "more": ["x" * 10] * 6000}))
    for name in names:
        held = json.loads((place / name).read_text()) if (place / name).exists() else {}
        rows = {f"a.{at}.weight": "model.safetensors" for at in range(4000)}
        held |= {"weight_map": rows} if "index" in name else rows
        (place / name).write_text(json.dumps(held))
    assert read_local(place).tensor_count > 0
    snapshot(place)
    longest = max((place / name).stat().st_size for name in ("config.json", *names))
    most = 7500 if limit == "ALL_VALUES" else longest * 3 // 2
    monkeypatch.setattr(jsonfiles, f"MAX_{limit}", most)
    for look in (read_local, snapshot):
        with pytest.raises(UnreadableError, match=rf"with it [0-9,]+ {told} are above the limit of {most:,}"):
            look(place)


def test_an_index_of_another_model_is_not_rewritten(tmp_path: Path) -> None:
    place = changed(tmp_path / "m")
    weight_map = {f"a.{at}.weight": "model.safetensors" for at in range(MOST_LOST + 1)}
    (place / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    report = check(place)
    found = [finding for finding in report.findings if finding.rule == "MTP011"]
    assert {finding.fix for finding in found} == {"none"}
    assert any("another model's" in finding.hint and "remove it" in finding.hint for finding in found)


@pytest.mark.parametrize("letter", ["x", '"', "\\", " "])
def test_one_text_is_no_longer_than_a_limit(letter: str) -> None:
    """However its letters are spelled, also behind many short ones."""
    short = ["y" * 1000] * 100
    parse_json("config.json", json.dumps({"a": short, "b": letter * jsonfiles.MAX_TEXT}).encode())
    with pytest.raises(UnreadableError, match="a text of"):
        parse_json("config.json", json.dumps({"a": short, "b": letter * (jsonfiles.MAX_TEXT + 1)}).encode())


@pytest.mark.parametrize(
    "fields",
    [
        {"quant_method": "fp8", "activation_scheme": ["a" * 100] * 5000},
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head", ["a" * 100] * 1000]},
        {
            "quant_method": "compressed-tensors",
            "format": "a" * 9_000,
            "config_groups": {},
            "ignore": [{"a": "b" * 90_000}],
        },
    ],
)
def test_no_value_is_told_whole_for_each_module(tmp_path: Path, fields: dict[str, object]) -> None:
    rows = explain(changed(tmp_path / "m", **fields), ["**"]).rows
    assert any(row.decision == "error" and "a" * 50 in row.rule for row in rows) or "format" in fields
    assert max(len(row.rule) + len(row.entry) for row in rows) < 2500
