"""Checkpoints on the Hub, read through the real client: the same reports, few requests, clear errors."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest
import tiny
from shards import Tensors, blob, header, write_checkpoint, write_index, write_shard

from hub import OWNER, READER, Hub, Limit, body, cut, dropped, lost, rate_limited, slow, status, whole
from hub.faults import Fault, before
from hub.repositories import Content
from mtpfix import api
from mtpfix.checkpoint import http
from mtpfix.checkpoint import hub as reading
from mtpfix.checkpoint.access import Access, Traffic
from mtpfix.errors import MtpfixError, UnreadableError, UsageError
from mtpfix.model import Checkpoint, Source

TENSORS: Tensors = {f"model.layers.{n}.mlp.down_proj.weight": ("BF16", (64, 64)) for n in range(40)}
SHARDS: dict[str, Tensors] = {
    f"model-{number:05}-of-00004.safetensors": {
        name.replace("layers.", f"layers.{number}"): spec for name, spec in TENSORS.items()
    }
    for number in range(1, 5)
}
FOREVER = float("inf")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "BACKOFF", 0.01)
    monkeypatch.setattr(http, "TIMEOUT", 2.0)


@pytest.fixture
def single(tmp_path: Path) -> Path:
    return tiny.qwen3_next(tmp_path / "single", "mtp.layers.0*")


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "sharded", SHARDS)


@pytest.fixture
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading.Cache, "get", lambda *_: None)


def same(hub: Checkpoint, local: Checkpoint) -> None:
    assert (hub.modules, hub.files, hub.shards, hub.index) == (local.modules, local.files, local.shards, local.index)
    assert (hub.duplicates, hub.problems, hub.tensor_count) == (local.duplicates, local.problems, local.tensor_count)


def refused(source: str = "org/m", access: Access | None = None) -> str:
    """Message and hint of the error; never with a token."""
    with pytest.raises(MtpfixError) as caught:
        api.read(source, access)
    assert caught.value.exit_code == (2 if isinstance(caught.value, UsageError) else 3)
    assert caught.value.hint
    text = f"{caught.value} | {caught.value.hint}"
    assert "hf_" not in text.replace("hf_quant_config", "")
    assert "Signature" not in text
    return text


# The right way.


def test_what_lies_beside_the_weights_is_read_as_in_the_folder(hub: Hub, single: Path) -> None:
    write_shard(single / "consolidated.safetensors", {"lm_head.weight": ("BF16", (64, 32))})
    hub.create("org/m", single)
    there, here = api.read("org/m"), api.read(str(single))
    same(there, here)
    assert there.consolidated == here.consolidated
    assert list(here.consolidated) == ["lm_head"]
    assert api.check("org/m").engines == api.check(single).engines


def test_the_same_report_as_of_the_folder(hub: Hub, single: Path) -> None:
    repo = hub.create("org/m", single)
    there, here = api.check("org/m"), api.check(single)
    assert there.source == Source("hub", "org/m", repo.head())
    assert (there.findings, there.engines, there.plan.after) == (here.findings, here.engines, here.plan.after)
    assert api.explain("org/m", ["mtp.fc"]) == api.explain(single, ["mtp.fc"])
    assert api.draft_tensors("org/m") == api.draft_tensors(single)


def test_one_request_for_all_headers_of_main(hub: Hub, sharded: Path) -> None:
    hub.create("org/m", sharded)
    access = Access()
    same(api.read("org/m", access), api.read(sharded))
    paths = [call.path for call in hub.calls]
    assert sum("/resolve/" in path for path in paths) == 2  # config.json and the index
    assert sum("safetensors-metadata" in path for path in paths) == 1
    assert hub.count("GET", "/cdn/") == 0
    assert len(paths) == 5
    assert (access.traffic.requests, access.traffic.received) == (5, hub.sent)
    assert (access.traffic.files, access.traffic.wanted) == (6, 6)


def test_else_one_range_a_shard_sized_by_the_index(hub: Hub, sharded: Path) -> None:
    repo = hub.create("org/m", sharded)
    repo.tag("v1")
    access = Access(revision="v1")
    same(api.read("org/m", access), api.read(sharded))
    assert hub.count("GET", "safetensors-metadata") == 0
    ranges = [call for call in hub.calls if "/cdn/" in call.path]
    lengths = [len(header(tensors)[0]) + 8 for tensors in SHARDS.values()]
    assert sorted(call.path.rpartition("/")[2] for call in ranges) == list(SHARDS)
    assert all(call.status == 206 for call in ranges)
    assert sum(lengths) <= sum(call.sent for call in ranges) <= 1.3 * sum(lengths)
    assert access.traffic.received == hub.sent
    assert access.traffic.requests == hub.count() == 3 + 2 * len(SHARDS)


@pytest.mark.usefixtures("no_cache")
def test_endpoint_missing_redirects_off_and_shards_beside_the_index(hub: Hub, sharded: Path) -> None:
    repo = hub.create("org/m", sharded)
    hub.metadata = False
    same(api.read("org/m"), api.read(sharded))
    hub.redirects, hub.metadata = False, True
    same(api.read("org/m"), api.read(sharded))
    raw, data = header({"mtp.fc.weight": ("BF16", (4, 4))})
    (sharded / "mtp.safetensors").write_bytes(blob(raw, data))
    repo.commit({"mtp.safetensors": blob(raw, data)})
    checkpoint = api.read("org/m")
    same(checkpoint, api.read(sharded))
    assert checkpoint.index is not None
    assert checkpoint.index.unlisted == ("mtp.fc.weight",)


@pytest.mark.parametrize("guess", [8, 100, 1 << 20])
def test_headers_that_are_longer_than_thought(
    hub: Hub, single: Path, guess: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading.Repository, "_guess", lambda *_: guess)
    hub.create("org/m", single)
    same(api.read("org/m"), api.read(single))


def test_again_costs_one_request(hub: Hub, sharded: Path) -> None:
    repo = hub.create("org/m", sharded)
    first = api.read("org/m")
    hub.forget()
    assert api.read("org/m") == first
    assert hub.count() == 1
    repo.commit({"config.json": b'{"x": 1}'})
    hub.forget()
    assert api.read("org/m").files["config.json"].value == {"x": 1}
    assert [call.path.rpartition("/")[2] for call in hub.calls] == ["main", "config.json"]


@pytest.mark.parametrize("revision", ["main", "v1"])
def test_a_hub_that_lists_names_only(hub: Hub, sharded: Path, revision: str) -> None:
    hub.create("org/m", sharded).tag("v1")
    hub.sizes = False
    first = api.read(f"org/m@{revision}")
    same(first, api.read(sharded))
    hub.forget()
    assert api.read(f"org/m@{revision}") == first
    assert hub.count() == 1


def test_ranges_that_come_in_small_pieces(hub: Hub, sharded: Path) -> None:
    hub.create("org/m", sharded)
    hub.longest, hub.metadata = 700, False
    same(api.read("org/m"), api.read(sharded))


@pytest.mark.parametrize("sizes", [True, False])
def test_of_a_small_file_little_more_than_the_header_is_asked(hub: Hub, single: Path, sizes: bool) -> None:
    hub.create("org/m", single)
    hub.sizes = sizes
    api.read("org/m")
    whole = (single / "model.safetensors").stat().st_size
    assert sum(call.sent for call in hub.calls if "/cdn/" in call.path) < whole / 20


def test_a_bundle_is_the_same_whatever_way_the_headers_came(hub: Hub, sharded: Path) -> None:
    """The endpoint may tell a header's tensors in another order than the file."""
    hub.create("org/m", sharded).tag("v1")
    turned = {name: dict(reversed(json.loads(header(tensors)[0]).items())) for name, tensors in SHARDS.items()}
    hub.fault("safetensors-metadata", body(json.dumps({"index": {}, "headers": turned}).encode()), FOREVER)
    api.read("org/m")
    assert hub.count("GET", "/cdn/") == 0
    assert api.snapshot("org/m") == api.snapshot("org/m@v1")
    hub.forget()
    api.snapshot("org/m")
    assert hub.count() == 1


@pytest.mark.parametrize("note", ['{"a":{"b":{}}},"x":{}}', "}}", "}}" * 200, '{"a": "}}\\""}'])
def test_the_answer_for_all_headers_with_json_in_their_metadata(note: str) -> None:
    """Some exporters write JSON as a text into `__metadata__`: the brackets in it do not end the header."""
    headers = {
        name: {"__metadata__": {"config": note}, **json.loads(header(tensors)[0])} for name, tensors in SHARDS.items()
    }
    answer = json.dumps({"index": None, "headers": headers}, separators=(",", ":")).encode()
    found = list(reading._headers_of(answer))
    assert {name: value for name, value, _ in found} == headers
    assert {name: json.loads(text) for name, _, text in found} == headers


def told(shown: str, compact: str) -> str:
    """The answer for all headers, in one of the spellings that JSON allows, or as no JSON or another answer."""
    value = {"index": {"metadata": {"note": 'a "headers":{ of a text'}}, "headers": json.loads(compact)}
    return {
        "with blanks": json.dumps(value),
        "indented": json.dumps(value, indent=2),
        "headers first": json.dumps(dict(reversed(value.items()))),
        "a name twice": json.dumps(value).replace(
            '"headers": {', '"headers": {"model-00001-of-00004.safetensors": {},'
        ),
        "headers elsewhere": json.dumps({"index": {"headers": {}}, **value}).replace('"metadata"', '"headers"'),
        "more behind it": json.dumps(value) + "}",
        "cut off": json.dumps(value)[:-2],
        "in a list": f"[{json.dumps(value)}]",
        "in a text": json.dumps({"headers": json.dumps(value)}),
        "a header that is none": json.dumps({"headers": {name: [] for name in value["headers"]}}),
        "too deep": '{"headers":{"a":' + "[" * 100_000,
    }[shown]


@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize(
    ("shown", "taken"),
    [
        ("with blanks", True), ("indented", True), ("headers first", True), ("a name twice", True),
        ("headers elsewhere", False), ("more behind it", False), ("cut off", False), ("in a list", False),
        ("in a text", False), ("a header that is none", False), ("too deep", False),
    ],
)  # fmt: skip
def test_spellings_of_the_answer_for_all_headers(hub: Hub, sharded: Path, shown: str, taken: bool) -> None:
    """What is no such answer is not believed: the headers are asked for one by one."""
    hub.create("org/m", sharded)
    headers = {name: json.loads(header(tensors)[0]) for name, tensors in SHARDS.items()}
    answer = told(shown, json.dumps(headers, separators=(",", ":")))
    hub.fault("safetensors-metadata", body(answer.encode()), FOREVER)
    same(api.read("org/m"), api.read(sharded))
    assert (hub.count("GET", "/cdn/") == 0) == taken


@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize(
    "many",
    [
        {"headers": {"model-00001-of-00002.safetensors": [[]] * 2_000_000}},
        {"headers": {}, "index": [[]] * 2_000_000},
        {"headers": {"model-00001-of-00002.safetensors": {"a": "\U0001f600" * 5_000_000}}},
    ],
)
def test_values_without_end_take_no_room(hub: Hub, sharded: Path, many: object) -> None:
    """In the answer for all headers: they are asked for one by one. 2 million lists take 130 MB."""
    hub.create("org/m", sharded)
    hub.fault("safetensors-metadata", body(json.dumps(many, ensure_ascii=False).encode()), FOREVER)
    del many
    tracemalloc.start()
    try:
        same(api.read("org/m"), api.read(sharded))
        assert tracemalloc.get_traced_memory()[1] < 80e6
    finally:
        tracemalloc.stop()
    assert hub.count("GET", "/cdn/") > 0


@pytest.mark.parametrize("files", [400_000, 0])
def test_a_list_without_end_is_refused(hub: Hub, single: Path, files: int) -> None:
    """A million files took 500 MB; a text of 20 MB with one wide letter takes 80 MB each time it is held."""
    hub.create("org/m", single)
    listed = [{"rfilename": f"f{number}", "size": 1, "x": 1} for number in range(files)] or [
        "\U0001f600" + "x" * 20_000_000
    ]
    hub.fault("revision/main", body(json.dumps({"sha": "a" * 40, "siblings": listed}, ensure_ascii=False).encode()))
    with pytest.raises(UnreadableError, match="1,000,000 values, or than 16,777,216 bytes"):
        api.read("org/m")


def test_hashes_that_are_none_are_not_believed(hub: Hub, single: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Hub that gives every file one hash: the cache goes by commit and name."""
    monkeypatch.setattr(Content, "oid", "0" * 40)
    monkeypatch.setattr(Content, "sha256", "0" * 64)
    folder = write_checkpoint(single.parent / "m", SHARDS)
    hub.create("org/m", folder)
    hub.metadata = False
    first = api.read("org/m")
    same(first, api.read(folder))
    hub.forget()
    assert api.read("org/m") == first
    assert hub.count() == 1


def test_a_damaged_cache_is_no_cache(hub: Hub, sharded: Path, tmp_path: Path) -> None:
    hub.create("org/m", sharded)
    first = api.read("org/m")
    entries = [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.name != ".pruned"]
    assert entries
    for path in entries:
        path.write_bytes(path.read_bytes()[:-3])
    assert api.read("org/m") == first


def test_shards_in_folders_below(hub: Hub, tmp_path: Path) -> None:
    shards = {"model-1.safetensors": TENSORS, "sub/m.safetensors": {"b.weight": ("BF16", (4, 4))}}
    folder = write_checkpoint(tmp_path / "m", shards)
    hub.create("org/m", folder)
    same(api.read("org/m"), api.read(folder))


def test_revisions(hub: Hub, single: Path) -> None:
    repo = hub.create("org/m", single)
    old = repo.head()
    repo.commit({"config.json": b'{"x": 1}'})
    repo.open_pr("title", {"config.json": b'{"x": 2}'})
    repo.commit({"config.json": b'{"x": 3}'}, branch="feature/a")
    for revision, value in ((None, 1), ("main", 1), ("refs/pr/1", 2), ("feature/a", 3), (repo.head(), 1)):
        checkpoint = api.read("org/m", Access(revision))
        assert checkpoint.files["config.json"].value == {"x": value}
        assert checkpoint.source.revision == repo.head(revision or "main")
    assert api.read(f"{hub.url}/org/m/commit/{old}").files["config.json"].raw == (single / "config.json").read_bytes()
    assert "no such revision" in refused("org/m@none")


def test_snapshot(hub: Hub, sharded: Path, tmp_path: Path) -> None:
    repo = hub.create("org/m", sharded, private=True)
    access = Access(token=OWNER)
    first = api.snapshot("org/m", access=access)
    assert api.snapshot("org/m@main", access=access) == first
    (tmp_path / "b").write_bytes(first)
    found = api.read(tmp_path / "b")
    same(found, api.read(sharded))
    assert found.source.revision == repo.head()


# Who may read.


def test_private(hub: Hub, single: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hub.create("org/m", single, private=True)
    assert "HF_TOKEN" in refused()
    assert "may not read" in refused(access=Access(token=READER))
    api.read("org/m", Access(token=OWNER))
    monkeypatch.setenv("HF_TOKEN", OWNER)
    api.read("org/m")
    monkeypatch.delenv("HF_TOKEN")
    (tmp_path / "hf-home").mkdir()
    (tmp_path / "hf-home" / "token").write_text(OWNER, "utf-8")
    api.read("org/m")
    assert not any("authorization" in call.headers for call in hub.calls if "/cdn/" in call.path)
    assert all(call.headers["user-agent"].startswith("mtpfix/") for call in hub.calls)


def test_gated_and_refused(hub: Hub, single: Path) -> None:
    repo = hub.create("org/m", single, gated=True)
    assert "gated" in refused()
    assert f"{hub.url}/org/m" in refused(access=Access(token=READER))
    repo.allowed.add("reader")
    api.read("org/m", Access(token=READER))
    assert "does not accept the token" in refused(access=Access(token="hf_wrong"))
    assert "no repository" in refused("org/none")
    hub.fault("revision", status(403, {"X-Error-Message": "sorry, hf_owner"}))
    assert "denied (sorry, ***)" in refused(access=Access(token=OWNER))


@pytest.mark.parametrize("token", ["hf_a\nb", "hf_ü", "", "a b"])
def test_what_is_no_token(hub: Hub, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError):
        Access(token=token)
    if token in ("hf_ü", "a b"):
        monkeypatch.setenv("HF_TOKEN", token)
        assert "characters" in refused()
    assert OWNER not in repr(Access(token=OWNER))


# What goes wrong on the way, and is got over.


FAULTS: dict[str, tuple[str, Fault, int]] = {
    "busy": ("", status(503), 3),
    "rate limited": ("", rate_limited(0.2), 3),
    "rate limited by a plain header": ("", rate_limited(0.2, ratelimit=False), 3),
    "lost answer": ("", lost, 3),
    "dropped connection": ("", dropped, 3),
    "range cut short": ("cdn", cut(50), 3),
    "JSON cut short": ("config.json", cut(50), 3),
    "whole file for a range": ("cdn", whole, 9),
    "slow": ("", slow(0.1), 3),
    "another range": ("cdn", body(b"x" * 100, {"Content-Range": "bytes 5-104/1000"}, 206), 2),
    "no range": ("cdn", body(b"x" * 100, {}, 206), 2),
    "headers of all: busy": ("safetensors-metadata", status(500), 9),
    "headers of all: no JSON": ("safetensors-metadata", body(b"<html>"), 9),
    "headers of all: JSON bomb": ("safetensors-metadata", body(b"[" * 100_000), 9),
    "headers of all: others": ("safetensors-metadata", body(b'{"headers": {"x": 1}}'), 9),
    "headers of all: endless ones": (
        "safetensors-metadata",
        body(b'{"headers": {"%s": {"a": {"data_offsets": [0, Infinity]}}}}' % next(iter(SHARDS)).encode()),
        9,
    ),
    "headers of all: wrong ones": (
        "safetensors-metadata",
        body(json.dumps({"headers": {name: {"a": {"data_offsets": [0, 9]}} for name in SHARDS}}).encode()),
        9,
    ),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("revision", ["main", "v1"])
def test_got_over(hub: Hub, sharded: Path, name: str, revision: str) -> None:
    repo = hub.create("org/m", sharded)
    repo.tag("v1")
    pattern, fault, times = FAULTS[name]
    hub.fault(pattern, fault, times)
    same(api.read(f"org/m@{revision}"), api.read(sharded))
    if name == "whole file for a range":
        assert hub.sent < 10_000_000


def test_a_whole_file_is_cut_off(hub: Hub, tmp_path: Path) -> None:
    big = write_checkpoint(tmp_path / "big", {"model.safetensors": {"a.weight": ("F32", (1 << 16, 1 << 14))}})
    hub.create("org/m", big)
    hub.fault("cdn", whole, FOREVER)
    access = Access()
    same(api.read("org/m", access), api.read(big))
    assert access.traffic.received < 1_000_000
    assert hub.sent < 200_000_000


def test_a_window_that_is_used_up_is_waited_for(hub: Hub, single: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Hub says with each answer how many are left, so that nobody has to be refused."""
    held: list[float] = []
    monkeypatch.setattr(Traffic, "hold", lambda _self, seconds: held.append(seconds))
    found = hub.create("org/m", single).files()["config.json"].read()
    hub.fault("/config.json", body(found, {"ratelimit": '"resolvers";r=0;t=7'}))
    api.read("org/m")
    assert held == [7.0]


def test_a_wait_holds_whatever_is_asked() -> None:
    traffic = Traffic()
    assert traffic.pause <= 0
    traffic.hold(100)
    traffic.hold(1)
    assert 90 < traffic.pause <= 100


def test_after_a_wait_there_are_fewer_at_once() -> None:
    traffic = Traffic()
    assert all(traffic.begin() for _ in range(8))
    traffic.hold(0.01)
    traffic.hold(0.01)  # another one of the same eight
    for _ in range(8):
        traffic.end(well=False)
    assert [traffic.begin() for _ in range(6)] == [True] * 4 + [False] * 2
    for _ in range(4):
        traffic.end(well=True)
    assert [traffic.begin() for _ in range(6)] == [True] * 5 + [False]


def test_a_limited_hub(hub: Hub, sharded: Path) -> None:
    repo = hub.create("org/m", sharded)
    repo.tag("v1")
    hub.limit = Limit(6, 0.5)
    same(api.read("org/m@v1"), api.read(sharded))
    assert any(call.status == 429 for call in hub.calls)


@pytest.mark.parametrize("revision", ["main", "other"])
@pytest.mark.parametrize("when", ["config.json", "safetensors-metadata", "index.json", "cdn"])
def test_a_moving_branch(hub: Hub, sharded: Path, when: str, revision: str) -> None:
    """Whatever happens meanwhile, what is read is one commit."""
    repo = hub.create("org/m", sharded)
    repo.commit({}, branch="other")
    old = repo.head(revision)
    first = next(iter(SHARDS))
    raw, data = header({"new.weight": ("BF16", (8, 8))})
    moved = {"config.json": b'{"x": 1}', first: blob(raw, data), "model.safetensors.index.json": b"{}"}
    hub.fault(when, before(lambda: repo.commit(moved, branch=revision)))
    if when == "cdn":
        hub.metadata = False
    checkpoint = api.read(f"org/m@{revision}")
    assert checkpoint.source.revision == old
    same(checkpoint, api.read(sharded))


# What goes wrong for good.


HOPELESS: dict[str, tuple[str, Fault, str]] = {
    "busy": ("", status(503), "answers 503"),
    "dropped": ("", dropped, "broke off"),
    "long wait": ("", rate_limited(4000), "in 4000 seconds"),
    "rate limited without end": ("", rate_limited(0.01), "rate limit"),
    "no answer": ("revision", slow(0.6), "does not answer"),
    "no JSON": ("revision", body(b"<html>"), "names no commit"),
    "a list": ("revision", body(b"[]"), "names no commit"),
    "a JSON bomb": ("revision", body(b"[" * 1_000_000), "names no commit"),
    "an odd commit": ("revision", body(b'{"sha": "../../x"}'), "names no commit"),
    "no files": ("revision", body(b'{"sha": "0123456789", "siblings": [1, {"rfilename": "../x"}]}'), "no config.json"),
    "odd files": (
        "revision",
        body(b'{"sha": "0123456789", "siblings": [{"rfilename": "\\ud800"}, {"rfilename": "a.json", "size": 1e99}]}'),
        "no config.json",
    ),
    "a missing file": ("config.json", status(404, {"X-Error-Code": "EntryNotFound"}), "no such file"),
    "a moved place": ("revision", status(302, {"Location": "ftp://x/y"}), "request failed"),
    "short for good": ("cdn", cut(50), "ended after|broke off"),
    "a compressed range": ("cdn", body(b"x", {"Content-Encoding": "gzip"}, 206), "compressed"),
    "a larger file": ("cdn", body(b"x" * 32768, {"Content-Range": "bytes 0-32767/99999999"}, 206), "lists"),
}


@pytest.mark.parametrize("name", HOPELESS)
def test_given_up(hub: Hub, single: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "ATTEMPTS", 2)
    monkeypatch.setattr(http, "TIMEOUT", 0.4)
    monkeypatch.setattr(http, "MAX_LIMITED", 3)
    hub.create("org/m", single)
    pattern, fault, told = HOPELESS[name]
    hub.fault(pattern, fault, FOREVER)
    text = refused()
    assert any(part in text for part in told.split("|")), text
    hub.faults.clear()
    api.read("org/m")  # nothing wrong was kept


def shard(length: int, size: int) -> bytes:
    return length.to_bytes(8, "little") + b"{" + bytes(size - 9)


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"model.safetensors": shard(10_000, 500)}, "does not fit"),
        ({"model.safetensors": shard(1 << 62, 500)}, "above the limit"),
        ({"model.safetensors": shard(100, 500)}, "not a valid safetensors file"),
        ({"model.safetensors": b"1234"}, "too few"),
        ({"model.safetensors": b""}, "too few"),
        ({"model.safetensors": b"version https://git-lfs.github.com/spec/v1\n"}, "Git LFS pointer"),
        ({"model.safetensors": None}, "no *.safetensors"),
        ({"model.safetensors": None, "pytorch_model.bin": b"1"}, "another format"),
        ({"config.json": None}, "no config.json"),
        ({"config.json": b"{" * 9}, "config.json: line 1"),
        ({"config.json": b"[" * 100_000}, "too deeply"),
    ],
)
def test_bad_checkpoints(hub: Hub, single: Path, files: dict[str, bytes | None], told: str) -> None:
    repo = hub.create("org/m", single)
    repo.commit(files)
    assert told in refused()


@pytest.mark.parametrize(
    "place",
    ["../../other/resolve/main/model.safetensors", "/etc/passwd", "https://evil/x.safetensors", "..\\x.safetensors"],
)
def test_an_index_that_leads_elsewhere(hub: Hub, tmp_path: Path, place: str) -> None:
    folder = write_checkpoint(tmp_path / "m", SHARDS, index=False)
    names = {tensor: name for name, tensors in SHARDS.items() for tensor in tensors}
    write_index(folder, {**names, "x.weight": place})
    hub.create("org/m", folder)
    hub.create("org/other", folder)
    assert "no file inside the checkpoint" in refused()
    assert not any("other" in call.path or ".." in call.path for call in hub.calls)


def test_too_large_json(hub: Hub, single: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.create("org/m", single)
    monkeypatch.setattr(reading, "most_bytes", lambda _name: 100)
    assert "above the limit" in refused()
    assert hub.count("GET", "config.json") == 0


def test_offline(hub: Hub, single: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "offline mode" in refused()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(http, "ATTEMPTS", 2)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert "cannot be reached" in refused()
    monkeypatch.setenv("HF_ENDPOINT", "http://me:hf_secret@127.0.0.1:9/hub")
    assert "http://127.0.0.1:9/hub cannot be reached" in refused()
    monkeypatch.setenv("HF_ENDPOINT", "nonsense")
    assert "HF_ENDPOINT" in refused()


def test_only_a_directory_can_be_changed(hub: Hub, single: Path) -> None:
    hub.create("org/m", single)
    with pytest.raises(UsageError, match="only a directory"):
        api.apply(api.check("org/m"))
