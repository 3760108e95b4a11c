"""What mends the weights' side without a weight: the index written again, scales renamed in headers. Pure.

Both change what engines load, so that they are no safe fixes. Neither is offered where it could do harm: the checkpoint
as it would be is looked at first, by whoever calls `mended`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from mtpfix.decisions import Table
from mtpfix.frozen import dataclass, replace
from mtpfix.model import Checkpoint, Index, IndexChange, Plan, Rename
from mtpfix.names import split_name, tensor_name
from mtpfix.rebuild import Rebuild, edited, rebuild, reindexed, renamed
from mtpfix.rules.base import plural
from mtpfix.storage.renames import Alike, alike, block_size, fits
from mtpfix.verdicts import Mismatch
from mtpfix.world import Unit, World


@dataclass(frozen=True, slots=True)
class Mending:
    """Changes of the index and of headers, and the checkpoint as it is with them.

    index  the bytes of the index before and after, where it changes and its bytes are at hand
    """

    checkpoint: Checkpoint
    change: IndexChange | None
    renames: tuple[Rename, ...]
    index: tuple[bytes, bytes] | None
    giving_up: bool


def rebuilt(world: World, checkpoint: Checkpoint | None = None) -> Rebuild:
    """What a checkpoint's index has to become; only the draft can be done without."""
    lost = world.lost

    def expendable(tensor: str) -> bool:
        return lost[tensor] if tensor in lost else world.in_draft(split_name(tensor)[0])

    return rebuild(checkpoint or world.checkpoint, expendable)


def renames(tables: Sequence[Table], found: Iterable[Mismatch], world: World) -> tuple[Rename, ...]:
    """The scales that are only misnamed: every engine that builds their modules quantized wants the other name.

    tables, found  of the engine releases that a plan must satisfy
    """
    wanted: dict[str, tuple[Alike, Unit]] = {}
    for item in found:
        unit = item.row.unit
        row = alike(unit.stored.scheme.name, item.answer.scheme) if item.kind == "scales" else None
        if row is not None:
            wanted[unit.name] = row, unit
    if not wanted:
        return ()
    against = set(_against(tables, wanted))
    kept = [pair for name, pair in wanted.items() if name not in against]
    return tuple(row for alike_row, unit in kept for row in _renames(world, alike_row, unit))


def _against(tables: Sequence[Table], wanted: Mapping[str, tuple[Alike, Unit]]) -> Iterator[str]:
    """Modules that some engine builds in the scheme that is stored, or whose blocks have another size."""
    for table in tables:
        block = block_size(_value(table))
        for row, answer in table.decided:
            for unit in row.units if answer.decision == "quantized" else ():
                pair = wanted.get(unit.name)
                if pair is None:
                    continue
                if answer.scheme != pair[0].built or block is None or not fits(pair[0], unit.stored.raw.cells, block):
                    yield unit.name


def _value(table: Table) -> Mapping[str, Any]:
    return table.fragment.value if table.fragment else {}


def _renames(world: World, row: Alike, unit: Unit) -> Iterator[Rename]:
    for name in unit.members:
        module = world.checkpoint.modules[name]
        shards = module.shards or (module.shard,) * len(module.cells)
        for cell, shard in zip(module.cells, shards, strict=True):
            if cell.suffix == row.old:
                yield Rename(shard, tensor_name(name, row.old), tensor_name(name, row.new), cell.dtype, cell.shape)


def mended(world: World, names: tuple[Rename, ...], as_it_is: Callable[[], Rebuild]) -> Mending | None:
    """A checkpoint with some renames and the index that is right then; None where neither changes anything.

    as_it_is  what its index has to become without any renames
    """
    checkpoint = renamed(world.checkpoint, names)
    index, file = checkpoint.index, world.files.get(checkpoint.index.file) if checkpoint.index else None
    if index is not None and file is not None and names:
        checkpoint = reindexed(checkpoint, index.file, file.raw)
    if index is not None and file is None and index == Index(index.file):
        found = Rebuild()
    else:
        found = rebuilt(world, checkpoint) if names else as_it_is()
    if found.change is None:
        return Mending(checkpoint, None, names, None, False) if names else None
    raw = file.raw if file else b""
    new = edited(found.change, raw, file.value if file else None)
    after = reindexed(checkpoint, found.change.file, new)
    return Mending(after, found.change, names, (raw, new), found.giving_up and not names)


def joined(plan: Plan, found: Mending) -> Plan:
    """A plan with the changes of index and headers beside its edits."""
    change = found.change
    name = {change.file: found.index} if change and found.index else {}
    listed = [row for row in change.listings if row.after] if change else []
    proof = replace(
        plan.certificate,
        tensors_renamed=len(found.renames),
        names_listed=len(listed),
        names_unlisted=len(change.removed) if change else 0,
    )
    return replace(
        plan,
        before={**plan.before, **{file: pair[0] for file, pair in name.items()}},
        after={**plan.after, **{file: pair[1] for file, pair in name.items()}},
        certificate=proof,
        index=change,
        renames=found.renames,
    )


def words(found: Mending) -> tuple[str, ...]:
    """What a mending does, a phrase a kind of change."""
    return (*_index_words(found), *_rename_words(found.renames))


def _index_words(found: Mending) -> Iterator[str]:
    change = found.change
    if change is None:
        return
    counts = {"added": len(change.added), "removed": len(change.removed), "moved": len(change.moved)}
    told = ", ".join(f"{plural(count, 'name')} {what}" for what, count in counts.items() if count)
    lost = "; what it names and nothing holds is given up" if found.giving_up else ""
    verb = "write" if change.created else "rebuild"
    yield f"{verb} {change.file} from the headers: {told}{lost}"


def _rename_words(rows: Sequence[Rename]) -> Iterator[str]:
    pairs: dict[tuple[str, str], list[Rename]] = {}
    for row in rows:
        pairs.setdefault((split_name(row.old)[1], split_name(row.new)[1]), []).append(row)
    for (old, new), some in pairs.items():
        shards = plural(len({row.shard for row in some}), "shard")
        yield f"rename {old} to {new} in the header of {shards}: {plural(len(some), 'tensor')}; no data byte changes"
