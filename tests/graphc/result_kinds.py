"""Functions whose results are objects of many kinds, for test_results.py."""

from __future__ import annotations

import dataclasses
import functools
import threading
import types
import typing
from collections import Counter, OrderedDict, UserDict, UserList, defaultdict, deque, namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np


@dataclasses.dataclass
class Base(OrderedDict[str, Any]):
    """What a model gives: a dict of the fields that are set, and a tuple by number.

    The pattern of Hugging Face's ModelOutput (transformers/utils/generic.py).
    """

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if getattr(self, field.name) is not None:
                OrderedDict.__setitem__(self, field.name, getattr(self, field.name))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return dict(self.items())[key]
        return self.to_tuple()[key]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.keys() and value is not None:
            super().__setitem__(name, value)
        super().__setattr__(name, value)

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def __reduce__(self) -> Any:
        return type(self), tuple(getattr(self, f.name) for f in dataclasses.fields(self))

    def to_tuple(self) -> tuple[Any, ...]:
        return tuple(self[name] for name in self.keys())


@dataclasses.dataclass
class Classified(Base):
    loss: Any = None
    logits: Any = None
    states: Any = None


@dataclasses.dataclass
class Plain:
    a: Any
    b: Any = None
    made: Any = dataclasses.field(init=False, default=7)
    scale: dataclasses.InitVar[float] = 2.0

    def __post_init__(self, scale: float) -> None:
        self.made = self.a * scale


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: Any
    b: Any = 3


@dataclasses.dataclass(slots=True)
class Slotted:
    a: Any
    b: Any = dataclasses.field(default_factory=list)


class Thing:
    def __init__(self, *parts: Any, **named: Any) -> None:
        self.parts = parts
        self.__dict__.update(named)

    def twice(self) -> Any:
        return self.parts[0] * 2


class Slots:
    __slots__ = ("__secret", "a", "b")

    def __init__(self, a: Any) -> None:
        self.a = self.__secret = a

    def secret(self) -> Any:
        return self.__secret


class Both(Slots):
    def __init__(self, a: Any) -> None:
        super().__init__(a)
        self.c = a * 3


class Named(typing.NamedTuple):
    a: Any
    b: Any = 5

    def total(self) -> Any:
        return self.a + self.b


class Pair(namedtuple("Pair", "left right")):
    def swapped(self) -> Any:
        return Pair(self.right, self.left)


class Config(dict[str, Any]):
    def __init__(self, first: Any, **rest: Any) -> None:
        super().__init__(first=first, **rest)
        self.first = first


class Stack(list[Any]):
    def __init__(self, top: Any) -> None:
        super().__init__([top])
        self.top = top


class Odd:
    """Its __new__ keeps count of what it has made."""

    made = 0

    def __new__(cls, a: Any) -> Any:
        found = object.__new__(cls)
        found.number = 3
        return found

    def __init__(self, a: Any) -> None:
        self.a = a


class Generic(typing.Generic[typing.TypeVar("T")]):
    def __init__(self, a: Any) -> None:
        self.a = a


WHOLE: dict[str, Callable[[Any, Any], Any]] = {}
SEGMENTS: dict[str, Callable[[Any, Any], Any]] = {}


def whole(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Register a function of (torch, x) that one graph can do at each call."""
    WHOLE[function.__name__] = function
    return function


def segments(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Register one whose Python has to run at each call."""
    SEGMENTS[function.__name__] = function
    return function


LIMITS = [1, 2]
KEPT = Thing(1, name="kept")


@whole
def model_output(torch: Any, x: Any) -> Any:
    out = Classified(loss=x.sum(), logits=x * 2)
    out["states"] = (x, x + 1)
    return out


@whole
def model_output_in_a_dict(torch: Any, x: Any) -> Any:
    out = Classified(logits=x * 2)
    return {"first": out, "again": out, "logits": out.logits}


@whole
def dataclasses_of_every_sort(torch: Any, x: Any) -> Any:
    return Plain(x, x + 1), Frozen(x * 2), Slotted(x * 3), [Frozen(Slotted(x))]


@whole
def objects(torch: Any, x: Any) -> Any:
    return Thing(x * 2, other=x + 1, text="text"), Slots(x * 2), Both(x * 2), Generic(x - 1)


@whole
def namespaces(torch: Any, x: Any) -> Any:
    return types.SimpleNamespace(a=x * 2, inner=types.SimpleNamespace(b=[x + 1]))


@whole
def collections_of_every_sort(torch: Any, x: Any) -> Any:
    groups = defaultdict(list, a=[x * 2])
    return (
        deque([x * 2, 3], maxlen=3), UserDict(a=x + 1), UserList([x * 4]), groups,
        OrderedDict(b=x - 1, a=x - 2), Counter("abca"), types.MappingProxyType({"a": x * 3}),
    )


@whole
def values(torch: Any, x: Any) -> Any:
    """Nobody can tell one of these from another."""
    return x * 2, np.dtype("f4"), np.float32(3), range(2), list[int], Ellipsis, np, len


@whole
def sets(torch: Any, x: Any) -> Any:
    return {1, "a"}, frozenset([2, 3]), {x * 2}, frozenset([x * 3])


@whole
def tuples_with_names(torch: Any, x: Any) -> Any:
    return Named(x * 2), Pair(x + 1, right=3).swapped(), x.max(0), x.shape


@whole
def containers_with_constructors(torch: Any, x: Any) -> Any:
    return Config(x * 2, other=[x]), Stack(x + 1)


@whole
def partials_and_methods(torch: Any, x: Any) -> Any:
    partials = functools.partial(torch.add, x * 2, 1), functools.partial(max, 3, key=abs)
    return *partials, Thing(x).twice


@whole
def slices(torch: Any, x: Any) -> Any:
    return slice(0, 2), slice(None), range(3), Ellipsis


@whole
def without_tensors(torch: Any, x: Any) -> Any:
    return [1, 2], {}, {"a": [3]}, set(), deque(), bytearray(b"ab"), Thing(1), np.arange(3)


@whole
def the_same_twice(torch: Any, x: Any) -> Any:
    shared = [x * 2]
    return [shared, shared, {"again": shared, "tensor": shared[0]}]


@whole
def an_object_that_holds_itself(torch: Any, x: Any) -> Any:
    found = Thing(x * 2)
    found.me = found
    ring = [x + 1]
    ring.append((ring, found))
    return found, ring


@whole
def what_was_there_before(torch: Any, x: Any) -> Any:
    return LIMITS, KEPT, [LIMITS, x * 2], Thing, len, dataclasses


@whole
def arguments(torch: Any, x: Any) -> Any:
    y = x * 2
    return x, [x, y, y], y.t() if y.ndim == 2 else y[:2]


@whole
def distributions(torch: Any, x: Any) -> Any:
    found = torch.distributions.Normal(x * 2, 2.0, validate_args=False)
    return [found][0].scale, Thing(found).parts[0].mean


@whole
def a_packed_sequence(torch: Any, x: Any) -> Any:
    rows = x.reshape(2, 2, 1)
    return torch.nn.utils.rnn.pack_padded_sequence(rows, [2, 1], batch_first=True)


@segments
def a_tensor_on_numpys_memory(torch: Any, x: Any) -> Any:
    return torch.from_numpy(np.zeros(2)), x * 2


@segments
def generator(torch: Any, x: Any) -> Any:
    y = x * 2
    return (y * k for k in range(3))


@segments
def iterators(torch: Any, x: Any) -> Any:
    return iter([x * 2, x]), zip([1], [x], strict=True), map(abs, [x - 5]), enumerate([x])


@whole
def functions(torch: Any, x: Any) -> Any:
    y = x * 2
    return lambda: y + 1


@whole
def functions_in_objects(torch: Any, x: Any) -> Any:
    y = x * 2
    return Thing(3, call=lambda: y + 1)


@whole
def a_partial_of_a_local_function(torch: Any, x: Any) -> Any:
    def add(a: Any, b: Any) -> Any:
        return a + b

    return functools.partial(add, x * 2, 1)


@segments
def a_lock(torch: Any, x: Any) -> Any:
    return threading.Lock(), x * 2


@whole
def a_modules_state(torch: Any, x: Any) -> Any:
    found = torch.nn.Linear(2, 2)
    with torch.no_grad():
        found.weight.fill_(1.0)
        found.bias.fill_(2.0)
    return found.state_dict(), x * 2


@segments
def parameters(torch: Any, x: Any) -> Any:
    return torch.nn.Parameter(x * 2), {"p": torch.nn.Parameter(torch.ones(2))}


@segments
def a_leaf(torch: Any, x: Any) -> Any:
    return torch.zeros(2, requires_grad=True), (x * 2).requires_grad_()


@segments
def a_tensor_with_an_attribute(torch: Any, x: Any) -> Any:
    y = x * 2
    y.tag = "mine"
    return y, y.tag


@segments
def a_leaf_with_its_gradient(torch: Any, x: Any) -> Any:
    w = (x * 2).requires_grad_()
    (w * w).sum().backward()
    return w, w.grad


@segments
def odd_construction(torch: Any, x: Any) -> Any:
    return Odd(x * 2)


@whole
def an_exception(torch: Any, x: Any) -> Any:
    return ValueError("text", x * 2)
