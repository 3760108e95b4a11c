"""GPTQ, AWQ, and moe_wna16, which wraps either.

Read at vllm-0.33.0 Q/auto_awq.py:288, Q/auto_gptq.py:229, Q/utils/gptq_utils.py:52-170, Q/moe_wna16.py:189.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from mtpfix.engines.base import Dtypes, MatchQuery
from mtpfix.engines.dynamic import dynamic
from mtpfix.engines.listing import AtEntry
from mtpfix.engines.listing import Entry as Rule
from mtpfix.engines.listing import cause_of as cause_of_rule
from mtpfix.engines.vllm.answers import (
    NOT_ASKED,
    Decider,
    Refusal,
    as_linears,
    cause_of,
    listed,
    plain,
    quantized,
    required,
)
from mtpfix.engines.vllm.entries import Entry, in_force, mapped, numbered, read, under
from mtpfix.engines.vllm.matching import Contained, Find, SkipList, agreed, shards
from mtpfix.engines.vllm.switches import on
from mtpfix.model import Answer, Cause, Layer, Mapper, Packed
from mtpfix.regexes import NEGATIVE

_UNQUANTIZED = frozenset({"F16", "BF16", "F32"})
_MODULES = "modules_in_block_to_quantize"
_NOWHERE = ""  # the place of an entry that the engine finds in the headers: none in a file


def _owners(dtypes: Mapping[str, str], *, packed: bool) -> Iterator[Entry]:
    """The modules that own tensors of integer or eight-bit types (`packed`), or only others, in header order."""
    kinds: dict[str, bool] = {}
    for tensor, dtype in dtypes.items():
        owner = tensor.rsplit(".", 1)[0]
        kinds[owner] = kinds.get(owner, False) or dtype not in _UNQUANTIZED
    return (Entry(name, name, _NOWHERE, 0) for name, kind in kinds.items() if kind is packed)


def _from_headers(entry: Entry, rule: str) -> Cause:
    return Cause(rule) if entry.pointer == _NOWHERE else cause_of(entry)


class Awq:
    """AWQ: parts of names; an empty list is filled with the modules whose tensors are all plain."""

    def __init__(self, query: MatchQuery, *, raw: bool = False, packed: Packed | None = None) -> None:
        """`raw`: as moe_wna16 builds it, without headers and mappers."""
        config, release = query.config, query.release
        bits = required(config, "w_bit", "bits")
        required(config, "q_group_size", "group_size")
        required(config, "zero_point")
        if bits != 4:
            raise Refusal("ValueError", f"unsupported number of bits: {bits}")
        mappers = () if raw else in_force(query.mappers, release)
        match = query.once(("vllm awq", raw, mappers), lambda: _skipped_by(query, mappers, raw))
        fused_name = on("fused-name", release)
        modules = query.packed if packed is None else packed
        self._linear = SkipList(match, modules, fused_name=fused_name)
        self._experts = SkipList(match, {}, fused_name=fused_name)
        self._head = bool(config.get("lm_head", False))

    def decide(self, runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        if layer == "embedding" or (layer == "lm_head" and not self._head):
            return plain(NOT_ASKED)
        entry = (self._experts if layer == "moe" else self._linear).find(runtime)
        if entry is None:
            return quantized("awq4")
        return Answer("plain", _from_headers(entry, "the list is empty and the module's tensors are plain"))


def _skipped_by(query: MatchQuery, mappers: tuple[Mapper, ...], raw: bool) -> Find:
    """AWQ's list, ready to be searched; an empty one is filled from the headers, which are looked at once."""
    written = query.config.get("modules_to_not_convert") or []
    entries = query.once(("vllm awq list",), lambda: read(written, "/modules_to_not_convert"))
    if entries or raw:
        found = under(entries, mappers)
        made_from = ("vllm awq as it is",) if found is entries else ("vllm awq", mappers)
        return query.once(made_from, lambda: Contained(found).find)
    dtypes = query.dtypes or {}

    def made() -> Find:
        return Contained(numbered(mapped(_owners(dtypes, packed=False), mappers))).find

    return dtypes.once(("awq", mappers), made) if isinstance(dtypes, Dtypes) else made()


class Gptq:
    """GPTQ: `dynamic` rules by regex; for linears also the list of quantized modules, filled from the headers."""

    def __init__(self, query: MatchQuery, *, raw: bool = False, packed: Packed | None = None) -> None:
        """`raw`: as moe_wna16 builds it, without headers and mappers."""
        config, release = query.config, query.release
        self._bits, self._symmetric = required(config, "bits"), required(config, "sym")
        required(config, "group_size")
        act_order = required(config, "desc_act")
        written = config.get("dynamic")
        rules: Mapping[str, Any] = {} if written is None else written
        if on("gptq-no-act-order", release):
            query.once(("gptq act order",), lambda: _check_act_order(act_order, config["group_size"], rules))
        one_class = on("gptq-one-class", release)
        self._marlin = one_class or _is_marlin(self._bits, self._symmetric)
        self._check_layout(self._bits, self._symmetric)
        _check_table(rules)
        self._rules = dynamic(query)
        self._modules, self._contained = _modules_of(query, raw)
        self._packed = query.packed if packed is None else packed
        self._head = bool(config.get("lm_head", False))
        self._empty_is_all = on("gptq-empty-is-all", release)

    def decide(self, runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        if layer == "embedding" or (layer == "lm_head" and not self._head):
            return plain(NOT_ASKED)
        if layer == "moe" and not self._marlin:
            return quantized(f"gptq{self._bits}", "experts of this layout ask no list before 0.22.0")
        module = self._module(runtime) if layer != "moe" else None
        rule = self._rule(runtime)
        if rule is not None and (rule[1] or rule[2] == False):  # noqa: E712 as the engine compares
            return Answer("plain", cause_of_rule(rule[0]))
        if layer != "moe" and module is None and not self._all:
            return plain("no entry of modules_in_block_to_quantize is part of the name")
        return self._quantized(runtime, rule, module)

    @property
    def _all(self) -> bool:
        return self._empty_is_all and not self._modules

    def _module(self, name: str) -> Entry | None:
        leaf = name.rsplit(".", 1)[-1]
        if leaf in self._packed and not self._all:
            return agreed(name, shards(name, leaf, self._packed), self._contained.find)
        return self._contained.find(name)

    def _rule(self, name: str) -> tuple[Rule, bool, Any] | None:
        """The first rule that matches; a broken pattern raises when the walk reaches it."""
        try:
            return self._rules.first(name)
        except AtEntry as found:
            raise found.problem.with_traceback(None) from None

    def _quantized(self, name: str, rule: tuple[Rule, bool, Any] | None, module: Entry | None) -> Answer:
        bits, symmetric = self._bits, self._symmetric
        if rule is not None and name:
            bits = _of_type(rule[2].get("bits"), int, bits)
            symmetric = _of_type(rule[2].get("sym"), bool, symmetric)
            self._check_layout(bits, symmetric)
        scheme = f"gptq{bits}"
        if rule is not None:
            return Answer("quantized", cause_of_rule(rule[0]), scheme)
        if module is None:
            return quantized(scheme)
        return Answer("quantized", _from_headers(module, "the module's tensors are quantized"), scheme)

    def _check_layout(self, bits: Any, symmetric: Any) -> None:
        """Before 0.22.0 a second class takes a checkpoint whose layout Marlin does not know."""
        if not (_is_marlin(bits, symmetric) if self._marlin else bits in (2, 3, 4, 8)):
            raise Refusal("ValueError", f"unsupported GPTQ layout: {bits} bits, sym {symmetric}")


def _check_table(rules: Any) -> None:
    """Raises what an engine raises that walks over what is no table."""
    if not isinstance(rules, Mapping):
        iter(rules)
        rules.values()


def _is_marlin(bits: Any, symmetric: Any) -> bool:
    return bits in (4, 8) and symmetric is True


def _of_type(value: Any, kind: type, default: Any) -> Any:
    return value if isinstance(value, kind) else default


def _check_act_order(act_order: Any, group_size: Any, rules: Mapping[str, Any]) -> None:
    if act_order and group_size != -1:
        raise Refusal("ValueError", "activation order (desc_act) is no longer supported")
    for pattern, override in rules.items():
        if not pattern.startswith(NEGATIVE) and isinstance(override, Mapping):
            size = override.get("group_size", group_size)
            if override.get("desc_act", act_order) and size != -1:
                raise Refusal("ValueError", "activation order (desc_act) is no longer supported")


def _modules_of(query: MatchQuery, raw: bool) -> tuple[tuple[Entry, ...], Contained]:
    """The list of quantized modules, and the same to be searched; what the headers say is looked at once."""

    def made() -> tuple[tuple[Entry, ...], Contained]:
        found = _quantized_modules(query, raw)
        return found, Contained(found)

    dtypes = query.dtypes
    if raw or query.config.get(_MODULES) or not isinstance(dtypes, Dtypes):
        return made()
    return dtypes.once(("gptq", in_force(query.mappers, query.release), on("gptq-flatten", query.release)), made)


def _quantized_modules(query: MatchQuery, raw: bool) -> tuple[Entry, ...]:
    """`modules_in_block_to_quantize`, lists in it flattened, or what the headers say where it is empty."""
    entries: Sequence[Entry] = read(query.config.get(_MODULES) or [], f"/{_MODULES}")
    if raw:
        return numbered(_flat(entries) if on("gptq-flatten", query.release) else entries)
    if not entries:
        entries = tuple(_owners(query.dtypes or {}, packed=True))
    elif all(isinstance(entry.name, list) for entry in entries):
        entries = tuple(_flat(entries, deep=False))
    entries = mapped(entries, in_force(query.mappers, query.release))
    return numbered(_flat(entries) if on("gptq-flatten", query.release) else entries)


def _flat(entries: Iterable[Entry], *, deep: bool = True) -> Iterator[Entry]:
    for entry in entries:
        if isinstance(entry.name, list):
            inner = read(entry.name, entry.pointer)
            yield from _flat(inner) if deep else inner
        else:
            yield entry


class MoeWna16:
    """moe_wna16 (chosen by hand): experts by itself, linears by an AWQ or GPTQ config built from the raw dictionary."""

    def __init__(self, query: MatchQuery) -> None:
        config, release = query.config, query.release
        source = required(config, "quant_method")
        required(config, "bits")
        required(config, "group_size")
        if source not in ("gptq", "awq", "awq_marlin"):
            raise Refusal("ValueError", "moe_wna16 takes GPTQ and AWQ checkpoints only")
        gptq = source == "gptq"
        required(config, "sym" if gptq else "zero_point")
        names = [] if gptq else config.get("modules_to_not_convert") or []
        self._skipped = Contained(read(names, "/modules_to_not_convert"))
        self._scheme = f"{'gptq' if gptq else 'awq'}{config['bits']}"
        self._plain_experts = on("wna16-plain-experts", release)
        if gptq and on("gptq-no-act-order", release):
            _check_act_order(config.get("desc_act", False), config["group_size"], config.get("dynamic") or {})
        self._query = query

    def decide(self, runtime: str, layer: Layer, projections: tuple[str, ...]) -> Answer:
        entry = self._skipped.find(runtime)
        if entry is not None:
            return as_linears(entry, self._query) if layer == "moe" and not self._plain_experts else listed(entry)
        if layer == "linear":
            return self._linear.decide(runtime, layer, projections)
        return quantized(self._scheme) if layer == "moe" else plain(NOT_ASKED)

    @cached_property
    def _linear(self) -> Decider:
        packed = self._query.packed if on("wna16-packed", self._query.release) else {}
        kind = Gptq if self._query.config["quant_method"] == "gptq" else Awq
        return kind(self._query, raw=True, packed=packed)


_CLASSES: Mapping[str, type[Awq] | type[Gptq] | type[MoeWna16]] = {
    "awq": Awq,
    "gptq": Gptq,
    "moe_wna16": MoeWna16,
}


def build(query: MatchQuery) -> Decider:
    """The decider of an AWQ, GPTQ or moe_wna16 config."""
    return _CLASSES[query.method](query)
