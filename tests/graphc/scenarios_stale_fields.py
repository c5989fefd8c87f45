"""What objects of C code say of themselves, where that changes between the calls."""

from __future__ import annotations

import collections
import decimal
import enum
import functools
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.graphc.stale_scenario import Box, stale, whole


def read(torch: Any, compile: Any, f: Callable[[], Any], change: Callable[[int], Any]) -> list[Any]:
    """A product with what `f` gives, at three calls with a change after each."""
    c = compile(lambda x: x * f())
    out = []
    for i in range(3):
        out.append(c(torch.arange(3.0)))
        change(i)
    whole(c)
    return out


@stale
def names_of_classes(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    class Base:
        pass

    class Other:
        pass

    class Next(Base):
        pass

    it, made = Next(), []

    def longer(i: int) -> None:
        Next.__name__ = Next.__qualname__ = "N" * (i + 2)

    def bases(i: int) -> None:
        Next.__bases__ = (Base, Other) if i % 2 == 0 else (Base,)

    def under(i: int) -> None:
        made.append(type("Made", (Base,), {}))

    return [
        read(torch, compile, lambda: len(type(it).__name__), longer),
        read(torch, compile, lambda: len(Next.__qualname__), longer),
        read(torch, compile, lambda: len(f"{Next}"), longer),
        read(torch, compile, lambda: len(Next.__mro__) + len(Next.mro()), bases),
        read(torch, compile, lambda: len(Next.__bases__), bases),
        read(torch, compile, lambda: len(Base.__subclasses__()), under),
        read(torch, compile, lambda: len(type.__subclasses__(Base)), under),
    ]


@stale
def called_or_not(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    class Kind:
        pass

    it = Kind()

    def change(i: int) -> None:
        Kind.__call__ = lambda self: 1

    return read(torch, compile, lambda: 2 if callable(it) else 3, change)


@stale
def classes_written_past_their_metaclass(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    class Kind:
        v = 0

    def step(x):
        type.__setattr__(Kind, "v", Kind.v + 1)
        return x * Kind.v

    def drop(x):
        type.__delattr__(Kind, "v")
        return x + 1

    out = []
    c, d = compile(step), compile(drop)
    for i in range(3):
        out += [c(torch.arange(3.0)), Kind.v]
        Kind.v += i
    for _ in range(2):
        out += [d(torch.arange(3.0)), hasattr(Kind, "v")]
        Kind.v = 5
    return out


@stale
def attributes_of_functions_in_c(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    @functools.lru_cache
    def cached(v):
        return v

    inner = cached.__wrapped__
    cached.scale = 2
    part = functools.partial(max, 2)
    part.scale = 2

    class Owner:
        def method(self):
            return 1

    Owner.method.scale = 2
    it, kept = Owner(), Owner().method

    def scales(i: int) -> None:
        cached.scale += 1
        part.scale += 1
        Owner.method.scale += 1

    def codes(i: int) -> None:
        inner.__code__ = (lambda v, i=i: v * i).__code__
        inner.__defaults__ = (i,)

    def parts(i: int) -> None:
        part.__setstate__((min, (i,), {}, {}))

    def named(i: int) -> None:
        Owner.method.__name__ = "m" * (i + 1)

    return [
        read(torch, compile, lambda: cached.scale + part.scale, scales),
        read(torch, compile, lambda: it.method.scale + kept.scale, scales),
        read(torch, compile, lambda: len(kept.__name__), named),
        read(torch, compile, lambda: part(5), parts),
        read(torch, compile, lambda: part.func(5, part.args[0]), parts),
        read(torch, compile, lambda: cached.__wrapped__(3), codes),
    ]


@stale
def members_of_enumerations(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    class Mode(enum.Enum):
        A = 1
        B = 2

        def factor(self):
            return self.value

        @property
        def half(self):
            return self.extra / 2

    Mode.A.extra = 2

    def extra(i: int) -> None:
        Mode.A.extra += 1

    def value(i: int) -> None:
        Mode.A._value_ += 1

    def method(i: int) -> None:
        Mode.factor = lambda self: i + 4

    return [
        read(torch, compile, lambda: Mode.A.extra + Mode.A.half, extra),
        read(torch, compile, lambda: Mode.A.value * len(Mode.A.name), value),
        read(torch, compile, lambda: Mode.A.factor(), method),
        read(torch, compile, lambda: 2 if "A" in Mode.__members__ else 3, method),
    ]


@stale
def exceptions_of_before(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    error = ValueError("a")

    def change(i: int) -> None:
        error.args = ("a" * (i + 2),)
        error.__cause__ = ValueError()

    return [
        read(torch, compile, lambda: len(error.args[0]) + len(str(error)), change),
        read(torch, compile, lambda: len(repr(error)), change),
        read(torch, compile, lambda: 2 if error.__cause__ is None else 3, change),
    ]


@stale
def what_containers_say(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    queue, table = collections.deque([1], 3), collections.defaultdict(int)
    spaces = types.SimpleNamespace(a=1), types.SimpleNamespace(a=1)

    def longest(i: int) -> None:
        queue.__init__([1], 4 + i)

    def factory(i: int) -> None:
        table.default_factory = float

    def space(i: int) -> None:
        spaces[0].a += 10

    return [
        read(torch, compile, lambda: queue.maxlen, longest),
        read(torch, compile, lambda: 2 if table.default_factory is int else 3, factory),
        read(torch, compile, lambda: 2 if spaces[0] == spaces[1] else 3, space),
        read(torch, compile, lambda: len(repr(spaces[0])), space),
    ]


@stale
def what_arrays_say(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    array = np.ones((4, 2))
    owner = np.ones((2, 2))
    part = owner[0]
    record = np.zeros(2, [("a", "f4")])
    space = Box(record=record[0])

    def put(array: np.ndarray, name: str, value: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # NumPy 2.5's
            setattr(array, name, value)

    def shape(i: int) -> None:
        put(array, "shape", (2, 4) if i % 2 == 0 else (8, 1))

    def values(i: int) -> None:
        array[:] += 1
        owner[1, 0] += 1

    def kind(i: int) -> None:
        put(array, "dtype", ("i8", "f8")[i % 2])

    out = [
        read(torch, compile, lambda: array.shape[0] * 10 + array.ndim, shape),
        read(torch, compile, lambda: float(array.T[0, 0] + array.real[0, 0]), values),
        read(torch, compile, lambda: float(part.base[1, 0]), values),
        read(torch, compile, lambda: 2 if array.dtype == np.dtype("f8") else 3, kind),
    ]
    c = compile(lambda x: x * float(space.record["a"]))
    for i in range(3):
        record["a"][0] = i
        out.append(c(torch.arange(3.0)))
    return out


@stale
def namespaces_of_tensors(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    weight = torch.ones(3)
    weight.scale = 1

    def step(x):
        vars(weight)["scale"] += 1
        return x * weight.__dict__["scale"]

    def change(i: int) -> None:
        weight.scale += 5

    out = [read(torch, compile, lambda: weight.__dict__["scale"], change)]
    c = compile(step)
    for _ in range(3):
        out += [c(torch.arange(3.0)), weight.scale]
    return out


@stale
def settings_of_python(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    third = np.ones(2) / 3
    number = decimal.Decimal("1.23456")
    depth, places = sys.getrecursionlimit(), decimal.getcontext().prec

    def deeper(i: int) -> None:
        sys.setrecursionlimit(depth + i + 1)

    def rounded(i: int) -> None:
        decimal.getcontext().prec = 2 + i

    def printed(i: int) -> None:
        np.set_printoptions(precision=2 + i)

    try:
        return [
            read(torch, compile, lambda: sys.getrecursionlimit() - depth, deeper),
            read(torch, compile, lambda: float(number / 3) + float(+number), rounded),
            read(torch, compile, lambda: len(str(third)), printed),
        ]
    finally:
        sys.setrecursionlimit(depth)
        decimal.getcontext().prec = places
        np.set_printoptions(precision=8)


@stale
def settings_of_numpy(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    out = []
    c = compile(lambda x: x * len(np.geterr()["divide"]) * np.get_printoptions()["precision"])
    try:
        for i, kind in enumerate(("warn", "ignore", "raise")):
            np.seterr(divide=kind)
            np.set_printoptions(precision=4 + i)
            out.append(c(torch.arange(3.0)))
    finally:
        np.seterr(divide="warn")
        np.set_printoptions(precision=8)
    return out


@stale
def threads_of_compiled_code(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    before = torch.get_num_threads()
    c = compile(lambda x: x * torch.get_num_threads())

    def step(x):
        torch.set_num_threads(2)
        return x + 1

    d = compile(step)
    out = []
    try:
        for i in range(3):
            torch.set_num_threads(1 + i)
            out += [c(torch.arange(3.0)), d(torch.arange(3.0)), torch.get_num_threads()]
    finally:
        torch.set_num_threads(before)
    return out


@stale
def switches(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def state() -> list[Any]:
        return [
            torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda"),
            str(torch.get_autocast_dtype("cpu")), str(torch.get_autocast_dtype("cuda")),
            torch.is_autocast_cache_enabled(), str(torch.get_default_dtype()),
        ]

    def usual() -> None:
        for kind, dtype in (("cpu", torch.bfloat16), ("cuda", torch.float16)):
            torch.set_autocast_enabled(kind, False)
            torch.set_autocast_dtype(kind, dtype)
        torch.set_autocast_cache_enabled(True)
        torch.set_default_dtype(torch.float32)

    changes: list[Callable[[], Any]] = [
        lambda: torch.set_autocast_enabled("cpu", True),
        lambda: torch.set_autocast_cpu_enabled(True),
        lambda: torch.set_autocast_dtype("cuda", torch.bfloat16),
        lambda: torch.set_autocast_cpu_dtype(torch.float16),
        lambda: torch.set_autocast_gpu_dtype(torch.bfloat16),
        lambda: torch.set_autocast_cache_enabled(False),
        lambda: torch.set_default_dtype(torch.float64),
        lambda: torch.set_default_tensor_type(torch.DoubleTensor),
    ]
    out = []
    for change in changes:
        def step(x, change=change):
            change()
            return x + 1

        c = compile(step)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some of these are deprecated
            for _ in range(3):
                out.append(c(torch.arange(3.0)))
                out.append(state())
                usual()
    return out
