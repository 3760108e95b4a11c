"""MTP011 index-out-of-step: the index and the headers disagree"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from mtpfix.checkpoint.index import gaps
from mtpfix.engines.openings import SINGLE_FILE, TITLES, read_last, since
from mtpfix.model import Checkpoint, Finding, FixKind, Index, Location, Severity, Tensor
from mtpfix.names import tensor_name
from mtpfix.rules.base import Context, Rule, plural

EXPLANATION = """\
`model.safetensors.index.json` and the headers of the shards disagree: tensors that the index leaves out,
files that it names and that are missing, names without a tensor, a tensor in two files; or there is no index, and
by the numbers in their names files are missing.
Why: a shard was added, renamed or forgotten after the index was written.
In engines: vLLM, SGLang and transformers use the file names of the index only: they open exactly the files that
it names and take every tensor of these, whatever else it says; TensorRT-LLM opens every file of the folder. So a
file that it leaves out is never read, however right the rest is. A file that it names and that is missing stops
vLLM since 0.26.0 and SGLang since 0.5.17, and earlier releases go on without it. Of a tensor in two files that
are opened the copy that is read later stays: vLLM goes by the numbers in file names since 0.16.0, SGLang by the
alphabet since 0.5.13, earlier releases as the folder lists them. Where the copy that the index means is read
last either way, in the same dtype and shape, it is a warning.
Fix: `mtpfix apply --unsafe-fixes` writes from the headers what the index has to say; it changes what engines
load, so it is no safe fix. Missing files are better brought back than forgotten. Where headers do not tell which
of several copies is right, or where the target cannot do without what is missing, nothing is written.
By hand: add a line for each tensor that is left out: `"NAME": "FILE"` in `weight_map`.
Seen in: shards that the index names and that are missing (vllm-project/vllm#38336 and #34859).
"""
_TO_REBUILD = "write the index again from the headers: mtpfix apply --unsafe-fixes"


def check(context: Context) -> Iterator[Finding]:
    """One finding for each way in which the index is out of step."""
    checkpoint = context.world.checkpoint
    if checkpoint.index is not None:
        lost = _lost(checkpoint, checkpoint.index)
        yield from _missing(context, checkpoint.index, lost)
        yield from _left_out(context, checkpoint.index)
        yield from _names(context, checkpoint.index, frozenset(lost))
        yield from _below(context, checkpoint.index)
    else:
        yield from _none(context)
    yield from _copies(context)


def _missing(context: Context, index: Index, lost: tuple[str, ...]) -> Iterator[Finding]:
    """Files that are not there, and the tensors that are lost with them."""
    if index.missing_shards:
        tensors = f", with {plural(len(lost), 'tensor')} that no other file holds" if lost else ""
        stops = f"{since('vllm', missing='stops')} and {since('sglang', missing='stops')}"
        yield _finding(
            context,
            index.missing_shards,
            f"files that the index names are missing: {_named(index.missing_shards, 'file')}{tensors}. {stops} and "
            "later stop there, earlier ones go on without them",
            _way_back(context, lost),
        )


def _way_back(context: Context, lost: tuple[str, ...]) -> str:
    """How tensors that are lost with their files come back."""
    if not lost:
        return ""
    ways = "download or upload the files"
    drafts = all(context.world.lost[tensor] for tensor in lost)
    return f"{ways}, or restore the draft: mtpfix graft DIR --from BASE" if drafts else ways


def _lost(checkpoint: Checkpoint, index: Index) -> tuple[str, ...]:
    """The names without a tensor that an index puts into missing files."""
    if not index.missing_shards:
        return ()
    named: Mapping[str, str] = checkpoint.files[index.file].value["weight_map"]
    missing = frozenset(index.missing_shards)
    return tuple(tensor for tensor in index.ghosts if named[tensor] in missing)


def _left_out(context: Context, index: Index) -> Iterator[Finding]:
    """Tensors in files that engines do not open."""
    checkpoint = context.world.checkpoint
    named = _named_files(checkpoint, index)
    found: dict[str, list[str]] = {}
    for tensor, shard in _shards_of(checkpoint, (*index.unlisted, *index.misplaced)).items():
        if shard not in named:
            found.setdefault(shard, []).append(tensor)
    for shard, tensors in found.items():
        more = _all_the_same(context, shard)
        yield _finding(
            context,
            tuple(tensors),
            f"the index does not name {shard}, so that vLLM, SGLang and transformers never open it"
            f"{more}: {_named(tuple(tensors), 'tensor')}",
            "list its tensors",
        )


def _all_the_same(context: Context, shard: str) -> str:
    """Who opens a file though the index does not name it."""
    rows = context.world.family.beside if context.world.family else ()
    also = [TITLES[row.engine] for row in rows if row.file == shard and not row.span.until]
    return f"; {also[0]} opens {shard} of this model all the same" if also else ""


def _names(context: Context, index: Index, lost: Collection[str]) -> Iterator[Finding]:
    """Names that are wrong in the index, and without consequence for engines: they take whole files."""
    checkpoint = context.world.checkpoint
    named = _named_files(checkpoint, index)
    listless, misplaced = (
        tuple(tensor for tensor, shard in _shards_of(checkpoint, names).items() if shard in named)
        for names in (index.unlisted, index.misplaced)
    )
    for names, message in (
        (listless, "stored tensors are not in the index; engines load them all the same, since it names their file"),
        (tuple(name for name in index.ghosts if name not in lost), "names in the index have no tensor"),
        (misplaced, "tensors are in another file than the index says; engines load them all the same"),
    ):
        if names:
            yield _finding(context, names, f"{message}: {_named(names, 'name')}", "")


def _below(context: Context, index: Index) -> Iterator[Finding]:
    """Files in folders below: vLLM and SGLang list the top folder only."""
    shards = context.world.nested
    if shards:
        yield _finding(
            context,
            shards,
            f"the index names files in folders below: {_named(shards, 'file')}. vLLM takes them for missing, SGLang "
            "does not open them",
            "move them to the folder of the index, and write the index again",
            fix="none",
        )


def _none(context: Context) -> Iterator[Finding]:
    """Files without an index: some lack by their numbers, or all are there and an engine wants one."""
    lacking, first = gaps(shard.name for shard in context.world.checkpoint.shards)
    if lacking and _has_layers(context):
        yield _finding(
            context,
            (),
            f"by their numbers {plural(lacking, 'file')} of the checkpoint {'is' if lacking == 1 else 'are'} missing, "
            f"e.g. {first}, and there is no index: engines open those that are there, and what is in the others stays "
            "unwritten",
            "download or upload the files and the index",
            fix="none",
        )
    elif context.reindex is not None and context.reindex.change is not None:
        count = len(context.world.checkpoint.shards)
        yield _finding(
            context,
            (),
            f"{count} files and no index: vLLM, SGLang and TensorRT-LLM open all of them, transformers finds none or "
            "one",
            "",
            severity="note",
        )


def _has_layers(context: Context) -> bool:
    """Whether layers of the target are stored: of a draft in a repository of its own one shard may have been taken."""
    world = context.world
    return "target" in world.parts and any(unit.key.numbers for unit in world.by_part["target"])


def _copies(context: Context) -> Iterator[Finding]:
    """Tensors in several files: both opened, or one left out as an index does with an old copy."""
    checkpoint = context.world.checkpoint
    named = _named_files(checkpoint, checkpoint.index) if checkpoint.index else None
    old = [copy for copy in checkpoint.duplicates if named is not None and copy.shard not in named]
    both = [copy for copy in checkpoint.duplicates if copy not in old]
    if both:
        files = [both[0].shard, _kept_shard(checkpoint, both[0].name)]
        unlike = "" if all(_is_alike(checkpoint, copy) for copy in both) else " Their dtypes or shapes differ."
        yield _finding(
            context,
            tuple(copy.name for copy in both),
            f"tensors are stored in more than one file that engines open: {_named([c.name for c in both], 'name')} in "
            f"{' and '.join(files)}. {_winner(files)}{unlike}",
            "headers do not say which copy is right: remove all but one",
            fix="none",
            severity="warning" if not unlike and _is_settled(checkpoint, both) else "error",
        )
    for shard in dict.fromkeys(copy.shard for copy in old):
        names = tuple(copy.name for copy in old if copy.shard == shard)
        also = _all_the_same(context, shard)
        who = "transformers opens it instead of them" if shard == SINGLE_FILE else "TensorRT-LLM opens it too"
        yield _finding(
            context,
            names,
            f"{shard} holds {plural(len(names), 'tensor')} of modules that are in the files that the index names, e.g. "
            f"{names[0]}; the index leaves it out, {who}{also}",
            "remove the file that is left over",
            fix="none",
            severity="error" if shard == SINGLE_FILE or also or _reads_all(context) else "warning",
        )


def _reads_all(context: Context) -> bool:
    """Whether an engine serves the checkpoint that opens every file of the folder: TensorRT-LLM reads ModelOpt's."""
    return context.fmt is not None and context.fmt.name == "modelopt"


def _is_settled(checkpoint: Checkpoint, copies: list[Tensor]) -> bool:
    """Whether the copy that the index means is the one that engines read last, in either order."""
    index = checkpoint.files.get(checkpoint.index.file) if checkpoint.index else None
    names: Mapping[str, str] = index.value["weight_map"] if index else {}
    for copy in copies:
        files = [copy.shard, _kept_shard(checkpoint, copy.name)]
        if {read_last("natural", files), read_last("alphabetical", files)} != {names.get(copy.name)}:
            return False
    return True


def _winner(files: list[str]) -> str:
    natural, alphabetical = read_last("natural", files), read_last("alphabetical", files)
    vllm, sglang = since("vllm", order="natural"), since("sglang", order="alphabetical")
    if natural == alphabetical:
        return (
            f"The copy in {natural} is read last and stays ({vllm}, {sglang} and later; before, as the folder lists)."
        )
    return f"The copy in {natural} is read last by {vllm} and later, that in {alphabetical} by {sglang} and later."


def _kept_shard(checkpoint: Checkpoint, tensor: str) -> str:
    module = checkpoint.modules[tensor.rpartition(".")[0]]
    shards = module.shards or (module.shard,) * len(module.cells)
    return next(
        shard
        for cell, shard in zip(module.cells, shards, strict=True)
        if tensor_name(module.name, cell.suffix) == tensor
    )


def _is_alike(checkpoint: Checkpoint, copy: Tensor) -> bool:
    module = checkpoint.modules[copy.name.rpartition(".")[0]]
    kept = next(cell for cell in module.cells if tensor_name(module.name, cell.suffix) == copy.name)
    return (kept.dtype, kept.shape) == (copy.dtype, copy.shape)


def _named_files(checkpoint: Checkpoint, index: Index) -> frozenset[str]:
    """The files that an index names; one that is in step names them all, and is not kept."""
    file = checkpoint.files.get(index.file)
    return frozenset(file.value["weight_map"].values() if file else (shard.name for shard in checkpoint.shards))


def _shards_of(checkpoint: Checkpoint, tensors: tuple[str, ...]) -> Mapping[str, str]:
    """Some tensors, and the file of each."""
    names = frozenset(tensors)
    found = {}
    for module in checkpoint.modules.values() if names else ():
        shards = module.shards or (module.shard,) * len(module.cells)
        for cell, shard in zip(module.cells, shards, strict=True):
            tensor = tensor_name(module.name, cell.suffix)
            if tensor in names:
                found[tensor] = shard
    return found


def _named(names: tuple[str, ...] | list[str], noun: str) -> str:
    return f"{plural(len(names), noun)}, e.g. {names[0]}" if len(names) > 1 else names[0]


def _finding(
    context: Context,
    names: tuple[str, ...],
    message: str,
    hint: str,
    *,
    fix: FixKind = "unsafe",
    severity: Severity = "error",
) -> Finding:
    index, reindex = context.world.checkpoint.index, context.reindex
    can = fix == "unsafe" and reindex is not None and reindex.change is not None
    way = _TO_REBUILD if can else reindex.reason if fix == "unsafe" and reindex and reindex.reason else ""
    hints = [text for text in (hint, way) if text]
    return Finding(
        rule="MTP011",
        severity=severity,
        fix="unsafe" if can else "none",
        message=message,
        hint=", or ".join(hints) if can else "; ".join(hints),
        part="target",
        modules=names[:1000],
        module_count=len(names),
        locations=(Location(index.file, "/weight_map"),) if index else (),
    )


RULE = Rule(
    "MTP011", "index-out-of-step", "K", "error", "unsafe", "the index and the headers disagree", EXPLANATION, check
)
