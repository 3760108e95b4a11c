"""How engines come to see modules of a family, as the tests of family files ask for it."""

from __future__ import annotations

from mtpfix.families.base import Ask, View, ask, view_for
from mtpfix.families.loader import load
from mtpfix.families.patterns import key_of
from mtpfix.model import Part

NEWEST = {"vllm": "0.33.0", "sglang": "0.5.23", "tensorrt-llm": "snapshot-3"}


def view_of(family: str, engine: str, part: Part, release: str = "", architecture: str = "") -> View:
    found = load(family)
    names = (architecture,) if architecture else found.architectures[:1]
    view = view_for(found, engine, part, release or NEWEST[engine], names)
    assert view is not None
    return view


def asked(view: View, module: str, layers: int = 4, method: str = "fp8", release: str = "") -> tuple[str, str]:
    found = ask(view, key_of(module), layers, release or NEWEST[view.engine], method)
    assert isinstance(found, Ask), module
    return found.runtime, found.layer
