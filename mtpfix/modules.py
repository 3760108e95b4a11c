"""The modules of a checkpoint, those of experts held many at a time.

A large checkpoint is experts nearly alone: tens of thousands of modules that differ in one number of their names. Held
as blocks they cost next to nothing to gather, to compare and to sum up; whoever asks for one of them, or goes through
all, sees modules like any other.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from functools import cached_property

from mtpfix import late
from mtpfix.frozen import NamedTuple
from mtpfix.model import Cell, RawModule

Cells = tuple[Cell, ...]

EXPERTS = ".experts."
EXPERT_NUMBER = late.pattern(r"(?<=\.experts\.)[0-9]+")


class Block(NamedTuple):
    """Modules of one holder's experts that are stored alike, in one shard.

    holder   what stands before the number of an expert (`model.layers.3.mlp.experts.`)
    numbers  of the experts, as they are spelled, in header order; none twice
    cells    the rest of a module's name (`.down_proj`) -> its tensors, in header order
    before   how many single modules come before
    """

    holder: str
    numbers: tuple[str, ...]
    cells: Mapping[str, Cells]
    before: int
    shard: str = ""

    @property
    def size(self) -> int:
        """How many modules it holds."""
        return len(self.numbers) * len(self.cells)

    def modules(self) -> Iterator[RawModule]:
        """Its modules, one by one."""
        for number in self.numbers:
            for rest, cells in self.cells.items():
                yield RawModule(f"{self.holder}{number}{rest}", cells, self.shard)


def expert_of(module: str) -> str:
    """The expert that a module belongs to, its number last (`model.layers.3.mlp.experts.178`), or ""."""
    at = module.find(EXPERTS)
    if at < 0:
        return ""
    cut = module.find(".", at + len(EXPERTS))
    return module if cut < 0 else module[:cut]


def split_expert(module: str) -> tuple[str, str, str]:
    """What stands before an expert's number in a name, the number, and the rest (`.down_proj`); else thrice ""."""
    at = module.find(EXPERTS)
    if at < 0:
        return "", "", ""
    at += len(EXPERTS)
    number, dot, rest = module[at:].partition(".")
    return module[:at], number, dot + rest


class Modules(Mapping[str, RawModule]):
    """Modules by name: single ones, and blocks of experts. No name is there twice."""

    def __init__(self, singles: Mapping[str, RawModule], blocks: Iterable[Block] = ()) -> None:
        self.singles, self.blocks = singles, tuple(blocks)

    def parts(self) -> Iterator[RawModule | Block]:
        """Single modules and blocks in shard and header order."""
        singles, at = [*self.singles.values()], 0
        for block in self.blocks:
            yield from singles[at : block.before]
            yield block
            at = max(at, block.before)
        yield from singles[at:]

    @cached_property
    def whole(self) -> dict[str, RawModule]:
        """All of them one by one, in shard and header order."""
        found: dict[str, RawModule] = {}
        for part in self.parts():
            found.update((module.name, module) for module in (part.modules() if isinstance(part, Block) else (part,)))
        return found

    @cached_property
    def by_holder(self) -> Mapping[str, list[Block]]:
        """What stands before the numbers of experts -> its blocks, in shard and header order."""
        found: dict[str, list[Block]] = {}
        for block in self.blocks:
            found.setdefault(block.holder, []).append(block)
        return found

    def __getitem__(self, name: str) -> RawModule:
        if "whole" in self.__dict__:
            return self.whole[name]
        single = self.singles.get(name)
        return single if single is not None else self._expert(name)

    def _expert(self, name: str) -> RawModule:
        holder, number, rest = split_expert(name)
        for block in self.by_holder.get(holder, ()):
            cells = block.cells.get(rest)
            if cells is not None and number in block.numbers:
                return RawModule(name, cells, block.shard)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.whole)

    def __len__(self) -> int:
        return len(self.singles) + sum(block.size for block in self.blocks)

    def keys(self) -> KeysView[str]:
        return self.whole.keys()

    def values(self) -> ValuesView[RawModule]:
        return self.whole.values()

    def items(self) -> ItemsView[str, RawModule]:
        return self.whole.items()


def within(
    modules: Mapping[str, RawModule], holds: Callable[[str], bool], known: Mapping[str, bool]
) -> Iterator[RawModule]:
    """The modules of which `holds` is true, in order. Of experts of one holder it is true of all or of none.

    known  some modules' names -> whether it is
    """
    known = dict(known)
    for part in modules.parts() if isinstance(modules, Modules) else modules.values():
        head = (part.holder if isinstance(part, Block) else part.name).partition(EXPERTS)[0]
        if head not in known:
            known[head] = holds(next(part.modules()).name if isinstance(part, Block) else part.name)
        if known[head]:
            yield from part.modules() if isinstance(part, Block) else (part,)
