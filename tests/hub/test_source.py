"""What a SOURCE means."""

from __future__ import annotations

from pathlib import Path

import pytest

from mtpfix.checkpoint.source import parse
from mtpfix.errors import UsageError
from mtpfix.model import Source

WEB = "https://huggingface.co/org/name"


@pytest.mark.parametrize(
    ("text", "revision"),
    [
        ("org/name", None),
        ("org/name@v1.0", "v1.0"),
        ("org/name@feature/x", "feature/x"),
        ("org/name@refs/pr/3", "refs/pr/3"),
        ("hf://org/name", None),
        ("hf://models/org/name@a%2Fb", "a/b"),
        ("hf://org/name@refs/pr/3/config.json", "refs/pr/3"),
        ("HF://org/name/config.json", None),
        (WEB, None),
        (f"{WEB}/", None),
        (f"{WEB}.git", None),
        (f"{WEB}/tree/main", "main"),
        (f"{WEB}/tree/refs%2Fpr%2F3", "refs/pr/3"),
        (f"{WEB}/tree/refs/pr/3", "refs/pr/3"),
        (f"{WEB}/blob/main/config.json?download=1#L3", "main"),
        (f"{WEB}/resolve/0123abc/model.safetensors", "0123abc"),
        (f"{WEB}/commit/0123abc", "0123abc"),
        (f"{WEB}/discussions/7#649e", "refs/pr/7"),
        ("http://hf.co/org/name", None),
    ],
)
def test_repositories(text: str, revision: str | None) -> None:
    assert parse(text) == Source("hub", "org/name", revision)
    assert parse(text, revision) == parse(text)


def test_the_own_hub_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:8000")
    assert parse("http://127.0.0.1:8000/org/name/tree/v2") == Source("hub", "org/name", "v2")


@pytest.mark.parametrize(
    "text", ["gone", ".", "./org/name", "../x@y", "a/b/c", "/abs", "~/x", "org/.name", "org/name/"]
)
def test_folders(text: str) -> None:
    assert parse(text) == Source("local", text)


def test_the_disk_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org" / "name").mkdir(parents=True)
    assert parse("org/name").kind == "local"
    assert parse("hf://org/name").kind == "hub"
    assert parse(Path("org/other")).kind == "local"
    (tmp_path / "b.tar.gz").write_bytes(b"\x1f\x8b")
    assert parse("b.tar.gz") == Source("bundle", "b.tar.gz")
    (tmp_path / "x.json").write_bytes(b"{}")
    assert parse("x.json").kind == "local"


@pytest.mark.parametrize(
    "text",
    [
        "org/name@",
        "org/name@a b",
        "org/name@../x",
        "org/na..me",
        "org/na--me@x",
        "hf://org",
        "hf://",
        "hf://org/name@",
        "hf://datasets/org/name",
        "hf://org/name/sub",
        f"{WEB}/tree/main/sub",
        f"{WEB}/blob/main/sub/config.json",
        f"{WEB}/settings",
        "https://huggingface.co/org",
        "https://huggingface.co/datasets/org/name",
        "https://evil.example/org/name",
        "https://user:hf_secret@evil.example/org/name",
        "https://[bad/org/name",
        "ftp://x/y",
        "s3://bucket/x",
    ],
)
def test_no_source(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert caught.value.hint
    assert "hf_secret" not in f"{caught.value} {caught.value.subject} {caught.value.hint}"


def test_revisions() -> None:
    assert parse("org/name", "v1").revision == "v1"
    with pytest.raises(UsageError, match="two revisions"):
        parse("org/name@v1", "v2")
    with pytest.raises(UsageError, match="only a repository"):
        parse(".", "v2")
