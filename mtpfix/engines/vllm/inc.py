"""auto-round (vLLM's INC config): `extra_config` by module, else the blocks to quantize.

Read at vllm-0.33.0 Q/inc/inc.py:322 (decision), Q/inc/config_parser.py:82-214 (bits of a module), and for releases
before 0.24.0 at 0.23.0 Q/inc.py and 0.12.0 Q/auto_round.py:130.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from mtpfix.engines.base import MatchQuery
from mtpfix.engines.listing import Starting
from mtpfix.engines.vllm.answers import NOT_ASKED, Decider, Refusal, as_linears, cause_of, listed, plain, required
from mtpfix.engines.vllm.entries import Entry, in_force, mapped, numbered, read
from mtpfix.engines.vllm.matching import Suffixed, earliest
from mtpfix.engines.vllm.switches import on
from mtpfix.frozen import NamedTuple
from mtpfix.model import Answer, Cause, Layer, Mapper
from mtpfix.regexes import LETTERS, Regex, compiled

_PLACE = "/extra_config"
_INT = ("auto_round:auto_gptq", "auto_round:auto_awq")
_MX, _FP8 = "auto_round:llm_compressor", "auto_round:fp8"
_BACKENDS = ("auto", "gptq", "gptq:marlin", "awq", "awq:marlin", "marlin")


class Setting(NamedTuple):
    """What a module gets, and the `extra_config` key that says so."""

    bits: Any
    group_size: Any
    symmetric: Any
    entry: Entry | None

    @property
    def values(self) -> tuple[Any, Any, Any]:
        return self[:3]


class Keys(NamedTuple):
    """The keys of `extra_config` after the mappers, with what each holds, made ready to be searched."""

    keys: tuple[Entry, ...]
    values: Mapping[str, Any]
    entries: Mapping[str, Entry]
    patterns: Sequence[tuple[Entry, Regex]]
    endings: Suffixed
    starts: Starting


def _keys(query: MatchQuery, mappers: Sequence[Mapper]) -> Keys:
    """The keys under some mappers, made ready once for all mappers that come to the same."""
    written, recipes = query.once(("vllm", _PLACE), lambda: _written(query.config.get("extra_config") or {}))
    keys = _renamed(written, mappers)
    return query.once(("vllm extra keys", keys), lambda: _searched(keys, recipes))


def _written(config: Mapping[str, Any]) -> tuple[tuple[Entry, ...], Mapping[str, Any]]:
    """The keys as they stand in the config, and what each holds."""
    entries = read(config, _PLACE)
    return entries, {entry.text: config[entry.text] for entry in entries}


def _searched(keys: tuple[Entry, ...], recipes: Mapping[str, Any]) -> Keys:
    values = {entry.name: recipes[entry.text] for entry in keys}
    patterns = [(entry, regex) for entry in keys if (regex := _regex(entry.name)) is not None]
    return Keys(keys, values, {entry.name: entry for entry in keys}, patterns, Suffixed(keys), Starting(values))


class Extra:
    """`extra_config`: keys that equal a name, keys that are patterns, keys that end it.

    `within`: whether the name lies in a block to quantize; what a key leaves open hangs on it.
    """

    def __init__(self, found: Keys, default: Setting, release: str) -> None:
        self.keys, self.values, self._entries, self._patterns, self._endings, self._starts = found
        self._default = default
        self._block_groups = on("inc-block-groups", release)

    def __bool__(self) -> bool:
        return bool(self.keys)

    def entry(self, name: str) -> Entry | None:
        """The key that equals the name."""
        return self._entries.get(name)

    def own(self, name: str) -> Setting | None:
        """The setting of a key that equals the name."""
        entry = self._entries.get(name)
        return None if entry is None else self._read(entry, within=True)

    def ending(self, name: str) -> Setting | None:
        """The setting of the first key that ends the name after a dot."""
        entry = self._endings.ending(name)
        return None if entry is None else self._read(entry, within=True)

    def configured(self, name: str) -> bool:
        """Whether a key equals the name or, as a pattern, is found in it."""
        return name in self._entries or self._pattern(name) is not None

    def setting(self, name: str, *, within: bool) -> Setting:
        """The setting of a name: equal key, pattern, default."""
        entry = self._entries.get(name) or self._pattern(name)
        return self._read(entry, within=within) if entry else self._without(within)

    def below(self, name: str, *, within: bool) -> list[Setting]:
        """The settings of all keys that start with the name."""
        return [self.setting(key, within=within) for key in self._starts.all(name)]

    def _pattern(self, name: str) -> Entry | None:
        return next((entry for entry, regex in self._patterns if regex.search(name)), None)

    def _without(self, within: bool) -> Setting:
        return self._default if within else Setting(16, -1, True, None)

    def _read(self, entry: Entry, *, within: bool) -> Setting:
        bits, group_size, symmetric, _ = self._without(within)
        recipe = self.values[entry.name]
        size = recipe.get("group_size", group_size)
        if self._block_groups:
            size = normal_group_size(size)
        return Setting(recipe.get("bits", bits), size, recipe.get("sym", symmetric), entry)


def _renamed(keys: tuple[Entry, ...], mappers: Iterable[Mapper]) -> tuple[Entry, ...]:
    """The keys after the mappers; the same object where none changes any. Of keys that become one the last has its
    value and the first its place, as in the dictionary that each mapper makes."""
    current = keys
    for mapper in mappers:
        found = mapped(current, (mapper,))
        if found is not current:
            current = tuple({entry.name: entry for entry in found}.values())
    return current if current is keys else numbered(current)


@lru_cache(maxsize=1 << 14)  # a plan tries many lists, an invalid expression each time
def _regex(key: str) -> Regex | None:
    """The key as a pattern, where it has a letter that only patterns have; an invalid one is passed over."""
    if LETTERS.isdisjoint(key):
        return None
    try:
        return compiled(key)
    except re.error:
        return None


def normal_group_size(value: Any) -> Any:
    """A group size as the engine keeps it from 0.29.0 on: a number or a pair. Raises for anything else."""
    if isinstance(value, (list, tuple)) and len(value) == 2 and all(isinstance(item, int) for item in value):
        return tuple(value)
    if isinstance(value, int):
        return value
    raise Refusal("ValueError", f"unsupported group_size {value}")


class AutoRound:
    """An auto-round config."""

    def __init__(self, query: MatchQuery) -> None:
        config, release = query.config, query.release
        self._release = release
        self._packed = query.packed
        self._layout = parse_layout(config, release)
        mappers = in_force(query.mappers, release)
        default = Setting(self._layout.bits, self._layout.group_size, self._layout.symmetric, None)
        found = query.once(("vllm extra", mappers), lambda: _keys(query, mappers))
        self._extra = Extra(found, default, release)
        self._blocks = _blocks(config, mappers)
        self._plain_experts = on("inc-plain-experts", release)
        self._query = query

    def decide(self, runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        early = self._early(runtime)
        if early is not None:
            return as_linears(early, self._query) if layer == "moe" and not self._plain_experts else listed(early)
        setting = self._setting(runtime, layer)
        cause = cause_of(setting.entry) if setting.entry else self._rule(runtime, layer)
        if setting.bits >= 16:
            return Answer("plain", cause)
        if layer == "embedding":
            return plain(NOT_ASKED)
        if layer != "moe" and self._layout.kind == "int":
            _check_linear(self._layout.packing, setting, self._release)
        return Answer("quantized", cause, self._layout.scheme(setting))

    def _early(self, name: str) -> Entry | None:
        """The first key that equals the name, or the name below `model.`, and leaves it at 16 bits."""
        if not name or not self._extra:
            return None
        keys = (self._extra.entry(key) for key in (name, f"model.{name}"))
        return earliest(key for key in keys if key and self._extra.values[key.name].get("bits", 16) >= 16)

    def _setting(self, name: str, layer: Layer) -> Setting:
        exact = self._extra.own(name)
        if exact is None and on("inc-suffix", self._release):
            exact = self._extra.ending(name)
        if exact is not None:
            return exact
        in_blocks = self._block(name) is not None if self._blocks else layer != "lm_head"
        if self._extra:
            if layer == "moe" and not on("routed-experts", self._release):
                below = self._extra.below(name, within=in_blocks)
                if below:
                    return _one(below, f"the keys below {name} differ")
            fused = self._fused(name, in_blocks)
            if fused is not None:
                return fused
        return self._extra.setting(name, within=in_blocks)

    def _fused(self, name: str, in_blocks: bool) -> Setting | None:
        """The setting of a fused module, by every part of its name that the packed mapping knows."""
        need_key = on("inc-configured-shards", self._release)
        for fused, parts in self._packed.items():
            if name.count(fused) == 1:
                names = [name.replace(fused, part) for part in parts]
                if need_key and not any(self._extra.configured(part) for part in names):
                    continue
                settings = [self._extra.setting(part, within=in_blocks) for part in names]
                return _one(settings, f"the shards of {name} differ")
        return None

    def _block(self, name: str) -> Entry | None:
        return earliest(entry for entry in self._blocks if name.startswith(entry.name))

    def _rule(self, name: str, layer: Layer) -> Cause:
        if self._blocks:
            block = self._block(name)
            return cause_of(block) if block else Cause("outside the blocks to quantize")
        return Cause("lm_head is plain unless a key names it" if layer == "lm_head" else "no key; quantized by default")


def _one(settings: Sequence[Setting], complaint: str) -> Setting:
    if len({setting.values for setting in settings}) != 1:
        witness = next((setting.entry for setting in settings if setting.entry), None)
        raise Refusal("ValueError", complaint, witness)
    return settings[0]


def _check_linear(packing: str, setting: Setting, release: str) -> None:
    """Integer linears that no kernel takes (0.33.0 Q/inc/schemes/inc_wna16_linear.py:40, inc_wna16_scheme.py:121)."""
    if "awq" in packing:
        fits, kind = setting.bits == 4, "ValueError"
    else:
        fits = setting.bits in (4, 8) and setting.symmetric is True
        fits, kind = fits or not on("inc-marlin-only", release), "NotImplementedError"
    if not fits and not (on("inc-odd-bits", release) and setting.bits in (2, 3, 5, 6, 7)):
        raise Refusal(kind, f"no kernel for {setting.bits} bits, sym {setting.symmetric}", setting.entry)


def _blocks(config: Mapping[str, Any], mappers: Iterable[Mapper]) -> tuple[Entry, ...]:
    key = next((key for key in ("block_name_to_quantize", "to_quant_block_names") if key in config), "")
    value = config.get(key)
    if value is None:
        return ()
    if isinstance(value, str):
        entries = tuple(Entry(name, name, f"/{key}", at) for at, name in enumerate(value.split(",")))
    else:
        entries = read(value, f"/{key}")
    return numbered(mapped(entries, mappers))


class Layout(NamedTuple):
    """How the checkpoint packs its weights."""

    bits: int
    group_size: Any
    symmetric: Any
    packing: str
    kind: str

    def scheme(self, setting: Setting) -> str:
        """What the engine allocates under a setting."""
        if "mx_fp" in self.kind:  # 0.27.0 Q/inc/schemes/inc_mxfp4_linear.py:72, inc_mxfp8_linear.py:58
            return "ct-mxfp4" if setting.bits == 4 else f"mxfp{setting.bits}"
        if self.kind == "fp":
            return "fp8-block"
        return f"{'awq' if 'awq' in self.packing else 'gptq'}{setting.bits}"


def parse_layout(config: Mapping[str, Any], release: str) -> Layout:
    """The packing of a config. Raises where the engine refuses it."""
    later = on("inc-block-groups", release)
    bits, size = required(config, "bits"), required(config, "group_size")
    symmetric = config.get("sym", True) if later else required(config, "sym")
    kind = config.get("data_type", "int")
    if later:
        kind = "fp" if kind == "fp8" else kind
        size = normal_group_size(size)
    packing = config.get("packing_format") or (_default_packing(kind) if later else _INT[0])
    backend = next((config[key] for key in ("backend", "vllm_backend") if key in config), "auto")
    layout = Layout(bits, size, symmetric, packing, kind)
    _check_values(layout, backend, release)
    if later:
        _check_together(layout, backend)
    return layout


def _default_packing(kind: str) -> str:
    return _MX if "mx_fp" in kind else {"fp": _FP8}.get(kind, _INT[0])


def _check_values(layout: Layout, backend: Any, release: str) -> None:
    mx, block = on("inc-mx", release), on("inc-block-groups", release)
    bits = (2, 3, 4, 5, 6, 7, 8) if on("inc-odd-bits", release) else (2, 3, 4, 8)
    formats = (*_INT, *((_MX,) if mx else ()), *((_FP8,) if block else ()))
    kinds = ("int", "fp") if block else ("int",)
    checks = (
        ("bits", layout.bits in bits),
        ("data_type", layout.kind in kinds or (mx and "mx_fp" in layout.kind)),
        ("packing_format", layout.packing in formats),
        ("backend", backend in _BACKENDS),
    )
    wrong = [name for name, fits in checks if not fits]
    if wrong:
        raise Refusal("ValueError", f"unsupported {', '.join(wrong)}")


def _check_together(layout: Layout, backend: Any) -> None:
    """From 0.29.0 the parts of a layout have to fit each other (0.29.0 Q/inc/inc.py:161-216)."""
    if layout.kind == "int":
        fits = isinstance(layout.group_size, int) and layout.packing in _INT
    else:
        blocks = isinstance(layout.group_size, tuple) and (layout.bits, layout.packing) == (8, _FP8)
        groups = layout.group_size == 32 and layout.bits in (4, 8) and layout.packing == _MX
        fits = bool({"fp": blocks, "mx_fp": groups}.get(layout.kind, True)) and layout.symmetric and backend == "auto"
    if not fits:
        raise Refusal("AssertionError", "bits, group_size, packing_format and data_type do not fit together")


def build(query: MatchQuery) -> Decider:
    """The decider of an auto-round config."""
    return AutoRound(query)
