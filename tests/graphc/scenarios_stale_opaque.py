"""(4) State that is not looked into: slots, queues, views, arrays, weak references, names."""

from __future__ import annotations

import array
import collections
import ctypes
import operator
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.graphc.stale_scenario import Box, stale

FACTOR = 2.0


class Thin:
    __slots__ = ("h", "k")


class Own(collections.UserDict):
    pass


def between(torch: Any, compile: Any, function: Any, *changes: Callable[[], Any]) -> list[Any]:
    """The function's results before and after each change, two calls each."""
    c = compile(function)
    out = [c(torch.ones(3)), c(torch.ones(3))]
    for change in changes:
        change()
        out += [c(torch.ones(3)), c(torch.ones(3))]
    return out


def setter(holder: Any, name: str, value: Any) -> Callable[[], Any]:
    """A change that sets an attribute."""
    return lambda: setattr(holder, name, value)


@stale
def slots_read(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    s = Thin()
    s.k = 2.0
    return between(
        torch, compile, lambda x: x * s.k,
        setter(s, "k", 3.0), setter(s, "k", torch.ones(3)), setter(s, "k", 5),
    )


@stale
def slots_written(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    s = Thin()
    s.h, s.k = None, 0

    def f(x):
        s.k += 1
        s.h = x if s.h is None else s.h + x
        return s.h * s.k

    return [*between(torch, compile, f, setter(s, "k", 10), setter(s, "h", None)), s.h, s.k]


@stale
def deque_read_and_written(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    q = collections.deque([1.0], maxlen=3)
    r: Any = collections.deque(maxlen=2)

    def f(x):
        r.append(x * q[0])
        return sum(r) + len(q)

    return between(torch, compile, f, lambda: q.appendleft(5.0), lambda: r.clear())


@stale
def mappings(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    user, under, high = Own(k=2.0), {"a": 1.0}, {}
    chain, proxy = collections.ChainMap(high, under), types.MappingProxyType(under)
    return between(
        torch, compile, lambda x: x * user["k"] + chain["a"] + proxy["a"] + len(user),
        lambda: user.update(k=5.0), lambda: high.update(a=7.0), lambda: under.update(a=3.0),
    )


@stale
def mappings_written(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    user, chain = Own(n=0), collections.ChainMap({}, {"n": 0})

    def f(x):
        user["n"] += 1
        chain["n"] += 2
        user["t"] = x * user["n"]
        return user["t"] + chain["n"]

    return [*between(torch, compile, f, lambda: user.update(n=10)), dict(user), dict(chain)]


@stale
def buffers_of_bytes(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    b, a, n = bytearray(b"ab"), array.array("d", [2.0]), ctypes.c_int(3)
    return between(
        torch, compile, lambda x: x * b[0] + a[0] + n.value,
        lambda: b.__setitem__(0, 1), lambda: a.__setitem__(0, 9.0), setter(n, "value", 7),
    )


@stale
def buffers_of_bytes_written(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    b, a, n = bytearray(1), array.array("d", [0.0]), ctypes.c_int(0)

    def f(x):
        b[0] += 1
        a[0] += 2
        n.value += 3
        return x * b[0] + a[0] + n.value

    return between(torch, compile, f, setter(n, "value", 100))


@stale
def weak_references(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    holder = [Box(k=2.0)]
    weak = weakref.ref(holder[0])
    return between(
        torch, compile, lambda x: x * (weak().k if weak() is not None else 100),
        lambda: setattr(holder[0], "k", 5.0), lambda: holder.clear(),
    )


@stale
def views_of_a_dict(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    d = {"a": 1.0, "b": 2.0}
    values, keys = d.values(), d.keys()
    return between(
        torch, compile, lambda x: x * sum(values) + ("z" in keys),
        lambda: d.update(a=5.0), lambda: d.update(z=1.0),
    )


@stale
def bound_builtin_method(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    log: list[Any] = []
    append = log.append

    def f(x):
        append(len(log))
        return x * len(log)

    return [*between(torch, compile, f, lambda: log.clear()), log]


@stale
def arrays_large_and_of_objects(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    large, objects = np.zeros(1 << 18), np.array([2.0, None], dtype=object)
    return between(
        torch, compile, lambda x: x * objects[0] + float(large[7]),
        lambda: large.__setitem__(7, 3.0), lambda: objects.__setitem__(0, 9.0),
    )


@stale
def arrays_written(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    large, objects = np.zeros(1 << 18), np.array([0, None], dtype=object)

    def f(x):
        large[3] += 1
        objects[0] += 2
        return x * float(large[3]) + objects[0]

    return between(torch, compile, f, lambda: large.__setitem__(3, 50.0))


@stale
def attributes_of_tensors(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    w = torch.ones(3)
    w.scale = 2.0
    p = nn.Parameter(torch.ones(3))
    p.decay = True
    return between(
        torch, compile, lambda x: x * w * w.scale + (p if p.decay else 0),
        setter(w, "scale", 5.0), setter(p, "decay", False), setter(w, "scale", torch.ones(3)),
    )


@stale
def hasattr_and_dir(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    s = Box(a=1.0)
    return between(
        torch, compile,
        lambda x: x * (2 if hasattr(s, "k") else 3) + len(vars(s)) + getattr(s, "z", 0),
        setter(s, "k", 1), lambda: delattr(s, "k"), setter(s, "z", 7.0),
    )


@stale
def format_of_attributes(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    s = Box(k=2)
    return between(
        torch, compile, lambda x: x * int(f"{s.k}") + len(f"{s.k}"), setter(s, "k", 30)
    )


@stale
def methodcaller_and_getters(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    class Caller:
        k = 2.0

        def scale(self, v):
            return v * self.k

    c, s = Caller(), Box(a=Box(k=1.0), d={"k": 2.0})
    call, get, item = (
        operator.methodcaller("scale", 3.0), operator.attrgetter("a.k"), operator.itemgetter("k")
    )
    return between(
        torch, compile, lambda x: x * call(c) + get(s) + item(s.d),
        setter(c, "k", 5.0), setter(s.a, "k", 9.0), lambda: s.d.update(k=7.0),
    )


@stale
def globals_by_name(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    space = globals()
    space["FACTOR"] = 2.0
    try:
        return between(
            torch, compile, lambda x: x * globals()["FACTOR"], lambda: space.update(FACTOR=5.0)
        )
    finally:
        space["FACTOR"] = 2.0


@stale
def iterators(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def numbers():
        n = 0
        while True:
            n += 1
            yield n

    stream, items = numbers(), iter(range(100))
    return between(
        torch, compile, lambda x: x * next(stream) + next(items), lambda: next(stream)
    )


@stale
def attributes_that_compute(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    class Meta(type):
        k = 2.0

    class Hooked(metaclass=Meta):
        def __init__(self):
            self.inner = {"a": 3.0}

        def __getattr__(self, name):
            return self.__dict__["inner"][name]

    s = Hooked()
    return between(
        torch, compile, lambda x: x * Hooked.k + s.a,
        setter(Meta, "k", 5.0), lambda: s.inner.update(a=7.0), setter(s, "a", 1.0),
    )


@stale
def weak_reference_dies_after_segments(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    class Target:
        k = 2.0

    state = Box(target=Target())
    weak = weakref.ref(state.target)

    def f(x):
        found = weak()
        y = x * (found.k if found is not None else 100)
        return y, nn.Parameter(torch.ones(2))  # which one graph cannot make again

    c = compile(f)
    out = [c(torch.ones(3))]
    state.target = None
    return [*out, weak() is None, c(torch.ones(3))]


@stale
def weak_references_to_tensors(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """The compiled function keeps alive neither a tensor nor an array that is held elsewhere."""
    out = []
    for target in (torch.ones(2), np.ones(2, np.float32)):
        holder = [target]
        del target
        weak = weakref.ref(holder[0])
        c = compile(lambda x, weak=weak: x * (5 if weak() is None else torch.as_tensor(weak())))
        out += [c(torch.ones(2)), c(torch.ones(2))]
        holder[0] += 1
        out.append(c(torch.ones(2)))
        holder.clear()
        out += [c(torch.ones(2)), weak() is None]
    return out
