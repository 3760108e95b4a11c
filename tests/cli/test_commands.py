"""The commands as a user types them, over reports made by hand: what goes where, and the exit codes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import factories
import pytest
from click.testing import CliRunner, Result

import mtpfix
from mtpfix import api
from mtpfix.checkpoint.access import Access
from mtpfix.cli import COMMANDS, main
from mtpfix.errors import ConflictError, UnreadableError, UsageError, WriteError
from mtpfix.model import Explanation, Plan, Report, Source
from mtpfix.store.states import Blob, Change, Content, Stamp, UndoRecord

Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    for name in ("NO_COLOR", "FORCE_COLOR", "MTPFIX_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")

    def runner(*args: str, **more: Any) -> Result:
        return CliRunner().invoke(main, args, prog_name="mtpfix", **more)

    return runner


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> dict[str, Report | Exception]:
    """What `check` says of each source, and what it was asked with."""
    table: dict[str, Report | Exception] = {
        "fixable": factories.fixable(),
        "clean": factories.clean(),
        "broken": factories.not_fixable(),
        "gone": UnreadableError("no such folder", subject="gone", hint="check the path"),
    }

    def check(path: str, **asked: Any) -> Report:
        found = table[path]
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(api, "check", check)
    return table


@pytest.mark.parametrize("option", ["-h", "--help"])
@pytest.mark.parametrize("command", ["", *(name for name, _ in COMMANDS)])
def test_help(run: Run, command: str, option: str) -> None:
    result = run(*command.split(), option)
    assert result.exit_code == 0
    assert result.stdout.startswith("Usage: mtpfix")
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_the_table_of_commands_is_what_the_commands_say() -> None:
    for name, line in COMMANDS:
        command = main.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        assert (command.name, command.short_help) == (name, line)
        assert command.help


def test_version(run: Run) -> None:
    assert run("--version").stdout == f"mtpfix, version {mtpfix.__version__}\n"


def test_a_mistyped_command_is_told_the_nearest(run: Run) -> None:
    result = run("chek", ".")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.endswith("Error: No such command 'chek'. Did you mean 'check'?\n")


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("clean",), 0),
        (("fixable",), 1),
        (("fixable", "-e"), 0),
        (("broken", "--exit-zero"), 0),
        (("broken", "--format", "sarif"), 0),
        (("broken", "--format", "github"), 1),
        (("gone", "--format", "sarif"), 3),
        (("clean", "broken"), 1),
        (("clean", "clean"), 0),
        (("gone",), 3),
        (("gone", "-e"), 3),
        (("gone", "fixable"), 3),
        ((), 2),
        (("",), 2),
        (("clean", "--format", "xml"), 2),
        (("clean", "--scope", "some"), 2),
        (("clean", "--engine", ""), 2),
        (("clean", "--nonsense"), 2),
    ],
)
@pytest.mark.usefixtures("reports")
def test_check_exit_codes(run: Run, args: tuple[str, ...], code: int) -> None:
    assert run("check", *args).exit_code == code


@pytest.mark.usefixtures("reports")
def test_check_json_is_one_object_or_one_array(run: Run) -> None:
    assert json.loads(run("check", "fixable", "--format", "json").stdout)["status"] == "fixable"
    several = run("check", "clean", "gone", "--format", "json")
    assert [document["status"] for document in json.loads(several.stdout)] == ["clean"]
    told = "1 of 2 sources could not be inspected.\n"
    assert several.stderr == f"Error: gone: no such folder\nHint: check the path\n{told}"


@pytest.mark.usefixtures("reports")
def test_an_error_leaves_stdout_empty_also_with_json(run: Run) -> None:
    result = run("check", "gone", "--format", "json")
    assert (result.stdout, result.stderr) == ("", "Error: gone: no such folder\nHint: check the path\n")


@pytest.mark.usefixtures("reports")
def test_check_speaks_on_stdout_only_and_without_colour_in_a_pipe(run: Run) -> None:
    result = run("check", "fixable")
    assert result.stdout.startswith("✗ ")
    assert "\x1b" not in result.stdout
    assert result.stderr == ""


@pytest.mark.usefixtures("reports")
def test_colour_can_be_forced_and_refused(run: Run) -> None:
    assert "\x1b[" in run("check", "fixable", env={"FORCE_COLOR": "1"}).stdout
    assert "\x1b[" not in run("check", "fixable", env={"FORCE_COLOR": "1", "NO_COLOR": "1"}).stdout


@pytest.mark.usefixtures("reports")
def test_the_width_follows_the_terminal(run: Run) -> None:
    for columns, widest in (("72", 72), ("20", 60), ("400", 120)):
        lines = run("check", "fixable", env={"COLUMNS": columns}).stdout.splitlines()
        assert widest - 15 < max(map(len, lines)) <= widest


@pytest.mark.usefixtures("reports")
def test_quiet_names_sources_with_errors(run: Run) -> None:
    result = run("check", "clean", "broken", "--format", "quiet")
    assert result.stdout == "/data/gemma-4-assistant-NVFP4\n"


@pytest.mark.usefixtures("reports")
def test_output_goes_to_a_file_where_there_is_something_to_write(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "report.txt"
    result = run("check", "fixable", "-o", str(path), env={"FORCE_COLOR": "1"})
    assert (result.exit_code, result.stdout) == (1, "")
    assert path.read_text("utf-8").startswith("✗ Qwen3-Next-80B")
    verdict = "Qwen3-Next-80B-A3B-Instruct-NVFP4: fixable; draft fails in vllm, degrades in sglang"
    assert " ".join(result.stderr.split()) == f"Wrote {path}: {verdict}."
    nothing = tmp_path / "nothing.txt"
    assert run("check", "clean", "--format", "quiet", "-o", str(nothing)).exit_code == 0
    assert not nothing.exists()
    assert run("check", "clean", "-o", "-").stdout.startswith("✓ ")


@pytest.mark.usefixtures("reports")
def test_a_file_that_cannot_be_written(run: Run, tmp_path: Path) -> None:
    result = run("check", "clean", "-o", str(tmp_path / "no" / "such.txt"))
    assert result.exit_code == 3
    assert "cannot write the report: No such file or directory" in result.stderr


@pytest.mark.usefixtures("reports")
def test_options_come_from_the_environment(run: Run) -> None:
    env = {"MTPFIX_CHECK_FORMAT": "quiet", "MTPFIX_CHECK_EXIT_ZERO": "1"}
    result = run("check", "broken", env=env)
    assert (result.exit_code, result.stdout) == (0, "/data/gemma-4-assistant-NVFP4\n")


def test_every_option_has_the_variable_of_its_own_name() -> None:
    for name, _ in COMMANDS:
        command = main.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        for option in command.params:
            if option.param_type_name == "option":
                assert f"--{(option.name or '').replace('_', '-')}" in option.opts


def test_check_passes_its_options_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(api, "check", lambda path, **more: asked.append((path, more)) or factories.clean())
    run("check", "a", "b", "--engine", "vllm>=0.24", "--engine", "sglang", "--scope", "all", "--revision", "v1")
    more = {"engines": ("vllm>=0.24", "sglang"), "scope": "all", "atlas": False, "access": Access("v1", forks=True)}
    assert asked == [(name, more) for name in "ab"]


def test_a_format_that_draws_a_map_gets_the_decisions(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(api, "check", lambda _path, **more: asked.append(more["atlas"]) or factories.clean())
    for name in ("human", "html", "json"):
        run("check", "a", "--format", name)
    assert asked == [False, True, False]


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (UsageError("no such engine: x", hint="one of vllm"), 2, "Error: no such engine: x\nHint: one of vllm\n"),
        (
            UnreadableError("it is \x1b[31m\u202ebad\n", subject="x\x07"),
            3,
            "Error: x\\x07: it is \\x1b[31m\\u202ebad\\x0a\n",
        ),
        (ConflictError("config.json changed", subject="config.json"), 3, "Error: config.json changed\n"),
        (PermissionError(13, "Permission denied", "a.json"), 3, "Error: a.json: Permission denied\n"),
        (RecursionError("deep"), 3, "Error: unexpected RecursionError: deep\nHint: this is a fault of mtpfix: "),
        (MemoryError(), 3, "Error: not enough memory\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_every_failure_has_its_words_and_code(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, text: str
) -> None:
    def check(*_args: Any, **_more: Any) -> Report:
        raise error

    monkeypatch.setattr(api, "check", check)
    result = run("check", "x")
    assert result.exit_code == code
    assert result.stdout == ""
    assert result.stderr.startswith(text)
    assert "Traceback" not in result.stderr


def test_debug_shows_the_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(*_args: Any, **_more: Any) -> Report:
        raise ValueError("odd")

    monkeypatch.setattr(api, "check", check)
    result = run("check", "x", env={"MTPFIX_DEBUG": "1"})
    assert result.exit_code == 3
    assert result.stderr.startswith("Traceback")
    assert "Error: unexpected ValueError: odd" in result.stderr


def test_hostile_arguments_are_escaped(run: Run) -> None:
    result = run("list", "a", "b\x1b[31m")
    assert result.exit_code == 2
    assert "\x1b" not in result.stderr
    assert "\\x1b[31m" in result.stderr


# apply


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch, reports: dict[str, Report | Exception]) -> list[Any]:
    """What was written; a write mends `fixable`."""
    done: list[Any] = []

    def apply(repair: Report) -> tuple[str, ...]:
        done.append(repair)
        reports["fixable"] = factories.clean()
        return tuple(repair.plan.after)

    monkeypatch.setattr(api, "apply", apply)
    return done


def test_dry_run_shows_the_diff_and_writes_nothing(run: Run, writes: list[Any]) -> None:
    result = run("apply", "fixable", "--dry-run")
    assert result.exit_code == 1
    assert not writes
    assert result.stdout.startswith("--- ")
    assert '+{"quantization_config": {"ignore": ["lm_head", "mtp.layers.0*", "mtp.fc"]}}' in result.stdout
    assert result.stderr.startswith("Would change config.json: 1 entry added.\nChecked: 49,340 modules")


def test_apply_writes_and_looks_again(run: Run, writes: list[Any]) -> None:
    result = run("apply", "fixable")
    assert result.exit_code == 0
    assert len(writes) == 1
    assert result.stdout == run("apply", "fixable", "--dry-run").stdout or result.stdout.startswith("--- ")
    assert "Changed config.json. Take back: mtpfix undo fixable" in result.stderr
    again = run("apply", "fixable")
    assert (again.exit_code, again.stdout) == (0, "")
    assert again.stderr == "Nothing to do: the checkpoint is clean.\n"
    assert len(writes) == 1


def test_apply_tells_what_is_left(run: Run, writes: list[Any], reports: dict[str, Report | Exception]) -> None:
    reports["partly"] = factories.fixable(
        status="partly-fixable", findings=(factories.finding(), *factories.not_fixable().findings[:1])
    )
    result = run("apply", "partly")
    assert result.exit_code == 1
    assert "error[MTP007] misexported: pre_projection is stored as nvfp4" in result.stderr
    assert "  help: export again with the projections left out" in result.stderr


def test_apply_never_edits_what_it_cannot_mend(run: Run, writes: list[Any]) -> None:
    for args in (("broken",), ("broken", "--dry-run")):
        result = run("apply", *args)
        assert (result.exit_code, result.stdout, writes) == (1, "", [])
        assert result.stderr.startswith("Nothing was changed: no safe edit of the JSON files mends this.\n")
        assert "1 fix is held back as unsafe:\n  - set num_hidden_layers to 1" in result.stderr
        assert "  help: export again" in result.stderr


def test_unsafe_fixes_are_asked_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(api, "check", lambda path, **more: asked.append(more) or factories.clean())
    run("apply", "x", "--unsafe-fixes", "--engine", "vllm")
    run("apply", "x")
    assert [more["unsafe"] for more in asked] == [True, False]
    assert asked[0]["engines"] == ("vllm",)


@pytest.mark.parametrize(("answer", "code", "count"), [("y\n", 0, 1), ("n\n", 1, 0), ("", 130, 0)])
def test_a_person_is_asked(
    run: Run, writes: list[Any], monkeypatch: pytest.MonkeyPatch, answer: str, code: int, count: int
) -> None:
    monkeypatch.setattr("mtpfix.cli.apply.interactive", lambda: True)
    result = run("apply", "fixable", input=answer)
    assert (result.exit_code, len(writes)) == (code, count)
    assert ("Nothing was changed." in result.stderr) == (answer == "n\n")


def test_yes_does_not_ask(run: Run, writes: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtpfix.cli.apply.interactive", lambda: True)
    assert run("apply", "fixable", "-y", input="").exit_code == 0
    assert len(writes) == 1


def test_a_write_that_fails(run: Run, writes: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def apply(_repair: Report) -> tuple[str, ...]:
        raise WriteError("no space left", subject="config.json", hint="make room")

    monkeypatch.setattr(api, "apply", apply)
    result = run("apply", "fixable")
    assert result.exit_code == 3
    assert result.stderr == "Error: config.json: no space left\nHint: make room\n"


# the other commands


def test_undo(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = Content(b"{}\n", 0o644), Content(b"[]\n", 0o644)
    changes = [Change(name, old, new) for name in ("config.json", "hf_quant_config.json")]
    kept: list[tuple[str, Path]] = []
    asked: list[Any] = []

    def undone(path: str, **how: Any) -> UndoRecord:
        asked.append((path, how))
        return UndoRecord(path, Path("/state"), "2026-01-01", tuple(changes), tuple(kept))

    monkeypatch.setattr(api, "undone", undone)
    result = run("undo", "x")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "Restored config.json and hf_quant_config.json.\n"
    changes.append(Change("new.safetensors", None, Blob(Stamp(1, 1), 0o644)))
    assert run("undo", "x").stderr == "Restored config.json and hf_quant_config.json. Removed new.safetensors.\n"
    kept.append(("config.json", Path("/state/kept")))
    assert run("undo", "x", "--force").stderr.endswith("The config.json that was there is kept: /state/kept\n")
    would = run("undo", "x", "--keep-edits", "--dry-run")
    assert (would.exit_code, would.stdout.count("-[]\n+{}\n")) == (1, 2)
    assert " ".join(would.stderr.split()).startswith("Would take back what mtpfix did to config.json and hf_")
    assert [how for _, how in asked] == [
        {"way": way, "dry_run": way == "keep-edits"} for way in ("exact", "exact", "force", "keep-edits")
    ]
    assert run("undo", "x", "--keep-edits", "--force").exit_code == 2


def test_list(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "draft_tensors", lambda path, **_more: factories.tensors())
    short, every = run("list", "x"), run("list", "x", "--all")
    assert "mtp.layers.0.mlp.experts.{0..511}." in short.stdout
    assert len(every.stdout.splitlines()) > 1538
    assert len(json.loads(run("list", "x", "--format", "json").stdout)["tensors"]) == 1538
    assert run("list", "x", "--format", "quiet").stdout.splitlines()[0] == "mtp.fc.weight"


def test_list_of_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "draft_tensors", lambda path, **_more: ())
    result = run("list", "x")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "No draft tensors are stored.\n")
    assert json.loads(run("list", "x", "--format", "json").stdout) == {"schema_version": 1, "tensors": []}


def test_explain(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def explain(path: str, patterns: tuple[str, ...], **more: Any) -> Any:
        asked.append((path, patterns, more))
        return Explanation(factories.decisions())

    monkeypatch.setattr(api, "explain", explain)
    result = run("explain", "x", "mtp.**", "lm_head", "--engine", "vllm")
    assert result.exit_code == 0
    assert '"mtp.layers.0*"' in result.stdout
    assert asked == [("x", ("mtp.**", "lm_head"), {"engines": ("vllm",), "access": Access(forks=True)})]
    assert run("explain", "x").exit_code == 2


def test_a_name_in_an_error_leads_to_explain(run: Run) -> None:
    told = run("rule", "--error", "KeyError: 'model.layers.0.mlp.experts.w2_weight_scale'")
    asked = "mtpfix explain CHECKPOINT model.layers.0.mlp.experts.w2_weight_scale says what that is"
    assert asked in " ".join(told.stdout.split())
    sizes = run("rule", "--error", "RuntimeError: The size of tensor a (8) must match the size of tensor b (16)")
    assert "mtpfix explain" not in sizes.stdout


def test_rule(run: Run) -> None:
    table = run("rule")
    assert table.exit_code == 0
    assert "MTP001" in table.stdout
    assert max(map(len, table.stdout.splitlines())) <= 80
    one = run("rule", "mtp001")
    assert run("rule", "1").stdout == run("rule", "MTP1").stdout == one.stdout
    assert one.stdout == run("rule", "DRAFT-not-excluded").stdout
    assert one.stdout.startswith("MTP001 draft-not-excluded\n")
    assert [rule["code"] for rule in json.loads(run("rule", "MTP002", "--format", "json").stdout)["rules"]] == [
        "MTP002"
    ]
    assert run("rule", "--format", "quiet").stdout.split()[:2] == ["MTP001", "MTP002"]


def test_an_unknown_rule(run: Run) -> None:
    result = run("rule", "draft-not-exclude")
    assert result.exit_code == 2
    assert result.stderr == "Error: no rule has the code or name 'draft-not-exclude'\nHint: did you mean MTP001?\n"
    assert run("rule", "qqqq").stderr.endswith("Hint: `mtpfix rule` lists all rules\n")


def test_engines(run: Run) -> None:
    text = run("engines").stdout
    assert "vllm: 32 modelled releases, 0.12.0–0.33.0" in text
    document = json.loads(run("engines", "--format", "json").stdout)
    names = {engine["engine"]: engine for engine in document["engines"]}
    assert names["sglang"]["releases"][-1] == "0.5.23"
    assert names["vllm"]["changes"]["modelopt_fp4"][0]["source"]
    trt = [(row["release"], row["name"]) for row in names["tensorrt-llm"]["changes"]["modelopt_fp4"]]
    assert ("snapshot-2", "regex-and-parents") in trt
    assert ("snapshot-3", "subtree-matches-node") in trt
    assert names["transformers"]["changes"]["fp8"][0]["source"] == "5.24.0 quantizers/quantizers_utils.py:26"


# the library


def test_ensure_repairs_and_returns_the_clean_report(writes: list[Any]) -> None:
    assert api.ensure("fixable").status == "clean"
    assert len(writes) == 1


@pytest.mark.usefixtures("writes")
def test_ensure_raises_with_the_findings() -> None:
    with pytest.raises(mtpfix.FindingsError, match="pre_projection is stored") as caught:
        api.ensure("broken")
    assert [finding.rule for finding in caught.value.findings] == ["MTP007", "MTP013"]
    assert caught.value.report.status == "not-fixable"
    assert caught.value.hint


def test_a_plan_that_nobody_made_is_not_applied() -> None:
    with pytest.raises(mtpfix.UsageError, match=r"mtpfix.plan\(report\)|belongs to no checkpoint"):
        mtpfix.apply(factories.plan())


def test_only_a_directory_is_changed() -> None:
    report = factories.fixable(source=Source("hub", "org/name"))
    with pytest.raises(mtpfix.UsageError, match="only a directory"):
        mtpfix.apply(mtpfix.plan(report))


def test_an_empty_plan_changes_nothing() -> None:
    assert mtpfix.plan(factories.clean()) == Plan(source=factories.clean().source)
    assert mtpfix.apply(mtpfix.plan(factories.clean())) == ()


def test_the_public_names() -> None:
    assert set(mtpfix.__all__) <= set(dir(mtpfix))
    for name in mtpfix.__all__:
        assert getattr(mtpfix, name) is not None
    assert all(callable(getattr(mtpfix, name)) for name in ("apply", "check", "ensure", "plan", "undo"))
    with pytest.raises(AttributeError, match="nonsense"):
        mtpfix.nonsense  # noqa: B018


# error messages


def test_an_error_message_names_its_rules(run: Run) -> None:
    found = run("rule", "--error", "KeyError: 'model.layers.0.mlp.experts.w2_weight'")
    assert found.exit_code == 0
    assert found.stdout.startswith("KeyError: 'model.layers.0.mlp.experts.w2_weight'\n  a full-precision tensor ")
    assert re.search(r"^  MTP001  draft-not-excluded ", found.stdout, re.MULTILINE)
    assert max(map(len, found.stdout.splitlines())) <= 80


def test_a_log_comes_on_stdin(run: Run) -> None:
    log = b"\xff\nFollowing weights were not initialized from checkpoint: {'a'}\nOnly 1 nextn layer is supported\nbye\n"
    found = run("rule", "--error", "-", "--format", "json", input=log)
    assert [one["rules"][0] for one in json.loads(found.stdout)["symptoms"]] == ["MTP013", "MTP006"]
    assert run("rule", "--error", "-", "--format", "quiet", input=log).stdout.split()[:2] == ["MTP013", "MTP008"]


@pytest.mark.parametrize("text", ["", "CUDA out of memory", "\x1b[31m"])
def test_an_unknown_error_message(run: Run, text: str) -> None:
    found = run("rule", "--error", text)
    assert (found.exit_code, found.stdout) == (2, "")
    assert found.stderr.startswith("Error: no known error of an engine in this text\nHint: ")


def test_a_code_and_an_error_message_are_two_questions(run: Run) -> None:
    assert run("rule", "MTP001", "--error", "x").exit_code == 2


def test_a_hostile_log_is_escaped(run: Run) -> None:
    shown = run("rule", "--error", "\x1b[31mOnly 1 nextn layer is supported").stdout
    assert "\x1b" not in shown
    assert "\\x1b[31mOnly" in shown
