"""From the tensors of a module to its scheme. Pure."""

from __future__ import annotations

from functools import lru_cache

from mtpfix.frozen import NamedTuple
from mtpfix.model import Cell, StoredScheme
from mtpfix.storage.layouts import Dims, Parts, Shape
from mtpfix.storage.schemes import (
    ACTIVATION,
    BASES,
    CLUES,
    FP8,
    KV_SCALES,
    PLAIN_DTYPES,
    SIGNATURES,
    VOCABULARY,
    Form,
    Signature,
)

# Plain weights with three dimensions are stacks of experts when they are matrices, and convolutions when not.
MIN_STACK_SIDE = 16

_RANKS = {"weight": 2, "weight_packed": 2, "qweight": 2, "blocks": 3}
_NEVER_WEIGHTS = frozenset({"BOOL", "I64", "U64", "I16", "U16", "C64"})
_OTHER = StoredScheme("other", "other")

Verdict = tuple[StoredScheme, Shape]


class _Match(NamedTuple):
    """A signature that the tensors fit."""

    signature: Signature
    dims: Dims
    missing: tuple[str, ...]
    extra: tuple[str, ...]

    @property
    def rank(self) -> tuple[int, int]:
        return len(self.extra), len(self.missing)


@lru_cache(maxsize=1 << 14)
def classify(cells: tuple[Cell, ...]) -> Verdict:
    """How a module with these tensors is stored, and its logical shape: (out, in), (experts, out, in) or ().

    The order of the tensors does not matter.
    """
    parts = {cell.suffix: cell for cell in sorted(cells) if cell.suffix not in KV_SCALES}
    leaked = tuple(suffix for suffix in parts if is_leaked(suffix))
    for suffix in leaked:
        del parts[suffix]
    experts, parts = _one_expert(parts)
    scheme, size = _scheme(parts, experts)
    return _with_leaks(scheme, leaked) if leaked else scheme, (*experts, *size) if size else ()


def is_leaked(suffix: str) -> bool:
    """Whether a tensor is a quantizer's inner state, which an export must not hold."""
    return "_quantizer" in suffix or suffix.endswith(("_amax", "_double_scale"))


def _with_leaks(scheme: StoredScheme, leaked: tuple[str, ...]) -> StoredScheme:
    if scheme.kind == "other":
        return _odd("a quantizer's inner state without a weight", leaked)
    extra = tuple(sorted({*scheme.extra, *leaked}))
    return StoredScheme(scheme.name, scheme.kind, scheme.missing, extra, scheme.note)


def _one_expert(parts: dict[str, Cell]) -> tuple[Shape, dict[str, Cell]]:
    """(experts,) and the tensors as one of the stacked experts has them; where nothing is stacked, () and all."""
    for base, rank in _RANKS.items():
        cell = parts.get(base)
        if cell is not None and len(cell.shape) == rank + 1:
            experts = cell.shape[:1]
            return experts, {suffix: _sliced(each, experts) for suffix, each in parts.items()}
    return (), parts


def _sliced(cell: Cell, experts: Shape) -> Cell:
    return cell._replace(shape=cell.shape[1:]) if cell.shape[:1] == experts else cell


def _scheme(parts: Parts, experts: Shape) -> Verdict:
    bases = [base for base in BASES if base in parts]
    if len(bases) > 1:
        return _odd(f"both `{bases[0]}` and `{bases[1]}` are stored"), ()
    matches = [found for row in SIGNATURES if (found := _match(row, parts, bases)) is not None]
    best = min(matches, key=lambda found: found.rank, default=None)
    if best is not None and (bases or _is_evident(best, matches)):
        return _quantized(best)
    if bases == ["weight"] and parts["weight"].dtype in PLAIN_DTYPES:
        return _plain(parts, experts)
    return (_without_scale(parts, bases[0]) if bases else _without_weight(parts)), ()


def _is_evident(best: _Match, matches: list[_Match]) -> bool:
    """Whether no other scheme explains scales without a weight as well."""
    return {found.signature.name for found in matches if found.rank == best.rank} == {best.signature.name}


def _match(row: Signature, parts: Parts, bases: list[str]) -> _Match | None:
    if (bases and bases[0] != row.base) or (not bases and "{bits}" in row.name):
        return None
    evidence = row.evidence
    if (evidence or not bases) and evidence.isdisjoint(parts):
        return None
    dims = _dims(row, parts) if bases else Dims(0, 0)
    if dims is None or not all(
        _looks(form, parts[suffix], dims if bases else None) for suffix, form in row.needs.items() if suffix in parts
    ):
        return None
    explained = {row.base, *row.needs, *row.may}
    missing = tuple(suffix for suffix in (row.base, *row.needs) if suffix not in parts)
    extra = tuple(suffix for suffix in parts if suffix in VOCABULARY and suffix not in explained)
    if missing and not ACTIVATION.issuperset(extra):
        return None  # one scale too few and another too many: rather a scheme that the table does not have
    return _Match(row, dims, missing, extra)


def _dims(row: Signature, parts: Parts) -> Dims | None:
    return None if row.dtypes and parts[row.base].dtype not in row.dtypes else row.solve(parts)


def _looks(form: Form, cell: Cell, dims: Dims | None) -> bool:
    """Whether a tensor is as a signature wants it; its shape counts only beside a weight."""
    return (not form.dtypes or cell.dtype in form.dtypes) and (dims is None or form.fits(cell.shape, dims))


def _quantized(match: _Match) -> Verdict:
    out, in_, bits = match.dims
    extra = tuple(suffix for suffix in match.extra if suffix not in ACTIVATION)
    scheme = StoredScheme(match.signature.name.format(bits=bits), "quantized", match.missing, extra)
    return scheme, (out, in_) if out else ()


def _plain(parts: Parts, experts: Shape) -> Verdict:
    weight = parts["weight"]
    if len(weight.shape) != 2 or (experts and min(weight.shape) < MIN_STACK_SIDE):
        return _OTHER, ()
    stray = [suffix for suffix in parts if suffix in CLUES and suffix != "pre_quant_scale"]
    if stray:
        return _odd(f"a full-precision weight beside `{stray[0]}`"), weight.shape
    extra = ("pre_quant_scale",) if "pre_quant_scale" in parts else ()
    return StoredScheme(PLAIN_DTYPES[weight.dtype], "plain", extra=extra), weight.shape


def _without_weight(parts: Parts) -> StoredScheme:
    clue = next((suffix for suffix in parts if suffix in CLUES), None)
    return _odd(f"`{clue}` without a weight") if clue else _OTHER


def _without_scale(parts: Parts, base: str) -> StoredScheme:
    """A stored weight that no signature explains."""
    weight = parts[base]
    clues = [parts[suffix] for suffix in parts if suffix in VOCABULARY - ACTIVATION and suffix != base]
    held = f"`{base}` {weight.dtype} {list(weight.shape)}"
    if not clues:
        return _OTHER if weight.dtype in _NEVER_WEIGHTS or len(weight.shape) < 2 else _odd(f"{held} without any scale")
    scale = next((cell for cell in clues if cell.suffix.startswith("weight_scale")), clues[0])
    if weight.dtype in FP8 and scale.dtype in FP8:
        return _odd("a weight of full width beside NVFP4 scales: it was never packed")
    return _odd(f"`{scale.suffix}` {scale.dtype} {list(scale.shape)} fits no scheme for {held}")


def _odd(note: str, extra: tuple[str, ...] = ()) -> StoredScheme:
    return StoredScheme("odd", "odd", extra=extra, note=note)
