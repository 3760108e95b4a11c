"""The index written again from the headers, where they tell what belongs into it. Pure.

Engines take every tensor of the files that an index names. So it is wrong to name a file that was left out because it
is an old copy, and wrong to leave out one that holds what no other file does. Where headers do not tell the two apart,
or where what is missing cannot be done without, there is no right index to write.
"""

from __future__ import annotations

import json
from bisect import bisect
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any, Literal

from mtpfix.checkpoint.collect import WeightMap, join
from mtpfix.checkpoint.headers import byte_size
from mtpfix.checkpoint.index import WEIGHT_MAP, compare, gaps, index_name, opened_by, placed, read_index
from mtpfix.frozen import dataclass, replace
from mtpfix.model import Cell, Checkpoint, Edit, Index, IndexChange, Listing, RawModule, Rename, Tensor
from mtpfix.names import split_name
from mtpfix.patch import pointer
from mtpfix.splice import splice

METADATA, TOTAL_SIZE, PARAMETERS = "metadata", "total_size", "total_parameters"
MOST_LOST = 100_000  # names of tensors that are stored nowhere; an index with more is another model's
_FEW = 3


@dataclass(frozen=True, slots=True)
class Rebuild:
    """What would become of an index: its change, or why there is no right one; neither where it is in step.

    giving_up  whether names of tensors go that are stored nowhere
    """

    change: IndexChange | None = None
    reason: str = ""
    giving_up: bool = False


@dataclass(frozen=True, slots=True)
class _Files:
    """The tensors of each shard, copies that no engine keeps among them, and which shards the index names."""

    held: Mapping[str, frozenset[str]]
    opened: tuple[str, ...]
    left_out: tuple[str, ...]


def rebuild(checkpoint: Checkpoint, expendable: Callable[[str], bool]) -> Rebuild:
    """What the index has to become so that engines load what is stored.

    expendable  whether a checkpoint can do without a tensor (the draft's): an index that no longer names one which is
                missing makes the rest loadable
    """
    index = checkpoint.index
    if index is None:
        return _new(checkpoint)
    if index == Index(index.file) and not checkpoint.duplicates:
        return Rebuild()
    weight_map: WeightMap = checkpoint.files[index.file].value[WEIGHT_MAP]
    files = _files(checkpoint, weight_map)
    shards = _whole_copy(index, weight_map, files) or _shards(files)
    if isinstance(shards, str):
        return Rebuild(reason=shards)
    listed = frozenset().union(*(files.held[shard] for shard in shards))
    lost = [*index.ghosts] if len(shards) == len(files.held) else [name for name in weight_map if name not in listed]
    missing = frozenset(index.missing_shards)
    needed = [tensor for tensor in lost if weight_map[tensor] in missing and not expendable(tensor)]
    if needed:
        return Rebuild(
            reason=f"{_count(needed, 'tensor')} of the missing files cannot be done without, e.g. {needed[0]}"
        )
    if len(lost) > MOST_LOST:
        return Rebuild(
            reason=f"the index is another model's: {_count(lost, 'name')} of it, e.g. {lost[0]}, are stored nowhere; "
            "remove it, and a new one is written"
        )
    listings = _listings(weight_map, _true_map(checkpoint, weight_map, files, shards))
    if not listings:
        return Rebuild()
    return Rebuild(IndexChange(index.file, listings, _size_after(checkpoint, shards)), giving_up=bool(lost))


def _new(checkpoint: Checkpoint) -> Rebuild:
    """The index of shards that have none: engines that know no glob do not find them."""
    if len(checkpoint.shards) < 2:
        return Rebuild()
    if checkpoint.duplicates:
        return Rebuild(reason="tensors are stored in more than one file, and headers do not say which copies are right")
    lacking, first = gaps(shard.name for shard in checkpoint.shards)
    if lacking:
        return Rebuild(reason=f"files are missing by the numbers of the others, {lacking:,} of them, e.g. {first}")
    rows = sorted(row for module in checkpoint.modules.values() for row in placed(module))
    size = sum(map(_bytes_of, checkpoint.modules.values()))
    name = index_name([shard.name for shard in checkpoint.shards])
    return Rebuild(IndexChange(name, tuple(Listing(tensor, "", shard) for tensor, shard in rows), size, created=True))


def _files(checkpoint: Checkpoint, weight_map: WeightMap) -> _Files:
    held: dict[str, set[str]] = {shard.name: set() for shard in checkpoint.shards}
    for module in checkpoint.modules.values():
        for tensor, shard in placed(module):
            held[shard].add(tensor)
    for copy in checkpoint.duplicates:
        held[copy.shard].add(copy.name)
    named = set(weight_map.values())
    return _Files(
        {shard: frozenset(tensors) for shard, tensors in held.items()},
        tuple(shard for shard in held if shard in named),
        tuple(shard for shard in held if shard not in named),
    )


def _whole_copy(index: Index, weight_map: WeightMap, files: _Files) -> tuple[str, ...]:
    """The one file that holds all that an index names whose files are gone: a single file beside an old index."""
    names = weight_map.keys()
    whole = [shard for shard, tensors in files.held.items() if names <= tensors]
    if not index.missing_shards or len(whole) != 1:
        return ()
    rest = (tensors for shard, tensors in files.held.items() if shard != whole[0])
    return tuple(whole) if all(tensors <= files.held[whole[0]] for tensors in rest) else ()


def _shards(files: _Files) -> tuple[str, ...] | str:
    """The files that the index has to name: those it does, and those that hold what no other file does; or why headers
    do not tell."""
    loaded = frozenset().union(*(files.held[shard] for shard in files.opened))
    more: list[str] = []
    taken: set[str] = set()
    for shard in files.left_out:
        own = files.held[shard]
        if own <= loaded:
            continue  # an old copy: it was left out on purpose
        if own & loaded or own & taken:
            return f"{shard} holds tensors of other files beside its own, and headers do not say which copies are right"
        taken |= own
        more.append(shard)
    return (*files.opened, *more)


def _true_map(checkpoint: Checkpoint, weight_map: WeightMap, files: _Files, shards: Iterable[str]) -> dict[str, str]:
    """Where the tensors of some shards are. Of several copies the index's own choice stays: engines load both."""
    true = {tensor: shard for shard in shards for tensor in files.held[shard]}
    for copy in checkpoint.duplicates:
        named = weight_map.get(copy.name, "")
        if copy.name in true and copy.name in files.held.get(named, ()) and named in shards:
            true[copy.name] = named
    return true


def _listings(old: WeightMap, new: Mapping[str, str]) -> tuple[Listing, ...]:
    gone = (Listing(tensor, shard, new.get(tensor, "")) for tensor, shard in old.items() if new.get(tensor) != shard)
    come = sorted(tensor for tensor in new if tensor not in old)
    return (*gone, *(Listing(tensor, "", new[tensor]) for tensor in come))


def _size_after(checkpoint: Checkpoint, shards: Iterable[str]) -> int | None:
    """What `total_size` has to say: the bytes of every tensor once; None where it says so, or nothing."""
    assert checkpoint.index is not None
    metadata = checkpoint.files[checkpoint.index.file].value.get(METADATA)
    if not isinstance(metadata, Mapping) or TOTAL_SIZE not in metadata:
        return None
    inside = set(shards)
    size = sum(
        byte_size(cell.dtype, cell.shape) or 0
        for module in checkpoint.modules.values()
        for cell, (_, shard) in zip(module.cells, placed(module), strict=True)
        if shard in inside
    )
    return None if metadata[TOTAL_SIZE] == size else size


def _bytes_of(module: RawModule) -> int:
    return sum(byte_size(cell.dtype, cell.shape) or 0 for cell in module.cells)


def _count(names: list[str], noun: str) -> str:
    return f"{len(names):,} {noun}{'' if len(names) == 1 else 's'}"


# --- the file ---------------------------------------------------------------------------------------------------------


def edited(change: IndexChange, raw: bytes, value: Mapping[str, Any] | None = None) -> bytes:
    """The bytes of an index after a change; outside the changed names not one byte differs. `raw`: b"" for a new one.

    value  what `raw` says, where that is known: of a large index it takes 60 MB
    Where the names are in order, a new one comes where it belongs; else behind all others.
    """
    if change.created:
        names = {row.tensor: row.after for row in change.listings}
        new = {METADATA: {TOTAL_SIZE: change.size}, WEIGHT_MAP: names}
        return (json.dumps(new, indent=2, ensure_ascii=False) + "\n").encode()
    value = read_index(change.file, raw)[1].value if value is None else value
    edits = _edits(change, value)
    found = splice(raw, edits)
    if read_index(change.file, found)[1].value != _wanted(change, value):
        raise AssertionError(f"{change.file}: the edited text does not say what was planned")
    return found


def _edits(change: IndexChange, value: Mapping[str, Any]) -> list[Edit]:
    keys = list(value[WEIGHT_MAP])
    ordered = all(one < other for one, other in pairwise(keys))
    gone = {row.tensor for row in change.removed}
    edits: list[Edit] = []
    if change.size is not None:
        edits.append(Edit(change.file, "replace", pointer(METADATA, TOTAL_SIZE), change.size))
    if _is_miscounted(change, value.get(METADATA)):
        edits.append(Edit(change.file, "remove", pointer(METADATA, PARAMETERS)))
    next_key = _followers([key for key in keys if key not in gone]) if ordered else None
    for row in change.listings:
        op: Literal["add", "remove", "replace"] = "remove" if not row.after else "replace" if row.before else "add"
        before = next_key(row.tensor) if op == "add" and next_key else None
        edits.append(Edit(change.file, op, pointer(WEIGHT_MAP, row.tensor), row.after or None, before=before))
    return edits


def _is_miscounted(change: IndexChange, metadata: Any) -> bool:
    """Whether `total_parameters`, which transformers writes, counts other tensors than are listed then. So it goes:
    headers do not tell how many parameters a packed tensor holds, and a wrong number is worse than none."""
    if not isinstance(metadata, Mapping) or PARAMETERS not in metadata:
        return False
    other = any(not row.before or not row.after for row in change.listings)
    return change.size is not None or (other and TOTAL_SIZE not in metadata)


def _followers(keys: list[str]) -> Callable[[str], str | None]:
    """Which of some ordered keys a new one has to stand before; None: it is the last."""

    def follower(key: str) -> str | None:
        at = bisect(keys, key)
        return keys[at] if at < len(keys) else None

    return follower


def _wanted(change: IndexChange, value: Mapping[str, Any]) -> dict[str, Any]:
    """What the file has to say after a change."""
    names = dict(value[WEIGHT_MAP])
    for row in change.listings:
        if row.after:
            names[row.tensor] = row.after
        else:
            del names[row.tensor]
    found = {**value, WEIGHT_MAP: names}
    if change.size is not None:
        found[METADATA] = {**value[METADATA], TOTAL_SIZE: change.size}
    if _is_miscounted(change, value.get(METADATA)):
        found[METADATA] = {key: held for key, held in found[METADATA].items() if key != PARAMETERS}
    return found


# --- the checkpoint afterwards ----------------------------------------------------------------------------------------


def reindexed(checkpoint: Checkpoint, name: str, raw: bytes) -> Checkpoint:
    """The checkpoint with another index. Raises UnreadableError where that is malformed."""
    weight_map, file, _ = read_index(name, raw)
    opened = opened_by(weight_map)
    lost: list[Tensor] = []
    modules = {key: module._replace(listed=True) for key, module in checkpoint.modules.items()}
    for key, parts in _parts(checkpoint).items():
        modules[key] = join(key, parts, opened, lost)
    index, unopened = compare(name, weight_map, modules, [shard.name for shard in checkpoint.shards], lost)
    modules.update((key, modules[key]._replace(listed=False)) for key in unopened)
    files = {key: held for key, held in checkpoint.files.items() if key != name}
    return replace(checkpoint, modules=modules, files={**files, name: file}, index=index, duplicates=tuple(lost))


def _parts(checkpoint: Checkpoint) -> dict[str, list[tuple[str, tuple[Cell, ...]]]]:
    """The modules that have copies, as they lie in the shards, in the order of these."""
    order = [shard.name for shard in checkpoint.shards]
    rows: dict[str, dict[str, list[Cell]]] = {}
    for copy in checkpoint.duplicates:
        key, suffix = split_name(copy.name)
        rows.setdefault(key, {}).setdefault(copy.shard, []).append(Cell(suffix, copy.dtype, copy.shape))
    for key, parts in rows.items():
        module = checkpoint.modules[key]
        for cell, (_, shard) in zip(module.cells, placed(module), strict=True):
            parts.setdefault(shard, []).append(cell)
    return {
        key: [(shard, tuple(parts[shard])) for shard in sorted(parts, key=order.index)] for key, parts in rows.items()
    }


def renamed(checkpoint: Checkpoint, renames: Iterable[Rename]) -> Checkpoint:
    """The checkpoint with other names for some tensors, in headers and index."""
    wanted: dict[str, dict[str, str]] = {}
    for row in renames:
        key, suffix = split_name(row.old)
        wanted.setdefault(key, {})[suffix] = split_name(row.new)[1]
    modules = dict(checkpoint.modules)
    for key, names in wanted.items():
        cells = tuple(cell._replace(suffix=names.get(cell.suffix, cell.suffix)) for cell in modules[key].cells)
        modules[key] = modules[key]._replace(cells=cells)
    return replace(checkpoint, modules=modules)
