"""Headers that are written over where they are: at any moment, and after a crash, a file that can be read.

The safetensors library, which engines read with, is the judge.
"""

from __future__ import annotations

import itertools
import os
import random
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open
from shards import header
from test_renaming import BLOCK, LONG, SHORT, S, change, content, kill, names_and_data, place, quick, renames, shard
from test_renaming import tensors as tensors_of

from mtpfix import bulk
from mtpfix.checkpoint import canonical
from mtpfix.checkpoint.local import read_local
from mtpfix.model import Rename
from mtpfix.renaming import prepared
from mtpfix.store import apply_files, large, recover, undo
from mtpfix.store.states import Overwrite, Stamp

pytestmark = pytest.mark.forks

__all__ = ["place", "quick"]  # fixtures

Found = dict[str, tuple[str, list[int]]]


def as_the_library_reads(path: Path) -> Found:
    """Tensors with their dtypes and shapes."""
    with safe_open(path, "numpy") as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        return {name: (found.get_dtype(), list(found.get_shape())) for name, found in slices.items()}


def kinds(found: Found) -> list[str]:
    return sorted(map(str, found.values()))


def in_place(folder: Path, rows: list[Rename]) -> Overwrite:
    found = prepared(folder, rows)[S][1]
    assert isinstance(found, Overwrite)
    return found


def mixes(found: Overwrite) -> list[bytes]:
    """A header as a crash may leave it: of each sector of the file that changes the old bytes or the new ones."""
    cuts = [(a - found.start, b - found.start) for a, b in bulk.sectors(found.start, found.start + len(found.old))]
    changed = [(a, b) for a, b in cuts if found.old[a:b] != found.new[a:b]]
    rnd = random.Random(len(found.old))
    few = len(changed) < 7
    drawn = ([rnd.random() < 0.5 for _ in changed] for _ in range(60))
    out = []
    for choice in itertools.product((False, True), repeat=len(changed)) if few else drawn:
        mixed = bytearray(found.old)
        for (a, b), new in zip(changed, choice, strict=True):
            mixed[a:b] = (found.new if new else found.old)[a:b]
        out.append(bytes(mixed))
    return out


def test_nothing_but_names_is_written(place: Path) -> None:
    """Blanks stand where the longer names were: the library, and our reader in its fast way, take them."""
    found = in_place(place, renames(LONG, SHORT))
    assert found.new == found.old.replace(b'_scale_inv":{', b'_scale"    :{')
    change(place, renames(LONG, SHORT))
    assert as_the_library_reads(place / S).keys() == tensors_of(SHORT).keys()
    plain, size = header(tensors_of(SHORT))
    modules = canonical.fold(plain, size, canonical.Tails())
    assert modules
    assert canonical.fold(found.new, size, canonical.Tails()) == modules
    assert read_local(place).tensor_count == 6


def test_blanks_of_an_earlier_rename_are_room_for_a_longer_name(place: Path) -> None:
    before = content(place)
    change(place, renames(LONG, SHORT))
    inode = (place / S).stat().st_ino
    stamp, new = prepared(place, renames(SHORT, LONG))[S]
    apply_files(place, {S: stamp}, {S: new})
    assert (place / S).stat().st_ino == inode
    assert (place / S).read_bytes() == before[S]


@pytest.mark.parametrize(
    ("count", "blanks", "fits"), [(1, 3, False), (1, 4, True), (2, 7, False), (2, 8, True), (4, 16, False)]
)
def test_the_padding_is_room_where_one_sector_holds_all(place: Path, count: int, blanks: int, fits: bool) -> None:
    """A longer name moves all that is behind it: that is one write, or a new file."""
    raw, size = header(tensors_of(SHORT, count), {})
    raw = raw.rstrip(b" ") + b" " * blanks
    (place / S).write_bytes(len(raw).to_bytes(8, "little") + raw + bytes(size))
    inode = (place / S).stat().st_ino
    change(place, renames(SHORT, LONG, count))
    assert ((place / S).stat().st_ino == inode) == fits
    assert list(as_the_library_reads(place / S)) == list(tensors_of(LONG, count))


@pytest.mark.parametrize("shift", range(40))
def test_a_name_that_two_sectors_share(place: Path, shift: int) -> None:
    """Wherever they meet in it: what either half of the change makes is a name, of the same tensor."""
    name, other = "m.0.weight_scale_inv", "m.0.weight_scale"
    raw, size = header({name: BLOCK}, {"note": "x" * (bulk.SECTOR - 80 + shift)})
    (place / S).write_bytes(len(raw).to_bytes(8, "little") + raw + bytes(size))
    found = in_place(place, [Rename(S, name, other, *BLOCK)])
    for mix in mixes(found):
        (place / S).write_bytes(len(raw).to_bytes(8, "little") + mix + bytes(size))
        assert list(as_the_library_reads(place / S).values()) == [("F32", [2, 3])]


def test_every_mix_of_sectors_is_a_header_with_the_same_tensors(place: Path) -> None:
    raw = shard(LONG, count=400)
    (place / S).write_bytes(raw)
    found = in_place(place, renames(LONG, SHORT, 400))
    assert b',    "m' in found.new  # names that two sectors share, with the blanks before them
    wanted = kinds(as_the_library_reads(place / S))
    for mix in mixes(found):
        (place / S).write_bytes(raw[:8] + mix + raw[8 + len(mix) :])
        assert kinds(as_the_library_reads(place / S)) == wanted


@pytest.mark.parametrize("work", ["apply", "undo"])
def test_many_names_killed_between_any_two_writes(place: Path, work: str) -> None:
    """Before any mtpfix command has seen it the library opens the file, with the same tensors and data."""
    count = 60
    (place / S).write_bytes(shard(LONG, count=count))
    old, data = content(place), names_and_data(place / S)[1]
    wanted = kinds(as_the_library_reads(place / S))
    rows = renames(LONG, SHORT, count)
    change(place, rows)
    new, mixed = content(place), 0
    undo(place)
    for number in range(300):
        if work == "undo" and content(place) == old:
            change(place, rows)
        code = kill(lambda: change(place, rows) if work == "apply" else undo(place), number)
        names, held, _ = names_and_data(place / S)
        assert held == data
        assert kinds(as_the_library_reads(place / S)) == wanted
        known = (tensors_of(LONG, count).keys(), tensors_of(SHORT, count).keys())
        assert sum(name not in known[0] and name not in known[1] for name in names) <= 1  # what two sectors share
        mixed += any(name.endswith(LONG) for name in names) and any(name.endswith(SHORT) for name in names)
        recover(place)
        assert content(place) in (old, new)
        if work == "apply" and content(place) == new:
            undo(place)
        if code == 0:
            break
    assert code == 0
    assert mixed > 5


@pytest.mark.parametrize(
    ("names", "new"),
    [
        ({"a.x": BLOCK, "a.xy": BLOCK}, "a.y"),  # half of the change would be the other name, if it lay so
        ({"a.\u00e9\u00e9": BLOCK}, "a.b"),
        ({'a."\\': BLOCK}, "a."),
        ({"a.xyz" * 400: BLOCK}, "a.y"),  # more than some sectors
    ],
)
@pytest.mark.parametrize("shift", range(12))
def test_odd_names_wherever_they_lie(place: Path, names: Any, new: str, shift: int) -> None:
    raw, size = header(names, {"note": "x" * (bulk.SECTOR - 45 + shift)})
    (place / S).write_bytes(len(raw).to_bytes(8, "little") + raw + bytes(size))
    found = prepared(place, [Rename(S, next(iter(names)), new, *BLOCK)])[S]
    for mix in mixes(found[1]) if isinstance(found[1], Overwrite) else ():
        (place / S).write_bytes(len(raw).to_bytes(8, "little") + mix + bytes(size))
        assert len(as_the_library_reads(place / S)) == len(names)
    (place / S).write_bytes(len(raw).to_bytes(8, "little") + raw + bytes(size))
    found = prepared(place, [Rename(S, next(iter(names)), new, *BLOCK)])[S]
    apply_files(place, {S: found[0]}, {S: found[1]})
    assert new in as_the_library_reads(place / S)
    undo(place)
    assert (place / S).read_bytes()[8 : 8 + len(raw)] == raw


def test_a_new_file_of_the_old_size_in_the_same_tick_of_the_clock(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Size and time tell the old file from the new one, so they are never alike."""
    (place / S).write_bytes(shard(SHORT, padding=16))
    os.utime(place / S, ns=(5, 5))
    real, settled = large._settled, []

    def in_the_same_tick(path: Path, *rest: Any) -> Any:
        os.utime(path, ns=(5, 5))
        settled.append(real(path, *rest))
        return settled[-1]

    monkeypatch.setattr(large, "_settled", in_the_same_tick)
    change(place, renames(SHORT, LONG))
    assert settled[0].stamp == Stamp((place / S).stat().st_size, 6)
    assert names_and_data(place / S)[0] == list(tensors_of(LONG))
