"""mtpfix as a process: start-up, pipes, terminals, encodings, and the whole path on a tiny checkpoint."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import resource
import shlex
import shutil
import struct
import subprocess
import sys
import termios
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import tiny

import mtpfix

MTPFIX = (sys.executable, "-m", "mtpfix")


def environment(**more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("MTPFIX", "COLUMNS"))}
    for name in ("NO_COLOR", "FORCE_COLOR"):
        kept.pop(name, None)
    return {**kept, **more}


def run(*args: Any, env: dict[str, str] | None = None, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MTPFIX, *map(str, args)],
        capture_output=True,
        encoding="utf-8",
        env=environment(**(env or {})),
        timeout=120,
        check=False,
        **more,
    )


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    return tiny.qwen3_next(tmp_path / "model", "mtp.layers.0*")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_the_caller_closed_lead_nowhere(broken: Path, closed: str) -> None:
    for command, code in (("check", 1), ("apply", 0)):
        line = f"{shlex.join(MTPFIX)} {command} {broken} {closed}"
        found = subprocess.run(line, shell=True, env=environment(), capture_output=True, check=False)
        assert (found.returncode, b"fault of mtpfix" in found.stderr) == (code, False)


def test_a_folder_that_begins_with_a_dash_is_named_as_a_command_takes_it(tmp_path: Path) -> None:
    tiny.qwen3_next(tmp_path / "-x", "mtp.layers.0*")
    assert "Fix: mtpfix apply ./-x\n" in run("check", "--", "-x", cwd=tmp_path).stdout
    assert run("apply", "./-x", cwd=tmp_path).returncode == 0


def test_help_is_quick() -> None:
    """150 ms of processor time, once in ten: what a clock shows on a machine that does nothing else."""
    assert any(processor_time("--help") < 0.150 for _ in range(10))


def processor_time(*args: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(*args)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def test_help_imports_no_engine_and_no_parser() -> None:
    code = (
        "import sys; from mtpfix.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(*sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    loaded = set(done.stderr.split())
    ours = {name for name in loaded if name.startswith("mtpfix")}
    assert ours == {"mtpfix", "mtpfix.cli", "mtpfix.cli.guard", "mtpfix.cli.process", "mtpfix.errors"}
    assert not loaded & {"json", "jsonpatch", "msgspec", "orjson", "fnmatch2", "numpy", "huggingface_hub", "rich"}


# What a check of a folder does without: each of these takes milliseconds to import.
HEAVY = {
    *("asyncio", "email", "importlib.resources", "pathlib", "shutil", "tempfile", "zipfile"),
    *("dataclasses", "fnmatch2", "huggingface_hub", "jinja2", "numpy", "rich", "yaml"),
    *("mtpfix.engines.sglang.quark", "mtpfix.engines.vllm.quark", "mtpfix.formats.awq", "mtpfix.patterns"),
    *(
        "mtpfix.grafting",
        "mtpfix.hub",
        "mtpfix.output.html",
        "mtpfix.output.json_v1",
        "mtpfix.output.sarif",
        "mtpfix.store",
    ),
}


def test_check_imports_what_it_needs(broken: Path) -> None:
    assert all(find_spec(name) for name in HEAVY if name.startswith("mtpfix"))  # none has another name by now
    code = (
        "import sys; from mtpfix.cli import main\n"
        "try: main(['check', sys.argv[1]])\n"
        "except SystemExit: pass\n"
        "print(*sorted(sys.modules), file=sys.stderr)"
    )
    command = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}; {code}", str(broken)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment())
    assert "fixable" in done.stdout
    assert HEAVY.isdisjoint(done.stderr.split())


def test_the_version() -> None:
    assert run("--version").stdout == f"mtpfix, version {mtpfix.__version__}\n"


@pytest.mark.parametrize("command", ["check", "list", "apply"])
def test_what_is_no_checkpoint(tmp_path: Path, command: str) -> None:
    for path in (tmp_path / "none", tmp_path):
        done = run(command, path)
        assert done.returncode == 3
        assert done.stdout == ""
        assert done.stderr.startswith("Error: ")
        assert "Traceback" not in done.stderr


def test_check_apply_undo(broken: Path) -> None:
    before = tiny.contents(broken)
    first = json.loads(run("check", broken, "--format", "json").stdout)
    assert first["status"] == "fixable"
    assert tiny.contents(broken) == before

    dry = run("apply", broken, "--dry-run")
    assert dry.returncode == 1
    assert tiny.contents(broken) == before
    assert [line for line in dry.stdout.splitlines() if line.startswith("+") and "mtp" in line]

    done = run("apply", broken)
    assert (done.returncode, done.stdout) == (0, dry.stdout)
    after = tiny.contents(broken)
    assert {name for name in before if before[name] != after[name]} == {"config.json", "hf_quant_config.json"}
    assert run("check", broken).returncode == 0

    again = run("apply", broken)
    assert (again.returncode, again.stdout) == (0, "")
    assert tiny.contents(broken) == after

    undone = run("undo", broken)
    assert undone.returncode == 0
    assert tiny.contents(broken) == before
    assert run("undo", broken).returncode != 0


def test_the_plan_of_the_json_is_what_apply_does(broken: Path) -> None:
    import jsonpatch

    files = json.loads(run("check", broken, "--format", "json").stdout)["plan"]["files"]
    patched = {
        name: jsonpatch.apply_patch(json.loads((broken / name).read_text("utf-8")), ops) for name, ops in files.items()
    }
    run("apply", broken)
    assert {name: json.loads((broken / name).read_text("utf-8")) for name in files} == patched


@pytest.mark.skipif(shutil.which("patch") is None, reason="no patch program")
def test_the_diff_is_a_patch(broken: Path) -> None:
    done = run("apply", broken, "--dry-run")
    run("apply", broken)
    after = tiny.contents(broken)
    run("undo", broken)
    subprocess.run(["patch", "-p1", "--quiet"], input=done.stdout, text=True, cwd=broken, check=True)
    assert tiny.contents(broken) == after


def test_explain_names_the_entry(broken: Path) -> None:
    done = run("explain", broken, "mtp.**", "--engine", "vllm==0.33.0")
    assert done.returncode == 0
    assert '"mtp.layers.0*"' in done.stdout
    rows = json.loads(run("explain", broken, "mtp.fc", "--format", "json").stdout)["decisions"]
    assert {row["module"] for row in rows} == {"mtp.fc"}
    missing = run("explain", broken, "mtp.nothing.*")
    assert missing.returncode == 2
    assert missing.stderr.startswith("Error: ")


def test_list_shows_what_is_declared(broken: Path) -> None:
    rows = json.loads(run("list", broken, "--format", "json").stdout)["tensors"]
    named = {row["name"]: row for row in rows}
    assert named["mtp.fc.weight"] == {
        "name": "mtp.fc.weight",
        "dtype": "BF16",
        "shape": [128, 256],
        "shard": "model.safetensors",
        "stored": "bf16",
        "declared": "plain",
    }
    assert named["mtp.layers.0.mlp.experts.3.down_proj.weight"]["declared"] == "plain"
    assert (
        "mtp.layers.0.mlp.experts.{0..3}.{gate,up,down}_proj.weight ×12"
        in run("list", broken, env={"COLUMNS": "120"}).stdout
    )


def test_the_library(broken: Path) -> None:
    before = tiny.contents(broken)
    report = mtpfix.check(broken)
    plan = mtpfix.plan(report)
    assert mtpfix.apply(plan) == tuple(plan.after)
    assert mtpfix.check(broken).status == "clean"
    assert sorted(mtpfix.undo(broken)) == ["config.json", "hf_quant_config.json"]
    assert tiny.contents(broken) == before
    assert mtpfix.ensure(broken).status == "clean"
    (broken / "config.json").write_bytes(before["config.json"] + b" ")
    with pytest.raises(mtpfix.ConflictError):
        mtpfix.undo(broken)


def test_a_plan_that_has_gone_stale_is_refused(broken: Path) -> None:
    plan = mtpfix.plan(mtpfix.check(broken))
    (broken / "config.json").write_bytes((broken / "config.json").read_bytes() + b"\n")
    before = tiny.contents(broken)
    with pytest.raises(mtpfix.ConflictError):
        mtpfix.apply(plan)
    assert tiny.contents(broken) == before


def test_a_reader_that_goes_away(broken: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*MTPFIX, "check", broken], stdout=writer, stderr=subprocess.PIPE, env=environment(), check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_terminal_without_unicode(broken: Path) -> None:
    done = run("check", broken, env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert done.returncode == 1
    assert done.stdout.isascii()
    assert done.stdout.startswith("x model: fixable; draft fails in sglang and older vllm\n")


def test_markdown_without_unicode(broken: Path) -> None:
    done = run("check", broken, "--format", "markdown", env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert done.stdout.isascii()
    assert done.stdout.startswith("## x ")
    assert re.search(r"\\u[0-9a-f]{4}", done.stdout) is None


def on_terminal(columns: int, *args: Any, **env: str) -> str:
    """What a terminal of this width is sent."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = subprocess.Popen(
        [*MTPFIX, *map(str, args)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment(**{"TERM": "xterm", "LC_ALL": "C.UTF-8", **env}),
    )
    os.close(slave)
    chunks = []
    try:
        while chunk := os.read(master, 65536):
            chunks.append(chunk)
    except OSError:
        pass
    os.close(master)
    process.wait(timeout=60)
    return b"".join(chunks).decode("utf-8").replace("\r\n", "\n")


def test_a_terminal_gets_colour_and_its_width(broken: Path) -> None:
    shown = on_terminal(70, "check", broken)
    assert "\x1b[" in shown
    bare = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert max(map(len, bare.splitlines())) <= 70
    assert on_terminal(70, "check", broken, NO_COLOR="1") == "".join(f"{line.rstrip()}\n" for line in bare.splitlines())
    assert "\x1b" not in on_terminal(70, "check", broken, TERM="dumb")


@pytest.mark.parametrize("env", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_diff_steers_a_terminal_with_or_without_colour(env: dict[str, str], broken: Path) -> None:
    """U+009B begins a sequence in many terminals, U+202E turns the order of what follows; JSON may hold both as they
    are."""
    config = broken / "config.json"
    text = config.read_text("utf-8")
    config.write_text(text.replace('"mtp.layers.0*"', '"\u202e\u009b31m", "mtp.layers.0*"', 1), "utf-8")
    shown = on_terminal(80, "apply", broken, "--dry-run", **env)
    assert "\\u202e\\x9b31m" in shown
    assert "\u202e" not in shown
    assert "\u009b" not in shown
    assert "\u202e\u009b31m" in run("apply", broken, "--dry-run").stdout  # a pipe gets what `patch` needs


def test_a_pipe_gets_none(broken: Path) -> None:
    assert "\x1b" not in run("check", broken).stdout + run("apply", broken, "--dry-run").stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from mtpfix.cli import main; main(prog_name='mtpfix')"],
        capture_output=True,
        text=True,
        env=environment(_MTPFIX_COMPLETE=f"{shell}_source"),
        check=False,
    )
    assert "mtpfix" in done.stdout


def test_apply_tells_programs_what_it_did(broken: Path) -> None:
    """The same plan as `check` has, what would change, what changed, and what the checkpoint is then."""
    plan = json.loads(run("check", broken, "--format", "json").stdout)["plan"]
    would = run("apply", broken, "--dry-run", "--format", "json")
    assert would.returncode == 1
    planned = json.loads(would.stdout)
    assert (planned["outcome"], planned["report"]["plan"], planned["afterwards"]) == ("planned", plan, None)
    assert planned["diff"] == run("apply", broken, "--dry-run").stdout
    done = json.loads(run("apply", broken, "--format", "json").stdout)
    assert (done["outcome"], done["files"]) == ("done", planned["files"])
    assert (done["report"]["status"], done["afterwards"]["status"]) == ("fixable", "clean")
    again = json.loads(run("apply", broken, "--format", "json").stdout)
    assert (again["outcome"], again["files"], again["diff"]) == ("nothing", [], "")


def test_apply_tells_who_still_fails(broken: Path) -> None:
    """SGLang looks this draft up under the target's names: no entry mends it there."""
    would, done, again = (run("apply", broken, *more) for more in (("--dry-run",), (), ()))
    for said in (would, done, again):
        assert "Still fails: sglang 0.5.9–0.5.23, draft: " in said.stderr
        assert "MTP015 not-representable: no safe entry covers " in " ".join(said.stderr.split())
    assert run("apply", broken, "--engine", "vllm").stderr == "Nothing to do: the checkpoint is clean.\n"


def test_errors_name_the_checkpoint_as_it_was_given(broken: Path) -> None:
    (broken / "config.json").write_text("{")
    for args in (("check", broken, broken), ("list", broken), ("explain", broken, "x"), ("apply", broken)):
        assert run(*args).stderr.startswith(f"Error: {broken}/config.json: line 1 ")
    here = run("check", ".", cwd=broken).stderr
    assert here.startswith("Error: ./config.json: line 1 ")


def test_ctrl_c_while_modules_are_imported_has_no_traceback() -> None:
    program = """
import sys

class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupted())
from mtpfix.__main__ import run
run("mtpfix")
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, b"", b"")
