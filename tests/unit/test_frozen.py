"""Our frozen dataclasses behave as the standard library's do, whose meaning they promise."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

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
    """How many instances there have been: the first makes the `__init__` of the class."""
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


def rows(base: Any) -> Any:
    """The same named tuple by either base."""

    class Row(base):  # type: ignore[misc]
        """A row."""

        name: str
        size: int = 3
        note: Any = None

        @property
        def twice(self) -> int:
            return self.size * 2

    return Row


TUPLE_CALLS: tuple[Callable[[Any], Any], ...] = (
    lambda cls: repr(cls("a", note=4)),
    lambda cls: cls("a").twice,
    lambda cls: cls("a") == ("a", 3, None),
    lambda cls: hash(cls("a")) == hash(("a", 3, None)),
    lambda cls: [*cls("a", 1)],
    lambda cls: cls("a")._replace(size=9),
    lambda cls: cls("a")._replace(middle=9),
    lambda cls: cls("a")._asdict(),
    lambda cls: cls(),
    lambda cls: cls("a", 1, 2, 3),
    lambda cls: cls("a", wrong=1),
    lambda cls: setattr(cls("a"), "size", 1),
    lambda cls: (cls._fields, cls.__match_args__, cls.__doc__, cls._field_defaults),
    lambda cls: hasattr(cls("a"), "__dict__"),
    lambda cls: cls("a") < cls("b"),
)


@pytest.mark.parametrize("call", TUPLE_CALLS)
def test_named_tuples_as_the_standard_library_s(call: Callable[[Any], Any]) -> None:
    found, expected = outcome(call, rows(frozen.NamedTuple)), outcome(call, rows(NamedTuple))
    assert found == expected or (found, expected) == (TypeError, ValueError)  # of `_replace`, for an unknown name


@pytest.mark.parametrize("count", [0, 1, 13, 14, 15, 20])
def test_any_number_of_fields(count: int) -> None:
    names = [f"f{at}" for at in range(count)]
    body = {"__annotations__": dict.fromkeys(names, "int"), **dict.fromkeys(names[1:], 7), "__module__": __name__}
    kind: Any = frozen.dataclass(frozen=True, slots=True)(type("Wide", (), dict(body)))
    row: Any = type(frozen.NamedTuple)("WideRow", (frozen.NamedTuple,), dict(body))
    for cls in (kind, row):
        made = cls(*range(count))
        assert [getattr(made, name) for name in names] == list(range(count))
        assert made == cls(**dict(zip(names, range(count), strict=True)))
        with pytest.raises(TypeError):
            cls(*range(count + 1))
        with pytest.raises(TypeError):
            cls(*range(count), f0=1)
        if count:
            assert getattr(cls(1), names[-1]) == (1 if count == 1 else 7)
            with pytest.raises(TypeError):
                cls()


class Held(frozen.NamedTuple):
    name: str
    size: int = 3


def test_named_tuples_are_copied_and_pickled() -> None:
    value = Held("a")
    assert copy.copy(value) == copy.deepcopy(value) == pickle.loads(pickle.dumps(value)) == value
    assert isinstance(pickle.loads(pickle.dumps(value)), Held)
