"""MTP011 index-out-of-step: the index and the headers disagree"""

from __future__ import annotations

from collections.abc import Iterator

from mtpfix.model import Finding, Location
from mtpfix.rules.base import Context, Rule, plural

EXPLANATION = """\
`model.safetensors.index.json` says which file holds which tensor, and engines open only the files it names.
Tensors that it leaves out are never loaded, files that it names and that are missing stop the load, names
without a tensor are ghosts, and a tensor in two files is loaded twice, the later copy winning.
Fix: upload what is missing, or write the index again from the headers. That changes what engines load, so
mtpfix names what is out of step and does not edit the index.
"""


def check(context: Context) -> Iterator[Finding]:
    """One finding for each way in which the index is out of step."""
    checkpoint = context.world.checkpoint
    index = checkpoint.index
    if index is not None:
        place = (Location(index.file, "/weight_map"),)
        for names, message, hint in (
            (index.missing_shards, "files that the index names are missing", "upload the files, or rebuild the index"),
            (index.unlisted, "stored tensors are not in the index, so no engine loads them", "rebuild the index"),
            (index.ghosts, "names in the index have no tensor", "rebuild the index"),
            (index.misplaced, "tensors are not in the file that the index says", "rebuild the index"),
        ):
            if names:
                yield _finding(names, message, hint, place)
    if checkpoint.duplicates:
        names = tuple(tensor.name for tensor in checkpoint.duplicates)
        yield _finding(names, "tensors are stored in more than one file", "remove all copies but one", ())


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
