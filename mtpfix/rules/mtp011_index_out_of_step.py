"""MTP011 index-out-of-step: the index and the headers disagree"""

from __future__ import annotations

from collections.abc import Iterator

from mtpfix.model import Checkpoint, Finding, Location
from mtpfix.names import split_name
from mtpfix.rules.base import Context, Rule, plural

EXPLANATION = """\
`model.safetensors.index.json` says which file holds which tensor. Engines open only the files it names (SGLang adds
`mtp.safetensors` for GLM-4 MoE) and read them whole: what lies in another file is never loaded. Files that it names
and that are missing stop the load, names without a tensor are ghosts, and a tensor in two files is loaded twice, the
later copy winning.
Fix: upload what is missing, or write the index again from the headers. That changes what engines load, so
mtpfix names what is out of step and does not edit the index.
"""


def check(context: Context) -> Iterator[Finding]:
    """One finding for each way in which the index is out of step."""
    checkpoint = context.world.checkpoint
    index = checkpoint.index
    if index is not None:
        place = (Location(index.file, "/weight_map"),)
        opened, unopened = _unlisted(checkpoint, index.unlisted)
        for names, message, hint in (
            (index.missing_shards, "files that the index names are missing", "upload the files, or rebuild the index"),
            (
                unopened,
                "stored tensors are in files that the index does not name, so no engine loads them",
                "rebuild the index",
            ),
            (
                opened,
                "stored tensors are not in the index, though engines load them with the rest of their file",
                "rebuild the index",
            ),
            (index.ghosts, "names in the index have no tensor", "rebuild the index"),
            (index.misplaced, "tensors are not in the file that the index says", "rebuild the index"),
        ):
            if names:
                yield _finding(names, message, hint, place)
    if context.world.nested:
        message = "files are in folders below, where vLLM and SGLang do not look"
        yield _finding(context.world.nested, message, "move them beside config.json, and rebuild the index", ())
    if checkpoint.duplicates:
        names = tuple(tensor.name for tensor in checkpoint.duplicates)
        yield _finding(names, "tensors are stored in more than one file", "remove all copies but one", ())


def _unlisted(checkpoint: Checkpoint, names: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Tensors that the index leaves out: in files that it names all the same, and in others."""
    found: dict[bool, list[str]] = {True: [], False: []}
    for name in names:
        module = checkpoint.modules.get(split_name(name)[0])
        found[module is not None and module.listed].append(name)
    return tuple(found[True]), tuple(found[False])


def _finding(names: tuple[str, ...], message: str, hint: str, place: tuple[Location, ...]) -> Finding:
    return Finding(
        rule="MTP011",
        severity="error",
        fix="none",
        message=f"{message}: {plural(len(names), 'name')}, e.g. {names[0]}",
        hint=hint,
        part="target",
        modules=names[:1000],
        module_count=len(names),
        locations=place,
    )


RULE = Rule(
    "MTP011", "index-out-of-step", "K", "error", "none", "the index and the headers disagree", EXPLANATION, check
)
