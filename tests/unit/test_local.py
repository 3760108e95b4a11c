"""Reading a folder: what is there, what is wrong, and nothing that a folder holds can hang or mislead it."""

from __future__ import annotations

import json
import os
import socket
import stat
from pathlib import Path

import pytest
from shards import blob, header, write_checkpoint, write_index, write_shard

from mtpfix.checkpoint.jsonfiles import MAX_JSON_BYTES, MAX_TEXT, NAMES, parse_json
from mtpfix.checkpoint.local import read_local
from mtpfix.errors import UnreadableError
from mtpfix.model import Cell, Problem, RawModule, Shard, Source

TENSORS = {"model.a.weight": ("BF16", (4, 8)), "model.a.bias": ("BF16", (4,)), "scalar": ("F32", ())}
MODEL = "model.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "m", {MODEL: TENSORS}, index=False)


def test_a_checkpoint(folder: Path) -> None:
    raw, data = header(TENSORS)
    checkpoint = read_local(folder)
    assert checkpoint.source == Source("local", str(folder))
    assert checkpoint.modules == {
        "model.a": RawModule("model.a", (Cell("weight", "BF16", (4, 8)), Cell("bias", "BF16", (4,))), MODEL),
        "": RawModule("", (Cell("scalar", "F32", ()),), MODEL),
    }
    assert checkpoint.shards == (Shard(MODEL, 3, 8 + len(raw) + data),)
    assert checkpoint.tensor_count == 3
    assert (checkpoint.index, checkpoint.duplicates, checkpoint.problems) == (None, (), ())
    assert read_local(str(folder)) == checkpoint


def test_another_spelling_of_the_header_reads_alike(folder: Path) -> None:
    plain = read_local(folder)
    raw, data = header(TENSORS)
    (folder / MODEL).write_bytes(blob(json.dumps(json.loads(raw), indent=1).encode(), data))
    other = read_local(folder)
    assert other.modules == plain.modules
    assert other.tensor_count == plain.tensor_count


def test_every_file_about_quantization_is_read(folder: Path) -> None:
    for name in (*NAMES, "generation_config.json", "tokenizer.json"):
        (folder / name).write_text('{"a": 1}')
    files = read_local(folder).files
    assert set(files) == set(NAMES)
    assert files["hf_quant_config.json"].raw == b'{"a": 1}'
    assert files["hf_quant_config.json"].value == {"a": 1}


def test_a_hub_cache_is_links_into_blobs(folder: Path, tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    for name in ("config.json", MODEL):
        (snapshot / name).symlink_to(os.path.relpath(folder / name, snapshot))
    assert read_local(snapshot).modules == read_local(folder).modules


# --- what is missing --------------------------------------------------------------------------------------------------


def refused(folder: Path, says: str) -> UnreadableError:
    """The error, which names its subject and what to do."""
    with pytest.raises(UnreadableError, match=says) as caught:
        read_local(folder)
    assert caught.value.subject
    assert caught.value.hint
    assert caught.value.exit_code == 3
    return caught.value


def test_no_folder(tmp_path: Path) -> None:
    refused(tmp_path / "absent", "no such folder")
    refused(Path("a\0b"), "null")
    (tmp_path / "file").write_text("")
    refused(tmp_path / "file", "a file, not a folder")
    refused(tmp_path / "file" / "below", "a file, not a folder")


def test_no_config(folder: Path) -> None:
    (folder / "config.json").unlink()
    refused(folder, r"no config.json; 1 \*.safetensors is there")
    (folder / MODEL).unlink()
    refused(folder, r"no config.json and no \*.safetensors")


@pytest.mark.parametrize(
    ("file", "what", "hint"),
    [
        ("adapter_config.json", r"no config.json: an adapter \(PEFT\), no checkpoint", "merge it into its base model"),
        ("params.json", "no config.json: a checkpoint in Mistral's own format", "give one that transformers reads"),
        ("model_index.json", "no config.json: a pipeline of diffusers", "give the folder that holds config.json"),
    ],
)
def test_folders_that_hold_something_else(folder: Path, file: str, what: str, hint: str) -> None:
    (folder / "config.json").unlink()
    (folder / file).write_text("{}")
    assert hint in refused(folder, what).hint


def test_other_weights_alone(tmp_path: Path) -> None:
    (tmp_path / "model-Q4_K_M.gguf").write_bytes(b"GGUF")
    error = refused(tmp_path, r"no config.json and no \*.safetensors, but model-Q4_K_M.gguf")
    assert error.hint == "convert the weights to safetensors"


def test_no_config_and_checkpoints_below(folder: Path) -> None:
    above = folder.parent
    assert refused(above, "no config.json").hint == f"a checkpoint is in the folder {folder}"
    (above / "other").mkdir()
    (above / "other" / "config.json").write_text("{}")
    first = min(folder, above / "other")
    assert refused(above, "no config.json").hint == f"a checkpoint is in the folder {first}, and 1 more are beside it"


def test_the_cache_of_a_repository(tmp_path: Path) -> None:
    for name in ("blobs", "refs", "snapshots"):
        (tmp_path / name).mkdir()
    assert str(tmp_path / "snapshots") in refused(tmp_path, "no config.json").hint


def test_no_weights(folder: Path) -> None:
    (folder / MODEL).unlink()
    refused(folder, r"no \*.safetensors$")
    (folder / "model.gguf").write_text("")
    (folder / "model.bin").write_text("")
    refused(folder, "its weights are in another format, e.g. model.bin")
    write_index(folder, {"a": "x-1.safetensors"})
    refused(folder, "names x-1.safetensors, which is missing")
    write_index(folder, {"a": "x-1.safetensors", "b": "x-2.safetensors"})
    refused(folder, "names 2 files that are missing, e.g. x-1.safetensors")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission(folder: Path) -> None:
    for path in (folder / MODEL, folder / "config.json", folder):
        mode = stat.S_IMODE(path.stat().st_mode)
        path.chmod(0)
        try:
            refused(folder, "Permission denied")
        finally:
            path.chmod(mode)


# --- weights that are none --------------------------------------------------------------------------------------------


def test_a_broken_shard_is_named(folder: Path) -> None:
    write_shard(folder / "z.safetensors", {"x.weight": ("U8", (9,))})
    whole = (folder / "z.safetensors").read_bytes()
    for cut, says in (
        (0, "0 bytes"),
        (7, "7 bytes"),
        (40, "does not fit"),
        (-1, "covers 9 bytes of data, the file holds 8"),
    ):
        (folder / "z.safetensors").write_bytes(whole[:cut])
        assert refused(folder, says).subject == "z.safetensors"
    (folder / "z.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert refused(folder, "Git LFS pointer").hint == "run `git lfs pull`"


def test_folders_pipes_sockets_and_devices(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "x.safetensors"
    path.mkdir()
    refused(folder, "x.safetensors: a folder, not a file")
    path.rmdir()
    os.mkfifo(path)
    refused(folder, "x.safetensors: a pipe, not a file")
    path.unlink()
    path.symlink_to("/dev/zero")
    refused(folder, "x.safetensors: a device, not a file")
    path.unlink()
    monkeypatch.chdir(folder)  # a socket's path may not be long
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("x.safetensors")
        refused(folder, "x.safetensors: a socket, not a file")


def test_a_pipe_for_a_config(folder: Path) -> None:
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    refused(folder, "config.json: a pipe, not a file")


def test_links_that_lead_nowhere(folder: Path) -> None:
    path = folder / "x.safetensors"
    path.symlink_to("absent")
    refused(folder, "x.safetensors: a link to a file that is missing")
    path.unlink()
    path.symlink_to("x.safetensors")
    refused(folder, "x.safetensors: .*symbolic links")


def test_hidden_files_are_no_shards(folder: Path) -> None:
    (folder / "._model.safetensors").write_bytes(b"junk of an archiver")
    assert len(read_local(folder).shards) == 1


def test_names_with_control_characters_are_data(folder: Path) -> None:
    write_shard(folder / "z\n\x1b.safetensors", {"a\x1b[31m\n.weight": ("BF16", (2, 2))})
    checkpoint = read_local(folder)
    assert checkpoint.modules["a\x1b[31m\n"].shard == "z\n\x1b.safetensors"


def test_a_header_that_names_nothing(folder: Path) -> None:
    (folder / MODEL).write_bytes(blob(b"{}", 0))
    checkpoint = read_local(folder)
    assert (checkpoint.modules, checkpoint.tensor_count) == ({}, 0)


# --- JSON -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}\r\n', {"a": 1}),
        ('\t{"a":\t[1,\r\n2]}', {"a": [1, 2]}),
        ('{"a": Infinity, "b": -Infinity}', {"a": float("inf"), "b": float("-inf")}),
        ('{"a": 1.0e5, "b": 123456789012345678901234567890}', {"a": 1e5, "b": 123456789012345678901234567890}),
        ('{"\\ud800": "\\u0000"}', {"\ud800": "\0"}),
    ],
)
def test_json_as_python_reads_it(text: str, value: object) -> None:
    file, problems = parse_json("c.json", text.encode())
    assert (file.name, file.raw, file.value, problems) == ("c.json", text.encode(), value, ())


def test_a_byte_order_mark_is_reported() -> None:
    raw = b'\xef\xbb\xbf{"a": 1}'
    file, problems = parse_json("c.json", raw)
    assert (file.raw, file.value) == (raw, {"a": 1})
    assert [(problem.code, problem.file, problem.place) for problem in problems] == [("bom", "c.json", "byte 0")]


def test_repeated_keys_are_reported_where_they_stand() -> None:
    text = '{"a": {"x": 1, "x": 2}, "b~/": [0, {"y": {"z": 1}, "y": 3, "y": 4}], "a": {"x": 5, "x": 6}}'
    file, problems = parse_json("c.json", text.encode())
    assert file.value == {"a": {"x": 6}, "b~/": [0, {"y": 4}]}
    assert [problem.place for problem in problems] == ["/a", "/a/x", "/b~0~1/1/y"]
    assert {problem.code for problem in problems} == {"duplicate-key"}


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "line 1 column 1"),
        (b'{\n  "a": 1,\n}', "line [23] column"),
        (b'{\n  // why\n  "a": 1}', "line 2 column 3"),
        (b"{'a': 1}", "line 1 column 2"),
        (b'{"a": 1} {}', "line 1 column 10"),
        (b"[1]", "no JSON object"),
        (b"null", "no JSON object"),
        (b'{"a": "\xff"}', "line 1, byte 7: not UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "not UTF-8"),
        (b"[" * 100_000, "nests too deeply"),
        (b'{"a":' * 100_000, "nests too deeply"),
        (b'{"a": ' + b"1" * 5000 + b"}", "4300"),
    ],
)
def test_json_that_is_none(raw: bytes, says: str) -> None:
    with pytest.raises(UnreadableError, match=says) as caught:
        parse_json("c.json", raw)
    assert caught.value.subject == "c.json"
    assert caught.value.hint


def test_problems_reach_the_checkpoint(folder: Path) -> None:
    (folder / "config.json").write_text('{"a": 1, "a": 2}')
    assert read_local(folder).problems == (
        Problem("duplicate-key", "config.json", "the key stands twice in one object; the last one counts", "/a"),
    )


def test_json_beyond_the_limit(folder: Path) -> None:
    with (folder / "hf_quant_config.json").open("wb") as file:
        file.truncate(MAX_JSON_BYTES + 1)
    refused(folder, "above the limit")


@pytest.mark.parametrize(
    "held", [{"a": "x" * (MAX_TEXT + 1)}, {"a": [["x" * (MAX_TEXT + 1)]]}, {"x" * (MAX_TEXT + 1): 1}]
)
def test_a_text_without_end(held: object) -> None:
    with pytest.raises(UnreadableError, match="a text of 1048577 characters"):
        parse_json("config.json", json.dumps(held).encode())


def test_many_texts_are_no_long_text() -> None:
    file, _ = parse_json("config.json", json.dumps({"a": ["x" * 100] * 20_000}).encode())
    assert len(file.value["a"]) == 20_000
