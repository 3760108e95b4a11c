"""The text of an index, compared with what the headers say. Pure.

An index has a line for each tensor, and nearly always says what the headers say. To write down what it would have to
say then, in the spelling in which it begins, and to compare the text costs a fraction of parsing it, and no memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from mtpfix import late
from mtpfix.checkpoint.index import WEIGHT_MAP, placed
from mtpfix.checkpoint.jsonfiles import parse_json
from mtpfix.errors import UnreadableError
from mtpfix.frozen import NamedTuple, Protocol
from mtpfix.model import RawModule
from mtpfix.modules import Block, Modules

_WEIGHTS = ("weight", "qweight")
_MAP = b'"%s"' % WEIGHT_MAP.encode()
_BLANK = rb"[ \t\r\n]{0,64}+"
_OPENING = late.pattern(rb'%s%b:%b\{%b(?="[^"\\]{0,4096}+"(%b:%b)"[^"\\]{0,4096}+"(,%b)?)' % (_MAP, *[_BLANK] * 6))
_CLOSING = late.pattern(rb"%b\}%b\}%b" % (_BLANK, _BLANK, _BLANK))
_HEAD, _TAIL = 1 << 17, 1 << 10  # bytes in which the weight map begins and ends
_CHUNK = 256  # modules or experts whose members are compared at once
_STRETCH, _MEMBER = 1 << 16, 1 << 14  # bytes of members that are looked up at once, and of one
_LAST = "\U0010ffff"  # comes behind all that names hold


class Pieces(Protocol):
    """Bytes of which slices can be had: they need not be in memory as a whole."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: slice, /) -> bytes: ...


class _Map(NamedTuple):
    """Where the members of the weight map stand in an index, and what stands between name and file, and between two."""

    begin: int
    end: int
    colon: str
    comma: str

    def member(self, tensor: str, shard: str) -> str:
        return f'"{tensor}"{self.colon}"{shard}"'


def agrees(name: str, raw: Pieces, modules: Modules, shards: Iterable[Modules] = ()) -> bool:
    """Whether an index says exactly what the headers say, in whatever spelling and order.

    shards  what each file holds, in the order of the files: an order in which indexes are written, too

    False means that the index has to be read, not that it is wrong: `weight_map` has to come last, its members spelled
    alike. Names of modules must need no escapes in JSON.
    """
    found = _map(name, raw)
    return found is not None and (
        _reach(raw, found, found.begin, _sorted_members(modules, found)) == found.end
        or _is_shard_by_shard(raw, found, shards)
        or _in_any_order(raw, found, modules)
    )


def _map(name: str, raw: Pieces) -> _Map | None:
    """The weight map, unless something else than its members may be wrong."""
    head, tail = raw[:_HEAD], raw[-_TAIL:]
    begin, end = head.find(_MAP), tail.rfind(b'"') + 1
    opening = _OPENING.match(head, begin) if begin >= 0 else None
    if opening is None or not _CLOSING.fullmatch(tail, end) or not _opens(name, head[:begin]):
        return None
    return _Map(opening.end(), len(raw) - len(tail) + end, opening[1].decode(), (opening[2] or b",").decode())


def _opens(name: str, head: bytes) -> bool:
    """Whether the text before the weight map is the faultless beginning of a JSON object."""
    try:
        file, problems = parse_json(name, head + _MAP + b": {}}")
    except UnreadableError:
        return False
    return not problems and file.value.get(WEIGHT_MAP) == {}


def _is_shard_by_shard(raw: Pieces, found: _Map, shards: Iterable[Modules]) -> bool:
    """Whether the text is the members of one shard after the other, those of each as they are stored, or sorted."""
    at = found.begin
    for shard in shards:
        ends = (_reach(raw, found, at, order(shard, found)) for order in (_stored_members, _sorted_members))
        at = next((end for end in ends if end >= 0), -1)
        if at < 0:
            return False
    return at == found.end


def _reach(raw: Pieces, found: _Map, at: int, members: Iterator[str]) -> int:
    """Where these members end if they stand at a place, else -1."""
    while some := [*islice(members, _CHUNK)]:
        between = found.comma if at > found.begin else ""
        text = (between + found.comma.join(some)).encode("utf-8", "surrogatepass")
        begin, at = at, at + len(text)
        if at > found.end or raw[begin:at] != text:
            return -1
    return at


def _in_any_order(raw: Pieces, found: _Map, modules: Modules) -> bool:
    """Whether the text is the members of the modules, in whatever order."""
    between = f'{found.comma}"'.encode()  # a quote is in no name, so that this stands between two members alone
    wanted: set[bytes] = set()
    members = _stored_members(modules, found)
    while some := [*islice(members, _CHUNK)]:
        wanted.update(found.comma.join(some)[1:].encode("utf-8", "surrogatepass").split(between))
    begin = found.begin + 1
    while begin < found.end and wanted:
        piece = raw[begin : min(begin + _STRETCH + _MEMBER, found.end)]
        stop = piece.find(between, _STRETCH)
        listed = (piece if stop < 0 else piece[:stop]).split(between)
        left = len(wanted) - len(listed)
        wanted.difference_update(listed)
        if len(wanted) != left:
            return False
        begin += len(piece) if stop < 0 else stop + len(between)
    return begin == found.end and not wanted


def _stored_members(modules: Modules, found: _Map) -> Iterator[str]:
    """The members for all tensors in the order of the shards, where experts stand one after the other; those of a
    module or an expert together."""
    for part in modules.parts():
        if isinstance(part, Block):
            yield from _expert_members((part,), found, in_order=False)
        else:
            yield found.comma.join(found.member(tensor, shard) for tensor, shard in placed(part))


def _sorted_members(modules: Modules, found: _Map) -> Iterator[str]:
    """The same sorted by name, where no module stands amid another's tensors."""
    single, at = sorted(_single_members(modules.singles, found)), 0
    for holder, blocks in sorted(modules.by_holder.items()):
        experts = _expert_members(blocks, found)
        begin = bisect_left(single, f'"{holder}', at)
        end = bisect_left(single, f'"{holder}{_LAST}', begin)
        yield from single[at:begin]
        yield from sorted([*experts, *single[begin:end]]) if end > begin else experts
        at = end
    yield from single[at:]


def _single_members(modules: Mapping[str, RawModule], found: _Map) -> Iterator[str]:
    """The members for each module together; one by one where a submodule's may stand between them."""
    templates: dict[tuple[str, int], list[str]] = {}
    for name, module in modules.items():
        key = module.shard, id(module.cells)
        cut = templates.get(key)
        if cut is None:
            cut = templates[key] = _template(module, found)
        if cut and name and not module.shards:
            yield name.join(cut)
        else:
            yield from (found.member(tensor, shard) for tensor, shard in placed(module))


def _template(module: RawModule, found: _Map) -> list[str]:
    """The members for a module cut at its name; [] for one without a weight: those have submodules."""
    suffixes = sorted(cell.suffix for cell in module.cells)
    if not any(suffix.startswith(_WEIGHTS) for suffix in suffixes):
        return []
    return found.comma.join(found.member(f"\0.{suffix}", module.shard) for suffix in suffixes).split("\0")


def _expert_members(blocks: Iterable[Block], found: _Map, *, in_order: bool = True) -> list[str]:
    """The members for each expert of a holder together, sorted, or as they are stored."""
    arranged: Callable[[Iterable[str]], Iterable[str]] = sorted if in_order else iter
    cuts: dict[str, list[str]] = {}
    parted: list[str] = []
    for block in blocks:
        names = arranged(f"{rest}.{cell.suffix}" for rest, cells in block.cells.items() for cell in cells)
        cut = found.comma.join(found.member(f"{block.holder}\0{name}", block.shard) for name in names).split("\0")
        parted += (number.join(cuts.pop(number)) for number in block.numbers if number in cuts)
        cuts.update(dict.fromkeys(block.numbers, cut))
    members = [number.join(cuts[number]) for number in arranged(cuts)]
    return sorted([*members, *parted]) if parted else members
