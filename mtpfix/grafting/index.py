"""The index as it will be. Pure.

What the file says beside the changed names stays; it keeps its own spelling where that is one that exporters write.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from itertools import chain, pairwise
from typing import Any

from mtpfix.checkpoint.index import WEIGHT_MAP
from mtpfix.grafting.layout import size_of
from mtpfix.model import RawModule, Tensor
from mtpfix.rebuild import METADATA, PARAMETERS, TOTAL_SIZE
from mtpfix.storage.modules import tensors_of

_BOM = b"\xef\xbb\xbf"
_HERE = "the weight map goes here"


def indexed(
    raw: bytes | None,
    modules: Mapping[str, RawModule],
    added: Mapping[str, Tensor],
    dropped: Collection[Tensor],
    ghosts: Collection[str],
) -> bytes:
    """The index of a checkpoint with some tensors more, in their shards, and without others.

    raw      the index that is there, None where there is none
    modules  all that is stored before
    dropped  copies that no longer count; `ghosts`: names that the index lists and that are nowhere
    """
    gone = {tensor.name for tensor in dropped}
    if raw is None:
        names = {tensor.name: tensor.shard for tensor in _stored(modules) if tensor.name not in gone}
        names |= {name: tensor.shard for name, tensor in added.items()}
        value: dict[str, Any] = {METADATA: {TOTAL_SIZE: 0}, WEIGHT_MAP: dict(sorted(names.items()))}
    else:
        value = json.loads(raw.removeprefix(_BOM))
        value[WEIGHT_MAP] = _merged(value[WEIGHT_MAP], added, gone.union(ghosts))
    metadata = value.get(METADATA)
    if isinstance(metadata, dict):
        metadata.pop(PARAMETERS, None)  # a wrong number is worse than none
    if isinstance(metadata, dict) and TOTAL_SIZE in metadata:
        metadata[TOTAL_SIZE] = _total(value[WEIGHT_MAP], modules, added, gone)
    return _spelled(value, raw or b"{\n  }\n")


def _stored(modules: Mapping[str, RawModule]) -> Iterator[Tensor]:
    for module in modules.values():
        yield from tensors_of(module)


def _merged(old: Mapping[str, str], added: Mapping[str, Tensor], gone: Collection[str]) -> dict[str, str]:
    in_order = all(one < other for one, other in pairwise(old))
    shards: dict[str, str] = {}
    merged = {name: shards.setdefault(shard, shard) for name, shard in old.items() if name not in gone}
    merged |= {name: tensor.shard for name, tensor in added.items()}
    return dict(sorted(merged.items())) if in_order else merged


def _total(
    names: Collection[str], modules: Mapping[str, RawModule], added: Mapping[str, Tensor], gone: Collection[str]
) -> int:
    """The bytes of all tensors that are listed."""
    kept = (row for row in _stored(modules) if row.name in names and row.name not in gone and row.name not in added)
    return sum(size_of(row.dtype, row.shape) for row in chain(kept, added.values()))


def _spelled(value: dict[str, Any], raw: bytes) -> bytes:
    """The value as text, in the spelling of the old one: its indentation, its escapes, its end.

    Line by line: the standard library's encoder makes pieces first that take several times the room.
    """
    opening = re.match(rb"\{(\s*)", raw.removeprefix(_BOM))
    space = opening[1].decode() if opening else "\n  "
    unit = space.rpartition("\n")[2] if "\n" in space else ""
    ascii_only = b"\\u" in raw
    text = partial(json.dumps, ensure_ascii=ascii_only)
    frame = text({**value, WEIGHT_MAP: _HERE}, indent=unit or None)
    head, _, tail = frame.partition(text(_HERE))
    out = bytearray(f"{head}{{".encode())
    line, end = (f"\n{unit * 2}", f"\n{unit}") if unit else ("", "")
    joint = f",{line}" if unit else ", "
    for number, (name, shard) in enumerate(value[WEIGHT_MAP].items()):
        out += f"{joint if number else line}{text(name)}: {text(shard)}".encode()
    out += f"{end if value[WEIGHT_MAP] else ''}}}{tail}".encode()
    out += b"\n" if raw.endswith(b"\n") else b""
    return bytes(out)
