"""A command run under ptrace: stopped before and after each system call that changes a file system.

What is wanted at a stop is said by a function: go on, kill, let the call fail, let it write only half. It needs no
package and no strace, but Linux on x86-64 and a kernel that lets a process trace its children; `why_not` says what is
missing. A seccomp filter picks the calls, so that everything else runs at full speed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import struct
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

# The numbers of asm/unistd_64.h; where the paths and descriptors are among the arguments.
CALLS: dict[int, tuple[str, str]] = {
    1: ("write", "f"), 18: ("pwrite64", "f"), 20: ("writev", "f"), 296: ("pwritev", "f"), 328: ("pwritev2", "f"),
    40: ("sendfile", "f"), 326: ("copy_file_range", "--f"), 275: ("splice", "--f"),
    2: ("open", "p"), 85: ("creat", "p"), 257: ("openat", "-p"), 437: ("openat2", "-p"),
    76: ("truncate", "p"), 77: ("ftruncate", "f"), 285: ("fallocate", "f"),
    82: ("rename", "pp"), 264: ("renameat", "-p-p"), 316: ("renameat2", "-p-p"),
    86: ("link", "pp"), 265: ("linkat", "-p-p"), 88: ("symlink", "-p"), 266: ("symlinkat", "--p"),
    87: ("unlink", "p"), 263: ("unlinkat", "-p"), 83: ("mkdir", "p"), 258: ("mkdirat", "-p"), 84: ("rmdir", "p"),
    133: ("mknod", "p"), 259: ("mknodat", "-p"),
    90: ("chmod", "p"), 91: ("fchmod", "f"), 268: ("fchmodat", "-p"), 452: ("fchmodat2", "-p"),
    92: ("chown", "p"), 93: ("fchown", "f"), 94: ("lchown", "p"), 260: ("fchownat", "-p"),
    132: ("utime", "p"), 235: ("utimes", "p"), 261: ("futimesat", "-p"), 280: ("utimensat", "fp"),
    74: ("fsync", "f"), 75: ("fdatasync", "f"), 162: ("sync", ""), 277: ("sync_file_range", "f"), 306: ("syncfs", "f"),
    188: ("setxattr", "p"), 189: ("lsetxattr", "p"), 190: ("fsetxattr", "f"), 197: ("removexattr", "p"),
    198: ("lremovexattr", "p"), 199: ("fremovexattr", "f"), 73: ("flock", "f"),
}  # fmt: skip
_OPENS = {2: 1, 257: 2}  # which argument holds the flags
_CHANGES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_COUNTED = {1, 18}  # whose third argument is how much to write
When = Literal["before", "after"]


class Call(NamedTuple):
    """A call: its place among those of the run, its name, the files it is about."""

    number: int
    name: str
    paths: tuple[str, ...]


class Kill(NamedTuple):
    """SIGKILL: a call that it stops before is not made."""


class Fail(NamedTuple):
    """The call is not made; it says that it failed."""

    code: int


class Half(NamedTuple):
    """The call writes half of what it was given."""


class Send(NamedTuple):
    """A signal, before the call is made."""

    signal: int


Act = Kill | Fail | Half | Send | None
Want = Callable[[Call, When], Act]


@dataclass
class Ended:
    """How a run ended: its exit code or minus its signal, what it said, its calls."""

    code: int = 0
    out: str = ""
    err: str = ""
    calls: list[Call] = field(default_factory=list)


def go_on(call: Call, when: When) -> Act:
    return None


def run(words: Sequence[str], want: Want = go_on, *, env: Mapping[str, str] | None = None) -> Ended:
    """Run a command to its end. `want` is asked before and after each of its calls that change a file system."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        pid = os.fork()
        if not pid:
            _become(words, os.environ if env is None else env, out, err)
        ended = _Tracer(pid, want).run()
        for file in (out, err):
            file.seek(0)
        ended.out, ended.err = out.read().decode(errors="replace"), err.read().decode(errors="replace")
    return ended


@cache
def why_not() -> str:
    """Why nothing can be traced here; "" where it can."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return f"system calls are traced on Linux x86-64 only, not on {platform.system()} {platform.machine()}"
    try:
        ended = run(["/bin/sh", "-c", "echo a > /dev/null"])
    except OSError as error:
        return f"this kernel lets nothing be traced: {error}"
    return "" if any("/dev/null" in call.paths for call in ended.calls) else "no calls were seen"


# --- The child --------------------------------------------------------------------------------------------------------

_C = ctypes.CDLL(None, use_errno=True)
_C.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_C.ptrace.restype = ctypes.c_long
_TRACEME, _CONT, _GETREGS, _SETREGS, _SYSCALL, _SETOPTIONS = 0, 7, 12, 13, 24, 0x4200
_OPTIONS = 0x1 | 0x2 | 0x4 | 0x8 | 0x10 | 0x80 | 0x100000  # SYSGOOD FORK VFORK CLONE EXEC SECCOMP EXITKILL
_EVENT_SECCOMP = 7


def _become(words: Sequence[str], env: Mapping[str, str], out: IO[bytes], err: IO[bytes]) -> None:
    """Turn this process into the command, traced by its parent."""
    try:
        os.setsid()
        for number, file in ((1, out), (2, err)):
            os.dup2(file.fileno(), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # a shell, or nohup, may have had them ignored
            signal.signal(one, signal.SIG_DFL)
        if _C.ptrace(_TRACEME, 0, None, None):
            os._exit(125)
        os.kill(os.getpid(), signal.SIGSTOP)
        _filter()
        os.execvpe(words[0], list(words), dict(env))
    finally:
        os._exit(126)


def _filter() -> None:
    """From now on, stop at the calls that change a file system."""
    program: list[tuple[int, int, int, int]] = [(0x20, 0, 0, 0)]  # load the number
    for number in CALLS:
        if number in _OPENS:  # ... and then the flags
            program += [(0x15, 0, 3, number), (0x20, 0, 0, 16 + 8 * _OPENS[number]), (0x45, 0, 1, _CHANGES)]
        else:
            program += [(0x15, 0, 1, number)]
        program += [(0x06, 0, 0, 0x7FF00000)]  # stop
        if number in _OPENS:
            program += [(0x20, 0, 0, 0)]
    program += [(0x06, 0, 0, 0x7FFF0000)]  # go on
    raw = b"".join(struct.pack("<HBBI", *line) for line in program)
    buffer = ctypes.create_string_buffer(raw)
    head = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(program), ctypes.addressof(buffer)))
    if _C.prctl(38, 1, 0, 0, 0) or _C.prctl(22, 2, ctypes.c_void_p(ctypes.addressof(head)), 0, 0):
        os._exit(124)


# --- The parent -------------------------------------------------------------------------------------------------------

_WORDS = (
    "r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi", "rdi", "orig_rax",
    "rip", "cs", "eflags", "rsp", "ss", "fs_base", "gs_base", "ds", "es", "fs", "gs",
)  # fmt: skip
_ARGUMENTS = ("rdi", "rsi", "rdx", "r10", "r8", "r9")
_NO_CALL = 2**64 - 1


def _ptrace(request: int, pid: int, data: Any = None) -> None:
    if _C.ptrace(request, pid, None, data):
        code = ctypes.get_errno()
        raise OSError(code, f"ptrace: {os.strerror(code)}")


def _registers(pid: int) -> dict[str, int]:
    buffer = ctypes.create_string_buffer(8 * len(_WORDS))
    _ptrace(_GETREGS, pid, buffer)
    return dict(zip(_WORDS, struct.unpack(f"<{len(_WORDS)}Q", buffer.raw), strict=True))


def _set(pid: int, registers: Mapping[str, int], **changed: int) -> None:
    values = {**registers, **changed}
    buffer = ctypes.create_string_buffer(struct.pack(f"<{len(_WORDS)}Q", *(values[word] for word in _WORDS)))
    _ptrace(_SETREGS, pid, buffer)


class _Tracer:
    """One command's processes and threads."""

    def __init__(self, pid: int, want: Want) -> None:
        self._pid, self._want = pid, want
        self._open: dict[int, tuple[Call, Act]] = {}  # calls that are being made, by thread
        self._ended = Ended()

    def run(self) -> Ended:
        _, status = os.waitpid(self._pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            raise OSError(errno.EPERM, f"the child ended with {os.waitstatus_to_exitcode(status)}")
        _ptrace(_SETOPTIONS, self._pid, _OPTIONS)
        _ptrace(_CONT, self._pid)
        try:
            while True:
                try:
                    tid, status = os.waitpid(-self._pid, 0x40000000)  # __WALL, of the child's session
                except ChildProcessError:
                    return self._ended
                if os.WIFSTOPPED(status):
                    self._stopped(tid, os.WSTOPSIG(status), status >> 16)
                elif tid == self._pid:
                    self._ended.code = os.waitstatus_to_exitcode(status)
        except BaseException:
            os.killpg(self._pid, signal.SIGKILL)
            raise

    def _stopped(self, tid: int, number: int, event: int) -> None:
        try:
            if event == _EVENT_SECCOMP:
                self._entered(tid)
            elif number == signal.SIGTRAP | 0x80:
                self._left(tid)
            else:
                new = event or number == signal.SIGSTOP  # a thread's first stop
                _ptrace(_CONT, tid, None if new else number)
        except ProcessLookupError:  # killed meanwhile
            return

    def _entered(self, tid: int) -> None:
        registers = _registers(tid)
        arguments = [registers[word] for word in _ARGUMENTS]
        name, shape = CALLS[registers["orig_rax"]]
        call = Call(len(self._ended.calls), name, tuple(_paths(tid, shape, arguments)))
        self._ended.calls.append(call)
        act = self._want(call, "before")
        if isinstance(act, Kill):
            os.kill(self._pid, signal.SIGKILL)
            return
        if isinstance(act, Fail):
            _set(tid, registers, orig_rax=_NO_CALL)
        elif isinstance(act, Half) and registers["orig_rax"] in _COUNTED:
            _set(tid, registers, rdx=registers["rdx"] // 2)
        elif isinstance(act, Send):
            os.kill(self._pid, act.signal)
        self._open[tid] = call, act
        _ptrace(_SYSCALL, tid)

    def _left(self, tid: int) -> None:
        call, act = self._open.pop(tid, (None, None))
        if call is None:
            _ptrace(_SYSCALL, tid)
            return
        if isinstance(act, Fail):
            _set(tid, _registers(tid), rax=(1 << 64) - act.code)
        if isinstance(self._want(call, "after"), Kill):
            os.kill(self._pid, signal.SIGKILL)
            return
        _ptrace(_CONT, tid)


def _paths(tid: int, shape: str, arguments: Sequence[int]) -> list[str]:
    return [
        _text(tid, value) if kind == "p" else _file(tid, value)
        for kind, value in zip(shape, arguments, strict=False)
        if kind != "-" and not (kind == "p" and not value)
    ]


def _file(tid: int, descriptor: int) -> str:
    try:
        return os.readlink(f"/proc/{tid}/fd/{descriptor & 0xFFFFFFFF}")
    except OSError:
        return f"fd {descriptor & 0xFFFFFFFF}"


def _text(tid: int, address: int) -> str:
    with Path(f"/proc/{tid}/mem").open("rb", buffering=0) as memory:
        raw = b""
        while b"\0" not in raw and len(raw) < 4096:
            memory.seek(address + len(raw))
            raw += memory.read(256 - (address + len(raw)) % 256)
    return os.fsdecode(raw.partition(b"\0")[0])
