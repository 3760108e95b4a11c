"""A graft carried out: the new shard copied, then everything put in place at once. (Edge.)"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from mtpfix import bulk, store
from mtpfix.checkpoint.headers import LENGTH_BYTES, header_length
from mtpfix.checkpoint.hub import Repository
from mtpfix.errors import READ_HINT, ConflictError, UnreadableError
from mtpfix.grafting import fp8
from mtpfix.grafting.layout import Layout, Rewrite
from mtpfix.grafting.plan import GraftPlan, Origin, Widening
from mtpfix.grafting.sources import (
    Bytes,
    Kept,
    KeptBytes,
    LocalBytes,
    Stretch,
    fetched,
    held,
    joined,
    kept_file,
    kept_size,
    require_space,
)
from mtpfix.store.files import opened, stamp_of
from mtpfix.store.records import state_folder
from mtpfix.store.states import Large, Piece, Stamp, UndoRecord

_SCALE_BYTES = 1 << 26
_SPARE = 1 << 20  # bytes for what is written beside the large files


def write(
    plan: GraftPlan,
    fronts: Mapping[str, tuple[bytes, int]],
    own: Mapping[str, bytes],
    repository: Repository | None,
    tell: bulk.Tell | None = None,
) -> UndoRecord | None:
    """Carry out a plan: everything or nothing. The undo record.

    fronts      the first bytes (length and header) of the base's shards, and their sizes
    own         the first bytes of the checkpoint's shards
    repository  where the base is, if that is on the Hub
    tell        called with the number of bytes that were written, again and again

    Raises ConflictError where the checkpoint or the base is no longer what was planned with, WriteError where something
    cannot be written, UnreadableError where the base cannot be read. Then nothing has changed.
    """
    place = Path(os.path.realpath(plan.here.id))
    stretches = joined(_stretches(plan.origins))
    kept = kept_file(place, f"{plan.base.id}@{plan.base.revision}", stretches) if repository else None
    _require_space(plan, place, kept, stretches)
    with contextlib.ExitStack() as stack:
        source: Bytes
        if repository and kept:
            descriptor = stack.enter_context(held(kept))
            fetched(repository, stretches, fronts, kept, descriptor, tell)
            source = KeptBytes(descriptor, stretches)
        else:
            wanted = {shard: fronts[shard][0] for shard, _, _ in stretches}
            source = LocalBytes(plan.base.id, wanted, stack)
        record = store.apply_files(place, _before(plan, place, own), _after(plan, place, source, tell))
        if kept:
            kept.drop()
    return record


def _stretches(origins: tuple[Origin, ...]) -> Iterator[Stretch]:
    for origin in origins:
        yield origin.shard, origin.start, origin.end
        if origin.widening:
            yield origin.widening.scales


def _require_space(plan: GraftPlan, place: Path, kept: Kept | None, stretches: tuple[Stretch, ...]) -> None:
    saved = sum(piece.end - piece.start for rewrite in plan.rewrites.values() for piece in rewrite.back if piece.saved)
    gone = sum(os.stat(place / shard).st_size for shard in plan.removed)
    state = kept_size(stretches) - _came(kept.data) if kept else 0
    require_space({place: plan.size + _SPARE, state_folder(place): saved + gone + max(0, state) + _SPARE})


def _came(path: Path) -> int:
    return os.stat(path).st_blocks * 512 if path.exists() else 0


def _before(plan: GraftPlan, place: Path, own: Mapping[str, bytes]) -> dict[str, bytes | Stamp | None]:
    """The files as they were planned with; ConflictError where the header of one is not."""
    before: dict[str, bytes | Stamp | None] = {**plan.before, plan.shard: None}
    for shard in (*plan.rewrites, *plan.removed):
        path = place / shard
        try:
            before[shard] = stamp_of(path)
            with opened(path, os.O_RDONLY) as descriptor:
                same = os.pread(descriptor, len(own[shard]), 0) == own[shard]
        except OSError as error:
            raise UnreadableError(f"{path}: {error.strerror}", subject=str(path), hint=READ_HINT) from None
        if not same:
            raise ConflictError(f"{path} was changed meanwhile", subject=str(path), hint="Run it again.")
    return before


def _after(plan: GraftPlan, place: Path, source: Bytes, tell: bulk.Tell | None) -> dict[str, bytes | Large]:
    """What is put in place, in this order: the configs, the new shard, the index that names it, the rest.

    So whatever stands there between two steps, engines load it: a config may list what is not there yet, an index must
    not name it.
    """
    *configs, index = plan.after
    assert plan.layout is not None
    after: dict[str, bytes | Large] = {name: plan.after[name] for name in configs}
    after[plan.shard] = Large(partial(_new_shard, plan.layout, plan.origins, source, tell))
    after[index] = plan.after[index]
    for shard, rewrite in plan.rewrites.items():
        after[shard] = Large(partial(_rewritten, place / shard, rewrite, tell), rewrite.back)
    for shard in plan.removed:
        after[shard] = Large(None, (Piece(True, 0, os.stat(place / shard).st_size),))
    return after


def _written(path: Path, layout: Layout, tell: bulk.Tell | None, fill: Callable[[bulk.Target], None]) -> None:
    """A new file on the disk, whose header was read back and is the layout's."""
    with opened(path, os.O_RDWR | os.O_CREAT | os.O_EXCL) as descriptor:
        target = bulk.Target(descriptor, str(path), tell)
        with bulk.flushed(target):
            target.put(layout.front, 0)
            fill(target)
        size = os.fstat(descriptor).st_size
        front = os.pread(descriptor, len(layout.front), 0)
        header_length(front[:LENGTH_BYTES], size, path.name)
        assert (front, size) == (layout.front, layout.size), path


def _new_shard(layout: Layout, origins: tuple[Origin, ...], source: Bytes, tell: bulk.Tell | None, path: Path) -> None:
    def fill(target: bulk.Target) -> None:
        for origin in origins:
            if origin.widening:
                _widen(origin, origin.widening, source, target)
            else:
                descriptor, start = source.place(origin.shard, origin.start)
                count = origin.end - origin.start
                bulk.copy(descriptor, start, start + count, target, origin.row.start, origin.shard)
        source.check()

    _written(path, layout, tell, fill)


def _widen(origin: Origin, widening: Widening, source: Bytes, target: bulk.Target) -> None:
    """Writes an FP8 weight as BF16, a few rows at a time."""
    recipe, (shard, start, end) = widening.recipe, widening.scales
    if end - start > _SCALE_BYTES:
        raise UnreadableError(
            f"{origin.row.name}: its scales take {end - start} bytes",
            subject=origin.row.name,
            hint="leave out --dequantize, or look at the base",
        )
    descriptor, at = source.place(shard, start)
    scales = _exactly(descriptor, at, end - start, shard)
    descriptor, at = source.place(origin.shard, origin.start)
    columns = recipe.shape[1]
    for first, count, lines in recipe.steps():
        data = _exactly(descriptor, at + first * columns, count * columns, origin.shard)
        found = fp8.widened(recipe, data, fp8.read_scales(recipe, scales[lines]))
        target.put(found, origin.row.start + 2 * first * columns)


def _exactly(descriptor: int, start: int, count: int, name: str) -> bytes:
    data = os.pread(descriptor, count, start)
    while len(data) < count:
        more = os.pread(descriptor, count - len(data), start + len(data))
        if not more:
            raise ConflictError(f"{name} became shorter while it was read", subject=name, hint="Run it again.")
        data += more
    return data


def _rewritten(old: Path, rewrite: Rewrite, tell: bulk.Tell | None, path: Path) -> None:
    def fill(target: bulk.Target) -> None:
        with opened(old, os.O_RDONLY) as descriptor:
            for start, end, at in rewrite.kept:
                bulk.copy(descriptor, start, end, target, at, str(old))

    _written(path, rewrite.layout, tell, fill)
