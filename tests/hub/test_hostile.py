"""A Hub, or a repository on it, that means harm: each answer is an error of ours, soon and without much memory."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
from click.testing import CliRunner
from hostile.sandbox import MEGABYTES, SECONDS, Run, Sandbox

from hub import OWNER, Hub, body, status
from hub.faults import Fault, with_value
from mtpfix import api
from mtpfix.checkpoint.access import Access
from mtpfix.checkpoint.room import SMALL
from mtpfix.cli import main
from mtpfix.hub.remote import Remote
from mtpfix.hub.scan import listed_on_the_hub

FOREVER = float("inf")
REVIEW, PROPOSE = ("review", "org/m", "1"), ("apply", "org/m", "--create-pr", "--token", OWNER)


@pytest.fixture
def model(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """A Hub that holds a checkpoint to be repaired, and a pull request of somebody."""
    monkeypatch.setattr("mtpfix.checkpoint.http.BACKOFF", 0.0)
    folder = tiny.qwen3_next(tmp_path / "m", "mtp.layers.0*")
    hub.create("org/m", folder).open_pr("a title", {"config.json": (folder / "config.json").read_bytes() + b"\n"})
    return hub


@pytest.fixture
def sandbox(model: Hub) -> Iterator[Sandbox]:
    """With the variables of this Hub, which a process of the whole session would not have."""
    with Sandbox() as running:
        yield running


def ran(*words: str) -> tuple[int, str]:
    found = CliRunner().invoke(main, words)
    assert "unexpected" not in found.output, found.output
    return found.exit_code, found.output


def bounded(done: Run, *codes: int) -> str:
    assert done.code in codes, (done.code, done.err[-500:])
    assert "Traceback" not in done.err
    assert "unexpected" not in done.err + done.out
    assert done.seconds < SECONDS, f"{done.seconds:.1f} s"
    assert done.megabytes < MEGABYTES, f"{done.megabytes:.0f} MB"
    return done.out + done.err


def with_header(name: str, value: str) -> Fault:
    """The right answer with one more header."""

    def fault(handler: Any, go: Callable[[], None]) -> None:
        send = handler.stream
        handler.stream = lambda code, size, pieces, headers: send(code, size, pieces, {**headers, name: value})
        go()
        del handler.stream

    return fault


# Headers of answers.


@pytest.mark.parametrize("code", [200, 429])
@pytest.mark.parametrize("left", ["9" * 5000, "1"])
def test_a_rate_limit_of_thousands_of_digits(model: Hub, code: int, left: str) -> None:
    """Python does not make a number of them."""
    value = f'"api";r={left};t={"9" * 5000}'
    model.fault(".*", with_header("ratelimit", value) if code == 200 else status(code, {"ratelimit": value}), FOREVER)
    assert ran("check", "org/m")[0] == (1 if code == 200 else 3)


def test_a_wait_without_end_is_no_number_of_seconds(model: Hub) -> None:
    model.fault(".*", status(429, {"Retry-After": "9" * 400}), FOREVER)
    code, text = ran("check", "org/m")
    assert code == 3
    assert "try again later" in text


@pytest.mark.parametrize("link", ["<" * 60_000, "<a>;" * 15_000, "<a>;" + "rel" * 18_000])
def test_a_link_that_is_searched_without_end(sandbox: Sandbox, model: Hub, link: str) -> None:
    """It took 8 s."""
    model.fault("api/models\\?", with_header("Link", link), FOREVER)
    done = sandbox.run("scan", "org")
    assert "MTP001" in bounded(done, 1)
    assert done.seconds < 2


def test_a_next_page_that_is_no_address(model: Hub) -> None:
    model.fault("api/models\\?", with_header("Link", '<http://[>; rel="next"'), FOREVER)
    code, text = ran("scan", "org")
    assert code == 3
    assert "no address" in text


# Lists without end.


def pages(hub: Hub, each: int, name: str) -> Fault:
    count = iter(range(1 << 60))

    def fault(handler: Any, _go: object) -> None:
        rows = json.dumps([{"id": f"org/{next(count)}{name}"} for _ in range(each)]).encode()
        handler.answer(200, rows, {"Link": f'<{hub.url}/api/models?cursor={next(count)}>; rel="next"'})

    return fault


@pytest.mark.parametrize(("each", "name"), [(1, ""), (50_000, ""), (2, "x" * 8_000_000)])
def test_pages_of_repositories_without_end(sandbox: Sandbox, model: Hub, each: int, name: str) -> None:
    model.fault("api/models\\?", pages(model, each, name), FOREVER)
    text = bounded(sandbox.run("scan", "org"), 3)
    assert "limit" in text


def test_so_many_of_a_list_without_end(model: Hub) -> None:
    model.fault("api/models\\?", pages(model, 1_000, ""), FOREVER)
    assert len(listed_on_the_hub(Access(), author="org", limit=1_500)) == 1_500


def test_a_name_without_end_is_cut(model: Hub) -> None:
    model.fault("api/models\\?", body(json.dumps([{"id": "org/" + "x" * 1_000_000}, {"id": "org/m"}]).encode()))
    code, text = ran("scan", "org")
    assert code == 1
    assert "MTP001" in text  # the next one is looked at
    assert len(text) < 20_000


def discussions(each: int, title: str) -> Fault:
    count = iter(range(2, 1 << 60))

    def fault(handler: Any, _go: object) -> None:
        rows = [
            {"num": next(count), "title": title, "status": "merged", "author": {"name": title}} for _ in range(each)
        ]
        handler.answer(200, json.dumps({"discussions": rows, "count": 1 << 50, "start": 0}).encode())

    return fault


@pytest.mark.parametrize(
    ("each", "title", "codes"), [(50, "x" * 20_000, (0, 3)), (15_000, "", (0, 3)), (50, "x" * 1_000_000, (3,))]
)
def test_pages_of_pull_requests_without_end(
    sandbox: Sandbox, model: Hub, each: int, title: str, codes: tuple[int, ...]
) -> None:
    """Of 61 pages with titles of 1 MB there were 3 GB."""
    model.fault("discussions\\?", discussions(each, title), FOREVER)
    bounded(sandbox.run(*PROPOSE), *codes)


# Pull requests.


@pytest.mark.parametrize(
    "diff",
    [
        "+++ b/" + " " * 200_000 + "x\n", ("+++ b/" + " " * 2_000 + "x\n") * 2_000, "+++ b/" + "\x0b" * 100_000 + "x\n",
        "diff --git a/" + "x" * 3_000_000, "diff --git a/" + " b/" * 1_000_000,
    ],
    ids=["blanks", "blanks again and again", "other blanks", "no end", "many ends"],
)  # fmt: skip
@pytest.mark.parametrize("command", [REVIEW, PROPOSE])
def test_a_diff_that_is_searched_without_end(sandbox: Sandbox, model: Hub, diff: str, command: tuple[str, ...]) -> None:
    model.fault("discussions/1", with_value(diff=diff), FOREVER)
    done = sandbox.run(*command)
    bounded(done, 0, 1)
    assert done.seconds < 2


def test_a_diff_of_a_million_files(sandbox: Sandbox, model: Hub) -> None:
    model.fault("discussions/1", with_value(diff="".join(f"+++ b/{n}\n" for n in range(2_000_000))), FOREVER)
    assert "more than 100,000 files" in bounded(sandbox.run(*REVIEW), 3)


@pytest.mark.parametrize(
    "events", [5, True, 1.5, "abc", {"a": 1}, None, [[], 7, {"type": [], "author": [], "data": 7}]]
)
def test_events_of_another_kind(model: Hub, events: object) -> None:
    model.fault("discussions/1", with_value(events=events), FOREVER)
    assert ran(*REVIEW)[0] == 1
    assert ran(*PROPOSE)[0] == 0


def test_a_row_whose_number_is_a_list(model: Hub) -> None:
    rows = [{"num": [], "title": "x"}, {"num": {}}, {"num": None}]
    model.fault("discussions\\?", with_value(discussions=rows), FOREVER)
    assert ran(*PROPOSE)[0] == 3  # what was opened is not listed


def test_another_pull_request_than_was_asked_for(model: Hub) -> None:
    model.fault("discussions/1", with_value(num=2), FOREVER)
    code, text = ran(*REVIEW)
    assert code == 3
    assert "discussion 1 is no pull request" in text


def test_a_renamed_file_is_changed_too(model: Hub) -> None:
    """Git says of one that only changes its name nothing but the two names."""
    diff = "diff --git a/a.json b/config.json\nsimilarity index 100%\nrename from a.json\nrename to config.json\n"
    model.fault("discussions/1", with_value(diff=diff), FOREVER)
    assert Remote("org/m").pull_request(1).files == ("a.json", "config.json")


def test_a_pull_request_with_files_that_are_too_large(sandbox: Sandbox, model: Hub) -> None:
    """All were read, 60 MB each."""
    names = ("config.json", "hf_quant_config.json", "quantize_config.json", "quant_config.json", "quant_cfg.json")
    large = b'{"a":"' + b"x" * 60_000_000 + b'"}'
    model.repositories["org/m"].open_pr("t", dict.fromkeys(names, large))
    bounded(sandbox.run("review", "org/m", "2"), 3)
    bounded(sandbox.run(*PROPOSE), 0, 3)


# Repositories.


def shard(path: Path, length: int) -> None:
    """A file whose header is so long, most of it blanks."""
    text = json.dumps({f"{path.stem}.weight": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}).encode()
    path.write_bytes(struct.pack("<Q", length) + text.ljust(length) + b"\0")


@pytest.mark.parametrize(("count", "length"), [(1, 90_000_000), (4, 60_000_000), (80, 2_000_000)])
@pytest.mark.parametrize("sizes", [True, False])
def test_headers_that_are_large_together(
    sandbox: Sandbox, model: Hub, tmp_path: Path, count: int, length: int, sizes: bool
) -> None:
    """All were held at once: 2.4 GB of 16. Twice: the second time they come from the cache."""
    folder = tiny.qwen3_next(tmp_path / "large", "mtp.layers.0*")
    for number in range(count):
        shard(folder / f"x{number}.safetensors", length)
    model.create("org/large", folder)
    model.sizes = sizes
    for _ in range(2):
        text = bounded(sandbox.run("check", "org/large"), 1 if count == 1 else 3)
        assert count == 1 or "its headers are above the limit of 134,217,728 bytes together" in text


def test_json_files_that_are_large_together(sandbox: Sandbox, model: Hub, tmp_path: Path) -> None:
    """They are asked for at the same time: 730 MB of six."""
    folder = tiny.qwen3_next(tmp_path / "large", "mtp.layers.0*")
    for name in ("hf_quant_config.json", "quantize_config.json", "quant_config.json", "quant_cfg.json"):
        (folder / name).write_bytes(b'{"a":"' + b"x" * 60_000_000 + b'"}')
    model.create("org/large", folder)
    for sizes in (True, False):
        model.sizes = sizes
        assert "above the limit" in bounded(sandbox.run("check", "org/large"), 3).replace("more than", "above")


def test_large_repositories_are_scanned_one_after_the_other(sandbox: Sandbox, model: Hub, tmp_path: Path) -> None:
    """Eight at once took 1 GB; what is beside them is scanned all the same, the second time from the cache."""
    for number in range(4):
        folder = tiny.qwen3_next(tmp_path / f"large{number}", "mtp.layers.0*")
        shard(folder / f"x{number}.safetensors", 60_000_000)
        model.create(f"org/large{number}", folder)
    for _ in range(2):
        text = bounded(sandbox.run("scan", "org"), 1)
        assert text.count('"status": "fixable"') == 5


def test_a_scan_goes_on_behind_a_large_one_that_fails(model: Hub, tmp_path: Path) -> None:
    for number in range(2):
        folder = tiny.qwen3_next(tmp_path / f"large{number}", "mtp.layers.0*")
        (folder / "model.safetensors.index.json").write_bytes(b"{" + b" " * (SMALL + 1))
        model.create(f"org/a{number}", folder)
    code, text = ran("scan", "org", "-j", "1")
    assert code == 1
    assert text.count('"unreadable"') == 2
    assert text.count('"fixable"') == 1


def test_more_than_the_list_says(model: Hub) -> None:
    raw = model.repositories["org/m"].files()["config.json"].read()
    model.fault("config.json", body(raw + b" " * 1000), FOREVER)
    assert f"more than the limit of {len(raw)} bytes" in ran("check", "org/m")[1]


def test_a_header_bit_by_bit(model: Hub) -> None:
    """Some of it in each answer, without end."""
    model.longest = 20
    code, text = ran("check", "org/m")
    assert code == 3
    assert "in more than 20 pieces" in text


def test_what_one_hub_says_of_a_hash_is_not_believed_of_another(model: Hub, tmp_path: Path) -> None:
    """A header is not all of its file, so that its hash cannot be looked at: the other one may have lied."""
    true = model.repositories["org/m"].files()["model.safetensors"]
    folder = tiny.qwen3_next(tmp_path / "lie", "mtp.layers.0*")
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes().replace(b'"mtp.fc', b'"ptm.fc'))
    with Hub() as other:
        other.create("org/m", folder).files()["model.safetensors"].__dict__["sha256"] = true.sha256
        assert "ptm.fc" in api.read("org/m", Access(endpoint=other.url)).modules
    assert "mtp.fc" in api.read("org/m").modules
