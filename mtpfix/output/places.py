"""Where findings and repairs stand in the text of a checkpoint's files: lines and columns, both from 1."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate

from mtpfix.errors import UnreadableError
from mtpfix.frozen import dataclass, field
from mtpfix.model import Finding, Location, Report, Source


@dataclass(frozen=True, slots=True)
class Region:
    """A stretch of text; `end_column` is the column behind its last character. Columns count characters."""

    line: int
    column: int
    end_line: int
    end_column: int


TOP = Region(1, 1, 1, 1)


@dataclass(frozen=True, slots=True)
class Replacement:
    """A stretch of a text that goes, and what takes its place."""

    region: Region
    text: str


@dataclass(frozen=True)
class Text:
    """A text and where its lines start."""

    text: str

    @cached_property
    def starts(self) -> list[int]:
        lengths = (len(line) + 1 for line in self.text.split("\n"))
        return list(accumulate(lengths, initial=0))

    def place(self, at: int) -> tuple[int, int]:
        """Line and column of a character."""
        line = bisect_right(self.starts, at) or 1
        return line, at - self.starts[line - 1] + 1

    def region(self, start: int, end: int) -> Region:
        return Region(*self.place(start), *self.place(end))


@dataclass(frozen=True)
class Places:
    """The places in one report's files. `known`: what was looked up, each file scanned once."""

    report: Report
    known: dict[Location, Region] = field(default_factory=dict)

    def of(self, finding: Finding) -> tuple[Location, ...]:
        """Where a finding stands: its locations, else the quantization configs, else config.json."""
        return finding.locations or self.report.configs or (Location("config.json", ""),)

    def region(self, place: Location) -> Region:
        """The entry that a location names, its first line where it has several; the top of a file without a text."""
        if place not in self.known:
            self._look_up(place.file)
        return self.known.get(place, TOP)

    def _look_up(self, file: str) -> None:
        every = (*self.report.configs, *(place for found in self.report.findings for place in found.locations))
        places = [place for place in dict.fromkeys(every) if place.file == file]
        raw = self.report.texts.get(file)
        self.known.update(zip(places, _regions(raw, places), strict=True) if raw is not None else ())


def _regions(raw: bytes, places: Sequence[Location]) -> list[Region]:
    from mtpfix import splice

    try:
        text, stretches = splice.stretches(raw, places[0].file, [place.pointer for place in places])
    except UnreadableError:
        return [TOP] * len(places)
    lines = Text(text)
    return [lines.region(start, _end_of_line(text, start, end)) for start, end in stretches]


def _end_of_line(text: str, start: int, end: int) -> int:
    """The end of a stretch, or of its first line where it has several."""
    return start + len(text[start:end].partition("\n")[0].rstrip())


def replacements(before: bytes, after: bytes) -> tuple[Replacement, ...]:
    """What turns one text into another, from its top to its end."""
    encoding = json.detect_encoding(before)
    old, new = before.decode(encoding, "backslashreplace"), after.decode(encoding, "backslashreplace")
    lines = Text(old)
    return tuple(Replacement(lines.region(start, end), text) for start, end, text in _exchanged(old, new))


def _exchanged(old: str, new: str) -> Iterator[tuple[int, int, str]]:
    """The stretches of a text that differ in another one, without what begins and ends alike in both."""
    from mtpfix import diff

    before, after = old.encode("utf-8", "surrogatepass"), new.encode("utf-8", "surrogatepass")
    here, there = Text(old).starts, Text(new).starts
    for block in diff.blocks(before, after):
        start, end = here[block.i], min(here[block.i2], len(old))
        text = new[there[block.j] : there[block.j2]]
        front = _alike(old[start:end], text)
        back = _alike(old[start + front : end][::-1], text[front:][::-1])
        yield start + front, end - back, text[front : len(text) - back]


def _alike(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    size = min(len(one), len(other))
    return next((at for at in range(size) if one[at] != other[at]), size)


def path(source: Source, file: str) -> str:
    """Where a file of a checkpoint is: a path for a directory, else an address under the source's name."""
    if source.kind == "hub":
        name = source.id + (f"@{source.revision}" if source.revision else "")
        return f"hf://{name}/{file}"
    return file if source.id in ("", ".") else f"{source.id.rstrip('/')}/{file}"
