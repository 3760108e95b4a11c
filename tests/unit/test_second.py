"""A large checkpoint is read by two processes, which changes nothing but the time."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from shards import write_index, write_shard

from mtpfix import api
from mtpfix.checkpoint import apart, reading, second
from mtpfix.checkpoint.access import Access
from mtpfix.checkpoint.collect import Collector
from mtpfix.checkpoint.opening import read
from mtpfix.checkpoint.second import Second
from mtpfix.errors import UnreadableError
from mtpfix.model import Checkpoint, Report, Source

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork"),
    pytest.mark.filterwarnings("ignore:This process"),  # Python 3.12 warns of forks beside threads, which runners have
]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Seven shards of experts, one module spread over two of them, one tensor in two of them."""
    (tmp_path / "config.json").write_text('{"architectures": ["DeepseekV3ForCausalLM"]}')
    weight_map: dict[str, str] = {}
    for number in range(7):
        tensors = {
            f"model.layers.{number}.mlp.experts.{expert}.{projection}.weight": ("BF16", (4, 4))
            for expert in range(12)
            for projection in ("down_proj", "up_proj")
        }
        tensors |= {"spread.weight": ("U8", (4,))} if number == 1 else {}
        tensors |= {"spread.weight_scale": ("F32", ())} if number == 6 else {}
        tensors |= {"twice.weight": ("U8", (number,))} if number in (2, 5) else {}
        name = f"model-{number}.safetensors"
        write_shard(tmp_path / name, tensors)
        weight_map |= dict.fromkeys(tensors, name)
    write_index(tmp_path, weight_map)
    return tmp_path


@pytest.fixture
def worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second, "_MUCH", 0)
    monkeypatch.setattr(second, "possible", lambda: True)


def alone(place: Path) -> Checkpoint:
    return read(Source("local", str(place)), Access())


def together(place: Path) -> Checkpoint:
    return read(Source("local", str(place)), Access(forks=True))


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The processes that were begun from here on; the runner may have others."""
    begun: list[int] = []
    fork = os.fork

    def noted() -> int:
        begun.append(fork())
        return begun[-1]

    monkeypatch.setattr(os, "fork", noted)
    return begun


def gone(pid: int) -> bool:
    """Whether a process has ended and nothing of it is left."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return True
    return False


@pytest.mark.usefixtures("worth_it")
def test_it_is_the_same_checkpoint(place: Path, monkeypatch: pytest.MonkeyPatch, forked: list[int]) -> None:
    unpacked: list[str] = []
    whole = Collector.unpack
    monkeypatch.setattr(Collector, "unpack", lambda self, *what: unpacked.extend(what[1]) or whole(self, *what))
    with Second(lambda _: time.sleep(0.2)) as reader:  # while the other process reads some
        assert read(Source("local", str(place)), Access(forks=True), second=reader) == alone(place)
    assert unpacked
    assert unpacked == [f"model-{number}.safetensors" for number in range(7)][-len(unpacked) :]
    assert [module.name for module in together(place).modules.values()] == [*alone(place).modules]
    assert forked
    assert all(map(gone, forked))


@pytest.mark.usefixtures("worth_it")
def test_names_that_need_care_are_told_of_by_the_other_process(place: Path) -> None:
    write_shard(place / "model-6.safetensors", {'a"b.weight': ("U8", (4,))})
    assert together(place) == alone(place)


@pytest.mark.usefixtures("worth_it")
@pytest.mark.parametrize("shard", ["model-1.safetensors", "model-6.safetensors"])
def test_a_broken_shard_is_named(place: Path, shard: str) -> None:
    (place / shard).write_bytes(b"\x08" + bytes(7) + b"nonsense")
    said = []
    for reader in (alone, together):
        with pytest.raises(UnreadableError) as caught:
            reader(place)
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert said[0].startswith(f"{shard}: ")


@pytest.mark.usefixtures("worth_it")
def test_what_the_other_process_cannot_do_is_done_here(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, packed = os.getpid(), Collector.packed

    def killed(self: Collector) -> bytes:
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return packed(self)

    def failing(self: Collector) -> bytes:
        raise MemoryError

    def stopped(self: Collector) -> bytes:
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGSTOP)
        return packed(self)

    for broken in (killed, stopped, failing):
        monkeypatch.setattr(Collector, "packed", broken)
        assert together(place) == alone(place)

    def refused() -> int:
        raise OSError

    monkeypatch.setattr(os, "fork", refused)
    assert together(place) == alone(place)


@pytest.mark.usefixtures("worth_it")
def test_what_the_other_process_left_out_is_read_here(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, back = os.getpid(), apart.Ends.back
    monkeypatch.setattr(apart.Ends, "back", lambda self: islice(back(self), 1, None))
    assert together(place) == alone(place)
    monkeypatch.setattr(apart.Ends, "back", lambda self: () if os.getpid() != here else back(self))
    assert together(place) == alone(place)


@pytest.mark.usefixtures("worth_it")
def test_without_memory_to_share_all_is_read_here(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: int) -> None:
        raise OSError

    monkeypatch.setattr("mmap.mmap", refused)
    assert together(place) == alone(place)


@pytest.mark.parametrize("turns", [(0,) * 9, (1,) * 9, (0, 1) * 5, (1, 0, 0, 0, 1, 0, 1, 1, 1)])
def test_two_ends_meet(turns: tuple[int, ...]) -> None:
    ends = apart.Ends(6)
    ways, taken = (ends.front(), ends.back()), ([], [])  # type: ignore[var-annotated]
    for turn in turns:
        taken[turn].extend(islice(ways[turn], 1))
    for way, some in zip(ways, taken, strict=True):
        some.extend(way)
    front, back = taken
    assert [*front, *reversed(back)] == [*range(6)]


def test_messages_come_whole_or_not_at_all() -> None:
    process = apart.Process(
        lambda line: (line.send(b""), line.send(line.receive() or b""), os.write(line._writing, b"\5"))
    )
    assert process.line.receive() == b""
    assert process.line.send(b"x" * 200_000)
    assert process.line.receive() == b"x" * 200_000
    assert process.line.receive() is None
    assert process.line.receive() is None
    assert not process.line.send(b"x" * 200_000)
    process.end()


def test_nobody_waits_for_a_process_that_is_stopped() -> None:
    """Not for what it says, nor for it to take what is too much for a pipe, nor for the rest of a message."""

    def half(line: apart.Line) -> None:
        os.write(line._writing, (300_000).to_bytes(8, "little") + b"x" * 5000)
        os.kill(os.getpid(), signal.SIGSTOP)

    for process in (apart.Process(lambda _: os.kill(os.getpid(), signal.SIGSTOP)), apart.Process(half)):
        assert process.line.receive() is None
        assert not process.line.send(b"x" * 2_000_000)
        process.end()


def test_a_process_that_was_stopped_for_a_moment_is_waited_for() -> None:
    process = apart.Process(lambda line: (time.sleep(1.2), line.send(b"x" * 300_000)))
    os.kill(process._child, signal.SIGSTOP)
    os.kill(process._child, signal.SIGCONT)
    assert process.line.receive() == b"x" * 300_000
    process.end()


def test_a_process_of_which_nothing_is_left_once_it_has_ended() -> None:
    """So it is where whoever started the program has it ignore SIGCHLD."""
    old = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        process = apart.Process(lambda line: line.send(b"said"))
        assert process.line.receive() == b"said"
        assert process.line.receive() is None
        while Path(f"/proc/{process._child}").exists():
            time.sleep(0.01)
        assert not process._is_stopped()
        process.end()
    finally:
        signal.signal(signal.SIGCHLD, old)


def test_no_process_is_forked_off_beside_threads(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    assert apart.possible()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert not apart.possible()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(threading, "active_count", lambda: 2)
    assert not apart.possible()
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("forked"))
    assert alone(place) == together(place)


# --- the index --------------------------------------------------------------------------------------------------------


@pytest.fixture
def whole(place: Path) -> Path:
    """The same with an index that says what the shards hold."""
    (place / "model-5.safetensors").unlink()
    held = {}
    for number in (0, 1, 2, 3, 4, 6):
        raw = (place / f"model-{number}.safetensors").read_bytes()
        header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
        held |= dict.fromkeys(header, f"model-{number}.safetensors")
    write_index(place, held)
    return place


def told(place: Path, *, forks: bool) -> Report:
    return api.check(place, access=Access(forks=forks))


def said_alike(place: Path) -> str:
    """The report or the error, which is the same whether one process reads or two."""
    said = []
    for forks in (False, True):
        try:
            said.append(repr(told(place, forks=forks)))
        except UnreadableError as error:
            said.append(str(error))
    assert said[0] == said[1]
    return said[0]


@pytest.fixture
def presumed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What became of each presumption."""
    found: list[bool] = []
    confirmed = Second.confirmed

    def watched(self: Second) -> bool:
        found.append(confirmed(self))
        return found[-1]

    monkeypatch.setattr(Second, "confirmed", watched)
    monkeypatch.setattr(reading, "agrees", lambda *_: pytest.fail("compared here"))
    return found


@pytest.mark.usefixtures("worth_it")
def test_an_index_that_is_in_step_is_compared_by_the_other_process(whole: Path, presumed: list[bool]) -> None:
    assert "MTP011" not in {finding.rule for finding in told(whole, forks=True).findings}
    assert presumed == [True]


@pytest.mark.usefixtures("worth_it")
@pytest.mark.parametrize("change", ["model-6", '"spread.weight"', "weight_map", "{"])
def test_an_index_that_is_not_is_told_of_as_ever(whole: Path, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    index = whole / "model.safetensors.index.json"
    index.write_text(index.read_text().replace(change, change[:-1] + "x", 1))
    said = said_alike(whole)
    assert any(word in said for word in ("MTP011", "index.json: "))


@pytest.mark.usefixtures("worth_it")
@pytest.mark.parametrize("ghosts", [0, 6000])
def test_nothing_is_refused_for_what_was_presumed(whole: Path, ghosts: int) -> None:
    """A list may be as long as the index names modules for, those that are nowhere among them; a broken index is told
    of before a list that is too long."""
    config = {"architectures": ["DeepseekV3ForCausalLM"], "quantization_config": {"quant_method": "fp8"}}
    config["quantization_config"]["ignored_layers"] = [f"x.{number}" for number in range(11_000)]  # type: ignore[index]
    (whole / "config.json").write_text(json.dumps(config))
    index = whole / "model.safetensors.index.json"
    if ghosts:
        value = json.loads(index.read_text())
        value["weight_map"] |= {f"mtp.{number}.weight": "model-6.safetensors" for number in range(ghosts)}
        index.write_text(json.dumps(value, indent=2))
    else:
        index.write_text(index.read_text()[:-9])
    said = said_alike(whole)
    assert ("MTP011" if ghosts else "index.json: line") in said


@pytest.mark.usefixtures("worth_it")
def test_where_the_other_process_ends_too_early_it_is_compared_here(
    whole: Path, monkeypatch: pytest.MonkeyPatch, forked: list[int]
) -> None:
    here, receive = os.getpid(), apart.Line.receive
    alone = told(whole, forks=False)

    def killed(self: apart.Line) -> bytes | None:
        message = receive(self)
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return message

    monkeypatch.setattr(apart.Line, "receive", killed)
    assert told(whole, forks=True) == alone
    assert forked
    assert all(map(gone, forked))


@pytest.mark.usefixtures("worth_it")
def test_an_index_that_somebody_writes_meanwhile_is_seen(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report is of what stands there in the end, not of what was there when the other process looked."""
    confirmed, index = Second.confirmed, whole / "model.safetensors.index.json"
    ghost = index.read_text().replace('"spread.weight"', '"ghost.weight"')

    def written(self: Second) -> bool:
        found = confirmed(self)
        if index.read_text() != ghost:
            index.write_text(ghost)
        return found

    monkeypatch.setattr(Second, "confirmed", written)
    assert told(whole, forks=True) == told(whole, forks=False)


@pytest.mark.usefixtures("worth_it")
@pytest.mark.parametrize("copied", [False, True])
def test_experts_that_lie_in_two_shards_are_seen(whole: Path, copied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of experts that are held many at a time the other process alone sees it, and all is read again."""
    spec = ("BF16", (4, 4)) if copied else ("F32", (1,))
    name = "weight" if copied else "weight_scale"
    tensors = {f"model.layers.2.mlp.experts.{expert}.down_proj.{name}": spec for expert in range(1, 11)}
    write_shard(whole / "model-7.safetensors", tensors)
    index = whole / "model.safetensors.index.json"
    held = json.loads(index.read_text())["weight_map"] | dict.fromkeys(tensors, "model-7.safetensors")
    write_index(whole, held)
    found: list[bool] = []
    confirmed = Second.confirmed
    monkeypatch.setattr(Second, "confirmed", lambda self: found.append(confirmed(self)) or found[-1])
    assert told(whole, forks=True) == told(whole, forks=False)
    assert found == [False, True]


@pytest.mark.usefixtures("worth_it")
def test_what_stops_an_analysis_of_something_presumed_is_no_answer(
    whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mtpfix import analysis

    analyse, index = analysis.analyse, whole / "model.safetensors.index.json"
    index.write_text(index.read_text().replace('"spread.weight"', '"ghost.weight"'))

    def stopped(checkpoint: Checkpoint, **asked: Any) -> Report:
        if not checkpoint.index or not checkpoint.index.ghosts:
            raise UnreadableError("too much", subject="model-1.safetensors")
        return analyse(checkpoint, **asked)

    monkeypatch.setattr(analysis, "analyse", stopped)
    assert "MTP011" in {finding.rule for finding in told(whole, forks=True).findings}


def test_a_line_may_have_any_descriptors() -> None:
    """`select` takes none from 1,024 on, which a program that was started with many files open may have."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 3000:
        pytest.skip("the system lets nobody have so many")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 3000), hard))
    try:
        low = os.pipe()
        line = apart.Line(*(os.dup2(end, 2000 + at) for at, end in enumerate(low)))
        assert line.send(b"hello")
        assert line.receive() == b"hello"
        line.close()
        for end in low:
            os.close(end)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
