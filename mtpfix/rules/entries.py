"""What an entry means to say, and what is wrong with its form, apart from any engine."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import lru_cache

from mtpfix import late
from mtpfix.formats.base import Format, regex_matches
from mtpfix.regexes import is_surely_valid, is_valid, literal_of, unsigned

_WRAPPERS = ("model.language_model.", "language_model.model.", "language_model.", "model.")
_WRAPPED = late.pattern(r"^(?:(?:model|language_model)\\?\.)+")
_WILD = frozenset("*?[")
_PLAIN = late.pattern(r"[A-Za-z0-9_.-]*[A-Za-z0-9_-]")
_PATH = late.pattern(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_STRAY = late.pattern(r"(^|[^.*\\])\.\.+(?=[^.*]|$)|^\.(?!\*)")


def means(entry: str, name: str) -> bool:
    """Whether somebody who wrote this entry meant this module, whatever dialect and prefix they used."""
    kind, text, needle = _reading(entry)
    bare = _bare(name)
    if kind == "regex":
        return (needle in name or needle in bare) and any(_regex_means(text, each) for each in (name, bare))
    return _glob_means(text, bare)


def meant(entries: Iterable[str], name: str) -> list[str]:
    """The entries that are meant for a module. A plain one is a row of whole components of its name."""
    ends, entries = tuple(_bare(name).split(".")), tuple(entries)
    odd = _not_plain(entries)
    likely = [entry for entry in entries if entry.endswith(ends) or entry in odd]
    return [entry for entry in likely if means(entry, name)]


@lru_cache(maxsize=4)  # a list is asked for one module after the other
def _not_plain(entries: tuple[str, ...]) -> frozenset[str]:
    plain = _PLAIN.fullmatch
    return frozenset([entry for entry in entries if plain(entry) is None])


@lru_cache(maxsize=65536)
def _reading(entry: str) -> tuple[str, str, str]:
    """Whether an entry is meant as a `regex` or as a `glob`, what of it counts, and what a name must hold for that."""
    text = unsigned(entry)
    bare = "\\" in text or text.startswith((".*", "("))  # AutoRound's patterns have no mark of their own
    if bare or text.startswith("re:") or text != entry:
        text = text.removeprefix("re:")
        loose = _loose(text)
        sure = is_surely_valid(text) and (text.endswith(loose) and not loose.startswith("*"))
        return "regex", text, literal_of(loose) if sure else ""
    return "glob", _bare(text), ""


@lru_cache(maxsize=65536)
def _bare(name: str) -> str:
    """A name without wrapper prefixes and stray dots."""
    name = name.strip().strip(".")
    if ".." in name:
        name = re.sub(r"\.\.+", ".", name)
    for wrapper in _WRAPPERS:
        if name.startswith(wrapper):
            return name.removeprefix(wrapper)
    return name


def _glob_means(wanted: str, bare: str) -> bool:
    """A fragment is meant at any depth, a path from `layers.` on at the top only: a target's layer is no draft's."""
    if not wanted.strip("*. "):
        return bool(wanted)
    rooted = wanted.startswith("layers.")
    head = wanted.removesuffix("*")
    if head != wanted and _WILD.isdisjoint(head):  # what most lists hold: a long one need not be compiled
        return bare.startswith(head) or (not rooted and f".{head}" in bare)
    if "*" in wanted or "?" in wanted:
        return fnmatchcase(bare, wanted) or (not rooted and fnmatchcase(bare, f"*.{wanted}"))
    return f"{bare}.".startswith(f"{wanted}.") or (not rooted and f".{wanted}." in f".{bare}.")


def _regex_means(pattern: str, name: str) -> bool:
    text, loose = pattern.lstrip("^"), _loose(pattern)
    front = "" if loose != text and loose.startswith("layers") else ".*"
    return regex_matches(pattern, name) or regex_matches(front + loose, name)


def _loose(pattern: str) -> str:
    """A pattern without its start and the wrappers in it."""
    return _WRAPPED.sub("", pattern.lstrip("^"))


def malformed(fmt: Format, entry: str) -> str:
    """Why an entry can never match, or breaks an engine, in words; "" for a sound one."""
    if _PATH.fullmatch(entry):  # as most are
        return ""
    if not entry.strip():
        return "it is empty"
    if fmt.name == "modelopt" and not entry.startswith("re:") and _is_stray(entry):
        return "it has an empty path component or a blank"
    if fmt.name == "modelopt" and entry.endswith("."):
        return "it ends in a dot"
    if fmt.name == "auto-round" and not is_valid(entry):
        return "it is no valid regular expression, so that the engines pass over it"
    if fmt.name == "fp8" and entry.startswith("*"):
        return "it starts with `*`: a literal in vLLM and SGLang, and no valid regex in transformers"
    return ""


def _is_stray(entry: str) -> bool:
    """Whether an entry that is not blank has an empty path component or a blank in it."""
    return entry.split() != [entry] or ((".." in entry or entry[0] == ".") and _STRAY.search(entry) is not None)
