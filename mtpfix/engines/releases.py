"""Releases of the engines, compared: what the engines' own files need of `mtpfix.releases`."""

from __future__ import annotations

from mtpfix.releases import after, at_least, between, key, modelled

__all__ = ["after", "at_least", "between", "key", "modelled"]
