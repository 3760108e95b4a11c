"""A page by itself: what it may load, and foreign strings in it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from mtpfix.output import page

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "\"onmouseover='alert(1)'",
    "]]>&amp;&lt;",
    "\u202egnp.exe\u2066",
    "\x1b[2Jgone\x00\x07",
    "line\u2028separator\u2029",
    "\ud800alone",
]


class _Read(HTMLParser):
    """What a parser makes of a page: tags with their attributes, and texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_foreign_string_stays_text(text: str) -> None:
    body = page.element("p", page.escaped(text), title=text) + page.code(text)
    read = _Read(page.document(text, body, script="0;", data={text: [text]}))
    assert [tag for tag, _ in read.tags].count("script") == 2
    assert {key for tag, attrs in read.tags if tag == "p" for key in attrs} == {"title"}
    shown = "".join(read.texts)
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069]", shown)


@pytest.mark.parametrize("text", HOSTILE[:-1])
def test_embedded_data_reads_back_and_cannot_leave_its_element(text: str) -> None:
    written = page.embedded({"name": text})
    assert json.loads(written) == {"name": text}
    assert not set("<>&\u2028\u2029") & set(written)


def test_the_policy_allows_this_style_and_this_script_and_nothing_else() -> None:
    text = page.document("t", "<p>b</p>", style="p{}", script="void 0;", data=1)
    policy = re.search('Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy[1].split(";"))
    assert rules["default-src"] == "'none'"
    for tag, rule in (("style", "style-src"), ("script", "script-src")):
        (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert rules[rule] == f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def test_a_page_without_a_script_runs_none() -> None:
    text = page.document("t", "<p>b</p>")
    assert "<script" not in text
    assert "script-src" not in text


def test_a_page_is_the_same_in_any_encoding() -> None:
    text = page.document("名 ✓", "<p>✓ מודל × 𝒳</p>", style=page.asset("map.css"), script="const a = '✓×';", data="✓")
    assert text.isascii()
    assert "✓ מודל × 𝒳" in "".join(_Read(text).texts)
    assert "const a = '\\u2713\\xd7';" in text


def test_a_page_names_no_address() -> None:
    assert not re.search("https?://|src=|href=|url\\(|@import", page.document("t", "<p>b</p>", script="0;"))


def test_attributes_are_spelled_as_html_spells_them() -> None:
    assert page.element("b", "x", class_="a", data_at="1") == '<b class="a" data-at="1">x</b>'
