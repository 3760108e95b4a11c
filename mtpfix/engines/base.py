"""What every engine offers: the method it picks for a config, and a matcher that answers for runtime names.

Three questions, kept apart so that each can be tested alone:

1. `method(config, release)`  which quantization method the engine sees in a config fragment;
2. `matcher(query)`           the engine's own list, built from the fragment, the class mappers and the
                              packed mapping, for one release;
3. `Matcher.decide(...)`      the answer for one runtime name.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

from mtpfix.frozen import NamedTuple, Protocol, dataclass, field
from mtpfix.model import Answer, Layer, Mapper, Packed

MappingStr = Mapping[str, str]
T = TypeVar("T")

# Last parts of entries that exclude such a leaf in every layer, whichever the entry names: SGLang's ModelOpt looks for
# leaves of latent attention in a fused one (sglang 0.5.9 srt/layers/quantization/modelopt_quant.py:330).
ANY_LAYER = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj")
# What engines take these names apart into by themselves, whatever a class says and however the checkpoint stores them.
KNOWN_SHARDS: Packed = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}


class Sparse(list[Any]):
    """A list of a config without some of its entries; `places`: where those that are left stand in the whole one."""

    __slots__ = ("places",)

    def __init__(self, items: Sequence[Any], places: Sequence[int]) -> None:
        super().__init__(items)
        self.places = places


def places_of(value: Sequence[Any]) -> Sequence[int]:
    """Where the entries of a list stand in the file."""
    return value.places if isinstance(value, Sparse) else range(len(value))


class Dtypes(dict[str, str]):
    """Tensor name -> dtype, with what engines make of all of them: the same whatever a config says."""

    __slots__ = ("_made",)

    def __init__(self, rows: Mapping[str, str]) -> None:
        super().__init__(rows)
        self._made: dict[tuple[Hashable, ...], Any] = {}

    def once(self, key: tuple[Hashable, ...], make: Callable[[], T]) -> T:
        """What `make` gives, made once. `key`: all that it is made from but the dtypes."""
        if key not in self._made:
            self._made[key] = make()
        found: T = self._made[key]
        return found


@dataclass(frozen=True, slots=True)
class MatchQuery:
    """Everything a matcher is built from.

    method     the engine's method name (`modelopt_fp4`, `compressed-tensors`, ...)
    config     the fragment as written in config.json, or the whole hf_quant_config.json
    mappers    class mappers in the order in which the engine applies them to one quant-config object
               (vLLM: the target's, then the draft's); empty: no class has a mapper
    packed     packed_modules_mapping that is in force when the module asks
    dtypes     tensor name -> dtype as the safetensors headers say, or None where the engine has none to read
    options    facts of config.json (`model_type`, `num_hidden_layers`, `expert_dtype`), `part`, and switches that a
               model class sets, e.g. {"match_mode": "suffix"} (Bailing V3 in vLLM)
    shared     what queries of one config have in common: its lists, read and made ready to be searched. Releases differ
               in little, so that most of them search the same
    """

    release: str
    method: str
    config: Mapping[str, Any]
    mappers: tuple[Mapper, ...] = ()
    packed: Packed = field(default_factory=dict)
    dtypes: Mapping[str, str] | None = None
    options: MappingStr = field(default_factory=dict)
    shared: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def once(self, key: tuple[Hashable, ...], make: Callable[[], T]) -> T:
        """What `make` gives, made once for all queries that share. `key`: all that it is made from but the config."""
        if key not in self.shared:
            self.shared[key] = make()
        found: T = self.shared[key]
        return found


class Matcher(Protocol):
    """An engine's quantization config for one model class."""

    def decide(self, runtime: str, layer: Layer, projections: tuple[str, ...] = ()) -> Answer:
        """The answer for a runtime name. `projections`: the checkpoint's own names of an expert's gate, up
        and down projections, () for gate_proj/up_proj/down_proj. Never raises: an engine's exception is
        an `Answer("error", ...)`."""


@dataclass(frozen=True, slots=True)
class Method:
    """A detected method, or why the engine refuses the config.

    name    "" when this release knows no such method, "unquantized" when the config names none
    error   the engine's complaint when it raises on the config itself
    """

    name: str
    error: str = ""


class Change(NamedTuple):
    """A way of matching that a release has and the one before it has not (or that the first modelled one has).

    methods  the methods whose matching it is; source: the file it was read from
    """

    name: str
    since: str
    methods: tuple[str, ...]
    source: str


class Engine(Protocol):
    """One engine, all its modelled releases."""

    @property
    def name(self) -> str:
        """`vllm`, `sglang`, ..."""

    @property
    def releases(self) -> tuple[str, ...]:
        """Every modelled release, ascending."""

    def method(self, config: Mapping[str, Any], release: str, *, model_type: str = "") -> Method:
        """The method this release sees in a config fragment. `model_type`: of config.json, for the few methods
        that hang on it (deepseek_v4_fp8)."""

    def matcher(self, query: MatchQuery) -> Matcher:
        """A matcher; a config that the engine cannot parse gives one whose every answer is `error`."""

    def handed_over(self, method: str, packed: Packed, release: str) -> Packed:
        """A class's packed mapping as the loader hands it to a method's quantization config."""

    def change_points(self, method: str) -> tuple[str, ...]:
        """Releases at which matching for this method changed, the first modelled release included, ascending.
        A release inside two points behaves as the point before it."""
