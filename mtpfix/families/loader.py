"""Family files (TOML) to frozen values; mistakes in a file are reported with the file and the row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from mtpfix import packaged
from mtpfix.families.base import AskRow, Beside, Experts, Family, Fault, Note, Option, Special, View
from mtpfix.families.patterns import PatternMap
from mtpfix.model import Mapper
from mtpfix.releases import Span, after, modelled

Row = Mapping[str, Any]


@lru_cache(maxsize=64)
def load(name: str) -> Family:
    """The family of a data file in this package. Raises ValueError naming the file and row of a mistake."""
    raw = read(name)
    try:
        return _family(raw)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"families/{name}.toml: {error!r}") from error


def read(name: str) -> Row:
    """A data file."""
    return packaged.table(f"families/{name}")


@lru_cache(maxsize=1)
def _blocks() -> Row:
    return read("blocks")


def block(name: str) -> Row:
    """A table of blocks.toml. Raises KeyError where there is none of that name."""
    table: Row = _blocks()[name]
    return table


def _family(raw: Row) -> Family:
    draft = raw.get("draft", {})
    return Family(
        name=raw["name"],
        title=raw["title"],
        model_types=tuple(raw["model_types"]),
        architectures=tuple(raw.get("architectures", ())),
        layers_key=raw.get("layers_key", "num_hidden_layers"),
        count_keys=tuple(draft.get("count", ())),
        separate=draft.get("separate", False),
        draft=_names(draft.get("modules", ())),
        full_precision=_names(draft.get("full_precision", ())),
        wrapper=_wrapper(draft),
        views=tuple(view_of(row) for row in raw.get("view", ())),
        draftless=tuple(draft.get("without", ())),
        notes=tuple(_note(row) for row in raw.get("notes", ())),
        sources=tuple(raw.get("sources", ())),
        steps_key=draft.get("steps", ""),
        beside=tuple(Beside(row["engine"], row["file"], _span(row)) for row in draft.get("beside", ())),
        experts=_experts(raw.get("experts")),
    )


def _experts(row: Row | None) -> Experts | None:
    return Experts(row["key"], row["router"], row.get("more", ""), row["source"]) if row else None


def _note(row: str | Row) -> Note:
    return Note(row) if isinstance(row, str) else Note(row["text"], row["engine"], _span(row))


def _wrapper(draft: Row) -> tuple[str, str] | None:
    pair = draft.get("wrapper")
    return (pair[0], pair[1]) if pair else None


def _names(patterns: Iterable[str]) -> PatternMap[bool]:
    return PatternMap((pattern, True) for pattern in patterns)


def _span(row: Row) -> Span:
    return Span(row.get("since", ""), row.get("until", ""), row.get("source", ""))


def view_of(row: Row) -> View:
    """A view of a data file. Raises as `load` does."""
    rows = [_ask_row(item) for item in module_rows(row)]
    specials = tuple(_special(item) for item in row.get("special", ()))
    faults = tuple(_fault(item) for item in fault_rows(row))
    spans = [_span(row), *(ask.span for _, ask in rows)]
    options = {name: _option(value) for name, value in row.get("options", {}).items()}
    spans += [*(fact.span for fact in specials), *(fact.span for fact in faults)]
    spans += [option.span for option in options.values()]
    return View(
        engine=row["engine"],
        part=row["part"],
        model_class=row["class"],
        span=spans[0],
        quant=row.get("quant", "own"),
        mapper=_mapper(row.get("mapper")),
        packed=_packed(row.get("packed")),
        architectures=tuple(row.get("architectures", ())),
        rows=PatternMap(rows),
        specials=specials,
        faults=faults,
        options=options,
        points=_points(row["engine"], spans),
        mapper_methods=tuple(row.get("mapper", {}).get("methods", ())),
    )


def _option(value: Any) -> Option:
    """A text, or a table with `value` and the releases in which it holds."""
    return Option(value, Span("", "", "")) if isinstance(value, str) else Option(value["value"], _span(value))


def _points(engine: str, spans: Iterable[Span]) -> tuple[str, ...]:
    first = modelled(engine)[0]
    found = {first}
    for span in spans:
        if span.since:
            found.add(span.since)
        if span.until:
            found.add(after(engine, span.until))
    return tuple(found - {""})


def module_rows(row: Row) -> Iterator[Row]:
    """The view's own rows first (they win), then each layer prefix with each block's rows under it."""
    yield from (_as_row(item) for item in row.get("rows", ()))
    for stored, runtime in row.get("layers", ()):
        for name in row.get("blocks", ()):
            for item in map(_as_row, block(name)["rows"]):
                asks = f"{runtime}.{item['asks']}" if runtime and item["asks"] else item["asks"]
                yield {**item, "module": f"{stored}.{item['module']}", "asks": asks}


def fault_rows(row: Row) -> Iterator[Row]:
    """The view's own faults first (they win), then those of the shared groups it names."""
    yield from row.get("fault", ())
    for group in row.get("faults", ()):
        yield from block(group)["faults"]


def _as_row(item: Any) -> Row:
    if isinstance(item, Mapping):
        return {"asks": "", **item}
    module, asks, layer = item
    return {"module": module, "asks": asks, "layer": layer}


def _ask_row(row: Row) -> tuple[str, AskRow]:
    layer = row["layer"]
    if layer not in ("linear", "moe", "lm_head", "embedding", "unasked", "absent"):
        raise ValueError(f"{row['module']}: no such layer kind: {layer}")
    return row["module"], AskRow(
        asks=row["asks"],
        layer=layer,
        span=_span(row),
        methods=tuple(row.get("methods", ())),
        projections=tuple(row.get("projections", ())),
        why=row.get("why", ""),
        beside=row.get("beside", ""),
        tied=row.get("tied", False),
    )


def _special(row: Row) -> Special:
    return Special(
        modules=_names(row.get("modules", ("**",))),
        methods=tuple(row.get("methods", ())),
        when=dict(row.get("when", {})),
        decision=row["decision"],
        why=row["why"],
        span=_span(row),
    )


def _fault(row: Row) -> Fault:
    return Fault(
        modules=_names(row.get("modules", ("**",))),
        methods=tuple(row.get("methods", ())),
        decided=row.get("decided", ""),
        stored=row.get("stored", ""),
        schemes=tuple(row.get("schemes", ())),
        suffix=row.get("suffix", ""),
        when=dict(row.get("when", {})),
        verdict=row["verdict"],
        error=row.get("error", ""),
        why=row["why"],
        span=_span(row),
        beside_plain=row.get("beside_plain", ""),
        strays=row.get("strays", False),
        beyond=row.get("beyond", False),
    )


def _mapper(row: Row | None) -> Mapper | None:
    if row is None:
        return None
    drops = tuple((prefix, None) for prefix in row.get("drop", ()))
    return Mapper(
        prefix=(*_pairs(row, "prefix"), *drops),
        substr=_pairs(row, "substr"),
        suffix=_pairs(row, "suffix"),
        regex=_pairs(row, "regex"),
    )


def _pairs(row: Row, kind: str) -> tuple[tuple[str, str | None], ...]:
    return tuple((old, new) for old, new in row.get(kind, ()))


def _packed(row: Row | None) -> dict[str, tuple[str, ...]] | None:
    return None if row is None else {fused: tuple(shards) for fused, shards in row.items()}
