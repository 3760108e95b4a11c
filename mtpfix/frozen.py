"""Frozen dataclasses, named tuples and protocols that cost next to nothing to define.

`@dataclass(frozen=True, slots=True)` and `NamedTuple` mean what they mean in the standard library, and type checkers
see the standard library's own. But those compile six functions a class and one a tuple, 0.7 and 0.2 ms on Python 3.11:
with a hundred classes, 40 % of what `mtpfix check` takes on a small checkpoint. Here a class shares its methods with
all others. `__init__` and `__new__`, which have to be fast, are written down once for each number of fields
(mtpfix/written.py) and get the names of the class's own. An `__init__` fills the slots directly, which takes less than
half of the time that the standard library's takes.

Left out is what nothing here uses: mutable and ordered classes, inheritance of fields, InitVar, keyword-only fields;
a tuple's `_make`.
"""

from __future__ import annotations

from operator import attrgetter
from types import FunctionType
from typing import TYPE_CHECKING, Any

from mtpfix.written import INITS, NEWS

__all__ = ["NamedTuple", "Protocol", "dataclass", "field", "replace"]

if TYPE_CHECKING:
    from dataclasses import dataclass, field, replace
    from typing import NamedTuple, Protocol

    _tuplegetter: Any
else:
    Protocol = object  # what it is to a type checker is in the annotations; nothing is asked of it at run time

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

    class _Rows(type):
        """Makes a named tuple of a class body."""

        def __new__(meta, name, bases, body):
            return super().__new__(meta, name, bases, _row(body) if bases != (tuple,) else body)

    class NamedTuple(tuple, metaclass=_Rows):
        """The base of a named tuple."""

        __slots__ = ()

        def _replace(self, /, **changes):
            fields = dict(zip(self._fields, self)) | changes  # noqa: B905 - they are as many
            return type(self)(**fields)

        def _asdict(self):
            return dict(zip(self._fields, self))  # noqa: B905

        def __repr__(self):
            held = zip(self._fields, self)  # noqa: B905
            return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in held)})"

        def __getnewargs__(self):
            return tuple(self)

    try:  # as the standard library's own
        from _collections import _tuplegetter
    except ImportError:
        from operator import itemgetter

        def _tuplegetter(at, doc):
            return property(itemgetter(at), doc=doc)


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
    made = _SHARED | {"_fields_": fields, "__match_args__": tuple(fields)} | body
    made |= {"__slots__": tuple(fields), "__qualname__": cls.__qualname__}
    return type(cls)(cls.__name__, cls.__bases__, made)


def _with_dict(cls: Any) -> Any:
    fields = _fields_of(cls)
    for name, value in (_SHARED | {"_fields_": fields, "__match_args__": tuple(fields)}).items():
        if name not in cls.__dict__:
            setattr(cls, name, value)
    return cls


def _fields_of(cls: Any) -> dict[str, _Field]:
    held = ((name, cls.__dict__.get(name, _NO_DEFAULT)) for name in cls.__annotations__)
    return {name: value if isinstance(value, _Field) else _Field(value) for name, value in held}


def _owner(value: object) -> Any:
    """The dataclass that a value is of, which is its class or what that inherits from."""
    return next(cls for cls in type(value).__mro__ if "_fields_" in cls.__dict__)


# What every class starts with. The methods that have to be fast put the class's own in their place.


def _init(self: Any, *args: Any, **kwargs: Any) -> None:
    cls = _owner(self)
    cls.__init__ = _init_of(cls, cls._fields_)
    cls.__init__(self, *args, **kwargs)


def _eq(self: Any, other: Any) -> Any:
    cls = _owner(self)
    cls.__eq__, cls.__hash__ = _comparison(cls._fields_)
    return cls.__eq__(self, other)


def _hash(self: Any) -> int:
    cls = _owner(self)
    cls.__eq__, cls.__hash__ = _comparison(cls._fields_)
    found: int = cls.__hash__(self)
    return found


def _repr(self: Any) -> str:
    shown = (name for name, found in _owner(self)._fields_.items() if found.repr)
    return f"{self.__class__.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


def _refused(self: Any, name: str, *_: Any) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot change field {name!r}")


def _reduce(self: Any) -> tuple[Any, ...]:
    """For pickle and copy: made anew from its fields."""
    return self.__class__, tuple(getattr(self, name) for name in self.__match_args__)


_SHARED: dict[str, Any] = {
    "__init__": _init,
    "__eq__": _eq,
    "__hash__": _hash,
    "__repr__": _repr,
    "__setattr__": _refused,
    "__delattr__": _refused,
    "__reduce__": _reduce,
    "__dataclass_fields__": _Fields(),
}


def _comparison(fields: dict[str, _Field]) -> tuple[Any, Any]:
    """`__eq__` and `__hash__` by the fields; the work is done outside of Python's own loop."""
    names = [name for name, found in fields.items() if found.compare]
    values = attrgetter(*names) if names else type  # of one field the bare value: as good to compare and to hash

    def __eq__(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(values(self))

    return __eq__, __hash__


def _init_of(cls: Any, fields: dict[str, _Field]) -> Any:
    """The `__init__` of a class."""
    puts = [_put(cls, name, found) for name, found in fields.items()]
    optional = [found for found in fields.values() if found.factory is not None or found.default is not _NO_DEFAULT]
    defaults = tuple(found.default for found in optional)
    filled = _written(puts, fields, defaults) if len(fields) < len(INITS) else _walked(puts, fields, defaults)
    return _checked(filled) if hasattr(cls, "__post_init__") else filled


def _put(cls: Any, name: str, found: _Field) -> Any:
    """What fills a field. A field with a factory for its default has `...` for a default."""
    put = getattr(cls, name).__set__ if "__slots__" in cls.__dict__ else _keeper(name)
    make = found.factory
    return put if make is None else lambda self, value: put(self, make() if value is ... else value)


def _keeper(name: str) -> Any:
    def put(self: Any, value: Any) -> None:
        self.__dict__[name] = value

    return put


def _written(puts: list[Any], fields: dict[str, _Field], defaults: tuple[Any, ...]) -> Any:
    """The `__init__` for as many fields, with the names of these."""
    code = INITS[len(fields)].__code__.replace(co_varnames=("self", *fields))
    return FunctionType(code, {f"put{at}": put for at, put in enumerate(puts)}, "__init__", defaults)


def _walked(puts: list[Any], fields: dict[str, _Field], defaults: tuple[Any, ...]) -> Any:
    """The same for more fields than are written down: large values are few."""
    names = tuple(fields)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        for put, value in zip(puts, _given(self.__class__, names, defaults, args, kwargs), strict=True):
            put(self, value)

    return __init__


def _given(
    cls: Any, names: tuple[str, ...], defaults: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    """The values of all fields. Raises TypeError as a call does that does not fit."""
    given = dict(zip(names, args))  # noqa: B905 - the rest is given by name or has a default
    held = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True)) | given | kwargs
    if len(args) > len(names) or held.keys() != set(names) or not kwargs.keys().isdisjoint(given):
        raise TypeError(f"{cls.__name__}() takes {', '.join(names)}")
    return tuple(held[name] for name in names)


def _checked(filled: Any) -> Any:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        filled(self, *args, **kwargs)
        self.__post_init__()

    return __init__


def _row(body: dict[str, Any]) -> dict[str, Any]:
    """The body of a named tuple's class."""
    names = tuple(body["__annotations__"])
    defaults = {name: body[name] for name in names if name in body}
    made = _new(names, tuple(defaults.values()))
    own = {"__slots__": (), "_fields": names, "__match_args__": names, "_field_defaults": defaults, "__new__": made}
    return body | own | {name: _tuplegetter(at, "") for at, name in enumerate(names)}


def _new(names: tuple[str, ...], defaults: tuple[Any, ...]) -> Any:
    """The `__new__` of a named tuple."""
    if len(names) < len(NEWS):
        code = NEWS[len(names)].__code__.replace(co_varnames=("cls", *names))
        return FunctionType(code, {"new": tuple.__new__}, "__new__", defaults)

    def __new__(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return tuple.__new__(cls, _given(cls, names, defaults, args, kwargs))

    return __new__
