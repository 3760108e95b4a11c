"""Headers of many shards to the modules of one checkpoint. Pure."""

from __future__ import annotations

import marshal
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import repeat

from mtpfix.checkpoint.canonical import Folded, Tails, fold
from mtpfix.checkpoint.experts import Seen
from mtpfix.checkpoint.headers import (
    LENGTH_BYTES,
    MAX_ALL_BYTES,
    MAX_MODULES,
    MAX_TENSORS,
    beyond,
    check_room,
    decode,
)
from mtpfix.model import Cell, RawModule, Shard, Tensor
from mtpfix.modules import Block, Cells, Modules, split_expert
from mtpfix.names import is_plain, split_name, tensor_name

Row = tuple[str, str, tuple[int, ...]]
WeightMap = Mapping[str, str]

_BLANKS = b" " * 64


class Collector:
    """Gathers shards in the order in which engines load them.

    duplicates  the copies of tensors that lost against another shard's, after `settle`
    plain       no name of a tensor or shard needs an escape in JSON
    """

    def __init__(self) -> None:
        self.shards: list[Shard] = []
        self.tensor_count = 0
        self.plain = True
        self.duplicates: tuple[Tensor, ...] = ()
        self._lengths: dict[str, int] = {}  # of headers
        self._read = 0  # their sum
        self._root = Tails()
        self._seen = Seen()
        self._equal: dict[Cells, Cells] = {}
        self._parts: list[tuple[str, Folded]] = []
        self._clear()

    def _clear(self) -> None:
        self._singles: dict[str, RawModule] = {}
        self._blocks: list[Block] = []
        self._count = 0  # of the modules in both
        self._spread: dict[str, list[tuple[str, Cells]]] = {}

    @property
    def modules(self) -> Modules:
        """The modules by name, in shard and header order; complete after `settle`."""
        return Modules(self._singles, self._blocks)

    @property
    def comparable(self) -> bool:
        """Whether the text of an index that says the same can be foretold."""
        return self.plain and not self.duplicates

    def by_shard(self) -> Iterator[Modules]:
        """What each shard holds by itself, in the order in which they came."""
        for shard, folded in self._parts:
            singles = dict(zip(folded.singles, _raw_modules(folded.singles, shard), strict=True))
            yield Modules(singles, [block._replace(shard=shard) for block in folded.blocks])

    def add_header(self, shard: str, header: bytes, size: int) -> None:
        """Take in a shard of `size` bytes by its header. Raises UnreadableError for an invalid one."""
        data_bytes = size - LENGTH_BYTES - len(header)
        self._count_read(shard, len(header))
        if header.endswith(_BLANKS) and not header[len(header) // 2 :].strip(b" "):
            header = header.rstrip(b" ")  # of 100 MB, all padding, nothing is copied
        check_room(header, self.tensor_count, shard)
        folded = fold(header, data_bytes, self._root, self._seen)
        if folded is not None:
            self._add(shard, size, folded)
        else:
            self.add_rows(shard, (entry[:3] for entry in decode(header, data_bytes, shard)), size)

    def add_rows(self, shard: str, rows: Iterable[Row], size: int) -> None:
        """Take in a shard by its tensors' names, dtypes and shapes (each name once), in header order."""
        grouped: dict[str, list[Cell]] = {}
        count = 0
        for name, dtype, shape in rows:
            module, suffix = split_name(name)
            grouped.setdefault(module, []).append(Cell(suffix, dtype, shape))
            self.plain = self.plain and is_plain(name)
            count += 1
        singles = {module: self._shared(tuple(cells)) for module, cells in grouped.items()}
        self._add(shard, size, Folded(count, singles))

    def packed(self) -> bytes:
        """The shards so far, for another collector in a process of the same program."""
        table: dict[Cells, int] = {}
        rows = [
            (
                shard.name,
                shard.size,
                self._lengths.get(shard.name, 0),
                folded.tensors,
                {name: table.setdefault(cells, len(table)) for name, cells in folded.singles.items()},
                [
                    (
                        *block[:2],
                        {rest: table.setdefault(cells, len(table)) for rest, cells in block.cells.items()},
                        block.before,
                    )
                    for block in folded.blocks
                ],
            )
            for shard, (_, folded) in zip(self.shards, self._parts, strict=True)
        ]
        return marshal.dumps((self.plain, [[tuple(cell) for cell in cells] for cells in table], rows))

    def unpack(self, packed: bytes | bytearray, shards: Sequence[str]) -> bool:
        """Take in these shards of another collector, as if they had been added here; False where it lacks one."""
        plain, table, rows = marshal.loads(packed)  # noqa: S302 - from this very program
        by_name = {row[0]: row for row in rows}
        if not by_name.keys() >= {*shards}:
            return False
        known = [self._shared(tuple(Cell(*cell) for cell in cells)) for cells in table]
        self.plain = self.plain and plain
        for shard in shards:
            _, size, length, tensors, singles, blocks = by_name[shard]
            self._count_read(shard, length)
            held = [
                Block(holder, numbers, {rest: known[at] for rest, at in cells.items()}, before)
                for holder, numbers, cells, before in blocks
            ]
            folded = Folded(tensors, {name: known[at] for name, at in singles.items()}, tuple(held))
            self._add(shard, size, folded)
        return True

    def settle(self, opened: Collection[str] = (), *, overlaps: bool | None = None) -> None:
        """Join modules that lie in several shards. Of a tensor with several copies the last of `opened` is kept, which
        is what loading them leaves, or the last of all where no file that engines open holds one.

        overlaps  whether a module of a block is stored in another shard, too; None: see for yourself
        """
        if self.overlaps() if overlaps is None else overlaps:
            self._part()
        lost: list[Tensor] = []
        for name, parts in self._spread.items():
            module = join(name, parts, opened, lost)
            self._singles[name] = module._replace(cells=self._shared(module.cells))
        self.duplicates = tuple(lost)

    def unlist(self, names: Iterable[str]) -> None:
        """Say of these modules that they lie in files that the index does not name."""
        self._singles, self._blocks = self.modules.whole, []
        self._singles.update((name, self._singles[name]._replace(listed=False)) for name in names)

    def _count_read(self, shard: str, count: int) -> None:
        self._lengths[shard] = count
        self._read += count
        if self._read > MAX_ALL_BYTES:
            raise beyond(shard, f"with its header all are {self._read:,} bytes, above the limit of {MAX_ALL_BYTES:,}")

    def _add(self, shard: str, size: int, folded: Folded) -> None:
        self.shards.append(Shard(shard, folded.tensors, size))
        self.plain = self.plain and is_plain(shard)
        self.tensor_count += folded.tensors
        if self.tensor_count > MAX_TENSORS:
            raise beyond(shard, f"with it {self.tensor_count:,} tensors are above the limit of {MAX_TENSORS:,}")
        self._parts.append((shard, folded))
        self._take(shard, folded.singles, folded.blocks)
        if self._count > MAX_MODULES:
            raise beyond(shard, f"with it {self._count:,} modules are above the limit of {MAX_MODULES:,}")

    def _take(self, shard: str, singles: Mapping[str, Cells], blocks: Sequence[Block]) -> None:
        before, lost = len(self._singles), list[int]()  # places of modules that stand already, with another shard
        if not self._singles.keys().isdisjoint(singles):
            lost = [at for at, name in enumerate(singles) if name in self._singles]
            for name in sorted(singles.keys() & self._singles.keys()):
                seen = self._singles[name]
                self._spread.setdefault(name, [(seen.shard, seen.cells)]).append((shard, singles[name]))
            singles = {name: cells for name, cells in singles.items() if name not in self._singles}
        self._singles.update(zip(singles, _raw_modules(singles, shard), strict=True))
        places = (before + block.before - bisect_left(lost, block.before) for block in blocks)
        added = [block._replace(shard=shard, before=place) for block, place in zip(blocks, places, strict=True)]
        self._blocks += added
        self._count += len(self._singles) - before + sum(block.size for block in added)

    def overlaps(self) -> bool:
        """Whether a module of a block is stored in another shard, too."""
        held: dict[tuple[str, str], set[str]] = {}  # what stands around the numbers of experts -> the numbers
        for block in self._blocks:
            for rest in block.cells:
                numbers = held.setdefault((block.holder, rest), set())
                count = len(numbers) + len(block.numbers)
                numbers.update(block.numbers)
                if len(numbers) < count:
                    return True
        singles = map(split_expert, self._singles) if held else ()
        return any(number in held.get((holder, rest), ()) for holder, number, rest in singles)

    def _part(self) -> None:
        """Hold all modules one by one."""
        self._clear()
        for shard, folded in self._parts:
            self._take(shard, folded.modules, ())

    def _shared(self, cells: Cells) -> Cells:
        return self._equal.setdefault(cells, cells)


def join(name: str, parts: Iterable[tuple[str, Cells]], opened: Collection[str], lost: list[Tensor]) -> RawModule:
    """A module from its parts in several shards, in the order in which they are read; copies that lose go to `lost`.

    A part in a file that engines do not open goes as a whole where files that they open hold one of its tensors: it is
    another version of the module, whose scales belong to no weight that is loaded.
    """
    parts = tuple(parts)
    held_open = {cell.suffix for shard, cells in parts if shard in opened for cell in cells}
    old = {shard for shard, cells in parts if shard not in opened and any(cell.suffix in held_open for cell in cells)}
    lost.extend(
        Tensor(tensor_name(name, cell.suffix), cell.dtype, cell.shape, shard)
        for shard, cells in parts
        if shard in old
        for cell in cells
    )
    copies: dict[str, list[tuple[Cell, str]]] = {}
    for shard, cells in parts:
        for cell in cells if shard not in old else ():
            copies.setdefault(cell.suffix, []).append((cell, shard))
    kept: dict[Cell, str] = {}
    for suffix, held in copies.items():
        winner = next((copy for copy in reversed(held) if copy[1] in opened), held[-1])
        kept[winner[0]] = winner[1]
        tensor = tensor_name(name, suffix)
        lost.extend(Tensor(tensor, cell.dtype, cell.shape, shard) for cell, shard in held if shard != winner[1])
    shards = tuple(kept.values())
    return RawModule(name, tuple(kept), shards[0], shards=shards if len(set(shards)) > 1 else ())


def _raw_modules(part: Mapping[str, Cells], shard: str) -> Iterable[RawModule]:
    # As tuples, without calling `RawModule` a hundred thousand times: a third of the time.
    rows = zip(part, part.values(), repeat(shard), repeat(True), repeat(()), strict=False)
    return map(tuple.__new__, repeat(RawModule), rows)
