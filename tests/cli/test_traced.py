"""Every command that writes, as a process, cut short at each system call that changes a file system.

It is killed before the call and half-way through a write; the call fails with each error that a disk can give; it is
interrupted; somebody else reads or edits at that moment. Each time what lies there is looked at as an engine would,
and then what the next command makes of it: all old or all new, nothing left over, and undo brings the first bytes back.
What was killed before a call is what was killed after the one before it. The short run takes some of the calls of some
commands; MTPFIX_LONG=1 takes all of all, and says how many; with MTPFIX_STEP=7 every seventh call of all commands.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
import traced
from traced import Act, Call, Ended, Fail, Half, Kill, Send, When
from writers import WRITERS, World, command

LONG = bool(os.environ.get("MTPFIX_LONG"))
STEP = int(os.environ.get("MTPFIX_STEP") or 1)  # of the long run: every so-manieth call alone
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ERRORS = (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EINTR)
LACKS = (  # what a file system may not have: locks, second names, modes, times, a way to the disk that is asked for
    ({"flock"}, errno.EOPNOTSUPP),
    ({"flock"}, errno.ENOLCK),
    ({"link", "linkat"}, errno.EPERM),
    ({"chmod", "fchmod", "fchmodat"}, errno.EPERM),
    ({"utimensat"}, errno.EPERM),
    ({"fsync", "fdatasync"}, errno.EINVAL),
)
counted: Counter[str] = Counter()
worlds: dict[str, World] = {}

pytestmark = [pytest.mark.forks, pytest.mark.skipif(bool(traced.why_not()), reason=traced.why_not() or "-")]


def some(*names: str) -> Any:
    return pytest.mark.parametrize("world", tuple(WRITERS) if LONG else names, indirect=True)


@pytest.fixture(scope="module", autouse=True)
def told() -> Iterator[None]:
    yield
    if LONG:
        print(f"\n{dict(counted)}", file=sys.__stderr__)


@pytest.fixture
def world(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> World:
    """The world of a command, as it was before; made once."""
    root = tmp_path_factory.getbasetemp() / re.sub(r"\W+", "-", request.param) / "now"
    monkeypatch.setenv("XDG_STATE_HOME", str(root / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(root / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # or the first run would make calls that the next ones do not
    monkeypatch.chdir(root.parents[1])
    if request.param not in worlds:
        root.parent.mkdir()
        worlds[request.param] = World(root, WRITERS[request.param])
    return worlds[request.param]


def moments(world: World, count: int, *names: str) -> list[Call]:
    """The calls of a whole run, or those of some names; in the short run so many of them, others for each command."""
    assert world.whole.code in (0, 1), world.whole.err
    assert world.new != world.old
    calls = [call for call in world.whole.calls if not names or call.name in names]
    step = STEP if LONG else max(len(calls) // count, 1)
    some = calls[sum(" ".join(world.writer.words).encode()) % step :: step]
    return some if LONG else some[:count]


def cut(world: World, at: Call, first: Act, then: Act = None) -> Ended:
    """A run in which something happens to one call, before it is made and after."""

    def want(call: Call, when: When) -> Act:
        if call.number != at.number:
            return None
        assert call.name == at.name
        return first if when == "before" else then

    world.reset()
    return traced.run(world.words, want)


@some("apply", "apply --unsafe-fixes, headers in place", "undo --force", "graft --rewrite", "check -o")
def test_killed(world: World) -> None:
    for call in moments(world, 3):
        for ways in ((Kill(),), (Half(), Kill())):
            if len(ways) > 1 and "write" not in call.name:
                continue
            assert cut(world, call, *ways).code == -signal.SIGKILL
            counted["kills"] += 1
            assert not world.seen(), (call, ways)
            ended_later(world, (call, ways))


@some("apply", "undo --force", "check -o")
def test_an_error_of_the_disk(world: World) -> None:
    for call in moments(world, 2):
        for code in ERRORS if LONG else (ERRORS[call.number % len(ERRORS)],):
            found = cut(world, call, Fail(code))
            counted["errors"] += 1
            told_in_words(world, found, (call, errno.errorcode[code]))
            again(world, call)


@some("apply", "undo", "graft --rewrite")
def test_a_disk_that_refuses_from_then_on(world: World) -> None:
    """What cannot even be taken back is ended by the next command."""
    for call in moments(world, 2):
        world.reset()

        def want(one: Call, when: When, first: int = call.number) -> Act:
            return Fail(errno.EIO) if one.number >= first and "/now/" in "".join(one.paths) else None

        found = traced.run(world.words, want)
        counted["disks lost"] += 1
        assert found.code in (0, 1, 3), (call, found.err)
        assert world.writer.python or "Traceback" not in found.err, call
        assert not world.seen(), call
        ended_later(world, call)


@some("apply", "undo of a rewriting graft", "check -o")
def test_a_file_system_that_cannot(world: World) -> None:
    for names, code in LACKS:
        if not any(call.name in names for call in world.whole.calls):
            continue
        world.reset()

        def want(call: Call, when: When, names: Collection[str] = names, code: int = code) -> Act:
            return Fail(code) if call.name in names else None

        found = traced.run(world.words, want)
        assert found.code == world.whole.code, (names, found.err)
        assert world.content() == world.new, names
        assert [name for name in world.records() if not name.endswith("/lock")] == world.new_records, names


@some("apply", "undo --force", "check -o")
def test_interrupted(world: World) -> None:
    for number, call in enumerate(moments(world, 2)):
        for one in SIGNALS if LONG and STEP == 1 else (SIGNALS[number % len(SIGNALS)],):
            found = cut(world, call, Send(one))
            counted["signals"] += 1
            assert found.code in (128 + one, -one), (call, one, found.err)
            if not world.writer.python:
                assert not found.err.count("Traceback"), call
                whole_now(world, (call, one))
            again(world, call)


@some("apply", "graft --rewrite", "check -o")
def test_a_write_that_takes_half(world: World) -> None:
    """It is not an error: the rest is written next."""
    for call in moments(world, 2, "write", "pwrite64"):
        found = cut(world, call, Half())
        counted["short writes"] += 1
        assert found.code == world.whole.code, (call, found.err)
        assert world.content() == world.new, call
        assert world.records() == world.new_records, call


@some("apply", "apply --unsafe-fixes, headers in place", "undo", "graft --rewrite")
def test_a_reader_at_each_moment(world: World) -> None:
    """Without mtpfix: no file is missing or torn, at any moment."""

    def want(call: Call, when: When) -> Act:
        counted["looks"] += 1
        assert not world.seen(), (call, when)
        return None

    world.reset()
    assert traced.run(world.words, want).code == world.whole.code
    assert world.content() == world.new


@some("apply", "undo")
def test_an_editor_at_each_moment(world: World) -> None:
    """What somebody else writes meanwhile is never lost, whether the command comes to its end or refuses."""
    config = world.root / "here" / "config.json"
    for call in moments(world, 3) if LONG else renames_of(world, config):
        if not world.writer.changes:
            continue
        for when in ("before", "after"):
            world.reset()
            edited = edit_at(world, config, call, when)
            counted["edits"] += 1
            assert world.writer.python or edited.code in (0, 1, 3), (call, edited.err)
            assert b"edited" in config.read_bytes() or b"edited" in kept(world), (call, when, edited.err)
            assert not [name for name in world.content() if "/.mtpfix-" in name], (call, when)


@some("apply", "undo")
def test_an_editor_and_a_kill(world: World) -> None:
    """The editor is a moment before, so that what he wrote has lost its name when the kill comes."""
    config = world.root / "here" / "config.json"
    for call in renames_of(world, config):
        world.reset()
        assert edit_at(world, config, call, "before", Kill()).code == -signal.SIGKILL
        counted["edits and kills"] += 1
        assert command("check", "here") in (0, 1), call
        assert b"edited" in config.read_bytes(), call
        assert not [name for name in world.content() if "/.mtpfix-" in name], call


def renames_of(world: World, config: Path) -> list[Call]:
    place = os.path.join(os.path.realpath(config.parent), config.name)
    found = [call for call in world.whole.calls if call.name.startswith("rename") and place in call.paths[-1:]]
    assert found or LONG  # not every command changes it
    return found


def edit_at(world: World, config: Path, at: Call, moment: str, then: Act = None) -> Ended:
    """A run during which config.json is written anew by somebody else."""

    def want(call: Call, when: When) -> Act:
        if (call.number, when) == (at.number, moment):
            new = config.with_name("editor's")
            new.write_bytes(config.read_bytes().replace(b'"hidden_size": ', b'"edited": true, "hidden_size": '))
            new.replace(config)
        return then if (call.number, when) == (at.number, "after") else None

    return traced.run(world.words, want)


def kept(world: World) -> bytes:
    return b"".join(path.read_bytes() for path in (world.root / "state").rglob("kept-*"))


def told_in_words(world: World, found: Ended, about: object) -> None:
    """What failed was said in words, and nothing changed, or it did not matter."""
    assert found.code in (0, 1, 3), (about, found.err)
    whole_now(world, about)
    if found.code in (0, 1):
        assert world.content() == world.new or world.writer.python, (about, found.err)
    elif not world.writer.python:
        assert (found.err.count("Error: "), found.err.count("Hint: ")) == (1, 1), (about, found.err)
        assert "Traceback" not in found.err, about
        assert "cannot read or write" not in found.err, (about, found.err)


def whole_now(world: World, about: object) -> None:
    """All old or all new, without any other command."""
    found, records = world.content(), world.records()
    assert found in (world.old, world.new), (about, sorted(found))
    if found == world.old:
        assert records == world.old_records, about
    else:  # of a change that was taken back a record may stay; nothing comes of it
        assert set(world.new_records) <= set(records) <= {*world.new_records, *world.old_records}, about


def ended_later(world: World, about: object) -> None:
    """The next command ends it, nothing is left over, and the one that was cut short does its work."""
    if world.writer.changes:
        assert command("check", "here") in (0, 1), about
        found = world.content()
        assert found in (world.old, world.new), (about, sorted(found))
        wanted = world.old_records if found == world.old else world.new_records
        assert without_kept(world.records()) == without_kept(wanted), about
    again(world, about)
    if world.writer.changes and world.writer.words[0] != "undo":
        assert command("undo", "here") == 0, about
        assert world.content() == world.old, about
        assert world.records() == world.old_records, about


def without_kept(records: list[str]) -> list[str]:
    """Without what a forced undo keeps before it begins; the next undo drops it."""
    return [name for name in records if "/kept-" not in name]


def again(world: World, about: object) -> None:
    """The same command once more."""
    done = world.content() == world.new
    assert command(*world.writer.words) in ((0, 1, 2) if done else (0, 1)), about
    assert world.content() == world.new, about
    assert world.records() == world.new_records, about
