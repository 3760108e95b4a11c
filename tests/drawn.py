"""Strategies that draw checkpoints: a family, a format, a way of storing the draft, right and wrong lists."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import checkpoints as known
from checkpoints import ABSENT, FORMATS, MODELS, Json, Model, Shape
from hypothesis import strategies as st
from recorded import FAMILIES, MAKERS, SEPARATE, config_of, recorded

from mtpfix.model import Checkpoint

FUSED = {
    "q_proj": "qkv_proj", "k_proj": "qkv_proj", "v_proj": "qkv_proj", "gate_proj": "gate_up_proj",
    "up_proj": "gate_up_proj", "q_a_proj": "fused_qkv_a_proj", "kv_a_proj_with_mqa": "fused_qkv_a_proj",
    "in_proj_qkv": "in_proj_qkvz", "in_proj_z": "in_proj_qkvz", "in_proj_a": "in_proj_ba", "in_proj_b": "in_proj_ba",
}  # fmt: skip
# The number of layers, and which of them are stored: numbers that begin alike, and the 61 that SGLang's mapper knows.
DEPTHS = ((2, None), (2, None), (12, (0, 1)), (45, (0, 4)), (4, (0, 3)), (61, (0, 6)), (10, (1, 9)))
STACK: Shape = (known.H, known.H + 1)  # a stack of experts; no matrix has this shape
PLAIN = ("bf16", "stacked")
BROAD = (
    "*",
    "model*",
    "*.mlp.*",
    "*experts*",
    "re:.*",
    "re:.*mlp.*",
    "layers",
    "mlp",
    "experts",
    "0",
    "model",
    "*_proj",
)
MTP_WORDS = (
    "mtp", "mtp*", "mtp.*", "*mtp*", "re:^mtp.*", "re:.*mtp.*", "re:mtp", "mtp.layers.0", "mtp.layers.0*", "fc",
    "*.fc", "model.mtp.*", "mtp..fc", ".mtp.fc", "mtp.fc.", "mtp.layers", "model.layers.0.*", "nextn",
)  # fmt: skip
MALFORMED = ("", " ", ".", "*.", "re:", "..", "lm_head.", " lm_head", None, 3, ["lm_head"], {"lm_head": 1}, True)


def group_of(name: str) -> str:
    """Modules of one group are one module in an engine: shards of a fused linear, the experts of a layer."""
    head, found, _ = name.partition(".experts.")
    if found:
        return f"{head}.experts"
    front, _, leaf = name.rpartition(".")
    return f"{front}.{FUSED.get(leaf, leaf)}"


def only(made: Model, layers: Sequence[int] | None, count: int) -> Model:
    """A model of which only some target layers are stored."""
    if layers is None:
        return made

    def kept(names: dict[str, Shape]) -> dict[str, Shape]:
        return {name: shape for name, shape in names.items() if _layer(name, count) in (None, *layers)}

    return replace(made, body=kept(dict(made.body)), kept=kept(dict(made.kept)))


def _layer(name: str, count: int) -> int | None:
    head, found, rest = name.partition("layers.")
    number = rest.partition(".")[0]
    return int(number) if found and number.isdecimal() and int(number) < count and "mtp" not in head else None


@dataclass(frozen=True)
class Case:
    """What a checkpoint is built from."""

    family: str
    fmt: str
    made: Model
    stored: dict[str, str]
    ignore: Any
    sidecar: Any
    style: int

    @property
    def _written(self) -> list[Any]:
        lists = [entries for entries in (self.ignore, self.sidecar) if isinstance(entries, list)]
        return [entry for entries in lists for entry in entries]

    @property
    def hostile(self) -> bool:
        """Whether a list holds something that is no text."""
        return any(not isinstance(entry, str) for entry in self._written)

    @property
    def irregular(self) -> bool:
        """Whether a list holds a text that is no regex."""
        return any(isinstance(entry, str) and not _is_regex(entry) for entry in self._written)

    def build(self, *, seed: int | None = None) -> Checkpoint:
        """The checkpoint. `seed`: with its tensors, shards and entries in another order."""
        ignore, sidecar, made, stored = self.ignore, self.sidecar, self.made, self.stored
        shards = lambda name: "model.safetensors"  # noqa: E731
        if seed is not None:
            rng = random.Random(seed)
            ignore, sidecar = _shuffled(ignore, rng), _shuffled(sidecar, rng)
            made = replace(
                made,
                **{
                    part: dict(_shuffled(list(getattr(made, part).items()), rng))
                    for part in ("body", "kept", "draft", "bare")
                },
            )
            # Not numbered as of three: where all fall into one there is no index, and two would be missing.
            parts = {name: f"model-{rng.randint(1, 3)}.safetensors" for name in made.shapes}
            shards = lambda name: parts.get(name.rpartition(".")[0], "model-1.safetensors")  # noqa: E731
        return known.build(
            made, self.fmt, ignore, sidecar=sidecar, stored=stored, shard_of=shards, dump=DUMPS[self.style]
        )

    def __repr__(self) -> str:
        layers, drafts = _count(self.made), len(known.fronts(self.made))
        return (
            f"Case({self.family} of {layers}+{drafts} layers, {self.fmt}, stored={self.stored}, "
            f"ignore={self.ignore}, sidecar={self.sidecar}, style={self.style})"
        )

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


def _is_regex(text: str) -> bool:
    try:
        re.compile(text)
    except re.error:
        return False
    return True


def _count(made: Model) -> int:
    found = config_of(made)
    count: int = found.get("num_hidden_layers") or found["num_layers"]
    return count


def _shuffled(values: Any, rng: random.Random) -> Any:
    return rng.sample(values, len(values)) if isinstance(values, list) else values


def _indented(by: int, *, ascii_only: bool = True, lines: str = "\n", end: str = "\n") -> Any:
    def dump(value: Json) -> bytes:
        return (json.dumps(value, indent=by, ensure_ascii=ascii_only) + end).replace("\n", lines).encode()

    return dump


EXPERT_KEYS = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
DUMPS = (
    _indented(2),
    _indented(4, ascii_only=False, end=""),
    _indented(2, lines="\r\n"),
    lambda v: json.dumps(v).encode(),
)


@st.composite
def models(draw: Any, families: Sequence[str] = FAMILIES) -> tuple[str, Model]:
    """A family's model, small, with one or two draft layers."""
    family = draw(st.sampled_from(families))
    made = draw(_made(family) if family in MAKERS else _of_record(family))
    if family not in SEPARATE and draw(st.integers(0, 5)):
        made = draw(slim(made))
    return family, draw(miscounted(draw(stacked(made))))


@st.composite
def _made(draw: Any, family: str) -> Model:
    """A model written down here, of some depth."""
    depth, stored = draw(st.sampled_from(DEPTHS if family not in SEPARATE else DEPTHS[:1]))
    options: Json = {}
    if family in ("qwen3_5",):
        options = draw(st.sampled_from(({}, {}, {"dense": True}, {"text": True})))
    made = MAKERS[family](layers=depth, experts=2, drafts=draw(st.sampled_from((1, 1, 1, 1, 2))), **options)
    return only(made, stored, depth)


@st.composite
def _of_record(draw: Any, family: str) -> Model:
    """A model that an engine was given, with some of its target's layers."""
    made = recorded(family)
    layers = {found for name in made.body if (found := _layer(name, 10**6)) is not None}
    count = 1 + max(layers, default=0)
    kept = draw(st.sets(st.sampled_from(sorted(layers)), min_size=1, max_size=2)) if layers else None
    return only(made, sorted(kept) if kept else None, count)


@st.composite
def slim(draw: Any, made: Model) -> Model:
    """The model with a few modules of its target alone: what is not there costs no time, the draft is whole."""
    groups = list(dict.fromkeys(group_of(name) for name in (*made.body, *made.kept)))
    chosen = draw(st.sets(st.sampled_from(groups), min_size=1, max_size=4)) if groups else set()

    def kept(names: Mapping[str, Shape]) -> dict[str, Shape]:
        return {name: shape for name, shape in names.items() if group_of(name) in chosen}

    return replace(made, body=kept(made.body), kept=kept(made.kept))


@st.composite
def stacked(draw: Any, made: Model) -> Model:
    """Now and then the draft's experts in one tensor of three dimensions each, as Qwen3.5's own files hold them."""
    holders = {known._holder(name) for name in made.draft if ".mlp.experts." in name}
    if not holders or draw(st.integers(0, 5)):
        return made
    rest = {name: shape for name, shape in made.draft.items() if ".mlp.experts." not in name}
    return replace(made, draft={**rest, **dict.fromkeys(sorted(holders), STACK)})


@st.composite
def miscounted(draw: Any, made: Model) -> Model:
    """Now and then a config that counts other experts than there are."""
    if draw(st.integers(0, 30)):
        return made
    count = draw(st.sampled_from((1, 3, 4)))

    def counted(config: Json) -> Json:
        inner = {key: counted(value) for key, value in config.items() if isinstance(value, dict)}
        return {**config, **inner, **{key: count for key in EXPERT_KEYS if key in config}}

    return replace(made, config=counted(made.config))


@st.composite
def storages(draw: Any, made: Model, scheme: str) -> dict[str, str]:
    """How the draft is stored (plain, quantized, mixed by fused modules or without regard to them), and odd modules."""
    way = draw(st.sampled_from(("plain", "plain", "plain", "quantized", "mixed", "unlike")))
    stored: dict[str, str] = {}
    stacks = {name: "stacked" for name, shape in made.draft.items() if shape == STACK}
    if way == "quantized":
        stored = dict.fromkeys(made.draft, scheme)
    elif way in ("mixed", "unlike"):
        names = list(made.draft)
        groups = list(dict.fromkeys(map(group_of, names))) if way == "mixed" else names
        chosen = draw(st.sets(st.sampled_from(groups))) if groups else set()
        stored = {name: scheme for name in names if (group_of(name) if way == "mixed" else name) in chosen}
    if draw(st.integers(0, 5)) == 0 and made.bare:
        stored |= {draw(st.sampled_from(sorted(made.bare))): scheme}
    if draw(st.integers(0, 2)) == 0 and made.body:
        odd = draw(st.sets(st.sampled_from(sorted({group_of(name) for name in made.body})), max_size=3))
        stored |= {name: "bf16" for name in made.body if group_of(name) in odd}
    if draw(st.integers(0, 5)) == 0:
        heads = [name for name in made.kept if name != "lm_head" or draw(st.booleans())]
        stored |= {draw(st.sampled_from(heads)): scheme} if heads else {}
    return {**{name: kind for name, kind in stored.items() if fits(made.shapes[name], kind)}, **stacks}


def fits(shape: Shape, kind: str) -> bool:
    """Whether a layout can hold a matrix of this shape."""
    return kind == "bf16" or (shape != STACK and shape[0] % 16 == 0 and shape[1] % 64 == 0)


def spellings(name: str) -> tuple[str, ...]:
    """Entries that somebody might write for a module: right in one dialect or another, or wrong in all."""
    front, _, leaf = name.rpartition(".")
    holder = name.partition(".experts.")[0] + ".experts" if ".experts." in name else name
    steps = name.split(".")
    at = next((place for place, step in enumerate(steps) if step.isdecimal()), 0)
    layer = ".".join(steps[: at + 1])
    bare = name.removeprefix("model.").removeprefix("language_model.")
    dots = name.replace(".", r"\.")
    return (
        name, f"{name}*", f"{name}.*", front, f"{front}.*", f"{front}*", leaf, f"*{leaf}", f"*.{leaf}", holder,
        f"{holder}*", f"{holder}.*",
        f"{front}.{FUSED.get(leaf, leaf)}", layer, f"{layer}.*", f"{layer}*", layer[:-1] + "*",
        f"model.{name}", bare, f"language_model.{bare}", f"model.language_model.{bare}", f"re:^{dots}$", f"re:{name}",
        f"re:.*{bare}", f"re:^{layer}", f"re:.*{leaf}$", f"re:.*{FUSED.get(leaf, leaf)}$", f"{name}.", f".{name}",
        name.replace(".", "..", 1), f"{name}.weight", steps[at], f"model.decoder.{'.'.join(steps[at + 1:])}",
        "model.decoder.*", "model.decoder", f"*.{steps[at]}.*", f"re:.*layers.{steps[at]}.*", name.upper(),
    )  # fmt: skip


def worded(fmt: str, name: str) -> str:
    """A module's name as an entry of a format that wants more than the name."""
    return f"-:^{name}$" if fmt == "gptq" else f"{name}.weight" if fmt == "modelslim" else name


def keyed(entry: Any) -> Any:
    """An entry as a rule of GPTQ's `dynamic`."""
    if not isinstance(entry, str):
        return "-:" + str(entry)
    return entry if entry.startswith(("-:", "+:")) else "-:" + entry.removeprefix("re:").replace("*", ".*")


@st.composite
def entries(draw: Any, made: Model, fmt: str, stored: dict[str, str]) -> Any:
    """A list: what the target needs (mostly), and for the draft right entries, wrong ones or none."""
    plain_kept = [name for name in made.kept if stored.get(name, "bf16") in PLAIN]
    odd = [name for name in made.body if stored.get(name) == "bf16"]
    right = known.right_list(replace(made, kept=dict.fromkeys(plain_kept, (1, 1)), draft={}, bare={}), fmt, draft=False)
    found: list[Any] = right if draw(st.integers(0, 9)) else []
    if draw(st.integers(0, 3)):
        found = found + [worded(fmt, name) for name in dict.fromkeys(map(known._holder, odd))]
    drafts = [*made.draft, *made.bare]
    plain = [name for name in drafts if stored.get(name, "bf16") in PLAIN]
    way = draw(st.sampled_from(("right", "none", "wrong", "wrong", "both", "some")))
    extra: list[Any] = []
    if way in ("right", "both"):
        mended = replace(made, kept={}, draft={name: (1, 1) for name in plain if name in made.draft},
                         bare={name: (1, 1) for name in plain if name in made.bare})  # fmt: skip
        extra += known.right_list(mended, fmt)
    if way in ("wrong", "both"):
        pool = drafts or list(made.shapes)
        for name in draw(st.lists(st.sampled_from(pool), min_size=1, max_size=3)):
            extra.append(draw(st.sampled_from(spellings(name))))
        extra += draw(st.lists(st.sampled_from(MTP_WORDS), max_size=2))
        extra += draw(st.lists(st.sampled_from(BROAD), max_size=1)) if draw(st.integers(0, 4)) == 0 else []
        extra += draw(st.lists(st.sampled_from(MALFORMED), max_size=1)) if draw(st.integers(0, 6)) == 0 else []
    if way == "some" and plain:
        extra += map(partial(worded, fmt), draw(st.lists(st.sampled_from(plain), max_size=4, unique=True)))
    if fmt == "gptq":
        return list(dict.fromkeys(map(keyed, draw(st.permutations([*found, *extra])))))
    return [*found, *extra]


@st.composite
def cases(draw: Any, families: Sequence[str] = FAMILIES, formats: Sequence[str] = tuple(FORMATS)) -> Case:
    """Everything of a checkpoint."""
    family, made = draw(models(families))
    fmt = draw(st.sampled_from(formats))
    stored = draw(storages(made, FORMATS[fmt].scheme))
    ignore = draw(entries(made, fmt, stored))
    sidecar = None
    if FORMATS[fmt].sidecar is not None:
        way = draw(st.sampled_from(("same", "same", "other", "none", "absent")))
        other = draw(entries(made, fmt, stored)) if way == "other" else ABSENT
        sidecar = {"same": ignore, "other": other, "none": None, "absent": ABSENT}[way]
    if draw(st.integers(0, 19)) == 0:
        ignore = ABSENT
    return Case(family, fmt, made, stored, ignore, sidecar, draw(st.integers(0, len(DUMPS) - 1)))


# --- what right exporters write ---------------------------------------------------------------------------------------


_EVERYWHERE = ("nvfp4", "modelopt-fp8", "mixed", "ct-nvfp4", "ct-fp8", "ct-w4a16", "fp8-block", "gptq")
EXPORTED = (
    *((family, fmt) for family in ("llama", "qwen3_moe") for fmt in _EVERYWHERE),
    *((family, fmt) for family in ("glm4_moe", "deepseek_v3") for fmt in ("nvfp4", "mixed")),
    *(("qwen3_5", fmt) for fmt in ("nvfp4", "modelopt-fp8", "mixed")),
)


@st.composite
def exported(draw: Any) -> Case:
    """A checkpoint with the list that its exporter should have written, in both files or in one."""
    family, fmt = draw(st.sampled_from(EXPORTED))
    depth, stored = draw(st.sampled_from(DEPTHS))
    made = only(MODELS[family](layers=depth, experts=2, drafts=draw(st.sampled_from((1, 1, 0)))), stored, depth)
    entries = list(draw(st.permutations(known.right_list(made, fmt))))
    sidecar = draw(st.sampled_from((entries, None))) if FORMATS[fmt].sidecar else None
    return Case(family, fmt, made, {}, entries, sidecar, draw(st.integers(0, len(DUMPS) - 1)))
