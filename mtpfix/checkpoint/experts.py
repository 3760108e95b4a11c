"""Experts in a header, read many at a time: what the next ones must look like is written down and compared. Pure.

A large checkpoint is experts nearly alone, and in a header one follows the other: the same tensors of the same sizes
under the next number. So once one of them was read tensor by tensor, the text of those behind it is known but for their
numbers, and these can be looked up. To write that text with functions that are written in C and to compare it at once
costs half of reading tensor by tensor where they stand by the hundred, and they are kept as one. Only text that is
equal counts as read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import accumulate, chain
from operator import is_
from typing import Any

from mtpfix.frozen import NamedTuple
from mtpfix.modules import split_expert

_MOST = 1024  # experts that are looked for at once
_MORE = 4  # times as many as were found alike before
_MOST_ROWS = 64  # tensors of an expert
_MOST_RUNS = 64  # of one holder; more are kept module by module
_SLACK = 4  # characters by which a number and two offsets are shorter than those of the expert before
_SCALAR = 4  # bytes of a scale that is one number
_MOST_SCALARS, _CHUNK = 1 << 16, 1 << 8
_OFFSETS = 64  # characters that a number and two offsets take at most
_BEHIND = "\0"  # experts that were taken: whatever comes is another
_MOST_SEEN = 1 << 10  # kinds of experts that are remembered
_TRIES, _WORTH = 32, 4  # how often in vain experts may be compared with remembered ones, and how much a hit is worth


class Spelling(NamedTuple):
    """What stands between the offsets of a tensor and the next name, and between two offsets."""

    between: str
    comma: str


TIGHT = Spelling(']},"', ",")
LOOSE = Spelling(']}, "', ", ")


class _Row(NamedTuple):
    """A tensor of an expert: the rest of its module's name (`.down_proj`), what follows that, its bytes of data, and
    all text between the expert's number and the offsets."""

    rest: str
    tail: str
    size: int
    text: str


class Seen(dict[tuple[str, str], list[_Row]]):
    """The tensors of experts in the headers of a checkpoint so far, by the rest of the first one's module and its tail.

    What follows was mostly seen before, in another layer.
    """

    __slots__ = ()


class Taken(NamedTuple):
    """Where to go on in the header's text and in the data, and how many tensors were taken."""

    place: int
    data: int
    tensors: int


class Run:
    """Experts of a holder that are alike so far: their numbers, and by the rest of a module's name its node.

    before   how many single modules came before
    """

    __slots__ = ("before", "nodes", "numbers")

    def __init__(self, numbers: Iterable[str], nodes: Mapping[str, Any], before: int) -> None:
        self.numbers, self.nodes, self.before = dict.fromkeys(numbers), dict(nodes), before


class Experts:
    """Follows a header that is read tensor by tensor, and takes the experts that it can foretell.

    at       the expert whose tensors are being read, or ""
    end      where the offsets of the last tensor end
    modules  those read so far one by one, each with its node: `node[tail]` is a tensor's size and the node that it
             leads to, from `root` on
    seen     experts of other headers, which mostly look alike; is added to
    runs     holder (`model.layers.3.mlp.experts.`) -> what was taken; no expert is in `modules` and in a run
    """

    def __init__(
        self, text: str, end: int, modules: dict[str, Any], root: Any, seen: Seen, spelling: Spelling = TIGHT
    ) -> None:
        self.at = ""
        self.runs: dict[str, list[Run]] = {}
        self._seen = seen
        self._text, self._end, self._modules, self._root, self._spelling = text, end, modules, root, spelling
        self._holder = ""
        self._rows: list[_Row] = []  # of the expert before
        self._length = 0  # characters that one with these rows takes
        self._most, self._tries = _MOST, _TRIES
        self._known: dict[tuple[str, str], list[str]] = {}  # holder and number -> those that followed, itself first
        self._single: dict[str, set[str]] = {}  # holder -> numbers of the experts in `modules`

    def add(self, rest: str, tail: str, size: int) -> None:
        """A tensor of the expert `at` was read."""
        self._rows.append(_Row(rest, tail, size, f"{rest}.{tail}["))

    def turn(self, expert: str, place: int, data: int, first: tuple[str, str]) -> Taken | None:
        """Another expert than `at` begins: take it, and those behind it, if they are like the one before, or like some
        in another part of the checkpoint.

        first  the rest of the name of its first module, and the tail of its first tensor

        None where they are not; then its tensors are to be read.
        """
        holder, dot, number = expert.rpartition(".")
        holder += dot
        for rows in self._likely(holder, first):
            if rows is not self._rows:  # where an expert stands must not hang on what other headers hold
                self._part(holder, {number: None})
            self._holder, self._rows = holder, rows
            taken = self._take(holder, number, place, data)
            if taken:
                self.at, self._seen[first] = _BEHIND, rows
                self._tries = min(_TRIES, self._tries + _WORTH)
                return taken
        self.at, self._holder, self._rows = expert, holder, []
        if expert:
            self._part(holder, {number: None})
        return None

    def _likely(self, holder: str, first: tuple[str, str]) -> Iterator[list[_Row]]:
        """The tensors that an expert may have."""
        before = self._rows
        if holder == self._holder and 0 < len(before) <= _MOST_ROWS and before[0][:2] == first:
            yield before
        known = self._seen.get(first) if holder and self._tries else None
        if known and known is not before:
            self._tries -= 1
            yield known
        if len(self._seen) >= _MOST_SEEN:
            self._seen.clear()

    def _take(self, holder: str, number: str, place: int, data: int) -> Taken | None:
        """The experts at a place that have the tensors of the rows, as many as there are."""
        if not self._starts_alike(holder, number, place, data):
            return None
        for candidates in self._candidates(holder, number, place):
            numbers, end = self._agreed(holder, candidates, place, data)
            if numbers:
                self._known[holder, number] = numbers
                self._keep(holder, numbers)
                stride = sum(row.size for row in self._rows)
                return Taken(end, data + stride * len(numbers), len(numbers) * len(self._rows))
        return None

    # --- what the text says -------------------------------------------------------------------------------------------

    def _candidates(self, holder: str, number: str, place: int) -> Iterator[list[str]]:
        """The numbers that may follow one another from a place on, none twice: as they did in another part of the
        header, then as they stand there."""
        if (holder, number) in self._known:
            yield self._known[holder, number][: self._most]
        yield self._listed(holder, number, place)

    def _starts_alike(self, holder: str, number: str, place: int, data: int) -> bool:
        """Whether the expert at a place has the tensors of the rows and no more."""
        text, (between, comma), behind, opening = self._text, self._spelling, place, f"{holder}{number}"
        for row in self._rows:
            foretold = f"{opening}{row.text}{data}{comma}{data + row.size}"
            if not text.startswith(foretold, behind):
                return False
            behind, data, opening = behind + len(foretold), data + row.size, f"{between}{holder}{number}"
        self._length = behind - place + len(between)
        return self._is_over(behind) and not text.startswith(f"{opening}.", behind)

    def _is_over(self, place: int) -> bool:
        """Whether the offsets of a tensor end at a place: another one follows, or none."""
        return place == self._end or self._text.startswith(self._spelling.between, place)

    def _listed(self, holder: str, number: str, place: int) -> list[str]:
        """The numbers of the experts at a place, the first of which is known, and behind it; none where a number is
        there twice."""
        text, mark, numbers = self._text, self._rows[0].text, list[str]()
        slack, size, width = len(self._rows) * _SLACK, len(holder), len(number)
        least, most = max(self._length - slack, 1), self._length + slack + _OFFSETS + len(mark)
        stop, stride = place + size + width, self._length
        while stop >= 0 and len(numbers) < self._most:
            if not text.startswith(holder, stop - width - size):
                width = stop - text.rfind(".", place, stop) - 1
                if not text.startswith(holder, stop - width - size):
                    break
            numbers.append(text[stop - width : stop])
            alike = text.startswith(mark, stop + stride)  # as far away as the one before
            place, stop = stop, stop + stride if alike else text.find(mark, stop + least, stop + most)
            stride = stop - place
        if len({*numbers}) == len(numbers) and "".join(numbers).isdecimal():
            return numbers
        self._most = max(_MORE, self._most // _MORE)  # else each expert would be looked at as often as many are listed
        return []

    def _agreed(self, holder: str, numbers: list[str], place: int, data: int) -> tuple[list[str], int]:
        """The first experts of these that stand at a place as foretold, and where they end."""
        if not numbers:
            return [], place
        between = self._spelling.between
        foretold, whole = _foretold(holder, numbers, self._rows, data, self._spelling), len(numbers)
        end = len(foretold)
        if not (self._text.startswith(foretold, place) and self._is_over(place + end)):
            whole = foretold.count(between, 0, _equal(self._text, place, foretold)) // len(self._rows)
            end = foretold.find(f"{between}{holder}{numbers[whole]}{self._rows[0].text}")
        self._most = min(_MOST, max(self._most, _MORE * whole)) if whole else max(_MORE, self._most // _MORE)
        return numbers[:whole], place + end + len(between)

    # --- what is kept -------------------------------------------------------------------------------------------------

    def _keep(self, holder: str, numbers: Sequence[str]) -> None:
        """Add the rows to these experts."""
        tails: dict[str, list[str]] = {}
        for row in self._rows:
            tails.setdefault(row.rest, []).append(row.tail)
        runs, left = self.runs.setdefault(holder, []), dict.fromkeys(numbers)
        if len(runs) >= _MOST_RUNS:
            self._part(holder, left)
        single = self._single.get(holder)
        if single and not left.keys().isdisjoint(single):
            self._keep_singly(holder, [number for number in left if number in single], tails, left)
        for run in tuple(runs):
            same = run.numbers == left
            common = [*left] if same else [number for number in run.numbers if number in left]
            if 0 < len(common) < len(run.numbers):
                away = {*common}
                runs.append(Run((number for number in run.numbers if number not in away), run.nodes, run.before))
                run.numbers = dict.fromkeys(common)
            if common:
                self._lead(run, tails)
                left = {} if same else {number: None for number in left if number not in run.numbers}
            if not left:
                return
        if left:
            runs.append(Run(left, {}, len(self._modules)))
            self._lead(runs[-1], tails)

    def close(self) -> None:
        """Experts that were read by themselves, each right before a run and like those of the run, join it."""
        names, gone, last = [*self._modules], 0, -1
        for holder, run in self.by_place():
            before = names[max(run.before - len(run.nodes), 0) : run.before] if run.before != last else []
            last, run.before = run.before, run.before - gone
            number = self._alike(before, holder, run)
            if number:
                run.numbers = {number: None, **run.numbers}
                run.before, gone = run.before - len(before), gone + len(before)
                for name in before:
                    del self._modules[name]

    def _alike(self, names: Sequence[str], holder: str, run: Run) -> str:
        """The number of the expert that single modules make up, if it is like those of a run, else ""."""
        number = split_expert(names[0])[1] if names else ""
        if not number.isdecimal() or names != [f"{holder}{number}{rest}" for rest in run.nodes]:
            return ""
        nodes = map(self._modules.__getitem__, names)
        return number if all(map(is_, nodes, run.nodes.values())) else ""

    def by_place(self) -> list[tuple[str, Run]]:
        """The runs with their holders, in the order of the header."""
        found = [(holder, run) for holder, some in self.runs.items() for run in some if run.numbers]
        return sorted(found, key=lambda row: row[1].before)

    def _lead(self, run: Run, tails: Mapping[str, Sequence[str]]) -> None:
        for rest, added in tails.items():
            run.nodes[rest] = _led(run.nodes.get(rest, self._root), added)

    def _keep_singly(
        self, holder: str, numbers: Iterable[str], tails: Mapping[str, Sequence[str]], left: dict[str, None]
    ) -> None:
        for number in numbers:
            for rest, added in tails.items():
                name = f"{holder}{number}{rest}"
                self._modules[name] = _led(self._modules.get(name, self._root), added)
            del left[number]

    def _part(self, holder: str, numbers: Mapping[str, None]) -> None:
        """Keep these experts module by module from now on."""
        self._single.setdefault(holder, set()).update(numbers)
        for run in self.runs.get(holder, ()):
            for number in [number for number in numbers if number in run.numbers]:
                del run.numbers[number]
                self._modules.update((f"{holder}{number}{rest}", node) for rest, node in run.nodes.items())


def _led(node: Any, tails: Sequence[str]) -> Any:
    for tail in tails:
        node = node[tail][1]
    return node


def _equal(text: str, place: int, other: str) -> int:
    """How many characters at a place are those of another text."""
    low, high = 0, len(other)
    while low < high:
        middle = (low + high + 1) // 2
        if text.startswith(other[low:middle], place + low):
            low = middle
        else:
            high = middle - 1
    return low


def _foretold(holder: str, numbers: list[str], rows: Sequence[_Row], data: int, spelling: Spelling) -> str:
    """The text of experts of these numbers, from the first name to the last offset."""
    between, comma = spelling
    columns = _offsets([row.size for row in rows] * len(numbers), data, comma)
    width = 1 + 2 * len(columns)  # pieces of a tensor: its name, the text behind it, offsets with the comma between
    parts = [piece for row in rows for piece in ("", row.text, "", comma, "")[:width]] * len(numbers)
    experts = [f"{between}{holder}{number}" for number in numbers]
    for at in range(len(rows)):
        parts[at * width :: len(rows) * width] = experts
    for at, column in enumerate(columns):
        parts[2 + 2 * at :: width] = column
    parts[0] = parts[0][len(between) :]
    return "".join(parts)


def _offsets(sizes: list[int], data: int, comma: str) -> tuple[list[str], ...]:
    """The offsets of tensors of these sizes from a place in the data on, both as one text or the two by themselves."""
    first, odd = divmod(data, _SCALAR)
    end = first + len(sizes)
    if not odd and end < _MOST_SCALARS and sizes.count(_SCALAR) == len(sizes):
        some = [*chain.from_iterable(map(partial(_scalars, comma), range(first // _CHUNK, end // _CHUNK + 1)))]
        return (some[first % _CHUNK : first % _CHUNK + len(sizes)],)
    texts = [*map(repr, accumulate(sizes, initial=data))]
    return texts[:-1], texts[1:]


@lru_cache(maxsize=2 * _MOST_SCALARS // _CHUNK)
def _scalars(comma: str, chunk: int) -> list[str]:
    """The offsets of scalars that follow one another: every shard has them, and they come first."""
    return [
        f"{at}{comma}{at + _SCALAR}" for at in range(chunk * _CHUNK * _SCALAR, (chunk + 1) * _CHUNK * _SCALAR, _SCALAR)
    ]
