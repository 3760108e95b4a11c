"""How long the lists of a quantization config may be, and how many modules there may be. A checkpoint is hostile input:
what no model needs is refused.

The longest exclusion list known of a released model has 489 entries (DeepSeek-R1 NVFP4), none has more than a few
dozen patterns. A list may name what the checkpoint holds one by one, so that a large checkpoint may have longer ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice, repeat
from operator import methodcaller
from typing import Any

from mtpfix import late
from mtpfix.checkpoint.jsonfiles import CONFIG, DESCRIPTION
from mtpfix.errors import UnreadableError
from mtpfix.model import JsonFile, RawModule
from mtpfix.modules import Modules, split_expert
from mtpfix.names import brief
from mtpfix.regexes import LETTERS, opening_of, unsigned

MOST_ROWS = 400_000  # of a description: one for each tensor; a trillion parameters make 280,000 tensors
MOST_ENTRIES = 150_000  # in whatever checkpoint; a trillion parameters make 150,000 modules
FEW_ENTRIES = 10_000  # in a small checkpoint too
MOST_PATTERNS = 1_000  # entries that only trying them out can match
MOST_REGEXES = 5_000  # regular expressions that may have to be compiled
LONG_CHARACTERS, LONG_PARTS = 500, 16  # of an entry: no name of a module has as many
MOST_LONG = 10_000  # characters of all such entries: each part of one may be looked at by itself
MOST_INNER = 2_000  # values inside of members of a list, which are texts in every list that an engine reads
MOST_GROUPS = 100
MOST_MODULES = 15_000  # with a matrix; experts of a layer that are stored alike are one. The largest have 3,000
MOST_EXPERTS = 30_000  # modules of the experts of one layer; the largest have 1,536
MOST_DRAFTS = 64  # layers of the draft, each of which has entries of its own; the largest have three
MOST_DRAFT_TENSORS = 60_000  # each is told; the largest have 6,000
MOST_TARGETS = 20_000  # of all config groups together, in whatever checkpoint
FEW_TARGETS = 2_000  # in a small checkpoint too

_INDEX = ".index.json"
_CONFIGS = ("quantization_config", "compression_config")
_GROUPS, _TARGETS = "config_groups", "targets"
_SPECIAL = late.pattern(r"[*+?{\[]")
_EXTRA, _DYNAMIC, _REGEX = "extra_config", "dynamic", "re:"
_WILD = "*+?{["
_DOTS = methodcaller("count", ".")


def check_lists(files: Mapping[str, JsonFile], modules: int) -> None:
    """Raise UnreadableError for a quantization config with a list that is longer than a model can need.

    modules  how many the checkpoint has, those that its index names and that are not there included
    """
    for file in files.values():
        if file.name == DESCRIPTION:
            _check(file.name, "the file", len(file.value), MOST_ROWS, "entries")
        elif not file.name.endswith(_INDEX):
            for part in _parts(file):
                _check_part(file.name, part, modules)


def check_modules(modules: Modules, source: str) -> None:
    """Raise UnreadableError for more modules that are judged by themselves, or experts, than a model can have."""
    for holder, held in _experts(modules).most_common(1):
        _check_model(held, f"modules of {brief(holder)}", MOST_EXPERTS, source)
    count = sum(len(block.cells) for block in modules.blocks)
    if count + len(modules.singles) > MOST_MODULES:
        count += len({_judged(module) for module in modules.singles.values() if _is_judged(module)})
    check_judged(count, source)


def _experts(modules: Modules) -> Counter[str]:
    """How many modules the experts of a layer are, by what stands before their numbers."""
    found: Counter[str] = Counter()
    if len(modules.singles) > MOST_EXPERTS:
        found.update(split_expert(name)[0] for name in modules.singles)
        del found[""]
    for block in modules.blocks:
        found[block.holder] += block.size
    return found


def check_judged(count: int, source: str) -> None:
    """Raise UnreadableError for so many modules that are judged by themselves."""
    _check_model(count, "matrices, experts that are stored alike counted once,", MOST_MODULES, source)


def check_draft(layers: int, tensors: int, source: str) -> None:
    """Raise UnreadableError for a draft of so many layers or tensors."""
    _check_model(layers, "layers of the draft", MOST_DRAFTS, source)
    _check_model(tensors, "tensors of the draft", MOST_DRAFT_TENSORS, source)


def _check_model(count: int, what: str, most: int, source: str) -> None:
    if count > most:
        raise UnreadableError(
            f"{source}: {count:,} {what} are above the limit of {most:,}",
            subject=source,
            hint="no model has as many: look at what wrote the files",
        )


def _is_judged(module: RawModule) -> bool:
    return any(len(cell.shape) > 1 for cell in module.cells)


def _judged(module: RawModule) -> object:
    """What stands for a module where it is judged: of experts of one projection that are stored alike one for all."""
    holder, number, rest = split_expert(module.name)
    return (holder, rest, id(module.cells)) if number.isdecimal() else module.name


def _parts(file: JsonFile) -> Iterator[Mapping[str, Any]]:
    """The quantization configs of a file: of config.json at its top or one level below, else the file and inside it."""
    inner = [value for value in file.value.values() if isinstance(value, Mapping)]
    if file.name != CONFIG:
        yield from (file.value, *inner)
        return
    held = (part.get(key) for part in (file.value, *inner) for key in _CONFIGS)
    for value in held:
        if isinstance(value, Mapping):
            yield from (value, *(item for item in (value.get("quantization"),) if isinstance(item, Mapping)))


def _check_part(file: str, part: Mapping[str, Any], modules: int) -> None:
    most = min(MOST_ENTRIES, max(FEW_ENTRIES, 2 * modules))
    for key, value in part.items():
        if key == _GROUPS and isinstance(value, Mapping):
            _check(file, repr(key), len(value), MOST_GROUPS, "groups")
            targets = tuple(_targets(value))
            _check(file, repr(key), len(targets), min(MOST_TARGETS, max(FEW_TARGETS, modules)), "targets")
            _check(file, repr(key), _patterns(targets), MOST_PATTERNS, "patterns")
            _check(file, repr(key), _long(targets), MOST_LONG, "letters of long targets")
        elif isinstance(value, str):
            _check(file, repr(brief(key)), len(value), most, "letters")  # each is an entry in place of a list
        elif isinstance(value, (list, dict)):
            _check(file, repr(brief(key)), len(value), most, "entries")
            _check(file, repr(brief(key)), _patterns(value, key), MOST_PATTERNS, "patterns")
            _check(file, repr(brief(key)), _regexes(value, key), MOST_REGEXES, "regular expressions")
            _check(file, repr(brief(key)), _long(value), MOST_LONG, "letters of long entries")
            inner = sum(1 for _ in islice(_inner(value), MOST_INNER + 1))
            _check(file, repr(brief(key)), inner, MOST_INNER, "inner values")
    total = sum(len(value) for value in part.values() if isinstance(value, (list, dict)))  # each list meets the others
    _check(file, "the quantization config", total, max(FEW_ENTRIES, 2 * modules), "entries in all its lists")


def _targets(groups: Mapping[str, Any]) -> Iterator[object]:
    for group in groups.values():
        held = group.get(_TARGETS) if isinstance(group, Mapping) else None
        yield from held if isinstance(held, (list, dict)) else ()


def _patterns(entries: Collection[object], key: str = "") -> int:
    """How many entries no table finds: their wildcards stand elsewhere than at one of the two ends.

    Of `extra_config` all that have a letter of regular expressions: each is searched for, an invalid one too.
    """
    if len(entries) <= MOST_PATTERNS:
        return 0
    texts = _texts(entries)
    whole = "\n".join(texts) + "\n"  # most lists have wildcards at the ends of entries or none, which C sees at once
    if key != _EXTRA and not any(map(whole.replace("*\n", "\n").__contains__, _WILD)):
        return 0
    return sum(_is_pattern(entry, key) for entry in texts)


def _texts(entries: Iterable[object]) -> list[str]:
    held = list(entries)
    if set(map(type, held)) <= {str}:  # as in all lists but broken ones
        return held  # type: ignore[return-value]
    return [entry for entry in held if isinstance(entry, str)]


def _is_pattern(entry: str, key: str) -> bool:
    both = len(entry) > 1 and entry[0] == entry[-1] == "*"
    tried = key == _EXTRA and not LETTERS.isdisjoint(entry)
    return both or tried or _SPECIAL.search(entry, 1, len(entry) - 1) is not None


def _regexes(entries: Collection[object], key: str) -> int:
    """How many entries engines compile; of GPTQ's rules those that a name need not begin with a text to be met by."""
    if len(entries) <= MOST_REGEXES:
        return 0
    texts = _texts(entries)
    if key == _DYNAMIC:
        openings = map(opening_of, map(unsigned, texts))
        return sum(opening is None or len(opening.texts) != 1 for opening in openings)
    return [entry[: len(_REGEX)] for entry in texts].count(_REGEX) if _REGEX in "\n".join(texts) else 0


def _long(entries: Collection[object]) -> int:
    """How many letters all entries together have that are longer than the name of any module."""
    texts = _texts(entries)
    if max(map(len, texts), default=0) <= LONG_CHARACTERS and max(map(_DOTS, texts), default=0) <= LONG_PARTS:
        return 0
    return sum(len(text) for text in texts if len(text) > LONG_CHARACTERS or _DOTS(text) > LONG_PARTS)


def _inner(held: Iterable[object]) -> Iterator[object]:
    """What members of a list hold that are lists or objects themselves; a long text counts as often as it is long."""
    some = isinstance(held, list) and not set(map(type, held)) <= {str}
    todo = [member for member in held if isinstance(member, (list, dict))] if some else []
    while todo:
        node = todo.pop()
        for value in node if isinstance(node, list) else (*node, *node.values()):
            if isinstance(value, (list, dict)):
                todo.append(value)
            size = len(value) if isinstance(value, str) else 0
            yield from repeat(value, 1 + size // LONG_CHARACTERS)


def _check(file: str, where: str, count: int, most: int, what: str) -> None:
    if count > most:
        raise UnreadableError(
            f"{file}: {where} holds {count:,} {what}",
            subject=file,
            hint=f"no model needs as many; of this one mtpfix reads up to {most:,} {what}: look at what wrote the file",
        )
