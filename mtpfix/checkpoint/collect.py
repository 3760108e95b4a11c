"""Headers of many shards to the modules of one checkpoint. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import repeat

from mtpfix.checkpoint.canonical import Cells, Tails, fold
from mtpfix.checkpoint.headers import LENGTH_BYTES, MAX_MODULES, MAX_TENSORS, beyond, check_room, decode
from mtpfix.model import Cell, RawModule, Shard, Tensor
from mtpfix.names import is_plain, split_name, tensor_name

Row = tuple[str, str, tuple[int, ...]]
WeightMap = Mapping[str, str]

_BLANKS = b" " * 64


class Collector:
    """Gathers shards in the order in which engines load them.

    modules     module name -> RawModule, in shard and header order; complete after `settle`
    duplicates  the copies of tensors that lost against another shard's, after `settle`
    plain       no name of a tensor or shard needs an escape in JSON
    """

    def __init__(self) -> None:
        self.modules: dict[str, RawModule] = {}
        self.shards: list[Shard] = []
        self.tensor_count = 0
        self.plain = True
        self.duplicates: tuple[Tensor, ...] = ()
        self._root = Tails()
        self._equal: dict[Cells, Cells] = {}
        self._spread: dict[str, list[tuple[str, Cells]]] = {}

    def add_header(self, shard: str, header: bytes, size: int) -> None:
        """Take in a shard of `size` bytes by its header. Raises UnreadableError for an invalid one."""
        data_bytes = size - LENGTH_BYTES - len(header)
        if header.endswith(_BLANKS) and not header[len(header) // 2 :].strip(b" "):
            header = header.rstrip(b" ")  # of 100 MB, all padding, nothing is copied
        check_room(header, self.tensor_count, shard)
        folded = fold(header, data_bytes, self._root)
        if folded is not None:
            self._add(shard, size, *folded)
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
        self._add(shard, size, count, {module: self._shared(tuple(cells)) for module, cells in grouped.items()})

    def settle(self, opened: Collection[str] = ()) -> None:
        """Join modules that lie in several shards. Of a tensor with several copies the last of `opened` is kept, which
        is what loading them leaves, or the last of all where no file that engines open holds one."""
        lost: list[Tensor] = []
        for name, parts in self._spread.items():
            module = join(name, parts, opened, lost)
            self.modules[name] = module._replace(cells=self._shared(module.cells))
        self.duplicates = tuple(lost)

    def _add(self, shard: str, size: int, count: int, part: dict[str, Cells]) -> None:
        self.shards.append(Shard(shard, count, size))
        self.plain = self.plain and is_plain(shard)
        self.tensor_count += count
        if self.tensor_count > MAX_TENSORS:
            raise beyond(shard, f"with it {self.tensor_count:,} tensors are above the limit of {MAX_TENSORS:,}")
        for name in sorted(part.keys() & self.modules.keys()):
            seen = self.modules[name]
            self._spread.setdefault(name, [(seen.shard, seen.cells)]).append((shard, part.pop(name)))
        self.modules.update(zip(part, _raw_modules(part, shard), strict=True))
        if len(self.modules) > MAX_MODULES:
            raise beyond(shard, f"with it {len(self.modules):,} modules are above the limit of {MAX_MODULES:,}")

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
