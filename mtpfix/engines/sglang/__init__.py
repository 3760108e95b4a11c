"""SGLang: methods, lists and decisions of every modelled release."""

from mtpfix.engines.sglang.engine import ENGINE

__all__ = ["ENGINE"]
