"""Tokens, passwords and signatures are in no output, wherever they stood: arguments, configs, names, metadata."""

from __future__ import annotations

import html
import json
import shlex
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import quote, unquote

import pytest
from click.testing import CliRunner, Result
from tiny import qwen3_next, write_safetensors

from mtpfix import check, tokens
from mtpfix.cli import main
from mtpfix.errors import MtpfixError
from mtpfix.names import beginning, brief, shown
from mtpfix.tokens import holds_secret, learn, learn_from, masked

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


def test_no_bundle_of_a_file_that_is_called_like_it(tmp_path: Path) -> None:
    folder = qwen3_next(tmp_path / "model", "mtp.layers.0*")
    (folder / "model.safetensors").rename(folder / f"{SECRET}.safetensors")
    found = run("snapshot", str(folder), "-o", str(tmp_path / "bundle"))
    assert (found.exit_code, SECRET in found.output) == (3, False)
    assert not (tmp_path / "bundle").exists()


def test_no_bundle_names_a_folder_that_is_called_like_it(tmp_path: Path) -> None:
    folder = qwen3_next(tmp_path / f"model-{SECRET}", "mtp.layers.0*")
    assert run("snapshot", str(folder), "-o", str(tmp_path / "bundle")).exit_code == 0
    with tarfile.open(tmp_path / "bundle") as held:
        manifest = held.extractfile("mtpfix-bundle.json")
        assert manifest is not None
        assert json.load(manifest)["source"] == {"kind": "local", "id": "model-hf_***", "revision": None}
    assert run("check", str(tmp_path / "bundle")).exit_code == 1


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
        (f"api_org_{'Ab' * 17}", "api_***"),
        (f"api_{'Ab' * 17}", "api_***"),
        (f"x/hf_oauth_{'Ab.-' * 8}", "x/hf_***"),
        ('"https:\\/\\/a:b@c.d"', '"https:\\/\\/***@c.d"'),
        ("http://a:b@b@c.d/e", "http://***@c.d/e"),
        (
            "https://s3/x?X-Amz-Signature=ab12&X-Amz-Credential=c%2Fd",
            "https://s3/x?X-Amz-Signature=***&X-Amz-Credential=***",
        ),
        (
            "https://c/x?Expires=1&Policy=eyJ~_-&Signature=ab&Key-Pair-Id=K",
            "https://c/x?Expires=***&Policy=***&Signature=***&Key-Pair-Id=***",
        ),
        ("https://c/x?a=1&amp;Signature=ab&amp;b=2", "https://c/x?a=1&amp;Signature=***&amp;b=2"),
        (
            "https://c/x?n=https%3A%2F%2Fd%3FX-Amz-Signature%3Dab",
            "https://c/x?n=https%3A%2F%2Fd%3FX-Amz-Signature%3D***",
        ),
        ("https://c/x?token=abc", "https://c/x?token=***"),
        ("https://c/x?blobs=true&p=1", "https://c/x?blobs=true&p=1"),
        ("hf_xet_core_and_more_of_it_that_is_long_enough", "hf_xet_core_and_more_of_it_that_is_long_enough"),
    ],
)
def test_what_is_masked(text: str, shown: str) -> None:
    assert masked(text) == shown
    assert masked(shown) == shown
    assert holds_secret(text.encode()) == (shown != text)


def test_who_is_no_password() -> None:
    """A login without a password is not shown, and may be in a bundle."""
    assert masked("git+https://git@github.com/a") == "git+https://***@github.com/a"
    assert not holds_secret(b"git+https://git@github.com/a")
    assert masked("Authorization: Bearer abcdefgh.ijk") == "Authorization: Bearer ***"
    assert masked("Basic YTpiYmJiYmI=") == "Basic ***"


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is learnt here is forgotten after the test."""
    monkeypatch.setattr(tokens, "_known", {})


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "MTPFIX_CHECK_TOKEN", "AWS_SECRET_ACCESS_KEY", "DJANGO_SECRET_KEY",
        "AZURE_STORAGE_KEY", "OPENAI_KEY", "GPG_PASSPHRASE", "GH_PAT", "MYSQL_PWD", "DB_PASS", "GOOGLE_CREDENTIALS",
    ],
)  # fmt: skip
def test_a_token_of_the_environment_whatever_it_looks_like(name: str) -> None:
    learn_from({name: "qwzxvbnmtyuiopklasdf", "HF_TOKEN_PATH": "/home/x/token", "OTHER": "unmasked"})
    assert masked("a qwzxvbnmtyuiopklasdf b /home/x/token unmasked") == "a *** b /home/x/token unmasked"
    assert holds_secret(b"a qwzxvbnmtyuiopklasdf")


def test_a_word_is_no_token() -> None:
    """A placeholder would mask its letters everywhere."""
    learn_from({"HF_TOKEN": "dummy"})
    assert masked("a dummy") == "a dummy"


KEY = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\r\nAASCBKcwggSjAgEAAoIB\n-----END KEY-----\n"


@pytest.mark.parametrize("told", [str, json.dumps, repr, html.escape, shlex.quote, quote])
def test_a_secret_of_several_lines(told: Callable[[str], str]) -> None:
    """JSON writes an end of a line as a letter; a config may hold one line of it."""
    learn(KEY)
    for text in (KEY, *KEY.splitlines()[1:3]):
        assert not any(part in masked(told(text)) for part in ("MIIE", "kqhkiG", "AASC", "AoIB"))
    assert holds_secret(json.dumps(KEY).encode())
    assert masked("-----BEGIN KEY-----") == "-----BEGIN KEY-----"


def test_no_half_of_a_secret_in_the_front_of_a_text() -> None:
    secret = "qwzxvbnmtyuiopklasdf"
    learn(secret)
    assert beginning(secret, 12) == "***"
    assert beginning("0123456789abcdef", 12) == "0123456789ab"


def test_a_token_as_others_write_it() -> None:
    secret = "a+b/c\"d&e<f'%gh"
    learn(secret)
    for text in (secret, json.dumps(secret), repr(secret), html.escape(secret), quote(secret), quote(secret, safe="")):
        assert not any(piece in masked(text) for piece in ("a+b", "a%2B", "e<f", "e&lt;f", "gh"))


ODD = ("qw\"er\\ty'z<x>&v%41b|n_m*k[l]~#$!@,;:u/i \u00e9\U0001f600x", "\\\\a\\b''x\\'ycdefgh", "Zm9v/L2J+aXI=&%7E,u")
SPELLED = (
    json.dumps, repr, ascii, html.escape, quote, shlex.quote, partial(quote, safe=""),
    partial(json.dumps, ensure_ascii=False), lambda text: text.translate({37: "%25", 58: "%3A", 44: "%2C"}),
)  # fmt: skip


@pytest.mark.parametrize("secret", ODD)
@pytest.mark.parametrize("outer", [str, json.dumps, html.escape])
@pytest.mark.parametrize("inner", SPELLED)
def test_a_secret_in_a_text_in_a_text(secret: str, inner: Callable[[str], str], outer: Callable[[str], str]) -> None:
    """A diff in JSON, a value of JSON in a flag of a shell, an address in JSON."""
    learn(secret)
    for text in (secret, secret.lower(), unquote(secret)):
        found = outer(inner(text))
        assert not any(letters in masked(found) for letters in ("cdefgh", "Zm9v", "n_m", "aXI"))
        assert holds_secret(found.encode())


def test_backslashes_without_end_take_no_time() -> None:
    learn("\\\\\\abcdef\\'gh")
    for text in ("\\" * 300_000, "%5c" * 100_000, "&amp;" * 100_000):
        assert masked(f"{text}abcdef") == f"{text}abcdef"


@pytest.mark.parametrize(
    ("secret", "beside"),
    [
        (SECRET, "hf_x"), (SECRET, "hf_y.z"), ("abcde_fghijklmnopq_rstuv", "abcde_x_rstuv"),
        ("abcde.fghijk.lmnopqrs", "abcde.x.lmnopqrs"), ("abc.12.defghijklmnopqrst", "abc.12.x"),
        ("abcdef1234567890hijklm", "abcdef1hijklm"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "words",
    [
        ("list",),
        ("explain", "**"),
        ("apply", "--dry-run", "--unsafe-fixes"),
        *(("check", "--format", f) for f in FORMATS),
    ],
    ids=" ".join,
)
def test_names_that_share_a_part_with_a_secret(
    tmp_path: Path, words: tuple[str, ...], secret: str, beside: str
) -> None:
    """They are put together in braces and cut at dots, so that no secret is left to be seen as one."""
    folder = qwen3_next(tmp_path / "model", "mtp.layers.0*")
    fronts = ("mtp", "mtp.layers.0", "model.layers.0.mlp.experts.0")
    names = [f"{front}.{leaf}.weight" for front in fronts for leaf in (secret, beside)]
    write_safetensors(folder / "other.safetensors", {name: ("BF16", [4, 4]) for name in names})
    index = {"metadata": {}, "weight_map": {"lm_head.weight": "model.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    name, *rest = words
    found = run(name, str(folder), *rest, HF_TOKEN="" if secret == SECRET else secret)
    assert found.exit_code in (0, 1), found.output
    joined = "".join(found.output.split()).replace(beside, "")
    assert all(secret[at : at + 9] not in joined for at in range(len(secret) - 8)), joined


def test_the_password_of_an_address() -> None:
    learn_from({"HF_ENDPOINT": "http://user:correct/horse@hub", "https_proxy": "someone:battery9@proxy:1"})
    assert masked("user:correct/horse correct/horse battery9") == "*** *** ***"


@pytest.mark.parametrize("shown", FORMATS)
@pytest.mark.parametrize("way", ["HF_TOKEN", "--token"])
def test_a_known_token_in_a_checkpoint(tmp_path: Path, shown: str, way: str) -> None:
    """Also where a name is cut, so that half of it would be left."""
    secret = "qwzxvbnmtyuiopklasdf"
    folder = qwen3_next(tmp_path / "model", f"mtp.{secret}", "mtp.layers.0*", f"{'x' * 45}{secret}.{'y' * 900}..*")
    names = [f"mtp.{secret}.weight", *(f"{'z' * (48 + at)}{secret}{'z' * 2000}.weight" for at in range(24))]
    write_safetensors(folder / f"{secret}.safetensors", {name: ("BF16", [4, 4]) for name in names})
    index = dict.fromkeys(names, f"{secret}.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    given = ({"HF_TOKEN": secret}, []) if way == "HF_TOKEN" else ({}, ["--token", secret])
    found = run("check", str(folder), "--format", shown, "--scope", "all", *given[1], **given[0])
    assert found.exit_code in (0, 1), found.output
    joined = "".join(found.output.split())
    assert all(secret[at : at + 10] not in joined for at in range(len(secret) - 9))


@pytest.mark.parametrize("secret", [SECRET, "qwzxvbnmtyuiopklasdf"])
def test_no_half_of_a_token_is_left_where_a_text_is_cut(secret: str) -> None:
    learn(secret)
    for front in range(300):
        text = f"{'.' * front}{secret}{'.' * 300}"
        for cut in (brief(text), brief(text[::-1].replace(secret[::-1], secret)), shown(text)):
            assert all(secret[at : at + 6] not in masked(cut) for at in range(3, len(secret) - 5)), cut


def test_a_token_in_a_long_line_of_a_log() -> None:
    """Of which the first 4,000 characters are looked at."""
    line = "RuntimeError: The size of tensor a (8) must match the size of tensor b (16) "
    for front in range(1, 40, 3):
        found = run("rule", "--error", f"{line}{'.' * (4000 - len(line) - front)}{SECRET}")
        assert "The size of tensor a" in found.output
        assert "Sesame" not in found.output


def test_a_known_token_in_an_argument() -> None:
    secret = "qwzxvbnmtyuiopklasdf"
    for words in ((f"--{secret}",), (secret,), ("check", f"--{secret}"), ("check", "x", "--format", secret),
                  ("check", secret), ("check", f"https://{secret.title()}/org/m"), ("rule", secret)):  # fmt: skip
        found = run(*words, HF_TOKEN=secret, MTPFIX_DEBUG="1")
        assert (found.exit_code, secret in found.output.lower()) == (found.exit_code or 1, False), found.output
    found = run("check", "x", "--format", secret, "--token", secret)
    assert secret not in found.output


def test_an_error_in_python(tmp_path: Path) -> None:
    """What a program's own traceback prints."""
    for wrong in (f"org/m@{SECRET}?", f"{tmp_path}/{SECRET}", f"https://a:{SECRET}@huggingface.co/datasets/x"):
        with pytest.raises(MtpfixError) as raised:
            check(wrong)
        assert SECRET not in f"{raised.value} {raised.value!r} {raised.value.hint}"


def test_a_secret_that_another_thread_learns_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads of a scan each begin with the stored login, while others show what went wrong."""

    class Learning:
        @property
        def run(self) -> str:
            learn("opensesame-of-another-thread")
            return "\0"

    for look in (masked, lambda text: holds_secret(text.encode())):
        monkeypatch.setattr(tokens, "_known", {"opensesame": Learning()})
        assert look("a text") in ("a text", False)
        assert "opensesame-of-another-thread" in tokens._known
