# mypy: ignore-errors
"""`__init__` and `__new__` for each number of fields, for `mtpfix.frozen`: written down, since compiling takes time.

Their globals are set there: what fills each field (it returns None, so that `or` goes on to the next), and what makes a
tuple.
"""

from __future__ import annotations

__all__ = ["INITS", "NEWS"]

put0 = put1 = put2 = put3 = put4 = put5 = put6 = new = None
put7 = put8 = put9 = put10 = put11 = put12 = put13 = None


def _init0(self):
    return None


def _init1(self, a):
    return put0(self, a)


def _init2(self, a, b):
    return put0(self, a) or put1(self, b)


def _init3(self, a, b, c):
    return put0(self, a) or put1(self, b) or put2(self, c)


def _init4(self, a, b, c, d):
    return put0(self, a) or put1(self, b) or put2(self, c) or put3(self, d)


def _init5(self, a, b, c, d, e):
    return put0(self, a) or put1(self, b) or put2(self, c) or put3(self, d) or put4(self, e)


def _init6(self, a, b, c, d, e, f):
    return put0(self, a) or put1(self, b) or put2(self, c) or put3(self, d) or put4(self, e) or put5(self, f)


def _init7(self, a, b, c, d, e, f, g):
    return (
        put0(self, a)
        or put1(self, b)
        or put2(self, c)
        or put3(self, d)
        or put4(self, e)
        or put5(self, f)
        or put6(self, g)
    )


def _init8(self, a, b, c, d, e, f, g, h):
    return (
        put0(self, a)
        or put1(self, b)
        or put2(self, c)
        or put3(self, d)
        or put4(self, e)
        or put5(self, f)
        or put6(self, g)
        or put7(self, h)
    )


def _init9(self, a, b, c, d, e, f, g, h, i):
    return (
        put0(self, a)
        or put1(self, b)
        or put2(self, c)
        or put3(self, d)
        or put4(self, e)
        or put5(self, f)
        or put6(self, g)
        or put7(self, h)
        or put8(self, i)
    )


def _init10(self, a, b, c, d, e, f, g, h, i, j):
    return (
        put0(self, a)
        or put1(self, b)
        or put2(self, c)
        or put3(self, d)
        or put4(self, e)
        or put5(self, f)
        or put6(self, g)
        or put7(self, h)
        or put8(self, i)
        or put9(self, j)
    )


def _init11(self, a, b, c, d, e, f, g, h, i, j, k):
    return (
        put0(self, a)
        or put1(self, b)
        or put2(self, c)
        or put3(self, d)
        or put4(self, e)
        or put5(self, f)
        or put6(self, g)
        or put7(self, h)
        or put8(self, i)
        or put9(self, j)
        or put10(self, k)
    )


def _init12(self, a, b, c, d, e, f, g, h, i, j, k, m):
    return (
        put0(self, a)
        or put1(self, b)
        or put2(self, c)
        or put3(self, d)
        or put4(self, e)
        or put5(self, f)
        or put6(self, g)
        or put7(self, h)
        or put8(self, i)
        or put9(self, j)
        or put10(self, k)
        or put11(self, m)
    )


def _init13(self, a, b, c, d, e, f, g, h, i, j, k, m, n):
    return (
        put0(self, a)
        or put1(self, b)
        or put2(self, c)
        or put3(self, d)
        or put4(self, e)
        or put5(self, f)
        or put6(self, g)
        or put7(self, h)
        or put8(self, i)
        or put9(self, j)
        or put10(self, k)
        or put11(self, m)
        or put12(self, n)
    )


def _init14(self, a, b, c, d, e, f, g, h, i, j, k, m, n, o):
    return (
        put0(self, a)
        or put1(self, b)
        or put2(self, c)
        or put3(self, d)
        or put4(self, e)
        or put5(self, f)
        or put6(self, g)
        or put7(self, h)
        or put8(self, i)
        or put9(self, j)
        or put10(self, k)
        or put11(self, m)
        or put12(self, n)
        or put13(self, o)
    )


def _new0(cls):
    return new(cls, ())


def _new1(cls, a):
    return new(cls, (a,))


def _new2(cls, a, b):
    return new(cls, (a, b))


def _new3(cls, a, b, c):
    return new(cls, (a, b, c))


def _new4(cls, a, b, c, d):
    return new(cls, (a, b, c, d))


def _new5(cls, a, b, c, d, e):
    return new(cls, (a, b, c, d, e))


def _new6(cls, a, b, c, d, e, f):
    return new(cls, (a, b, c, d, e, f))


def _new7(cls, a, b, c, d, e, f, g):
    return new(cls, (a, b, c, d, e, f, g))


def _new8(cls, a, b, c, d, e, f, g, h):
    return new(cls, (a, b, c, d, e, f, g, h))


def _new9(cls, a, b, c, d, e, f, g, h, i):
    return new(cls, (a, b, c, d, e, f, g, h, i))


def _new10(cls, a, b, c, d, e, f, g, h, i, j):
    return new(cls, (a, b, c, d, e, f, g, h, i, j))


def _new11(cls, a, b, c, d, e, f, g, h, i, j, k):
    return new(cls, (a, b, c, d, e, f, g, h, i, j, k))


def _new12(cls, a, b, c, d, e, f, g, h, i, j, k, m):
    return new(cls, (a, b, c, d, e, f, g, h, i, j, k, m))


def _new13(cls, a, b, c, d, e, f, g, h, i, j, k, m, n):
    return new(cls, (a, b, c, d, e, f, g, h, i, j, k, m, n))


def _new14(cls, a, b, c, d, e, f, g, h, i, j, k, m, n, o):
    return new(cls, (a, b, c, d, e, f, g, h, i, j, k, m, n, o))


INITS = (
    _init0,
    _init1,
    _init2,
    _init3,
    _init4,
    _init5,
    _init6,
    _init7,
    _init8,
    _init9,
    _init10,
    _init11,
    _init12,
    _init13,
    _init14,
)
NEWS = (
    _new0,
    _new1,
    _new2,
    _new3,
    _new4,
    _new5,
    _new6,
    _new7,
    _new8,
    _new9,
    _new10,
    _new11,
    _new12,
    _new13,
    _new14,
)
