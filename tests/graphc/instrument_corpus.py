"""Small functions that use every construct of the language that a rewritten copy must keep.

Each takes nothing and gives a value that can be compared, or raises.
"""
# ruff: noqa

import functools
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FunctionType

from tests.graphc import instrument_scopes

COUNTER = 0  # never changed
PAIRS = {"b": 2, "a": 1}


class Box:
    """A namespace that notes what is done to it."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)

    def __eq__(self, other):
        return isinstance(other, Box) and vars(self) == vars(other)

    def __repr__(self):
        return f"Box({vars(self)})"

    def method(self, *args, **kwargs):
        return args, kwargs


class Manager:
    def __init__(self, log, suppresses=False):
        self.log, self.suppresses = log, suppresses

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, error, traceback):
        self.log.append(kind and kind.__name__)
        return self.suppresses


class Base:
    def name(self, suffix=""):
        return "base" + suffix


class Derived(Base):
    def name(self, suffix=""):
        plain = super().name()
        method = super().name
        return plain + super(Derived, self).name(suffix) + method("!") + __class__.__name__


@dataclass
class Point:
    x: int
    y: int


def shout(prefix):
    def decorate(function):
        @functools.wraps(function)
        def inner(*args, **kwargs):
            return prefix + function(*args, **kwargs)

        return inner

    return decorate


def attributes():
    box = Box(a=1, inner=Box(b=[1, 2, 3]))
    box.a += 2
    box.inner.b[0] *= 5
    box.inner.b[1:2] += [7, 8]
    box.c, box.inner.d = box.a, box
    del box.inner.d
    return box


def calls():
    def keywords(a, /, b=2, *rest, c, d=4, **more):
        return a, b, rest, c, d, more

    star, double = [1, 2], {"c": 3, "z": 26}
    return [
        keywords(1, c=3),
        keywords(1, 2, 3, 4, c=5, d=6, e=7, f=8),
        keywords(*star, **double),
        keywords(0, *star, *(5, 6), d=9, **double, y=25),
        keywords(*range(3), c=3),
        Box().method(),
        Box().method(1, 2, x=3),
        Box().method(*star, x=3, **PAIRS),
        max(3, 1, 2, key=lambda value: -value),
        print(end=""),
        keywords(1 if star else 2, c=3 if not star else 4),
        (lambda *, first=1, second: (first, second))(second=2),
        f"{1}-{2}",
        dict(**PAIRS, **{"y": 25}),
        "{}-{a}".format(1, a=2),
    ]


def tries():
    log = []
    for error in (None, KeyError("k"), ValueError("v"), RuntimeError("r")):
        try:
            try:
                if error:
                    raise error
            except KeyError as caught:
                log.append(repr(caught))
            except ValueError:
                log.append("value")
                raise
            else:
                log.append("else")
            finally:
                log.append("finally")
        except (ValueError, RuntimeError) as outer:
            log.append(outer.args)
            continue
        log.append("after")
    return log


def returns_from_finally():
    log = []

    def inner(value):
        for step in range(3):
            try:
                if step == value:
                    return step
            finally:
                log.append(step)
        return -1

    return inner(1), inner(5), log


def chained():
    try:
        {}["missing"]
    except KeyError as error:
        raise ValueError("no such key", error.args) from error


def grouped():
    try:
        raise ExceptionGroup("g", [KeyError("a"), ValueError("b"), OSError("c")])
    except* KeyError as first:
        seen = [first.exceptions[0].args]
    except* (ValueError, OSError) as second:
        seen.append(len(second.exceptions))
    return seen


def withs():
    log = []
    with Manager(log) as first, Manager(log, suppresses=True) as second:
        log.append((first is second, "body"))
        raise ValueError("suppressed")
    with Manager(log):
        log.append("plain")
    for step in range(3):
        with Manager(log, suppresses=True):
            if step == 1:
                continue
            if step == 2:
                break
            raise KeyError(step)
    return log


def with_raises():
    log = []
    with Manager(log), Manager(log):
        raise LookupError("through both")


def not_a_manager():
    with 5 as five:
        return five


@contextmanager
def doubled(value):
    try:
        yield value * 2
    except ZeroDivisionError:
        pass


def context_managers():
    with doubled(4) as eight:
        result = eight
        result /= 0
    return result


def comprehensions():
    factor, matrix = 3, [[1, 2], [3, 4]]
    return (
        [x * factor for row in matrix for x in row if x % 2],
        {x: [factor * y for y in range(x)] for x in range(3)},
        {x % 3 for x in range(10)},
        list(x + factor for x in range(3)),
        [[y for y in row if (z := y) > 1] for row in matrix],
        z,
        [(lambda: x)() for x in range(3)],
        [f() for f in [lambda x=x: x for x in range(3)]],
    )


def comprehension_keeps_outer():
    x = "outer"
    inner = [x for x in range(3)]
    return x, inner, Box().method([x for x in inner], k=[x for x in "ab"])


def comprehension_raises():
    x = 5
    try:
        return [1 // x for x in (1, 0)]
    except ZeroDivisionError:
        return x


def literals():
    rows, extra = [1, *range(3), *"ab"], {"k": 1}
    return rows, {*rows, 9}, {**extra, "z": 2, **PAIRS}, (*rows, 5), rows[1:3], rows[::-1], -rows[0]


def unpacking():
    first, (second, *middle), *last = 1, "abcd", 5, 6
    a, b, c = range(3)
    (d,) = {7}
    return first, second, middle, last, a, b, c, d


def bad_unpacking():
    a, b = 1, 2, 3
    return a, b


def slices():
    items = list(range(10))
    items[2:4] = "xyz"
    items[::3] = items[1::3] + [0]
    del items[0], items[1:3]
    items[-1:] += [5]
    start = 2
    return items, items[start:], items[:start], items[start:-1], "text"[1:3]


def operators():
    a, b = 7, 3
    c = [a + b, a - b, a * b, a / b, a // b, a % b, a**b, a << b, a >> b, a & b, a | b, a ^ b]
    for step in (a, -a, +a, ~a, not a):
        c.append(step)
    a += b
    a -= 1
    a *= 2
    a //= 3
    a **= 2
    a %= 50
    a <<= 2
    a >>= 1
    a |= 8
    a &= 63
    a ^= 5
    a /= 2
    c += [1]
    return a, c, a is b, a is not b, 3 in c, 3 not in c


def comparisons():
    a, b, c = 1, 2, 3
    chain = [a < b < c, a < b > c, a == b != c, a <= a >= a, 1 < a < b]
    return chain, a if a > b else b, (a or b, a and b, 0 or [] or c, None and a), not (a and not b)


def conditions():
    log = []
    for value in (0, 1, "", "x", None, [], [0]):
        if value is None:
            log.append("none")
        elif value is not None and not value:
            log.append("empty")
        elif value and (value != 1 or log):
            log.append(value)
        else:
            log.append("other")
    return log


def none_tests():
    values = []
    for value in (None, 1):
        values.append("a" if value is None else "b")
        values.append("c" if value is not None else "d")
        while value is None:
            value = 2
    return values


def loops():
    log = []
    count = 3
    while count:
        count -= 1
        if count == 1:
            continue
        log.append(count)
    else:
        log.append("done")
    for number in range(5):
        if number == 3:
            break
    else:
        log.append("never")
    for _ in ():
        pass
    else:
        log.append("empty")
    while True:
        if (count := count + 1) > 4:
            break
    return log, number, count


def strings():
    value, width, name = 3.14159, 10, "é"
    return (
        f"{value}|{value:.2f}|{value!r:>{width}}|{name!a}|{name!s:*^7}|{value:{width}.{1 + 1}f}|",
        f"{{}}{'nested'}{f'{value:.1f}'}",
        f"{value=}",
        f"{[x for x in range(2)]}",
        "%s" % name,
    )


def matches():
    def match(subject):
        match subject:
            case 0 | 1:
                return "small"
            case int(number) if number > 100:
                return "big", number
            case Point(0, y=y):
                return "on axis", y
            case Point(x, y):
                return x, y
            case {"kind": kind, "rest": [first, *others], **more}:
                return kind, first, others, more
            case {"empty": None}:
                return "mapping"
            case [a, [b, c]]:
                return a, b, c
            case str() as text:
                return text
            case Box(a=1):
                return "box"
            case _:
                return "other"

    subjects = [0, 500, 50, Point(0, 2), Point(3, 4), {"empty": None}, [1, [2, 3]], "s"]
    subjects += [{"kind": "k", "rest": (1, 2, 3), "m": 4}, Box(a=1), Box(b=1), [1, 2]]
    return [match(subject) for subject in subjects]


def imports():
    import os.path
    import os.path as path
    from collections import OrderedDict
    from collections import namedtuple as tuples

    return os.path is path, OrderedDict(a=1), tuples.__name__


def bad_import():
    from collections import nothing_of_that_name

    return nothing_of_that_name


def supers():
    class Local(Derived):
        kind = "local"

        def name(self, suffix=""):
            return super().name(suffix) + self.kind + str(__class__ is Local)

    return Derived().name("?"), Local().name()


def frames():
    inside = 5
    assert inside
    return sorted(locals()), [sorted(locals()) for _ in range(1)] != []


def decorated():
    @shout("a")
    @shout("b")
    def word(text="w", *, end="."):
        return text + end

    return word(), word("x", end="!"), word.__name__


def asserts():
    value = [1]
    assert value, "never built: " + str(1 / 0)
    assert len(value) > 1, f"too short: {value}"


def raises_deep():
    def level(depth):
        if depth:
            return level(
                depth - 1,
            )
        return [1, 2][
            depth + 5
        ]

    return level(3)


def missing_attribute():
    return Box(a=1).missing


def wrong_calls():
    seen = []
    for call in (
        lambda: Box.method(*5),
        lambda: Box().method(**5),
        lambda: Box().method(x=1, **{"x": 2}),
        lambda: len(1, 2),
        lambda: shout(),
        lambda: PAIRS(),
        lambda: [*5],
        lambda: {**5},
    ):
        try:
            seen.append(call())
        except TypeError as error:
            seen.append(str(error))
    return seen


def nested():
    table = {"a": [{"b": (1, 2, [3, {"c": 4}])}]}
    table["a"][0]["b"][2][1]["c"] += len(str(max(min(abs(-3), 5), 2)))
    return ((((table["a"][0]))["b"][2])[1]["c"]), [[[[]]]], (lambda: (lambda: table)())() is table


def many_constants():
    total = 0
    for _ in range(2):
        total += COUNTER + len(PAIRS) + len(PAIRS) + len(PAIRS) + len(PAIRS) + len(PAIRS)
        total += len(PAIRS) * len(PAIRS) * len(PAIRS) * len(PAIRS) * len(PAIRS) * len(PAIRS)
        total += sum([len(PAIRS), len(PAIRS), len(PAIRS), len(PAIRS), len(PAIRS), len(PAIRS)])
        total += sum([len(PAIRS), len(PAIRS), len(PAIRS), len(PAIRS), len(PAIRS), len(PAIRS)])
        total += sum([len(PAIRS), len(PAIRS), len(PAIRS), len(PAIRS), len(PAIRS), len(PAIRS)])
        total += sum([len(PAIRS), len(PAIRS), len(PAIRS), len(PAIRS), len(PAIRS), len(PAIRS)])
        total += sum([len(PAIRS), len(PAIRS), len(PAIRS), len(PAIRS), len(PAIRS), len(PAIRS)])
        total += sum([len(PAIRS), len(PAIRS), len(PAIRS), len(PAIRS), len(PAIRS), len(PAIRS)])
        total += sum([len(PAIRS), len(PAIRS), len(PAIRS), len(PAIRS), len(PAIRS), len(PAIRS)])
        total += sum([len(PAIRS), len(PAIRS), len(PAIRS), len(PAIRS), len(PAIRS), len(PAIRS)])
    return total


def functions_of(names):
    """The functions without parameters that a namespace defines."""
    return [
        value
        for value in names.values()
        if type(value) is FunctionType
        and value.__module__ == names["__name__"]
        and not value.__code__.co_argcount
        and not value.__closure__
    ]


FUNCTIONS = functions_of(dict(globals())) + functions_of(vars(instrument_scopes))
