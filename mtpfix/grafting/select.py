"""Which tensors of a base checkpoint are wanted, and which of the checkpoint's own they replace. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from mtpfix import patterns
from mtpfix.errors import UsageError
from mtpfix.frozen import dataclass
from mtpfix.model import Finding, RawModule, StoredScheme, Tensor
from mtpfix.names import natural_key
from mtpfix.storage.modules import tensors_of
from mtpfix.world import Unit, World, layer_of

_EXPERTS = ".experts."
# A draft layer's own copies of the target's embedding and head, which right exporters leave out.
_SHARED = (".embed_tokens", ".shared_head.head", ".head", ".lm_head")
_WRONG = ("MTP007", "MTP012")


@dataclass(frozen=True, slots=True)
class Choice:
    """A module that is grafted.

    name      its name, the same in both checkpoints
    why       `missing`, or `wrong`: stored as no metadata can mend it
    tensors   what the base holds of it
    replaced  what the checkpoint holds of it
    scheme    how the base stores it
    """

    name: str
    why: str
    tensors: tuple[Tensor, ...]
    replaced: tuple[Tensor, ...]
    scheme: StoredScheme | None


def choices(
    here: World, base: World, findings: Iterable[Finding], wanted: Sequence[str]
) -> tuple[tuple[Choice, ...], tuple[str, ...]]:
    """The modules to graft, in natural order of names, and those that are needed and that the base does not hold.

    wanted  patterns over module names that narrow it; () for all. UsageError for one that no draft module matches.
    """
    own = {raw.name: raw for raw in here.draft_modules}
    theirs = _within(here, {raw.name: raw for raw in base.draft_modules})
    wrong = _replaced(_wrong(here, findings), theirs, own)
    allowed = _allowed([*own, *theirs, *wrong, *here.lacking], wanted)
    schemes = _schemes(base)
    layers = {layer_of(name) for name in own}
    found = []
    for name, raw in sorted(theirs.items(), key=lambda row: natural_key(row[0])):
        if name not in allowed:
            continue
        if name in wrong:
            found.append(Choice(name, "wrong", tensors_of(raw), wrong[name], schemes.get(name)))
        elif not _is_held(name, own) and not (layer_of(name) in layers and name.endswith(_SHARED)):
            found.append(Choice(name, "missing", tensors_of(raw), (), schemes.get(name)))
        elif rest := _absent(raw, own.get(name), schemes.get(name)):
            found.append(Choice(name, "missing", rest, (), None))
    got = {choice.name for choice in found}
    lacking = [name for name in (*wrong, *here.lacking) if name in allowed and name not in got]
    return tuple(found), tuple(dict.fromkeys(lacking))


def _schemes(base: World) -> dict[str, StoredScheme]:
    """How the draft's modules are stored; one with several stacks is as quantized as any of them."""
    found: dict[str, StoredScheme] = {}
    for unit in base.units:
        for name in _names_of(unit) if unit.draft else ():
            if name not in found or unit.stored.scheme.kind == "quantized":
                found[name] = unit.stored.scheme
    return found


def _wrong(here: World, findings: Iterable[Finding]) -> dict[str, None]:
    """The draft's modules that are stored as no metadata can mend them."""
    named = {
        name
        for finding in findings
        if finding.rule in _WRONG and finding.part == "draft" and finding.fix == "none"
        for name in finding.modules
    }
    units = [unit for unit in here.by_part["draft"] if unit.name in named or here.misexported(unit)]
    return dict.fromkeys(name for unit in units for name in _names_of(unit))


def _replaced(
    wrong: Iterable[str], theirs: Mapping[str, RawModule], own: Mapping[str, RawModule]
) -> dict[str, tuple[Tensor, ...]]:
    """The wrong modules and all that is stored of each, under the names that the base has for them.

    Where one side has a stack of experts and the other one expert after the other, all of them are replaced.
    """
    out: dict[str, tuple[Tensor, ...]] = {}
    for name in wrong:
        roots = (name, name.partition(_EXPERTS)[0] + _EXPERTS[:-1]) if _EXPERTS in name else (name,)
        root = next((root for root in roots if root in theirs), name)
        under = [other for other in theirs if other.startswith(f"{root}.")] if root not in theirs else []
        first, *rest = under or [root]
        out |= {first: _belonging(root, own), **dict.fromkeys(rest, ())}
    return out


def _names_of(unit: Unit) -> tuple[str, ...]:
    """The names of the stored modules that a unit stands for."""
    if not unit.stored.experts:
        return (unit.stored.raw.name,)
    head, _, rest = unit.name.partition(_EXPERTS)
    tail = rest.partition(".")[2]
    return tuple(f"{head}{_EXPERTS}{number}.{tail}" for number in unit.stored.experts)


def _within(here: World, theirs: Mapping[str, RawModule]) -> dict[str, RawModule]:
    """The base's modules of as many draft layers as the checkpoint declares; all where it does not say."""
    if not here.declared:
        return dict(theirs)
    layers = sorted({layer for name in theirs if (layer := layer_of(name))}, key=natural_key)
    beyond = frozenset(layers[here.declared * here.steps :])
    return {name: raw for name, raw in theirs.items() if layer_of(name) not in beyond}


def _allowed(names: Sequence[str], wanted: Sequence[str]) -> frozenset[str]:
    if not wanted:
        return frozenset(names)
    chosen, unmatched = patterns.select(dict.fromkeys(names), wanted)
    if unmatched:
        hint = "`mtpfix list` shows the draft's modules, of the base too"
        raise UsageError(f"no module of the draft matches {unmatched[0]!r}", subject=unmatched[0], hint=hint)
    return frozenset(chosen)


def _absent(raw: RawModule, held: RawModule | None, scheme: StoredScheme | None) -> tuple[Tensor, ...]:
    """The tensors that a module in full precision lacks (a router's bias, say)."""
    if held is None or (scheme and scheme.kind != "plain"):
        return ()
    mine = {cell.suffix: cell for cell in held.cells}
    alike = all(mine[cell.suffix] == cell for cell in raw.cells if cell.suffix in mine)
    known = mine.keys() <= {cell.suffix for cell in raw.cells}
    return (
        tuple(tensor for tensor, cell in zip(tensors_of(raw), raw.cells, strict=True) if cell.suffix not in mine)
        if (alike and known)
        else ()
    )


def _is_held(name: str, own: Mapping[str, RawModule]) -> bool:
    """Whether a module is stored, under its name or, of experts, as a stack or one by one."""
    if name in own:
        return True
    head, inside, _ = name.partition(_EXPERTS)
    if inside:
        return f"{head}.experts" in own
    front = f"{name}."
    is_stack = name.endswith(".experts")
    return is_stack and any(other.startswith(front) for other in own)


def _belonging(name: str, own: Mapping[str, RawModule]) -> tuple[Tensor, ...]:
    """All tensors of a module, those of its quantizers' inner state too."""
    front = f"{name}."
    return tuple(_tensors(raw for other, raw in own.items() if other == name or other.startswith(front)))


def _tensors(raws: Iterable[RawModule]) -> Iterator[Tensor]:
    for raw in raws:
        yield from tensors_of(raw)
