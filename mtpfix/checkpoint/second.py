"""A second reader of a large checkpoint: another process, where a processor is idle.

It reads shards from the last one on until it meets the first reader, and then compares the index with all of them,
while the first one goes on as if that had turned out well. Headers and index of a large checkpoint take as long as
everything else, so that halves the time. What it cannot do is done by the first reader, and nobody is told.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from mtpfix.checkpoint.apart import Ends, Line, Process, possible
from mtpfix.checkpoint.collect import Collector
from mtpfix.checkpoint.index_text import agrees
from mtpfix.checkpoint.reading import Files, collect, json_pieces
from mtpfix.model import JsonFile

_MUCH = 4 << 20  # bytes of headers that are worth another process,
_FEW = 4  # which as few shards are not
_RIGHT = b"right"

Meanwhile = Callable[[Mapping[str, JsonFile]], object]


class Second:
    """The second reader of one checkpoint; to be used in a `with` statement, behind which it is gone.

    meanwhile  what there is to do for this process, with the JSON files, while the other one begins
    presumes   who uses the checkpoint asks in the end whether what was presumed is `confirmed`
    """

    def __init__(self, meanwhile: Meanwhile = lambda _: None, *, presumes: bool = False) -> None:
        self._meanwhile, self._presumes = meanwhile, presumes
        self._process: Process | None = None
        self._here: tuple[int, bytes] | None = None  # how many shards were read here, and what they hold
        self._asked = False

    def __enter__(self) -> Second:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process:
            self._process.end()

    def collect(
        self, collector: Collector, files: Files, shards: Sequence[str], parsed: Mapping[str, JsonFile]
    ) -> None:
        """Take in the shards. Raises UnreadableError for one that is broken."""
        read, there = 0, None
        if _worth_it(files, shards) and (begun := self._begun(files, shards)):
            process, ends = begun
            self._meanwhile(parsed)
            for place in ends.front():
                collect(collector, files, shards[place : place + 1])
                read = place + 1
            self._here = (read, collector.packed()) if self._presumes else None
            there = process.line.receive()
        if there is None or not collector.unpack(there, shards[read:]):
            self._here = None
            collect(collector, files, shards[read:])

    def _begun(self, files: Files, shards: Sequence[str]) -> tuple[Process, Ends] | None:
        try:
            ends = Ends(len(shards))
            self._process = Process(partial(_serve, files, shards, ends))
        except OSError:
            return None
        return self._process, ends

    def presume(self, index: str) -> bool:
        """Whether to go on as if an index said what the headers say, and no expert were stored in two shards: the other
        process looks meanwhile."""
        if self._process and self._here:
            self._asked = self._process.line.send(marshal.dumps((index, *self._here)))
        return self._asked

    def confirmed(self) -> bool:
        """Whether what was presumed is so, once that is known."""
        return not (self._process and self._asked) or self._process.line.receive() == _RIGHT


def _worth_it(files: Files, shards: Sequence[str]) -> bool:
    """Whether shards like the first one are work for two processes."""
    if len(shards) < _FEW or not possible():
        return False
    return sum(len(header) for _, header, _ in files.headers(shards[:1])) * len(shards) > _MUCH


def _serve(files: Files, shards: Sequence[str], ends: Ends, line: Line) -> None:
    """Read shards, tell what they hold, be told what the others hold, and say whether the index says so, too."""
    collector = Collector()
    for place in ends.back():
        collect(collector, files, shards[place : place + 1])
    here = collector.packed()
    line.send(here)
    asked = line.receive()
    if asked is not None:
        index, read, there = marshal.loads(asked)  # noqa: S302 - from this very program
        whole = Collector()
        held = whole.unpack(there, shards[:read]) and whole.unpack(here, shards[read:])
        line.send(_RIGHT if held and _in_step(whole, index, files) else b"")


def _in_step(whole: Collector, index: str, files: Files) -> bool:
    """Whether every expert is stored in one shard, no tensor twice, and the index says so."""
    if whole.overlaps():
        return False
    whole.settle(overlaps=False)
    with json_pieces(files, index) as pieces:
        return whole.comparable and agrees(index, pieces, whole.modules, whole.by_shard())
