"""What looks like a token of the Hub is in no output, wherever it stood: arguments, configs, names, metadata."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tiny import qwen3_next, write_safetensors

from mtpfix.cli import main
from mtpfix.names import holds_token, masked

SECRET = "hf_" + "Sesame" * 6
FORMATS = ("human", "json", "sarif", "github", "markdown", "html", "quiet")


def run(*words: str, **env: str) -> Result:
    unreachable = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "", "NO_COLOR": "1"}
    return CliRunner().invoke(main, words, env={**unreachable, **env})


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Its lists, its keys, a tensor and a shard are called like a token."""
    folder = qwen3_next(tmp_path / "model", f"mtp.{SECRET}", "mtp.layers.0*")
    for name in ("config.json", "hf_quant_config.json"):
        value = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**value, "token": SECRET, SECRET: "https://user:pass@example.org"}))
    write_safetensors(folder / f"{SECRET}.safetensors", {f"mtp.{SECRET}.weight": ("BF16", [4, 4])})
    index = {f"mtp.{SECRET}.weight": f"{SECRET}.safetensors", f"a.{SECRET}.weight": "model.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}, indent=1))
    return folder


@pytest.mark.parametrize("shown", FORMATS)
def test_in_a_checkpoint(place: Path, shown: str, tmp_path: Path) -> None:
    for more in ([], ["-o", str(tmp_path / "out")]):
        found = run("check", str(place), "--format", shown, "--scope", "all", *more)
        assert found.exit_code in (0, 1), found.output
        assert SECRET not in found.output
        assert "user:pass" not in found.output
    assert SECRET.encode() not in (tmp_path / "out").read_bytes()


@pytest.mark.parametrize(
    "words",
    [
        ("list",), ("list", "--format", "json"), ("explain", "mtp.**"), ("explain", f"mtp.{SECRET}"),
        ("explain", "mtp.**", "--format", "json"), ("apply", "--dry-run"), ("apply", "--dry-run", "--unsafe-fixes"),
        ("override", "--engine", "vllm"), ("override", "--engine", "vllm", "--format", "json"), ("apply", "-y"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_in_a_checkpoint_of_other_commands(
    place: Path, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    name, *rest = words
    found = run(name, str(place), *rest)
    assert found.exit_code in (0, 1, 2), found.output
    assert SECRET not in found.output


def test_no_bundle_of_it(place: Path, tmp_path: Path) -> None:
    """It is made to be sent to others, and holds files as they are."""
    found = run("snapshot", str(place), "-o", str(tmp_path / "bundle"))
    assert (found.exit_code, SECRET in found.output) == (3, False)
    assert "token" in found.output
    assert not (tmp_path / "bundle").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("check", SECRET), ("check", f"org/{SECRET}"), ("check", f"hf://org/m@{SECRET}"), ("check", "--token", SECRET),
        ("check", f"https://user:{SECRET}@huggingface.co/org/m"), ("check", f"https://huggingface.co/org/m?t={SECRET}"),
        ("check", "x", "--engine", SECRET), ("check", "x", "--format", SECRET), ("check", "x", f"--tokn={SECRET}"),
        ("undo", SECRET), ("rule", SECRET), ("rule", "--error", SECRET), (SECRET,), ("scan", SECRET),
        ("scan", f"https://{SECRET}@huggingface.co/org"), ("scan", "https://user:pass@huggingface.co/org"),
        ("list", SECRET), ("explain", SECRET, "a"), ("snapshot", SECRET, "-o", "-"), ("review", SECRET, "1"),
        ("graft", SECRET, "--from", SECRET), ("apply", "x", "--revision", SECRET), ("check", f"/nowhere/{SECRET}/a"),
    ],
    ids=lambda words: " ".join(words).replace(SECRET, "SECRET"),
)  # fmt: skip
@pytest.mark.parametrize("debug", ["", "1"])
def test_in_an_argument(words: tuple[str, ...], debug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtpfix.checkpoint.http.BACKOFF", 0.0)
    found = run(*words, MTPFIX_DEBUG=debug)
    assert found.exit_code in (0, 1, 2, 3)
    assert SECRET not in found.output
    assert "Sesame" * 4 not in found.output.replace("\n", "").replace(" ", "")
    assert "user:pass" not in found.output


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"a {SECRET} b", "a hf_*** b"),
        ("hf_quant_config.json", "hf_quant_config.json"),
        ("http://a:b@c.d/e@f", "http://***@c.d/e@f"),
        ("http://c.d/e@f", "http://c.d/e@f"),
        ('{"a":"x://b","c":"d@e"}', '{"a":"x://b","c":"d@e"}'),
        ("hf_xet_core_and_more_of_it_that_is_long_enough", "hf_xet_core_and_more_of_it_that_is_long_enough"),
    ],
)
def test_what_is_masked(text: str, shown: str) -> None:
    assert masked(text) == shown
    assert holds_token(text.encode()) == (SECRET in text)
