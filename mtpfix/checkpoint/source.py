"""What a SOURCE means: a folder, a bundle, or a repository on the Hub.

DIR  ./DIR  FILE                                     what is there on disk comes first
org/name  org/name@REV                               else two names with a slash are a repository
hf://org/name[@REV]  hf://models/org/name[@REV]
https://huggingface.co/org/name[/tree/REV | /blob/REV/FILE | /commit/OID | /discussions/N]
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from mtpfix import late
from mtpfix.checkpoint.stand import FILES, WITHOUT_WAITING
from mtpfix.errors import UsageError
from mtpfix.model import Source
from mtpfix.names import shown

if TYPE_CHECKING:
    from urllib.parse import SplitResult

Pathish = str | os.PathLike[str]

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_REPOSITORY = late.pattern(rf"{_NAME}/{_NAME}")
_SHORT = late.pattern(r"([^/@]+/[^/@]+)(?:@(.*))?", re.DOTALL)
_REVISION = late.pattern(r"[A-Za-z0-9_][A-Za-z0-9_.+/=-]{0,254}")
_SPECIAL = late.pattern(r"(refs/(?:pr/\d+|convert/[^/]+|heads/[^/]+|tags/[^/]+))(?:/(.*))?", re.DOTALL)
_PULL = late.pattern(r"\d{1,9}")
_HOSTS = ("huggingface.co", "www.huggingface.co", "hf.co", "hub-ci.huggingface.co")
_OTHER_KINDS = ("datasets", "spaces", "kernels", "buckets")
_FILE_PAGES = ("blob", "raw", "resolve", "blame")
_GZIP = b"\x1f\x8b"
_HINT = "write org/name, org/name@REVISION, hf://org/name, or the address of the repository's page"


def parse(given: Pathish, revision: str | None = None) -> Source:
    """What is meant; a Hub source has the revision that was asked for, or None.

    `revision` is the one of an option. Raises UsageError for what can be no source, for a revision of something that
    has none, and for two revisions.
    """
    text = spelled(given)
    if not isinstance(given, str):
        return _on_disk(text, revision)
    scheme = text.partition("://")[0].lower() if "://" in text else ""
    if scheme == "hf":
        return _repository(*_hf_address(text), revision)
    if scheme in ("http", "https"):
        return _repository(*_web_address(text), revision)
    if scheme:
        raise UsageError(f"no such kind of source: {shown(scheme + '://')}", subject=shown(text), hint=_HINT)
    short = None if text.startswith((".", "~")) or os.path.lexists(text) else _SHORT.fullmatch(text)
    if short is None or not (_REPOSITORY.fullmatch(short[1]) or short[2] is not None):
        return _on_disk(text, revision)
    return _repository(short[1], short[2], revision)


def spelled(given: Pathish) -> str:
    """A source as a text. Raises UsageError for what is no path, or one that no file can have."""
    try:
        text = os.fsdecode(given)
        encoded = os.fsencode(text)
    except (TypeError, UnicodeEncodeError):
        encoded = b"\0"
    if not encoded or b"\0" in encoded:  # "" is the working folder to half of what the system offers
        raise UsageError(
            f"this is no path: {shown(given)}", subject="source", hint=f"give a folder or a bundle, or {_HINT}"
        )
    return text


def _on_disk(text: str, revision: str | None) -> Source:
    if revision is not None:
        raise UsageError(f"{text}: only a repository on the Hub has revisions", subject=text, hint=_HINT)
    return Source("bundle" if _is_gzip(text) else "local", text)


def _is_gzip(path: str) -> bool:
    try:
        if not os.path.isfile(path):
            return False
        with open(os.open(path, WITHOUT_WAITING), "rb", buffering=0) as file:  # /proc holds files that wait
            return file.read(len(_GZIP)) == _GZIP
    except (OSError, ValueError):
        return False


def _repository(repo_id: str, own: str | None, asked: str | None) -> Source:
    if not _REPOSITORY.fullmatch(repo_id) or any(bad in repo_id for bad in ("..", "--")) or repo_id.endswith("."):
        raise UsageError(f"no repository can be called {shown(repo_id)}", subject=shown(repo_id), hint=_HINT)
    for revision in (own, asked):
        if revision is not None and (not _REVISION.fullmatch(revision) or ".." in revision or "//" in revision):
            raise UsageError(
                f"{repo_id}: {shown(revision)} can be no revision",
                subject=repo_id,
                hint="write a branch, a tag, a commit or refs/pr/N",
            )
    if own is not None and asked is not None and own != asked:
        raise UsageError(
            f"{repo_id}: two revisions, {own} in the source and {asked} in the option",
            subject=repo_id,
            hint="give one of them",
        )
    return Source("hub", repo_id, own or asked)


def _hf_address(text: str) -> tuple[str, str | None]:
    """Repository and revision of `hf://[models/]org/name[@REV][/FILE]`."""
    revision: str | None
    steps = text.partition("://")[2].rstrip("/").split("/")
    if steps[0] in _OTHER_KINDS:
        raise _no_model(steps[0])
    if steps[0] == "models":
        del steps[0]
    repo_id, _, rest = "/".join(steps).partition("@")
    if rest:
        revision, path = _revision_first(rest)
    else:
        path = "/".join(repo_id.split("/")[2:])
        repo_id = "/".join(repo_id.split("/")[:2])
        revision = "" if "@" in text else None
    _refuse_folder(path, is_file=path.endswith(FILES))
    return repo_id, revision


def _web_address(text: str) -> tuple[str, str | None]:
    """Repository and revision of a page of the Hub."""
    address = _split(text)
    if address.hostname not in (*_HOSTS, _own_host()):
        raise UsageError(f"{address.hostname} is not the Hub", subject=str(address.hostname), hint=_HINT)
    steps = [step for step in address.path.split("/") if step]
    if steps and steps[0] in _OTHER_KINDS:
        raise _no_model(steps[0])
    if len(steps) < 2:
        raise UsageError("the address names no repository", subject=address.path or "/", hint=_HINT)
    repo_id, page, rest = "/".join(steps[:2]), "".join(steps[2:3]), "/".join(steps[3:])
    return repo_id.removesuffix(".git"), _revision_of_page(page, rest)


def _split(text: str) -> SplitResult:
    from urllib.parse import urlsplit  # with ipaddress 2 ms, and most sources are folders

    try:
        address = urlsplit(text)
        found = address.hostname
    except ValueError:
        found = None
    if not found:
        raise UsageError("this is no web address", subject="SOURCE", hint=_HINT)
    return address


def _revision_of_page(page: str, rest: str) -> str | None:
    if not page:
        return None
    if page == "discussions" and _PULL.fullmatch(rest.split("/")[0]):
        return f"refs/pr/{rest.split('/')[0]}"
    if page == "commit" and rest:
        return rest
    if page == "tree" or page in _FILE_PAGES:
        revision, path = _revision_first(rest)
        _refuse_folder(path, is_file=page in _FILE_PAGES)
        return revision or None
    raise UsageError(f"the page /{page} shows no revision of a repository", subject=f"/{page}", hint=_HINT)


def _revision_first(text: str) -> tuple[str, str]:
    """`main/sub/file` to revision and path; a slash inside a revision is written %2F, but for refs/pr/N."""
    from urllib.parse import unquote

    special = _SPECIAL.fullmatch(text)
    if special:
        return unquote(special[1]), special[2] or ""
    revision, _, path = text.partition("/")
    return unquote(revision), path


def _refuse_folder(path: str, *, is_file: bool) -> None:
    folder = path.strip("/").rpartition("/")[0] if is_file else path.strip("/")
    if folder:
        raise UsageError(
            f"{shown(folder)} is a folder inside a repository: only whole repositories are read",
            subject=shown(folder),
            hint="download it with `hf download` and give the folder",
        )


def _own_host() -> str | None:
    from urllib.parse import urlsplit

    try:
        return urlsplit(os.environ.get("HF_ENDPOINT", "")).hostname
    except ValueError:
        return None


def _no_model(kind: str) -> UsageError:
    return UsageError(f"{kind} are no checkpoints: only model repositories are read", subject=kind, hint=_HINT)
