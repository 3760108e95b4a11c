"""The documentation: what is made from the data is whole, what it shows of commands is right, and the way to add a
family is gone word for word."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import click
import pytest
import yaml

import mtpfix
from mtpfix.cli import COMMANDS, main
from mtpfix.families import REGISTRY
from mtpfix.formats import format_of, formats
from mtpfix.rules import BY_CODE, RULES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
WRITTEN = sorted(DOCS.glob("*.md"))


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATE = generator()
MADE: dict[str, str] = GENERATE.pages()


# Made pages


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_rule_s_page_has_what_why_how_and_by_hand(rule: object) -> None:
    found = GENERATE.sections(rule)
    assert set(found) >= {"", "Why", "In engines", "Fix", "By hand"}
    assert all(len(text) > 10 for text in found.values())
    page = MADE[f"rules/{BY_CODE[rule.code].code}.md"]  # type: ignore[attr-defined]
    for text in found.values():
        assert text[1:] in page


def test_a_rule_s_page_and_the_command_say_the_same() -> None:
    for rule in RULES:
        assert " ".join(rule.explanation.split()) == " ".join(
            f"{label}: {text}" if label else text for label, text in GENERATE.sections(rule).items()
        )


def test_every_family_engine_and_command_has_its_page_or_section() -> None:
    assert {f"families/{entry.name}.md" for entry in REGISTRY} <= set(MADE)
    for name in ("vllm", "sglang", "tensorrt-llm", "transformers", "vllm-ascend"):
        assert f"engines/{name}.md" in MADE
    for name, _ in COMMANDS:
        assert f"\n## {name}\n\n```text\nUsage: mtpfix {name} " in MADE["commands.md"]


def test_the_samples_are_of_their_formats() -> None:
    assert {name: getattr(format_of(sample), "name", None) for name, sample in GENERATE.SAMPLES.items()} == {
        name: name for name in GENERATE.SAMPLES
    }
    assert set(GENERATE.SAMPLES) <= {form.name for form in formats()}


def test_known_combinations() -> None:
    """GLM-5.3-Flash came with vLLM 0.30.0 and SGLang 0.5.20, MXFP8 checkpoints with vLLM 0.24.0."""
    rows = [line.split(" | ") for line in MADE["compatibility.md"].splitlines() if "families/glm5_next.md" in line]
    assert [row[1] for row in rows] == ["0.30.0", "0.5.20"]
    (llama,) = [line for line in MADE["compatibility.md"].splitlines() if "families/llama.md" in line][:1]
    assert "| 0.24.0 |" in llama


def test_links_between_pages_lead_somewhere() -> None:
    pages = {**{path.name: path.read_text("utf-8") for path in WRITTEN}, **MADE}
    for name, text in pages.items():
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            path = (Path(name).parent / target).as_posix()
            resolved = Path(*[part for part in Path(path).parts if part != "."])
            while ".." in resolved.parts:
                at = resolved.parts.index("..")
                resolved = Path(*resolved.parts[: at - 1], *resolved.parts[at + 1 :])
            assert resolved.as_posix() in pages or (DOCS / resolved).is_file(), (name, target)


def test_the_site_names_every_page_that_is_written() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]
    named = {path for entry in nav for path in entry.values()}
    assert {path.name for path in WRITTEN} <= named
    assert named <= {path.name for path in WRITTEN} | set(MADE)


def test_the_site_can_be_built(tmp_path: Path) -> None:
    pytest.importorskip("material")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    html = (tmp_path / "site/index.html").read_text("utf-8")
    assert re.findall(r'(?:src|href)="https?://[^"]*\.(?:js|css|woff2?)', html) == []


# Written pages


def shown_commands() -> list[object]:
    """Every mtpfix command in a block that is not run, with the page it is on."""
    found = []
    for path in [ROOT / "README.md", *WRITTEN]:
        for block in re.findall(r"```sh\n(.*?)```", path.read_text("utf-8"), re.DOTALL):
            for line in block.splitlines():
                command = re.search(r"(?:^|\brun |uvx (?:--from \S+ )?|hf )mtpfix (.*)", line)
                if command and "pip" not in line:
                    found.append(pytest.param(re.sub(r"[][]", "", command[1]), id=f"{path.name}: {line[:60]}"))
    return found


@pytest.mark.parametrize("line", shown_commands())
def test_commands_that_are_only_shown_have_these_options(line: str) -> None:
    name, *args = shlex.split(line)
    if name == "--version":
        return
    command = main.get_command(click.Context(main, **main.context_settings), name)
    assert command is not None
    command.make_context(name, args, parent=click.Context(main, **main.context_settings))


def test_every_public_name_is_documented() -> None:
    text = (DOCS / "api.md").read_text("utf-8")
    assert [name for name in mtpfix.__all__ if not re.search(rf"`(mtpfix\.)?{name}\b", text)] == ["__version__"]


def test_the_examples_of_the_api_are_typed(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "api.md").read_text("utf-8"), re.DOTALL)
    files = [tmp_path / f"example_{number}.py" for number in range(len(blocks))]
    for path, block in zip(files, blocks, strict=True):
        path.write_text(block, "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", *map(str, files)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_a_family_in_ten_minutes(tmp_path: Path) -> None:
    """The page's file, line and test, put where the page says, in a copy."""
    text = (DOCS / "add-a-family.md").read_text("utf-8")
    file = re.search(r"```toml\n(.*?)```", text, re.DOTALL)
    line, test = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    assert file
    shutil.copytree(ROOT / "mtpfix", tmp_path / "mtpfix", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "mtpfix/families/acorn.toml").write_text(file[1], "utf-8")
    registry = tmp_path / "mtpfix/families/__init__.py"
    before, after = registry.read_text("utf-8").split("\n)\n_BY_TYPE", 1)
    registry.write_text(f"{before}\n{line}){chr(10)}_BY_TYPE{after}", "utf-8")
    tests = tmp_path / "test_families.py"
    tests.write_text((ROOT / "tests/unit/test_families.py").read_text("utf-8").rstrip() + "\n" + test, "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "acorn or Acorn", str(tests)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert re.search(r"\b8 passed", done.stdout), done.stdout
