"""The index of a sharded checkpoint, set against the headers. Pure.

Engines (vLLM and SGLang alike: `filter_duplicate_safetensors_files`) look for one name and open exactly the files that
its `weight_map` names, all of whose tensors they take (engines/openings.py has the releases). Where the only weights
are Mistral's `consolidated*.safetensors`, the name of the index differs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from mtpfix import late
from mtpfix.checkpoint.collect import WeightMap
from mtpfix.checkpoint.jsonfiles import parse_json
from mtpfix.errors import UnreadableError
from mtpfix.model import Index, JsonFile, Problem, RawModule, Tensor
from mtpfix.names import natural_key, shown, split_name, tensor_name

INDEX = "model.safetensors.index.json"
MISTRAL_INDEX = "consolidated.safetensors.index.json"
WEIGHT_MAP = "weight_map"
SUFFIX = ".safetensors"
MOST_FILES = 10_000  # that an index names; the largest models have a few hundred

_MISTRAL = "consolidated"
_NUMBERED = late.pattern(r"(.+)-([0-9]{5,6})-of-([0-9]{5,6})\.safetensors")


def shard_names(names: Iterable[str]) -> tuple[str, ...]:
    """The files among `names` that engines take for weights, in the order in which they load them.

    Hidden files are none (a glob leaves them out). `consolidated*.safetensors` holds Mistral's own copy of the same
    weights: it counts only where nothing else does.
    """
    shards = [name for name in names if name.endswith(SUFFIX) and not name.startswith(".")]
    own = [name for name in shards if not name.startswith(_MISTRAL)]
    return tuple(sorted(own or shards, key=natural_key))


def consolidated_beside(names: Iterable[str]) -> tuple[str, ...]:
    """Mistral's own copies, where they do not count since others do (`shard_names`)."""
    shards = [name for name in names if name.endswith(SUFFIX) and not name.startswith(".")]
    return tuple(sorted(name for name in {*shards}.difference(shard_names(shards))))


def index_name(shards: Collection[str]) -> str:
    """The name under which engines look for the index of these shards."""
    mistral = bool(shards) and all(name.startswith(_MISTRAL) for name in shards)
    return MISTRAL_INDEX if mistral else INDEX


def read_index(name: str, raw: bytes) -> tuple[WeightMap, JsonFile, tuple[Problem, ...]]:
    """The weight map (tensor name -> file), the parsed file and what is odd about it.

    Raises UnreadableError for an index that is malformed or names files outside the checkpoint.
    """
    file, problems = parse_json(name, raw)
    weight_map = file.value.get(WEIGHT_MAP)
    if not isinstance(weight_map, dict):
        raise UnreadableError(
            f"{name}: /{WEIGHT_MAP} is no JSON object", subject=name, hint="write the index again from the headers"
        )
    shards: dict[str, str] = {}
    once: dict[str, str] = {}  # a few names, each of which JSON repeats for thousands of tensors
    for tensor, shard in weight_map.items():
        if not isinstance(shard, str):
            raise _outside(name, tensor, shard, "is no file name")
        shards.setdefault(shard, tensor)
        weight_map[tensor] = once.setdefault(shard, shard)
    if len(shards) > MOST_FILES:
        message = f"{name}: {len(shards):,} files are named, more than the limit of {MOST_FILES:,}"
        raise UnreadableError(message, subject=name, hint="write the index again from the headers")
    for shard, tensor in shards.items():
        if not _inside(shard):
            raise _outside(name, tensor, shard, "is no file inside the checkpoint")
    return weight_map, file, problems


def _inside(shard: str) -> bool:
    steps = shard.replace("\\", "/").split("/")
    return "\0" not in shard and ":" not in steps[0] and all(step not in ("", ".", "..") for step in steps)


def _outside(name: str, tensor: str, shard: Any, why: str) -> UnreadableError:
    return UnreadableError(
        f"{name}: {shown(shard)}, named for {shown(tensor)}, {why}",
        subject=name,
        hint="an index may only name files of its own folder or below it",
    )


def placed(module: RawModule) -> Iterator[tuple[str, str]]:
    """The tensors of a module and the shard that holds each."""
    shards = module.shards or (module.shard,) * len(module.cells)
    for cell, shard in zip(module.cells, shards, strict=True):
        yield tensor_name(module.name, cell.suffix), shard


def compare(
    name: str,
    weight_map: WeightMap,
    modules: Mapping[str, RawModule],
    shards: Collection[str],
    copies: Iterable[Tensor] = (),
) -> tuple[Index, tuple[str, ...]]:
    """What the index says, set against the headers, and the modules in files that it does not name.

    copies  of tensors, in other files than the modules say: an index that names one of them is right
    """
    opened = opened_by(weight_map)
    elsewhere = {(copy.name, copy.shard) for copy in copies}
    unlisted: list[str] = []
    misplaced: list[str] = []
    unopened: list[str] = []
    for module in modules.values():
        listed = False
        for tensor, shard in placed(module):
            wanted = weight_map.get(tensor)
            listed = listed or shard in opened
            if wanted is None:
                unlisted.append(tensor)
            elif wanted != shard and (tensor, wanted) not in elsewhere:
                misplaced.append(tensor)
        if not listed:
            unopened.append(module.name)
    missing = sorted(set(weight_map.values()).difference(shards), key=natural_key)
    ghosts = tuple(tensor for tensor in weight_map if not _stored(modules, tensor))
    return Index(name, tuple(missing), ghosts, tuple(unlisted), tuple(misplaced)), tuple(unopened)


def gaps(names: Iterable[str]) -> tuple[int, str]:
    """How many files lack by the numbers of the others (`model-00001-of-00003.safetensors`), and the first of them."""
    held: dict[tuple[str, str, int], set[int]] = {}
    for found in filter(None, map(_NUMBERED.fullmatch, names)):
        held.setdefault((found[1], found[3], len(found[2])), set()).add(int(found[2]))
    count, first = 0, ""
    for (stem, most, width), numbers in held.items():
        start = min(1, *numbers)  # some count from 0
        lacking = (at for at in range(start, start + int(most)) if at not in numbers)
        number = next(lacking, None)
        if number is not None:
            first = first or f"{stem}-{number:0{width}}-of-{most}{SUFFIX}"
            count += int(most) - sum(start <= at < start + int(most) for at in numbers)
    return count, first


def opened_by(weight_map: WeightMap) -> frozenset[str]:
    """The files that an index names: those that engines open."""
    return frozenset(weight_map.values())


def _stored(modules: Mapping[str, RawModule], tensor: str) -> bool:
    name, suffix = split_name(tensor)
    module = modules.get(name)
    return module is not None and any(cell.suffix == suffix for cell in module.cells)
