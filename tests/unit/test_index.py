"""The index against the headers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from shards import Tensors, write_checkpoint, write_index, write_shard

from mtpfix.checkpoint import index_text
from mtpfix.checkpoint.collect import Collector
from mtpfix.checkpoint.index import INDEX, gaps, index_name, read_index, shard_names
from mtpfix.checkpoint.index_text import agrees
from mtpfix.checkpoint.local import Folder, read_local
from mtpfix.checkpoint.reading import read_checkpoint
from mtpfix.errors import UnreadableError
from mtpfix.model import Cell, Index, RawModule, Source, Tensor

ONE: Tensors = {"m.a.weight": ("BF16", (4, 4)), "m.a.bias": ("BF16", (4,)), "m.norm.weight": ("BF16", (4,))}
TWO: Tensors = {"m.b.weight": ("BF16", (4, 4)), "mtp.fc.weight": ("BF16", (4, 8)), "mtp.fc.bias": ("BF16", (4,))}
SHARDS = {"model-00001-of-00002.safetensors": ONE, "model-00002-of-00002.safetensors": TWO}
FIRST, SECOND = SHARDS
MAP = {tensor: name for name, tensors in SHARDS.items() for tensor in tensors}


def read(folder: Path, weight_map: dict[str, str]) -> Index:
    """The index of the two shards under this map."""
    write_checkpoint(folder, SHARDS, index=False)
    write_index(folder, weight_map)
    index = read_local(folder).index
    assert index is not None
    return index


def test_in_step(tmp_path: Path) -> None:
    assert read(tmp_path, MAP) == Index(INDEX)
    checkpoint = read_local(tmp_path)
    assert INDEX not in checkpoint.files
    assert all(module.listed for module in checkpoint.modules.values())


def test_missing_shards_and_ghosts(tmp_path: Path) -> None:
    more = {"mtp.x.weight": "mtp-10.safetensors", "mtp.y.weight": "mtp-9.safetensors", "m.a.scale": FIRST}
    more["mtp.z.weight"] = "config.json"
    index = read(tmp_path, MAP | more)
    assert index == Index(
        INDEX,
        missing_shards=("config.json", "mtp-9.safetensors", "mtp-10.safetensors"),
        ghosts=("m.a.scale", "mtp.x.weight", "mtp.y.weight", "mtp.z.weight"),
    )
    assert json.loads(read_local(tmp_path).files[INDEX].raw) == read_local(tmp_path).files[INDEX].value


def test_unlisted(tmp_path: Path) -> None:
    without = {name: shard for name, shard in MAP.items() if name not in ("m.a.bias", "mtp.fc.weight", "mtp.fc.bias")}
    assert read(tmp_path, without).unlisted == ("m.a.bias", "mtp.fc.weight", "mtp.fc.bias")
    # Engines open both files all the same and take every tensor of them (engines/openings.py).
    assert all(module.listed for module in read_local(tmp_path).modules.values())


def test_a_file_that_is_not_named_is_not_opened(tmp_path: Path) -> None:
    read(tmp_path, {name: shard for name, shard in MAP.items() if shard == FIRST})
    listed = {name: module.listed for name, module in read_local(tmp_path).modules.items()}
    assert listed == {"m.a": True, "m.norm": True, "m.b": False, "mtp.fc": False}


def test_a_shard_that_the_index_does_not_name(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, SHARDS)
    write_shard(tmp_path / "mtp.safetensors", {"mtp.x.weight": ("BF16", (4, 4))})
    checkpoint = read_local(tmp_path)
    assert checkpoint.index == Index(INDEX, unlisted=("mtp.x.weight",))
    assert not checkpoint.modules["mtp.x"].listed


def test_misplaced(tmp_path: Path) -> None:
    assert read(tmp_path, MAP | {"m.b.weight": FIRST}).misplaced == ("m.b.weight",)


def test_shards_without_an_index(tmp_path: Path) -> None:
    checkpoint = read_local(write_checkpoint(tmp_path, SHARDS, index=False))
    assert checkpoint.index is None
    assert checkpoint.tensor_count == len(MAP)
    assert all(module.listed for module in checkpoint.modules.values())


def test_the_copy_that_is_read_last_is_kept(tmp_path: Path) -> None:
    """vLLM 0.33.0 and SGLang 0.5.23 read whole files, in order of their names: a later copy overwrites."""
    write_checkpoint(tmp_path, {"a.safetensors": {"x.weight": ("BF16", (2, 2))}}, index=False)
    write_shard(tmp_path / "b.safetensors", {"x.weight": ("U8", (2, 1)), "x.weight_scale": ("F32", ())})
    last = read_local(tmp_path)
    assert last.duplicates == (Tensor("x.weight", "BF16", (2, 2), "a.safetensors"),)
    assert [cell.dtype for cell in last.modules["x"].cells] == ["U8", "F32"]
    assert last.modules["x"] == RawModule("x", last.modules["x"].cells, "b.safetensors")
    write_index(tmp_path, {"x.weight": "a.safetensors", "x.weight_scale": "b.safetensors"})
    named = read_local(tmp_path)
    assert named.index == Index(INDEX)
    assert named.duplicates == last.duplicates
    assert named.modules["x"].shard == "b.safetensors"
    write_index(tmp_path, {"x.weight": "a.safetensors"})
    alone = read_local(tmp_path)  # nothing opens b.safetensors: the scale in it is of the weight that nobody reads
    old = (Tensor("x.weight", "U8", (2, 1), "b.safetensors"), Tensor("x.weight_scale", "F32", (), "b.safetensors"))
    assert alone.duplicates == old
    assert alone.modules["x"] == RawModule("x", (Cell("weight", "BF16", (2, 2)),), "a.safetensors")


def test_a_module_in_two_shards(tmp_path: Path) -> None:
    write_checkpoint(
        tmp_path,
        {"a.safetensors": {"x.weight": ("U8", (2, 1))}, "b.safetensors": {"x.weight_scale": ("F32", ())} | TWO},
    )
    checkpoint = read_local(tmp_path)
    assert checkpoint.index == Index(INDEX)
    assert checkpoint.duplicates == ()
    assert checkpoint.modules["x"].shard == "a.safetensors"
    assert checkpoint.modules["x"].shards == ("a.safetensors", "b.safetensors")
    assert list(checkpoint.modules) == ["x", "m.b", "mtp.fc"]


def test_an_index_in_step_is_kept_where_it_is_asked_for(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, SHARDS)
    kept = read_checkpoint(Source("local", "x"), Folder(str(tmp_path)), keep_index=True)
    assert kept.index == Index(INDEX)
    assert kept.files[INDEX].raw == (tmp_path / INDEX).read_bytes()


def test_shards_below_the_folder(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, {"a.safetensors": ONE, "extra/b.safetensors": TWO})
    write_shard(tmp_path / "other" / "c.safetensors", {"unseen.weight": ("BF16", (4, 4))})
    checkpoint = read_local(tmp_path)
    assert checkpoint.index == Index(INDEX)
    assert [shard.name for shard in checkpoint.shards] == ["a.safetensors", "extra/b.safetensors"]
    (tmp_path / "a.safetensors").unlink()
    assert len(read_local(tmp_path).shards) == 1


@pytest.mark.parametrize(
    "shard",
    ["/etc/passwd", "../x.safetensors", "a/../../x", "a/./b", "..", ".", "", "a//b", "C:\\x", "..\\x", "a\0b", "/"],
)
def test_an_index_that_leads_out_of_the_checkpoint(tmp_path: Path, shard: str) -> None:
    with pytest.raises(UnreadableError, match="no file inside the checkpoint") as caught:
        read(tmp_path, MAP | {"x.weight": shard})
    assert "'x.weight'" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{}", "/weight_map is no JSON object"),
        ('{"weight_map": []}', "/weight_map is no JSON object"),
        ('{"weight_map": {"a": 1}}', "1, named for 'a', is no file name"),
        ('{"weight_map": {"a": "b",}}', "line 1 column 2"),
        ("[]", "the top level is no JSON object"),
        ("", "line 1 column 1"),
    ],
)
def test_malformed(text: str, says: str) -> None:
    with pytest.raises(UnreadableError, match=says):
        read_index(INDEX, text.encode())


def test_consolidated_beside_shards_is_another_copy(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, SHARDS)
    write_shard(tmp_path / "consolidated.safetensors", ONE | TWO)
    checkpoint = read_local(tmp_path)
    assert checkpoint.index == Index(INDEX)
    assert checkpoint.duplicates == ()
    assert len(checkpoint.shards) == 2


def test_consolidated_alone_has_an_index_of_its_own(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, {"consolidated.safetensors": ONE}, index=False)
    write_index(tmp_path, dict.fromkeys(ONE, "consolidated.safetensors"), "consolidated.safetensors.index.json")
    assert read_local(tmp_path).index == Index("consolidated.safetensors.index.json")


def test_an_index_may_name_consolidated_files(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, {"a.safetensors": ONE, "consolidated.safetensors": TWO})
    assert read_local(tmp_path).index == Index(INDEX)
    assert len(read_local(tmp_path).shards) == 2


def test_which_files_are_shards_and_in_which_order() -> None:
    files = ["m-10.safetensors", "m-9.safetensors", ".m.safetensors", "m.bin", "m.safetensors.index.json"]
    assert shard_names(files) == ("m-9.safetensors", "m-10.safetensors")
    assert index_name(["consolidated-00001.safetensors"]) == "consolidated.safetensors.index.json"
    assert index_name(["a.safetensors", "consolidated.safetensors"]) == INDEX
    assert index_name([]) == INDEX


# --- the comparison of texts ------------------------------------------------------------------------------------------

WRITERS = {
    "indent": lambda body: json.dumps(body, indent=2),
    "newline": lambda body: json.dumps(body, indent=2) + "\n",
    "no metadata": lambda body: json.dumps({"weight_map": body["weight_map"]}, indent=2),
    "unsorted": lambda body: json.dumps(unsorted(body), indent=2),
    "shard by shard": lambda body: json.dumps(body | {"weight_map": MAP}, indent=2),
    "on one line": lambda body: json.dumps(body),
    "without blanks": lambda body: json.dumps(body, separators=(",", ":")),
    "without blanks, unsorted": lambda body: json.dumps(unsorted(body), separators=(",", ":")),
    "indent 4": lambda body: json.dumps(body, indent=4),
    "tabs": lambda body: json.dumps(body, indent="\t") + "\n",
    "windows": lambda body: json.dumps(body, indent=2).replace("\n", "\r\n"),
}
OTHER_WRITERS = {
    "metadata last": lambda body: json.dumps(dict(reversed(body.items())), indent=2),
    "by hand": lambda body: json.dumps(body, indent=2).replace(": ", " : ", 5),
}


def unsorted(body: dict[str, Any]) -> dict[str, Any]:
    return body | {"weight_map": dict(reversed(body["weight_map"].items()))}


def collected() -> Collector:
    collector = Collector()
    for shard, tensors in SHARDS.items():
        collector.add_rows(shard, ((name, *spec) for name, spec in tensors.items()), 0)
    collector.settle()
    return collector


def told(text: str, collector: Collector | None = None) -> bool:
    """Whether an index is known to agree without being parsed."""
    collector = collector or collected()
    return agrees(INDEX, text.encode(), collector.modules, collector.by_shard())


def body() -> dict[str, Any]:
    return {"metadata": {"total_size": 7}, "weight_map": dict(sorted(MAP.items()))}


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
def test_text_of_exporters_is_compared(writer: object) -> None:
    assert told(writer(body()))  # type: ignore[operator]


@pytest.mark.parametrize("writer", OTHER_WRITERS.values(), ids=OTHER_WRITERS)
def test_other_text_is_read(tmp_path: Path, writer: object) -> None:
    text = writer(body())  # type: ignore[operator]
    assert not told(text)
    write_checkpoint(tmp_path, SHARDS, index=False)
    (tmp_path / INDEX).write_bytes(text.encode())
    assert read_local(tmp_path).index == Index(INDEX)


@pytest.mark.parametrize("indent", [2, None])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("7", "7,"),
        ('"metadata"', '"weight_map": {}, "metadata"'),
        ('"total_size": 7', '"a": {"weight_map": {\n'),
        ("{", "\ufeff{"),
        (FIRST, SECOND),
        ("m.a.bias", "m.a.bia"),
        ("}}", '}, "x": 1}'),
        ("}}", "}"),
        ("}}", ",}}"),
        ("}}", "}}}"),
        ("}}", "}\f}"),
        ('"m.b.weight"', '"m.b.weigh\\u0074"'),
        ('"m.b.weight": ', '"m.a.bias": '),
        ('"m.b.weight": ', f'"m.b.weight": "{SECOND}", "m.b.weight": '),
        ('", "m.b.weight": "', '" "m.b.weight": "'),
        ('"m.b.weight": ', '"m.b.weight"; '),
    ],
)
def test_no_change_of_the_text_passes(old: str, new: str, indent: int | None) -> None:
    text = json.dumps(body(), indent=indent)
    if indent:
        old, new = (text.replace('", "', '",\n    "').replace("}}", "\n  }\n}") for text in (old, new))
    assert old in text
    assert not told(text.replace(old, new, 1))


@pytest.mark.parametrize("shown", ["sorted", "as stored", "in no order"])
def test_a_large_index_is_compared_piece_by_piece(tmp_path: Path, shown: str) -> None:
    names = [f"m.{number % 7}.{number}.a_name_of_some_length.weight" for number in range(8000)]
    collector = Collector()
    collector.add_rows(FIRST, ((name, "BF16", (2, 2)) for name in names), 0)
    collector.settle()
    order = {"sorted": sorted(names), "as stored": names, "in no order": [*names[1::2], *names[::2]]}[shown]
    place = tmp_path / INDEX
    place.write_text(json.dumps({"metadata": {}, "weight_map": dict.fromkeys(order, FIRST)}, indent=2))
    assert place.stat().st_size > 4 * index_text._HEAD
    folder, asked = Folder(str(tmp_path)), []

    class Watched:
        def __init__(self, pieces: index_text.Pieces) -> None:
            self.pieces = pieces

        def __len__(self) -> int:
            return len(self.pieces)

        def __getitem__(self, place: slice) -> bytes:
            found = self.pieces[place]
            asked.append(len(found))
            return found

    with folder.json_pieces(INDEX) as pieces:
        assert agrees(INDEX, Watched(pieces), collector.modules, collector.by_shard())
        assert max(asked) <= index_text._HEAD
        assert pieces[:] == place.read_bytes()
        os.truncate(place, place.stat().st_size - 100)  # by somebody else, meanwhile
        assert not agrees(INDEX, pieces, collector.modules, collector.by_shard())
    wrong = order[len(order) // 2]
    where = dict.fromkeys(order, FIRST) | {wrong: SECOND}
    place.write_text(json.dumps({"metadata": {}, "weight_map": where}, indent=2))
    with folder.json_pieces(INDEX) as pieces:
        assert not agrees(INDEX, pieces, collector.modules, collector.by_shard())


@pytest.mark.parametrize("order", [sorted, reversed])
def test_names_with_commas_are_not_put_together_anew(order: Callable[[list[str]], Iterable[str]]) -> None:
    collector = Collector()
    names = ["m.a, c.weight", "m.b, d.weight"]
    collector.add_rows("a.safetensors", ((name, "BF16", (2, 2)) for name in names), 0)
    collector.settle()
    right = json.dumps({"weight_map": dict.fromkeys(order(names), "a.safetensors")})
    assert told(right, collector)
    wrong = json.dumps({"weight_map": dict.fromkeys(order(["m.a, d.weight", "m.b, c.weight"]), "a.safetensors")})
    assert not told(wrong, collector)


@pytest.mark.parametrize("swap", [False, True])
def test_shards_one_after_the_other_are_compared_though_they_part_a_module(
    swap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an exporter writes it that adds the names of each file as it is written."""
    experts = {f"m.experts.{n}.{part}.{kind}": ("U8", (4,)) for n in range(20) for part in "ab" for kind in ("z", "c")}
    names, collector = [*experts], Collector()
    cuts = {"1": names[:37], "2": names[37:55], "3": names[55:]}
    for shard, some in cuts.items():
        collector.add_rows(f"{shard}.safetensors", ((name, *experts[name]) for name in some), 0)
    collector.settle()
    monkeypatch.setattr(index_text, "_in_any_order", lambda *_: False)
    weight_map = {name: f"{shard}.safetensors" for shard, some in cuts.items() for name in some}
    if swap:
        weight_map[names[36]], weight_map[names[37]] = weight_map[names[37]], weight_map[names[36]]
    assert told(json.dumps({"weight_map": weight_map}), collector) is not swap


def test_parameters_between_submodules_are_compared_too() -> None:
    tensors = dict.fromkeys(("a.A_log", "a.b.weight", "a.dt_bias", "a.norm.weight", "alone"), ("BF16", (2, 2)))
    collector = Collector()
    collector.add_rows("a.safetensors", ((name, *spec) for name, spec in tensors.items()), 0)
    collector.settle()
    text = json.dumps({"weight_map": dict.fromkeys(sorted(tensors), "a.safetensors")}, indent=2)
    assert told(text, collector)


def test_a_name_with_quotes_does_not_fool_the_comparison(tmp_path: Path) -> None:
    name = 'x": "model.safetensors",\n    "y'
    write_checkpoint(tmp_path, {"model.safetensors": {f"{name}.weight": ("BF16", (2, 2))}}, index=False)
    lying = {"x": "model.safetensors", "y.weight": "model.safetensors"}
    write_index(tmp_path, lying)
    index = read_local(tmp_path).index
    assert index is not None
    assert index.ghosts == ("x", "y.weight")
    assert index.unlisted == (f"{name}.weight",)


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (["model.safetensors", "mtp.safetensors", "model-1-of-9.safetensors", "model-00001-of-2.safetensors"], (0, "")),
        (["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"], (0, "")),
        (["model-00000-of-00002.safetensors", "model-00001-of-00002.safetensors"], (0, "")),
        (["model-00002-of-00002.safetensors", "mtp.safetensors"], (1, "model-00001-of-00002.safetensors")),
        (["model-00001-of-000163.safetensors"], (162, "model-00002-of-000163.safetensors")),
        (["model-00001-of-00001.safetensors", "mtp-00002-of-00003.safetensors"], (2, "mtp-00001-of-00003.safetensors")),
        (["model-99999-of-00002.safetensors"], (2, "model-00001-of-00002.safetensors")),
        (["model-999999-of-999999.safetensors"], (999_998, "model-000001-of-999999.safetensors")),
    ],
)
def test_files_that_lack_by_the_numbers_of_the_others(names: list[str], wanted: tuple[int, str]) -> None:
    assert gaps(names) == wanted


def test_a_file_that_many_tensors_are_in_is_one_text() -> None:
    """300,000 copies of a name take 24 MB."""
    raw = json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-1.safetensors"}}).encode()
    weight_map, file, _ = read_index(INDEX, raw)
    assert weight_map["a"] is weight_map["b"]
    assert file.value == json.loads(raw)
