"""How a checkpoint is put together, whatever place its files come from."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from mtpfix.checkpoint.collect import Collector
from mtpfix.checkpoint.index import (
    SUFFIX,
    compare,
    consolidated_beside,
    index_name,
    opened_by,
    read_index,
    shard_names,
)
from mtpfix.checkpoint.index_text import Pieces, agrees
from mtpfix.checkpoint.jsonfiles import CONFIG, NAMES, Together, parse_json
from mtpfix.checkpoint.limits import check_lists, check_modules
from mtpfix.errors import UnreadableError
from mtpfix.frozen import Protocol
from mtpfix.model import Checkpoint, Index, JsonFile, Problem, RawModule, Source

if TYPE_CHECKING:
    from mtpfix.checkpoint.second import Second

_CONVERT = "convert the weights to safetensors"
_OTHER_WEIGHTS = (".bin", ".gguf", ".pt", ".pth", ".h5", ".msgpack", ".onnx", ".npz")

# What stands in a folder without a config.json, by a file of it: what that is, and what to give instead.
_OTHER_FOLDERS = {
    "adapter_config.json": ("an adapter (PEFT), no checkpoint", "merge it into its base model, or give that one"),
    "params.json": ("a checkpoint in Mistral's own format", "give one that transformers reads"),
    "model_index.json": ("a pipeline of diffusers", ""),
}
_KEPT = 4 << 20
_LOOKED_INTO = 1000  # folders below that are looked into, to say where a checkpoint is
_WHERE = {
    "local": "give the folder that holds config.json and the weights",
    "hub": "give a repository that holds config.json and the weights in its top folder",
    "bundle": "make the bundle of the folder that holds config.json and the weights",
}

HeaderRow = tuple[str, bytes, int]


class Files(Protocol):
    """The files of a checkpoint, wherever they are. Every method raises UnreadableError.

    Where a file need not be in memory as a whole there is `json_pieces`, too.
    """

    def names(self) -> Iterable[str]:
        """The files of the top folder."""

    def has(self, name: str) -> bool:
        """Whether there is a file of that name, in a folder below too."""

    def json_bytes(self, name: str) -> bytes:
        """The exact bytes of a JSON file."""

    def headers(self, names: Sequence[str]) -> Iterator[HeaderRow]:
        """Name, header (without its length) and file size of each safetensors file, in the order asked for."""


def read_checkpoint(
    source: Source, files: Files, *, keep_index: bool = False, second: Second | None = None
) -> Checkpoint:
    """The checkpoint that these files make.

    second  another process that reads some of them; it may presume that the index is in step

    `Checkpoint.files` holds the index only where it is out of step with the headers, or with `keep_index`. Raises
    UnreadableError where config.json or every weight file is missing, and for any file of a kind that engines read and
    that is malformed or larger than a model can need.
    """
    names = tuple(files.names())
    _require_config(source, files, names)
    together = Together()
    parsed, problems = _json_files(files, names, together)
    bytes(_KEPT)  # glibc keeps blocks of a size that was freed once (mallopt(3)); else headers take new pages each time
    with paused_collection():
        collector = Collector()
        if second:
            second.collect(collector, files, shard_names(names), parsed)
        else:
            collect(collector, files, shard_names(names))
        index = _index(collector, files, names, parsed, problems, together, keep_index=keep_index, second=second)
    if not collector.shards:
        raise _no_weights(source, names, index)
    check_modules(collector.modules, source.id)
    check_lists(parsed, len(collector.modules) + (len(index.ghosts) if index else 0))
    return Checkpoint(
        source=source,
        modules=collector.modules,
        files=parsed,
        shards=tuple(collector.shards),
        tensor_count=collector.tensor_count,
        index=index,
        duplicates=collector.duplicates,
        problems=tuple(problems),
        consolidated=_consolidated(files, consolidated_beside(names)),
    )


@contextmanager
def paused_collection() -> Iterator[None]:
    """No garbage collection: a checkpoint is 100,000 objects that stay, and each pass would walk all of them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _json_files(files: Files, names: Sequence[str], together: Together) -> tuple[dict[str, JsonFile], list[Problem]]:
    parsed: dict[str, JsonFile] = {}
    problems: list[Problem] = []
    for name in NAMES:
        if name in names:
            parsed[name], found = parse_json(name, together.add(name, files.json_bytes(name)))
            problems += found
    return parsed, problems


def collect(collector: Collector, files: Files, shards: Sequence[str]) -> None:
    """Take in the shards. Raises UnreadableError for one that is broken."""
    for shard, header, size in files.headers(shards):
        collector.add_header(shard, header, size)


def json_pieces(files: Files, name: str) -> AbstractContextManager[Pieces]:
    """A large JSON file, to be looked at piece by piece: new memory for all of it takes as long as comparing it."""
    pieces: Callable[[str], AbstractContextManager[Pieces]] | None = getattr(files, "json_pieces", None)
    return pieces(name) if pieces else nullcontext(files.json_bytes(name))


def _consolidated(files: Files, shards: Sequence[str]) -> Mapping[str, RawModule]:
    """What files hold that lie beside the checkpoint's own."""
    collector = Collector()
    collect(collector, files, shards)
    collector.settle()
    return collector.modules


def _index(
    collector: Collector,
    files: Files,
    names: Sequence[str],
    parsed: dict[str, JsonFile],
    problems: list[Problem],
    together: Together,
    *,
    keep_index: bool,
    second: Second | None,
) -> Index | None:
    name = index_name([shard.name for shard in collector.shards])
    wanted = name in names and not keep_index
    if wanted and second:
        collector.settle(overlaps=False)
        if collector.comparable and second.presume(name):
            return Index(name)
    collector.settle()
    if name not in names:
        return None
    with json_pieces(files, name) as pieces:
        if wanted and collector.comparable and agrees(name, pieces, collector.modules, collector.by_shard()):
            return Index(name)
        raw = pieces[:]
    weight_map, file, found = read_index(name, together.add(name, raw))
    problems += found
    unread = set(weight_map.values()).difference(shard.name for shard in collector.shards)
    more = sorted(name for name in unread if name.endswith(SUFFIX) and files.has(name))  # in folders below, say
    collect(collector, files, more)
    collector.settle(opened_by(weight_map))
    shards = [shard.name for shard in collector.shards]
    index, unopened = compare(name, weight_map, collector.modules, shards, collector.duplicates)
    if unopened:
        collector.unlist(unopened)
    if keep_index or index != Index(name) or collector.duplicates:
        parsed[name] = file
    return index


def _require_config(source: Source, files: Files, names: Sequence[str]) -> None:
    if CONFIG in names:
        return
    weights = sum(name.endswith(SUFFIX) for name in names)
    others = _other_weights(names)
    beside = (
        f"; {weights} *.safetensors {'is' if weights == 1 else 'are'} there" if weights else " and no *.safetensors"
    )
    what, hint = next((told for file, told in _OTHER_FOLDERS.items() if file in names), ("", ""))
    if what:
        beside = f": {what}"
    elif others and not weights:
        beside, hint = f" and no *.safetensors, but {others[0]}", _CONVERT
    raise UnreadableError(
        f"{source.id}: no config.json{beside}",
        subject=source.id,
        hint=_below(source, files, names) or hint or _WHERE[source.kind],
    )


def _other_weights(names: Sequence[str]) -> list[str]:
    """Files of weights that are no safetensors."""
    return sorted(name for name in names if name.endswith(_OTHER_WEIGHTS))


def _below(source: Source, files: Files, names: Sequence[str]) -> str:
    """Where the checkpoints are that stand in folders below, or ""."""
    if source.kind != "local":
        return ""
    if {"blobs", "refs", "snapshots"} <= set(names):
        return f"the cache of a repository: give the folder of one commit in {os.path.join(source.id, 'snapshots')}"
    found = [os.path.join(source.id, name) for name in names[:_LOOKED_INTO] if files.has(f"{name}/{CONFIG}")]
    others = f", and {len(found) - 1} more are beside it" if len(found) > 1 else ""
    return f"a checkpoint is in the folder {found[0]}{others}" if found else ""


def _no_weights(source: Source, names: Sequence[str], index: Index | None) -> UnreadableError:
    others = _other_weights(names)
    if index is not None and index.missing_shards:
        count, first = len(index.missing_shards), index.missing_shards[0]
        lack = f"{count} files that are missing, e.g. {first}" if count > 1 else f"{first}, which is missing"
        why = f"; {index.file} names {lack}"
        hint = "download the missing files"
    elif others:
        why = f"; its weights are in another format, e.g. {others[0]}"
        hint = _CONVERT
    else:
        why, hint = "", _WHERE[source.kind]
    return UnreadableError(f"{source.id}: no *.safetensors{why}", subject=source.id, hint=hint)
