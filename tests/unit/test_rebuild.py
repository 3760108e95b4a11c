"""The index written again from the headers: what belongs into it, its bytes, and where headers do not tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shards import Tensors, write_checkpoint, write_index, write_shard

from mtpfix import rebuild as rebuild_file
from mtpfix.checkpoint.index import INDEX, read_index
from mtpfix.checkpoint.local import read_local
from mtpfix.model import Index, IndexChange, Listing
from mtpfix.rebuild import Rebuild, edited, rebuild, reindexed

BF = ("BF16", (4, 4))
ONE: Tensors = {"m.a.weight": BF, "m.b.weight": BF}
TWO: Tensors = {"m.c.weight": BF, "m.d.weight": BF}
MTP: Tensors = {"mtp.fc.weight": BF, "mtp.norm.weight": BF}
A, B, M = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "mtp.safetensors"
MAP = {**dict.fromkeys(ONE, A), **dict.fromkeys(TWO, B)}
FULL = MAP | dict.fromkeys(MTP, M)


def draft(tensor: str) -> bool:
    return tensor.startswith("mtp")


def found(folder: Path) -> Rebuild:
    return rebuild(read_local(folder), draft)


def folder(path: Path, index: dict[str, str] | None = None, **more: Tensors) -> Path:
    """The two shards, those of `more` (by stem), and an index."""
    shards = {A: ONE, B: TWO, **{f"{stem}.safetensors": tensors for stem, tensors in more.items()}}
    write_checkpoint(path, shards, index=False)
    if index is not None:
        write_index(path, index)
    return path


def after(change: IndexChange | None, old: dict[str, str]) -> dict[str, str]:
    assert change is not None
    new = dict(old)
    for row in change.listings:
        assert old.get(row.tensor, "") == row.before
        new[row.tensor] = row.after
    return {tensor: shard for tensor, shard in new.items() if shard}


def test_in_step(tmp_path: Path) -> None:
    assert found(folder(tmp_path, FULL, mtp=MTP)) == Rebuild()


@pytest.mark.parametrize(
    ("index", "wanted"),
    [
        (MAP, FULL),  # a file that is not named
        ({**FULL, "m.a.weight": B}, FULL),  # misplaced
        ({**FULL, "m.x.weight": A, "mtp.x.weight": M}, FULL),  # ghosts
        ({name: shard for name, shard in FULL.items() if name != "m.d.weight"}, FULL),  # unlisted
        ({**FULL, "mtp.y.weight": "mtp-2.safetensors"}, FULL),  # the draft's, in a file that is missing
    ],
)
def test_what_headers_say(tmp_path: Path, index: dict[str, str], wanted: dict[str, str]) -> None:
    folder(tmp_path, index, mtp=MTP)
    made = found(tmp_path)
    assert after(made.change, index) == wanted
    raw = (tmp_path / INDEX).read_bytes()
    assert made.change is not None
    new = edited(made.change, raw)
    value = json.loads(new)
    assert value["weight_map"] == wanted
    assert list(value["weight_map"]) == sorted(wanted)  # as transformers writes it
    assert value["metadata"] == {"total_size": 32 * len(wanted)}
    again = reindexed(read_local(tmp_path), INDEX, new)
    assert again.index == Index(INDEX)
    assert rebuild(again, draft) == Rebuild()
    (tmp_path / INDEX).write_bytes(new)
    assert found(tmp_path) == Rebuild()
    assert read_local(tmp_path).modules == again.modules


def test_what_is_given_up_is_told(tmp_path: Path) -> None:
    folder(tmp_path, FULL)
    assert found(tmp_path).giving_up
    assert not found(folder(tmp_path / "x", MAP, mtp=MTP)).giving_up


def test_the_target_cannot_do_without(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, {A: ONE}, index=False)
    write_index(tmp_path, MAP)
    made = found(tmp_path)
    assert made.change is None
    assert made.reason == "2 tensors of the missing files cannot be done without, e.g. m.c.weight"


def test_a_whole_file_beside_the_index_of_shards_that_are_gone(tmp_path: Path) -> None:
    """vLLM and SGLang stop at the missing shards; transformers takes model.safetensors."""
    whole = "model.safetensors"
    write_checkpoint(tmp_path, {whole: ONE | TWO}, index=False)
    write_index(tmp_path, MAP)
    assert after(found(tmp_path).change, MAP) == dict.fromkeys(MAP, whole)
    write_shard(tmp_path / A, ONE)  # one of the shards is still there
    assert after(found(tmp_path).change, MAP) == dict.fromkeys(MAP, whole)
    write_shard(tmp_path / A, {**ONE, "m.z.weight": BF})  # and holds what the whole file does not
    assert found(tmp_path).change is None


def test_an_old_copy_stays_left_out(tmp_path: Path) -> None:
    folder(tmp_path, MAP, model=ONE | TWO)
    assert found(tmp_path) == Rebuild()
    folder(tmp_path / "x", {"m.a.weight": A, "m.c.weight": B}, model=ONE | TWO)
    assert after(found(tmp_path / "x").change, {"m.a.weight": A, "m.c.weight": B}) == MAP


@pytest.mark.parametrize("more", [{"extra": {**MTP, "m.a.weight": BF}}, {"mtp": MTP, "mtp2": MTP}])
def test_copies_that_headers_do_not_tell_apart(tmp_path: Path, more: dict[str, Tensors]) -> None:
    made = found(folder(tmp_path, MAP, **more))
    assert made.change is None
    assert "do not say which copies are right" in made.reason


def test_copies_that_are_both_opened_stay_where_the_index_puts_them(tmp_path: Path) -> None:
    index = {**MAP, "mtp.fc.weight": M, "m.a.weight": A}
    folder(tmp_path, index, mtp={**MTP, "m.a.weight": BF})
    assert after(found(tmp_path).change, index) == index | dict.fromkeys(MTP, M)


def test_no_index(tmp_path: Path) -> None:
    made = found(folder(tmp_path, mtp=MTP))
    assert made.change is not None
    assert made.change.created
    value = json.loads(edited(made.change, b""))
    assert value == {"metadata": {"total_size": 32 * 6}, "weight_map": FULL}
    assert found(folder(tmp_path / "x", mtp=MTP, mtp2=MTP)).change is None
    write_checkpoint(tmp_path / "y", {"model.safetensors": ONE}, index=False)
    assert found(tmp_path / "y") == Rebuild()


# --- bytes ------------------------------------------------------------------------------------------------------------

ODD = (
    b'{"metadata": {"note": "\\u00e9", "total_size": 7,  "x":1.50},\r\n'
    b'"weight_map" : {"b": "B",\r\n\t"d": "D",\r\n\t"g": "G"}, "more": [ ]}'
)


def test_every_other_byte_stays() -> None:
    change = IndexChange(
        "i", (Listing("d", "D", ""), Listing("g", "G", "H"), Listing("a", "", "A"), Listing("e", "", "E"),
              Listing("z", "", "Z")), size=9,
    )  # fmt: skip
    assert edited(change, ODD) == (
        b'{"metadata": {"note": "\\u00e9", "total_size": 9,  "x":1.50},\r\n'
        b'"weight_map" : {"a": "A",\r\n\t"b": "B",\r\n\t"e": "E",\r\n\t"g": "H",\r\n\t"z": "Z"}, "more": [ ]}'
    )


@pytest.mark.parametrize(
    ("rows", "size", "before", "left"),
    [
        ([("a", "", "B")], 9, '{"total_parameters": 5, "total_size": 7}', {"total_size": 9}),
        ([("a", "", "B")], None, '{"total_size": 7, "total_parameters": 5}', {"total_size": 7, "total_parameters": 5}),
        ([("b", "B", "C")], None, '{"total_parameters": 5}', {"total_parameters": 5}),
        ([("b", "B", "")], None, '{"total_parameters": 5, "x": 1}', {"x": 1}),
    ],
)
def test_parameters_that_nobody_can_count_anew_go(rows: Any, size: int | None, before: str, left: Any) -> None:
    raw = f'{{"metadata": {before}, "weight_map": {{"b": "B"}}}}'.encode()
    found = json.loads(edited(IndexChange("i", tuple(Listing(*row) for row in rows), size=size), raw))
    assert found["metadata"] == left


def test_names_in_no_order_get_new_ones_behind() -> None:
    raw = b'{"weight_map": {"z": "1", "a": "1"}}'
    change = IndexChange("i", (Listing("b", "", "2"), Listing("c", "", "2")))
    assert edited(change, raw) == b'{"weight_map": {"z": "1", "a": "1", "b": "2", "c": "2"}}'


NAMES = st.dictionaries(st.text('ab."\\é', min_size=1, max_size=4), st.sampled_from("123"), max_size=8)


@given(NAMES, NAMES, st.booleans(), st.sampled_from([None, 2]))
@settings(deadline=None)
def test_any_map_becomes_any_other(old: dict[str, str], new: dict[str, str], ordered: bool, indent: Any) -> None:
    old = dict(sorted(old.items())) if ordered else old
    raw = json.dumps({"weight_map": old, "metadata": {}}, indent=indent).encode()
    gone = [Listing(name, shard, new.get(name, "")) for name, shard in old.items() if new.get(name) != shard]
    come = [Listing(name, "", new[name]) for name in sorted(new.keys() - old.keys())]
    value = json.loads(edited(IndexChange("i", (*gone, *come)), raw))
    assert value == {"weight_map": new, "metadata": {}}
    if list(old) == sorted(old):
        assert list(value["weight_map"]) == sorted(new)


def test_what_was_parsed_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []

    def counted(name: str, raw: bytes) -> Any:
        read.append(raw)
        return read_index(name, raw)

    monkeypatch.setattr(rebuild_file, "read_index", counted)
    change = IndexChange(INDEX, (Listing("b", "", "2"),))
    raw = b'{"weight_map": {"a": "1"}}'
    new = edited(change, raw, json.loads(raw))
    assert (new, read) == (b'{"weight_map": {"a": "1", "b": "2"}}', [new])
    assert edited(change, raw) == new


def test_a_hundred_thousand_names(tmp_path: Path) -> None:
    import time

    many = {f"model.layers.{number}.weight": A for number in range(100_000)}
    raw = json.dumps({"metadata": {"total_size": 1}, "weight_map": many}, indent=2).encode()
    change = IndexChange("i", tuple(Listing(f"mtp.{number}.weight", "", B) for number in range(50_000)), size=3)
    started = time.process_time()
    assert len(json.loads(edited(change, raw))["weight_map"]) == 150_000
    assert time.process_time() - started < 20
