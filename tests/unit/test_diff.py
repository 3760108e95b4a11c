"""The unified diff: what `patch` and git read, in time that stays near linear."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtpfix.diff import unified

LINES = st.lists(st.sampled_from(["a", "b", "c", "  d", "e\r", "", "é", "-- x", "@@"]), max_size=25)
TEXTS = st.tuples(LINES, st.booleans()).map(lambda row: ("\n".join(row[0]) + "\n" * row[1]).encode())


def applied(diff: str, text: bytes) -> bytes:
    """What a strict reader of unified diffs makes of a text."""
    lines = text.split(b"\n")
    lines = [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    out: list[bytes] = []
    place = 0
    rows = diff.encode().split(b"\n")[2:-1]
    for number, row in enumerate(rows):
        mark, body = row[:1], row[1:] + b"\n"
        if rows[number + 1 : number + 2] == [b"\\ No newline at end of file"]:
            body = body[:-1]
        if row.startswith(b"@@ -"):
            start, _, count = row.split(b" ")[1][1:].partition(b",")
            stop = int(start) - (count != b"0")
            out += lines[place:stop]
            place = stop
        elif mark in (b" ", b"-"):
            assert lines[place] == body
            place += 1
        if mark in (b" ", b"+"):
            out.append(body)
    return b"".join(out + lines[place:])


def test_a_diff() -> None:
    before = json.dumps({"a": 1, "b": [1, 2], "c": 3, "d": 4, "e": 5, "f": 6}, indent=2).encode()
    after = before.replace(b"    2\n", b"    2,\n    3\n")
    assert unified({"config.json": before, "same.json": b"1"}, {"config.json": after, "same.json": b"1"}) == (
        "--- a/config.json\n+++ b/config.json\n@@ -2,7 +2,8 @@\n"
        '   "a": 1,\n   "b": [\n     1,\n-    2\n+    2,\n+    3\n   ],\n   "c": 3,\n   "d": 4,\n'
    )


def test_the_end_of_a_file() -> None:
    assert unified({"x": b"a"}, {"x": b"b\n"}) == (
        "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n"
    )
    assert unified({"x": b""}, {"x": b"a\n"}) == "--- a/x\n+++ b/x\n@@ -0,0 +1 @@\n+a\n"


def test_other_bytes_and_names() -> None:
    assert "-\\xff\n" in unified({"x": b"\xff\n"}, {"x": b"\n"})
    assert unified({"x\x1b": b"\0"}, {"x\x1b": b"1"}) == 'Binary files "a/x\\u001b" and "b/x\\u001b" differ\n'


@settings(max_examples=200, deadline=None)
@given(TEXTS, TEXTS, st.integers(0, 3))
def test_a_diff_leads_from_before_to_after(before: bytes, after: bytes, context: int) -> None:
    diff = unified({"x": before}, {"x": after}, context=context)
    assert (diff == "") == (before == after)
    assert applied(diff, before) == after


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_git_applies_it(tmp_path: Path) -> None:
    before = json.dumps({f"k{n}": [n, "x"] for n in range(200)}, indent=2).encode()
    after = before.replace(b'"k7"', b'"k8"').replace(b"   150,", b"   150,\n   1,").replace(b"\n}", b"\n}\n")
    (tmp_path / "x.json").write_bytes(before)
    diff = unified({"x.json": before}, {"x.json": after}).encode()
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=diff, check=True)
    assert (tmp_path / "x.json").read_bytes() == after


@pytest.mark.parametrize("line", ['    "k{}": "v",', '    "same"'])
def test_large_files(line: str) -> None:
    rows = [line.format(number) for number in range(100_000)]
    changed = [f"new {number}" if number % 500 == 0 else row for number, row in enumerate(rows)]
    before, after = "\n".join(rows).encode(), "\n".join(changed).encode()
    start = time.process_time()
    diff = unified({"x": before}, {"x": after})
    assert time.process_time() - start < 3
    assert applied(diff, before) == after
