"""MTP001 draft-not-excluded: stored in full precision, and no entry says so"""

from __future__ import annotations

from collections.abc import Iterator

from mtpfix.formats.coverage import Coverage
from mtpfix.model import Finding
from mtpfix.names import tensor_name
from mtpfix.rules.base import (
    Context,
    Rule,
    by_part,
    evidence,
    finding,
    list_locations,
    modules_of,
    plural,
    stored_as,
    workaround,
)

SHOWN = 6

EXPLANATION = """\
A module is stored in full precision, but no entry of the quantization config covers it.
Why: an engine that reads the config allocates quantized parameters for every module that no entry excludes.
In engines: with packed formats (NVFP4, MXFP4, GPTQ, AWQ, W4A16) loading stops with a shape error or an
unknown parameter name. With FP8 and MXFP8 vLLM does not stop: the weights are cast into float8, the scales
stay unwritten, and every draft token is rejected; SGLang says "Downcasting not allowed".
Fix: add entries for the modules, in every file and in every spelling that an engine asks for. `mtpfix apply`
does that.
By hand: add the names of the modules to the list that the finding points to, then run `mtpfix check` again.
Seen in: nvidia/Qwen3.5-397B-A17B-NVFP4, whose lists name `mtp.layers.0*` and miss `mtp.fc`
(vllm-project/vllm#38832); nvidia/GLM-5.3-Flash-NVFP4, whose draft is layer 45; amd/GLM-5.1-NVFP4
(vllm-project/vllm#49187).
"""


def check(context: Context) -> Iterator[Finding]:
    """One finding a part, over all modules that the plan covers."""
    for part, claims in by_part(context.claims.get("MTP001", ())).items():
        _, count = modules_of(claims)
        yield finding(
            "MTP001",
            claims,
            f"{plural(count, 'module')} of the {part} stored as {stored_as(claims)}, and no entry covers "
            f"{'it' if count == 1 else 'them'}. {evidence(claims[0])}: {claims[0].mismatch.why}."
            f"{_outside(context) if part == 'draft' else ''}{workaround(context, claims)}",
            hint="add the entries of the plan: mtpfix apply",
            fix="safe",
            locations=list_locations(context),
        )


def _outside(context: Context) -> str:
    """The draft's tensors that no entry names, where some are named: what a pattern falls short of."""
    fmt = context.fmt
    if fmt is None:
        return ""
    lists = [fmt.exclusions(fragment.value) for fragment in context.fragments()]
    covered = Coverage(fmt, {entry for where in lists if where for entry in context.world.live(where.entries)})
    modules = context.world.draft_modules
    left = [raw for raw in modules if not covered(raw.name)]
    if not left or len(left) == len(modules):
        return ""
    count, total = (sum(len(raw.cells) for raw in some) for some in (left, modules))
    names = [tensor_name(raw.name, cell.suffix) for raw in left[:SHOWN] for cell in raw.cells][:SHOWN]
    shown = ", ".join(names) + (" and more" if count > SHOWN else "")
    return f" Of the draft's {total} tensors {count} are outside every entry: {shown}."


RULE = Rule(
    "MTP001",
    "draft-not-excluded",
    "A",
    "error",
    "safe",
    "stored in full precision, and no entry says so",
    EXPLANATION,
    check,
)
