"""Our frozen dataclasses behave as the standard library's do, whose meaning they promise."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from mtpfix import frozen


def made(kind: Any, **options: Any) -> Any:
    """The same class by either decorator."""

    @kind.dataclass(frozen=True, **options)
    class Value:
        """A value."""

        name: str
        size: int = 3
        table: dict[str, int] = kind.field(default_factory=dict)
        secret: str = kind.field(default="s", repr=False)
        note: Any = kind.field(default=None, compare=False)

        @property
        def twice(self) -> int:
            return self.size * 2

    return Value


@frozen.dataclass(frozen=True, slots=True)
class Pair:
    left: int
    right: int = 2


@frozen.dataclass(frozen=True, slots=True)
class Checked:
    size: int

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("negative")


@frozen.dataclass(frozen=True)
class Open:
    name: str


@frozen.dataclass(frozen=True, slots=True)
class Nothing:
    pass


@pytest.fixture(params=[{"slots": True}, {}], ids=["slots", "dict"])
def both(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    return made(frozen, **request.param), made(dataclasses, **request.param)


@pytest.fixture(params=[0, 100], ids=["first", "later"])
def instances(request: pytest.FixtureRequest) -> int:
    """How many instances there have been: the first few are filled without a compiled `__init__`."""
    found: int = request.param
    return found


CALLS: tuple[Callable[[Any], Any], ...] = (
    lambda cls: repr(cls("a")),
    lambda cls: repr(cls("a", 4, {"x": 1}, note="n")),
    lambda cls: cls("a", 4, {}, "t", 5).secret,
    lambda cls: cls(name="a", size=9).twice,
    lambda cls: cls("a") == cls("a"),
    lambda cls: cls("a") == cls("b"),
    lambda cls: cls("a") == cls("a", secret="other"),
    lambda cls: cls("a", note=1) == cls("a", note=2),
    lambda cls: cls("a") == ("a", 3, {}, "s", None),
    lambda cls: cls("a") != cls("a"),
    lambda cls: hash(cls("a", 1, (), "s")) == hash(cls("a", 1, (), "s", note="n")),
    lambda cls: hash(cls("a")),
    lambda cls: cls("a").table is cls("a").table,
    lambda cls: cls(),
    lambda cls: cls("a", wrong=1),
    lambda cls: cls("a", 1, {}, "s", None, 6),
    lambda cls: setattr(cls("a"), "size", 1),
    lambda cls: delattr(cls("a"), "size"),
    lambda cls: cls.__doc__,
    lambda cls: cls.__match_args__,
    lambda cls: hasattr(cls("a"), "__dict__"),
    lambda cls: dataclasses.is_dataclass(cls),
    lambda cls: dataclasses.asdict(cls("a", 4, {"x": 1})),
    lambda cls: dataclasses.astuple(cls("a")),
    lambda cls: [(each.name, each.type, each.repr, each.compare) for each in dataclasses.fields(cls)],
    lambda cls: repr(dataclasses.replace(cls("a"), size=5)),
    lambda cls: cls("a") < cls("b"),
)


def outcome(call: Callable[[Any], Any], cls: Any) -> Any:
    try:
        return call(cls)
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("call", CALLS)
def test_as_the_standard_library(both: tuple[Any, Any], call: Callable[[Any], Any], instances: int) -> None:
    ours, theirs = both
    for _ in range(instances):
        ours("a")
    assert outcome(call, ours) == outcome(call, theirs)


def test_replace_changes_what_is_named_and_nothing_else() -> None:
    assert frozen.replace(Pair(1), right=5) == Pair(1, 5)
    with pytest.raises(TypeError):
        frozen.replace(Pair(1), middle=5)  # type: ignore[call-arg]


@pytest.mark.parametrize("value", [Pair(1), Open("x"), Nothing()])
def test_no_new_attributes(value: Any) -> None:
    with pytest.raises(AttributeError):
        value.other = 1


def test_post_init_is_run_each_time() -> None:
    assert Checked(1).size == 1
    for _ in range(30):
        with pytest.raises(ValueError, match="negative"):
            Checked(-1)


@pytest.mark.parametrize("value", [Pair(1), Pair(1, 3), Checked(4), Open("x"), Nothing()])
def test_copies_are_equal(value: Any) -> None:
    for twin in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert twin == value
        assert hash(twin) == hash(value)


def test_values_of_unlike_classes_differ() -> None:
    assert Checked(1) != Open(1)  # type: ignore[arg-type, comparison-overlap]
    assert Nothing() == Nothing()


def test_match_by_position() -> None:
    match Pair(1, 7):
        case Pair(left, right):
            assert (left, right) == (1, 7)
