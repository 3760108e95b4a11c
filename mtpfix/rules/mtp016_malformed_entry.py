"""MTP016 malformed-entry: an entry that can never match, or that breaks an engine"""

from __future__ import annotations

from collections.abc import Iterator

from mtpfix.model import Finding
from mtpfix.rules.base import Context, Rule, by_state, evidence, finding, modules_of, plural

EXPLANATION = """\
An entry has a form that no engine can match (an empty path component, a stray dot, a blank) or that stops one
(`*mtp*` is not a valid regex; `null` or a number is no name at all).
Why: the entry was written in another dialect, or by a script that joined names wrongly.
In engines: what it was meant for is not covered, as with MTP001; transformers compiles the entries of an fp8
list as regexes and stops at one that is none.
Fix: the entry is replaced by one that says the same in a form that every engine understands. `mtpfix apply`
does that.
By hand: rewrite the entry in the dialect of its list: `mtpfix explain` shows which entries decide.
Seen in: Nemotron-H and Qwen3 MoE NVFP4 exports with a stray dot at the end of an entry
(NVIDIA/Model-Optimizer#882).
"""


def check(context: Context) -> Iterator[Finding]:
    """One finding a part and state (mended or not)."""
    for part, fixed, claims in by_state(context.claims.get("MTP016", ())):
        _, count = modules_of(claims)
        yield finding(
            "MTP016",
            claims,
            f"a malformed entry leaves {plural(count, 'module')} of the {part} uncovered. {evidence(claims[0])}: "
            f"{claims[0].mismatch.why}.",
            hint="rewrite the entry: mtpfix apply" if fixed else "remove the entry",
            fix="safe" if fixed else "none",
        )


RULE = Rule(
    "MTP016",
    "malformed-entry",
    "–",
    "error",
    "safe",
    "an entry that can never match, or that breaks an engine",
    EXPLANATION,
    check,
)
