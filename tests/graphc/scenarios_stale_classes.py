"""What classes, bases, descriptors and the functions that they lead to hold between calls."""

from __future__ import annotations

import abc
import collections
import functools
import itertools
import operator
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.graphc.stale_scenario import Box, attempt, stale, whole


def series(torch: Any, c: Any, change: Callable[[int], None], count: int = 4) -> list[Any]:
    """Results of some calls, with a change before each."""
    out = []
    for i in range(count):
        change(i)
        out.append(attempt(c, torch.arange(3.0) + i))
    return out


def counted() -> tuple[Box, Callable[..., float]]:
    """A place of state, and a function that reads and counts there; it is reached in many ways."""
    state = Box(k=1.0, n=0)

    def read(*_arguments: Any) -> float:
        state.n += 1
        return state.k

    return state, read


def reached(torch: Any, compile: Any, state: Box, f: Callable[[Any], Any]) -> list[Any]:
    """Calls of a function that reaches `read` of counted(), its number changed between."""
    out: list[Any] = []
    c = compile(f)
    for i in range(4):
        state.k = i + 1.0
        out += [c(torch.arange(3.0)), state.n]
    return out


@stale
def methods_of_bases_replaced(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    class Root:
        k = 2.0

        def m(self, x):
            return x * self.k

        @classmethod
        def c(cls):
            return cls.k

        @property
        def p(self):
            return self.k * 3

    class Middle(Root):
        pass

    class Leaf(Middle):
        def m(self, x):
            return super().m(x) + 1

        @classmethod
        def c(cls):
            return super().c() + 0.5

        @property
        def p(self):
            return super().p + super().k

    leaf = Leaf()

    def change(i):
        if i == 1:
            Root.m = lambda self, x: x - 50
        elif i == 2:
            Middle.m = lambda self, x: x * 9  # one that was not there
        elif i == 3:
            Root.k = 4.0
        elif i == 4:
            Root.p = property(lambda self: 1.0)
        elif i == 5:
            Root.c = classmethod(lambda cls: 8.0)

    return series(torch, compile(lambda x: leaf.m(x) + leaf.c() + leaf.p), change, 6)


@stale
def forward_of_a_base_module_replaced(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    class Root(nn.Module):
        def forward(self, x):
            return x * 2

    class Leaf(Root):
        def forward(self, x):
            return super().forward(x) + 1

    def change(i):
        if i == 2:
            Root.forward = lambda self, x: x - 7

    return series(torch, compile(Leaf()), change)


@stale
def bases_replaced(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    class One:
        def m(self, x):
            return x * 2

    class Two:
        def m(self, x):
            return x * 7

    class Leaf(One):
        pass

    leaf = Leaf()

    def change(i):
        if i == 2:
            Leaf.__bases__ = (Two,)

    return series(torch, compile(lambda x: leaf.m(x)), change)


@stale
def registered_with_an_abstract_class(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    class Shape(abc.ABC):
        @abc.abstractmethod
        def area(self):
            """The area."""

    class Round:
        pass

    item = Round()

    def change(i):
        if i == 2:
            Shape.register(Round)

    def f(x):
        return x * (2 if isinstance(item, Shape) else 3) + issubclass(Round, Shape)

    return series(torch, compile(f), change)


@stale
def match_args_replaced(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    class Pair:
        __match_args__ = ("a",)

        def __init__(self):
            self.a, self.b = 2.0, 5.0

    pair = Pair()

    def f(x):
        match pair:
            case Pair(k):
                return x * k

    def change(i):
        if i == 2:
            Pair.__match_args__ = ("b",)

    return series(torch, compile(f), change)


@stale
def lists_of_a_class_renewed(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    class Store:
        held = [torch.ones(3), torch.zeros(3)]

    def f(x):
        Store.held = [h * 0.5 + x for h in Store.held]
        return sum(Store.held)

    c = compile(f)
    out: list[Any] = []
    for i in range(4):
        out += [c(torch.arange(3.0) + i), list(Store.held)]
    return out


# --- ways to a function of the user's, whose own reads and writes count like all others ----------


@stale
def reached_by_class_members(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    state, read = counted()

    class Meta(type):
        of_kind = property(read)

    class Holder(metaclass=Meta):
        p = property(read)
        c = classmethod(read)
        s = staticmethod(read)
        m = read
        q = functools.partialmethod(read, 1)

    holder = Holder()
    bound = holder.m
    return reached(torch, compile, state, lambda x: (
        x * holder.p + Holder.c() + holder.s() + bound() + holder.q() + Holder.of_kind
    ))


@stale
def reached_by_other_ways(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    state, read = counted()
    module = types.ModuleType("late")
    vars(module)["__getattr__"] = read
    inner = compile(lambda x: x * read())
    missing = collections.defaultdict(read)

    def f(x):
        return inner(x) + module.anything + missing[state.n]

    return reached(torch, compile, state, f)


@stale
def reached_by_a_custom_function(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    state, read = counted()

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.k = read()
            return x * ctx.k

        @staticmethod
        def backward(ctx, g):
            return g * ctx.k * read()

    def f(x):
        leaf = x.clone().requires_grad_()
        y = Scaled.apply(leaf)
        y.sum().backward()
        return y.detach(), leaf.grad

    out = reached(torch, compile, state, f)
    Scaled.backward = staticmethod(lambda ctx, g: g * 100)
    return [out, reached(torch, compile, state, f)]


@stale
def saved_tensors_hooks_counted(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    state, read = counted()

    def f(x):
        leaf = x.clone().requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t * read(), lambda t: t):
            y = (leaf * leaf).sum()
        y.backward()
        return leaf.grad

    return reached(torch, compile, state, f)


# --- containers and C functions ------------------------------------------------------------------


@stale
def bound_methods_of_containers(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    table, numbers = {"a": 1.0}, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    get, pop = table.get, numbers.pop

    def change(i):
        if i == 1:
            table["a"] = 2.0
        elif i == 2:
            table["b"] = 3.0
        elif i == 3:
            del table["a"]

    return series(torch, compile(lambda x: x * get("a", 7.0) + get("b", 0) + pop()), change)


@stale
def default_factory_replaced(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    state, read = counted()
    table = collections.defaultdict(read)
    out: list[Any] = []

    def f(x):
        return x * table["a"]

    c = compile(f)
    for i in range(5):
        state.k = i + 1.0
        table.clear()
        if i == 3:
            table.default_factory = lambda: 50.0
        out += [c(torch.ones(3)), dict(table), state.n]
    return out


@stale
def order_of_an_ordered_dict(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    table = collections.OrderedDict(a=1.0, b=2.0)
    recent: collections.OrderedDict[Any, Any] = collections.OrderedDict()
    out: list[Any] = []

    def f(x):
        recent[x.shape[0]] = x * 2
        recent.move_to_end(x.shape[0])
        if len(recent) > 2:
            recent.popitem(last=False)
        total = 0.0
        for key in table:
            total = total * 10 + table[key]
        return x * next(iter(table.values())) + total

    c = compile(f)
    for i, rows in enumerate((3, 4, 3, 5, 4)):
        if i == 2:
            table.move_to_end("a")
        out += [c(torch.arange(float(rows))), list(recent), list(recent.values())]
    return out


@stale
def methodcaller_with_keywords(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    class Holder:
        k = 1.0

        def m(self, a, b=1):
            return self.k * a + b

    holder = Holder()
    caller = operator.methodcaller("m", 2, b=3)
    return series(
        torch, compile(lambda x: x * caller(holder)), lambda i: setattr(holder, "k", i + 1.0)
    )


@stale
def what_c_functions_iterate_over(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    class Value:
        """It is called, indexed and compared; it is no iterable."""

        def __init__(self, a):
            self.a = a

        def __call__(self):
            return self.a

        def __getitem__(self, i):
            return self.a * i

        def __lt__(self, other):
            return self.a < other.a

    class Turned:
        def __iter__(self):
            return iter([100.0])

        def __reversed__(self):
            return iter([values[0].a])

    values, turned = [Value(3.0), Value(1.0)], Turned()

    def f(x):
        total = functools.reduce(lambda a, b: a + b.a, values, 0.0)
        kept = [value for value, _ in zip(itertools.repeat(values[0]), range(2), strict=False)]
        same = kept[0] is values[0]
        total += min(values[0], values[1]).a * max(values).a + next(reversed(turned))
        return x * total, same

    def change(i):
        values[i % 2].a += i

    return series(torch, compile(f), change)


@stale
def settings_read_inside(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    was = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()

    def change(i):
        torch.use_deterministic_algorithms(i % 2 == 1)
        torch.set_num_threads(1 + i % 2)

    def f(x):
        flag = torch.are_deterministic_algorithms_enabled()
        return x * (2 if flag else 3) + torch.get_num_threads()

    try:
        return series(torch, compile(f), change)
    finally:
        torch.use_deterministic_algorithms(was[0])
        torch.set_num_threads(was[1])


@stale
def memory_of_an_array_shared_and_written(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    array = np.zeros(3)
    out: list[Any] = []

    def f(x):
        part = array[:2]
        shared = torch.from_numpy(part[:1])
        part[0] += 1
        array[2] = array[0] * 2
        return x * shared.float() + torch.from_numpy(array).sum().float()

    c = compile(f)
    for i in range(4):
        out += [c(torch.arange(3.0) + i), array.tolist()]
    return out


@stale
def partials_that_a_class_holds(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """They get no self; Python 3.13 says at each use that a later one will pass it."""

    class Net(nn.Module):
        act = functools.partial(torch.mul, torch.tensor(2.0))
        __call__ = functools.partial(max, 3)

    net, out = Net(), []

    def f(x):
        return net.act(x) + net(1)

    c = compile(f)
    for i in range(4):
        if i == 2:
            Net.act = functools.partial(torch.mul, torch.tensor(5.0))
        if i == 3:
            Net.__call__ = functools.partial(max, 7)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            out += [c(torch.arange(3.0) + i), len(said)]
        out += [found for each in said for found in (str(each.message), each.lineno)]
    whole(c, 3)
    return out


@stale
def classes_of_modules_exchanged(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """`module.__class__ = ...`, as packages do that put their layers in the place of others."""
    class Doubled(nn.Linear):  # type: ignore[name-defined]
        def forward(self, x):
            return super().forward(x) * 2

    torch.manual_seed(3)
    m = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    kinds = (Doubled, nn.Linear, Doubled)

    def change(i: int) -> None:
        if i:
            m[0].__class__ = kinds[i - 1]

    c = compile(m)
    out = series(torch, c, change)
    with torch.no_grad():
        m[1].__class__ = nn.Sigmoid
        return [*out, c(torch.arange(3.0)), c(torch.arange(3.0))]
