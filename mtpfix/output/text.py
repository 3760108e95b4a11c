"""Text for people: foreign strings made harmless, lines that fit, tables, colour."""

from __future__ import annotations

import shlex
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache

from mtpfix.frozen import dataclass
from mtpfix.names import brief
from mtpfix.output.base import Page
from mtpfix.tokens import masked

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_PLAIN_SPELLING = str.maketrans(
    {"–": "-", "—": "-", "−": "-", "…": "...", "×": "x", "·": "-", "→": "->", "≥": ">=", "≤": "<=", "≠": "!=", "∪": "|"}
    | {"‘": "'", "’": "'", "“": '"', "”": '"', "✓": "+", "✗": "x", "✅": "+", "❌": "x", "⚠": "!", "\ufe0f": ""}
)
_BREAK_AFTER = (frozenset("./,:}"), frozenset("_-="))
_NARROWEST = 8
_LONGEST = 2000  # characters of a word: no real name is a tenth of it, and a hostile one would fill the screen
_WIDEST_TEXT = 110
_GAP = "  "


def clean(text: str, page: Page) -> str:
    """A foreign string, safe and showable: no token; control, format, right-to-left characters as escapes; one line."""
    text = masked(text)
    if not text.isascii() or not text.isprintable():
        text = "".join(char if char.isprintable() else _escaped(char) for char in text)
    return spelled(text, page)


def spelled(text: str, page: Page) -> str:
    """A text in the characters that the page has: our own signs in plain spelling, others as escapes."""
    try:
        text.encode(page.encoding)
    except (UnicodeEncodeError, LookupError):
        text = text.translate(_PLAIN_SPELLING).encode("ascii", "backslashreplace").decode("ascii")
    return text


def _escaped(char: str) -> str:
    code = ord(char)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def paint(text: str, page: Page, *styles: str) -> str:
    """The text in these styles (`bold`, `dim`, a colour's name), or as it is where colour is not welcome."""
    codes = [_CODES[style] for style in styles]
    return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if page.colour and codes and text else text


def cells(text: str) -> int:
    """The columns that a text takes on a terminal."""
    return len(text) if text.isascii() else _wide(text)


@lru_cache(maxsize=1 << 10)
def _wide(text: str) -> int:
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def padded(text: str, width: int) -> str:
    """The text, filled with spaces up to a width in columns."""
    return text + " " * (width - cells(text))


def wrapped(text: str, width: int, more: int = 0) -> list[str]:
    """Lines of at most this width, the first may be longer by `more`; words that are longer than a line break after
    a dot, slash or comma where they can. A word without end is cut."""
    lines = [""]
    for word in text.split():
        for piece in _pieces(brief(word, _LONGEST), max(width, 1)):
            joined = f"{lines[-1]} {piece}" if lines[-1] else piece
            if cells(joined) <= width + (more if len(lines) == 1 else 0):
                lines[-1] = joined
            else:
                lines.append(piece)
    return lines


def _pieces(word: str, width: int) -> list[str]:
    pieces = []
    while cells(word) > width:
        limit = _fitting(word, width)
        places = (at for good in _BREAK_AFTER for at in range(limit, limit // 2, -1) if word[at - 1] in good)
        cut = next(places, limit)
        pieces.append(word[:cut])
        word = word[cut:]
    return [*pieces, word]


def _fitting(word: str, width: int) -> int:
    """How many characters fit into a width, at least one."""
    if word.isascii():
        return min(max(width, 1), len(word))
    total = 0
    for at, char in enumerate(word):
        total += cells(char)
        if total > width:
            return max(at, 1)
    return len(word)


def paragraph(text: str, page: Page, indent: str = "", hanging: str | None = None) -> list[str]:
    """A foreign text as lines that fit the page, indented; on a wide page it stays a column that can be read."""
    rest = indent if hanging is None else hanging
    lines = wrapped(clean(text, page), min(page.width, _WIDEST_TEXT) - len(rest), len(rest) - len(indent))
    return [(rest if at else indent) + line for at, line in enumerate(lines)]


def labelled(pairs: Iterable[tuple[str, Sequence[str]]], page: Page, indent: str = "  ") -> list[str]:
    """Labels in one column, their texts in the next; every text starts on a line of its own."""
    rows = [(label, texts) for label, texts in pairs if texts]
    column = max((len(label) for label, _ in rows), default=0)
    lines = []
    for label, texts in rows:
        head = label
        for text in texts:
            for line in wrapped(clean(text, page), page.width - len(indent) - column - len(_GAP)):
                lines.append((indent + paint(padded(head, column), page, "cyan") + _GAP + line).rstrip())
                head = ""
    return lines


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table and its styles; the text must be clean already. `then`: what it turns into, after an arrow."""

    text: str
    styles: tuple[str, ...] = ()
    then: Cell | None = None


def table(rows: Sequence[Sequence[Cell]], page: Page, indent: str = "  ") -> list[str]:
    """Rows as aligned columns; the widest columns wrap until the rows fit the page."""
    if not rows:
        return []
    widths = _widths(rows, page.width - len(indent), page)
    return [line for row in rows for line in _row_lines(row, widths, page, indent)]


def _whole(cell: Cell, page: Page) -> str:
    return cell.text if cell.then is None else f"{cell.text}{_arrow(page)}{cell.then.text}"


def _arrow(page: Page) -> str:
    return clean(" → ", page)


def _cell_lines(cell: Cell, width: int, page: Page) -> list[tuple[str, int]]:
    """The lines of a cell, painted, and the columns that each takes; what it turns into stands below if need be."""
    if cell.then is None:
        return [(paint(line, page, *cell.styles), cells(line)) for line in wrapped(cell.text, width)]
    if cells(_whole(cell, page)) > width:
        then = Cell(f"{_arrow(page).lstrip()}{cell.then.text}", cell.then.styles)
        return [*_cell_lines(Cell(cell.text, cell.styles), width, page), *_cell_lines(then, width, page)]
    halves = paint(cell.text, page, *cell.styles), paint(cell.then.text, page, *cell.then.styles)
    return [(_arrow(page).join(halves), cells(_whole(cell, page)))]


def _widths(rows: Sequence[Sequence[Cell]], room: int, page: Page) -> list[int]:
    room -= len(_GAP) * (len(rows[0]) - 1)
    widths = [min(max(cells(_whole(row[at], page)) for row in rows), room) for at in range(len(rows[0]))]
    while sum(widths) > room and max(widths) > _NARROWEST:
        widths[widths.index(max(widths))] -= 1
    return widths


def _row_lines(row: Sequence[Cell], widths: Sequence[int], page: Page, indent: str) -> list[str]:
    columns = [_cell_lines(cell, width, page) for cell, width in zip(row, widths, strict=True)]
    lines = []
    for at in range(max(map(len, columns))):
        last = max(place for place, column in enumerate(columns, 1) if at < len(column))
        texts = (column[at] if at < len(column) else ("", 0) for column in columns[:last])
        parts = [text + " " * (width - taken) for width, (text, taken) in zip(widths, texts, strict=False)]
        lines.append((indent + _GAP.join(parts)).rstrip())
    return lines


def plural(count: int, noun: str) -> str:
    """`1 module`, `2 modules`, `1,553 tensors`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def typed(path: str) -> str:
    """A path as a shell takes it; one that begins with a dash is no option."""
    return shlex.quote(f"./{path}" if path.startswith("-") else path)


def listed(words: Sequence[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    return f" {last} ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def page_text(lines: Iterable[str]) -> str:
    """Lines as a text that ends with a line end; no line, no text."""
    return "".join(f"{line}\n" for line in lines)
