"""Frozen dataclasses that cost next to nothing to define.

`@dataclass(frozen=True, slots=True)` means what it means in the standard library, and type checkers see the standard
library's own. But that compiles six functions a class, 0.7 ms on Python 3.11: with a hundred classes, 40 % of what
`mtpfix check` takes on a small checkpoint. Here a class shares its methods with all others, and `__init__`, the one
that has to be fast and so has to be compiled, is compiled after the first few instances: half of the classes never have
more. It fills the slots directly, which takes less than half of the time that the standard library's takes.

Left out is what nothing here uses: mutable and ordered classes, inheritance of fields, InitVar, keyword-only fields.
"""

from __future__ import annotations

from operator import attrgetter
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
_FEW = 12  # instances whose values are put in place one by one take as long as compiling does


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
    """An `__init__` for the first instances, which puts the compiled one in its place."""
    left = _FEW

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0 or not _filled(self, fields, args, kwargs):
            cls.__init__ = _compiled_init(cls, fields)
            cls.__init__(self, *args, **kwargs)
        elif hasattr(cls, "__post_init__"):
            self.__post_init__()

    return __init__


def _filled(self: Any, fields: dict[str, _Field], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Give every field its value; False for arguments that do not fit, which a real `__init__` has the words for."""
    given = dict(zip(fields, args, strict=False)) | kwargs
    if len(given) < len(args) + len(kwargs) or not given.keys() <= fields.keys():
        return False
    for name, found in fields.items():
        value = given.get(name, ...)
        if value is ...:
            value = found.default if found.factory is None else found.factory()
        if value is _NO_DEFAULT:
            return False
        object.__setattr__(self, name, value)
    return True


def _compiled_init(cls: Any, fields: dict[str, _Field]) -> Any:
    slots = "__slots__" in cls.__dict__
    scope: dict[str, Any] = {}
    parameters, body = ["self"], []
    for name, found in fields.items():
        value = name
        if found.factory is not None:
            scope[f"_make_{name}"] = found.factory
            value = f"_make_{name}() if {name} is ... else {name}"
        if found.factory is not None or found.default is not _NO_DEFAULT:
            scope[f"_default_{name}"] = found.default
            parameters.append(f"{name}=_default_{name}")
        else:
            parameters.append(name)
        scope[f"_set_{name}"] = getattr(cls, name).__set__ if slots else None
        body.append(f"_set_{name}(self, {value})" if slots else f"self.__dict__[{name!r}] = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    source = f"def __init__({', '.join(parameters)}):\n  " + "\n  ".join(body or ["pass"])
    exec(source, scope)  # noqa: S102 - field names of our own classes
    return scope["__init__"]
