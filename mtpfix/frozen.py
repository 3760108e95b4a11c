"""Frozen dataclasses that cost next to nothing to define.

`@dataclass(frozen=True, slots=True)` means what it means in the standard library, and type checkers see the standard
library's own. But that compiles six functions a class, 0.7 ms on Python 3.11: with a hundred classes, 40 % of what
`mtpfix check` takes on a small checkpoint. Here a class shares its methods with all others, and `__init__`, the one
that has to be fast and so has to be compiled, is compiled once for all classes with as many fields. It fills the slots
directly, which takes less than half of the time that the standard library's takes.

Left out is what nothing here uses: mutable and ordered classes, inheritance of fields, InitVar, keyword-only fields.
"""

from __future__ import annotations

from functools import lru_cache
from operator import attrgetter
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass", "field", "replace"]

if TYPE_CHECKING:
    from dataclasses import dataclass, field, replace
else:

    def dataclass(*, frozen, slots=False):
        """The class as a frozen dataclass; without `slots` it has a `__dict__`, for cached properties, say."""
        assert frozen
        return _with_slots if slots else _with_dict

    def field(*, default=..., default_factory=None, repr=True, compare=True):
        """A field with more to it than a default value."""
        return _Field(default, default_factory, repr, compare)

    def replace(value, /, **changes):
        """The value with some fields changed."""
        return type(value)(**{name: getattr(value, name) for name in value.__match_args__} | changes)


_NO_DEFAULT = ...


class _Field:
    __slots__ = ("compare", "default", "factory", "repr")

    def __init__(self, default: Any = _NO_DEFAULT, factory: Any = None, repr: bool = True, compare: bool = True):
        self.default, self.factory, self.repr, self.compare = default, factory, repr, compare


class _Fields:
    """`__dataclass_fields__`, for the functions of the standard library's module; made when one of them asks."""

    def __get__(self, instance: object, owner: Any) -> dict[str, Any]:
        from dataclasses import MISSING, make_dataclass
        from dataclasses import field as make

        rows = [
            (
                name,
                owner.__annotations__[name],
                make(
                    default=MISSING if found.default is _NO_DEFAULT else found.default,
                    default_factory=found.factory or MISSING,
                    repr=found.repr,
                    compare=found.compare,
                ),
            )
            for name, found in owner._fields_.items()
        ]
        made: dict[str, Any] = make_dataclass(owner.__name__, rows).__dataclass_fields__  # type: ignore[attr-defined]
        return made


def _with_slots(cls: Any) -> Any:
    fields = _fields_of(cls)
    body = {name: value for name, value in cls.__dict__.items() if name not in (*fields, "__dict__", "__weakref__")}
    body |= {"__slots__": tuple(fields), "__qualname__": cls.__qualname__}
    return _equipped(type(cls)(cls.__name__, cls.__bases__, body), fields)


def _with_dict(cls: Any) -> Any:
    return _equipped(cls, _fields_of(cls))


def _fields_of(cls: Any) -> dict[str, _Field]:
    held = ((name, cls.__dict__.get(name, _NO_DEFAULT)) for name in cls.__annotations__)
    return {name: value if isinstance(value, _Field) else _Field(value) for name, value in held}


def _equipped(cls: Any, fields: dict[str, _Field]) -> Any:
    """The class with what makes it a frozen dataclass, as far as it does not bring its own."""
    attributes = {
        "_fields_": fields,
        "__match_args__": tuple(fields),
        "__dataclass_fields__": _Fields(),
        "__init__": _first_init(cls, fields),
        "__repr__": _repr(tuple(name for name, found in fields.items() if found.repr)),
        "__setattr__": _refused,
        "__delattr__": _refused,
        "__reduce__": _reduce,
        **_comparison(tuple(name for name, found in fields.items() if found.compare)),
    }
    for name, value in attributes.items():
        if name not in cls.__dict__:
            setattr(cls, name, value)
    return cls


def _comparison(names: tuple[str, ...]) -> dict[str, Any]:
    """`__eq__` and `__hash__` by the fields; the work is done outside of Python's own loop."""
    values = attrgetter(*names) if names else type  # of one field the bare value: as good to compare and to hash

    def __eq__(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(values(self))

    return {"__eq__": __eq__, "__hash__": __hash__}


def _repr(names: tuple[str, ...]) -> Any:
    def __repr__(self: Any) -> str:
        return f"{self.__class__.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__


def _refused(self: Any, name: str, *_: Any) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot change field {name!r}")


def _reduce(self: Any) -> tuple[Any, ...]:
    """For pickle and copy: made anew from its fields."""
    return self.__class__, tuple(getattr(self, name) for name in self.__match_args__)


def _first_init(cls: Any, fields: dict[str, _Field]) -> Any:
    """An `__init__` that puts the compiled one in its place."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        cls.__init__ = _compiled_init(cls, fields)
        cls.__init__(self, *args, **kwargs)

    return __init__


def _compiled_init(cls: Any, fields: dict[str, _Field]) -> Any:
    """The `__init__` of a class: one for such fields, with the names of this class's."""
    slots = "__slots__" in cls.__dict__
    made = tuple(found.factory is not None for found in fields.values())
    code = _code(made, slots, hasattr(cls, "__post_init__")).replace(co_varnames=("self", *fields))
    scope: dict[str, Any] = {}
    for at, (name, found) in enumerate(fields.items()):
        scope[f"put{at}"] = getattr(cls, name).__set__ if slots else name
        scope[f"make{at}"] = found.factory
    optional = [found for found in fields.values() if found.factory is not None or found.default is not _NO_DEFAULT]
    return FunctionType(code, scope, "__init__", tuple(found.default for found in optional))


@lru_cache(maxsize=256)
def _code(made: tuple[bool, ...], slots: bool, checked: bool) -> CodeType:
    """The code of an `__init__`. `made`: which fields have a factory for their default; their default is `...`."""
    body = []
    for at, factory in enumerate(made):
        value = f"make{at}() if field{at} is ... else field{at}" if factory else f"field{at}"
        body.append(f"put{at}(self, {value})" if slots else f"self.__dict__[put{at}] = {value}")
    if checked:
        body.append("self.__post_init__()")
    parameters = ", ".join(("self", *(f"field{at}" for at in range(len(made)))))
    scope: dict[str, Any] = {}
    exec(f"def __init__({parameters}):\n  " + "\n  ".join(body or ["pass"]), scope)  # noqa: S102 - our own text
    code: CodeType = scope["__init__"].__code__
    return code
