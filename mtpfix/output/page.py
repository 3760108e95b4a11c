"""One self-contained web page: its style and script inside, nothing loaded, no foreign string that acts.

The page's own policy names the hash of its one style sheet and its one script, so that a browser runs nothing else:
no handler in an attribute, no style in an attribute, no request.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterable
from functools import cache
from typing import Any

from mtpfix import packaged
from mtpfix.output.base import Page
from mtpfix.output.text import clean

SHOWN = Page(width=120)
# What could end or open an element inside a script element.
_UNSAFE = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def escaped(text: str) -> str:
    """A foreign string as text of a page or as the value of a quoted attribute; control characters as escapes."""
    return html.escape(clean(text, SHOWN), quote=True)


def code(text: str) -> str:
    """A foreign string as code, read from left to right whatever is in it."""
    return f"<code>{escaped(text)}</code>"


def element(tag: str, inner: str, **attributes: str) -> str:
    """An element around HTML. Attributes are foreign text; `class_` and `data_x` stand for `class` and `data-x`."""
    named = "".join(f' {key.strip("_").replace("_", "-")}="{escaped(value)}"' for key, value in attributes.items())
    return f"<{tag}{named}>{inner}</{tag}>"


def table(head: Iterable[str], rows: Iterable[Iterable[str]], **attributes: str) -> str:
    """A table in a box that scrolls by itself, by keyboard too; the cells are HTML."""
    titles = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    inner = f"<thead><tr>{titles}</tr></thead><tbody>{lines}</tbody>"
    box = {"class_": "scrolls", "tabindex": "0", "role": "region", "aria_label": "table"}
    return element("div", element("table", inner, **attributes), **box)


def embedded(value: Any) -> str:
    """JSON as the content of a script element that is not run."""
    return json.dumps(value, separators=(",", ":")).translate(_UNSAFE)


@cache
def asset(name: str) -> str:
    """A file of `assets/`, as it is shipped."""
    return packaged.text(f"output/assets/{name}")


def document(title: str, body: str, *, style: str = "", script: str = "", data: Any = None) -> str:
    """A whole page, in ASCII: a pipe of any encoding carries it.

    title   foreign text
    body    HTML in which every foreign string went through `escaped`
    style   CSS after the one that every page has (assets/page.css)
    script  JavaScript; it finds `data` by `JSON.parse(document.getElementById("data").textContent)`
    """
    sheet, program = asset("page.css") + style, script.encode("ascii", "backslashreplace").decode()
    policy = f"default-src 'none'; style-src '{_hash(sheet)}'; base-uri 'none'; form-action 'none'"
    scripts = ""
    if script:
        policy += f"; script-src '{_hash(program)}'"
        scripts = f'<script type="application/json" id="data">{embedded(data)}</script>\n<script>{program}</script>\n'
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n<meta name="color-scheme" content="light dark">\n'
        f"<title>{_ascii(escaped(title))}</title>\n<style>{sheet}</style>\n</head>\n"
        f"<body>\n{_ascii(body)}\n{scripts}</body>\n</html>\n"
    )


def _ascii(text: str) -> str:
    """HTML that is the same page in whatever encoding it is written."""
    return text.encode("ascii", "xmlcharrefreplace").decode()


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
