"""Scenarios: copies made inside of a compiled function, with changes to what they are made from."""

from __future__ import annotations

import collections
import copy
import copyreg
import dataclasses
import enum
import types
from typing import Any

from tests.graphc.stale_scenario import Box, stale, whole


class Slots:
    """An object without a __dict__."""

    __slots__ = ("absent", "value")


class Mode(enum.Enum):
    """Copies of a member are the member."""

    FAST = 1.0
    SLOW = 2.0


@dataclasses.dataclass
class Options:
    """A dataclass with a list of its own."""

    rate: float = 1.0
    sizes: list[float] = dataclasses.field(default_factory=lambda: [1.0, 2.0])


class Own:
    """Says itself how it is copied."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __copy__(self) -> Own:
        return Own(self.value * 5)

    def __deepcopy__(self, memo: dict[int, Any]) -> Own:
        made = Own(self.value * 2)
        memo[id(self)] = made
        return made


class Reduced:
    """Is made anew from arguments."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __reduce__(self) -> Any:
        return Reduced, (self.value + 1,)


class Stated:
    """Has a state that is not its __dict__, and may have none of its attributes plain."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name)

    def __getstate__(self) -> dict[str, float]:
        return {"kept": self.value}

    def __setstate__(self, state: dict[str, float]) -> None:
        self.value = state["kept"] + 1


class Items(list[float]):
    """A list with attributes."""

    scale = 1.0


def _called(torch: Any, compile: Any, f: Any, changes: list[Any]) -> list[Any]:
    """What f gives, twice and after each change, as one graph."""
    c, x = compile(f), torch.ones(2)
    found = [c(x), c(x)]
    for change in changes:
        change()
        found.append(c(x))
    whole(c, 1 + len(changes))
    return found


@stale
def deep_copies_of_a_configuration(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    config = Box(scale=2.0, sizes=[1, 2, {"a": 3}], sub=Slots(), mode=Mode.SLOW)
    config.sub.value, config.itself = 4.0, config

    def f(x):
        made = copy.deepcopy(config)
        made.scale += 1
        made.sizes.append(5)
        made.sizes[2]["a"] = 7
        own = (made.itself is made) * made.mode.value * (made.mode is config.mode)
        return x * made.scale * len(made.sizes) * made.sub.value * config.sizes[2]["a"] * own

    return _called(torch, compile, f, [
        lambda: vars(config).update(scale=5.0), lambda: config.sizes.append(3),
        lambda: setattr(config.sub, "value", 9.0), lambda: config.sizes[2].update(a=4),
        lambda: vars(config).update(mode=Mode.FAST),
    ])


@stale
def shallow_copies_share_what_they_hold(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    config, options = Box(scale=2.0, sizes=[1.0]), Options()

    def f(x):
        made, other = copy.copy(config), dataclasses.replace(options, rate=3.0)
        made.scale += 1
        deep = copy.deepcopy(options)
        deep.sizes.append(8.0)
        return x * made.scale * sum(made.sizes) * sum(other.sizes) * other.rate * sum(deep.sizes)

    return _called(torch, compile, f, [
        lambda: vars(config).update(scale=5.0), lambda: config.sizes.append(3.0),
        lambda: options.sizes.append(7.0),
    ])


@stale
def copies_of_containers(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    members, order = {1.0, 2.0}, collections.OrderedDict(a=1.0)
    lists, queue = collections.defaultdict(list, k=[1.0]), collections.deque([1.0, 2.0], 3)
    space, items = types.SimpleNamespace(v=1.0, inner=[1.0]), Items([1.0, 2.0])

    def of(copied: Any) -> Any:
        def f(x):
            a, b, c, d, e, g = copied((members, order, lists, queue, space, items))
            a.add(9.0)
            b["b"] = 2.0
            c["z"].append(4.0)
            d.append(1.0)
            g.append(3.0)
            total = sum(a) + sum(b.values()) + len(c) * 10 + sum(d) * d.maxlen
            return x * total * e.v * sum(e.inner) * sum(g) * g.scale

        return f

    changes = [
        lambda: members.add(3.0), lambda: order.update(k=3.0), lambda: lists["q"],
        lambda: queue.append(4.0), lambda: setattr(space, "v", 8.0),
        lambda: space.inner.append(2.0), lambda: setattr(items, "scale", 2.0),
    ]
    found = _called(torch, compile, of(copy.deepcopy), changes)
    return found + _called(torch, compile, of(lambda all_: [copy.copy(x) for x in all_]), changes)


@stale
def classes_say_how_they_are_copied(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    own, reduced, stated = Own(3.0), Reduced(3.0), Stated(3.0)

    def f(x):
        a, b = copy.deepcopy([own, own])
        value = a.value * (a is b) * copy.copy(own).value
        value *= copy.deepcopy(reduced).value * copy.copy(reduced).value
        return x * value * copy.deepcopy(stated).value * copy.copy(stated).value

    return _called(torch, compile, f, [
        lambda: setattr(own, "value", 2.0), lambda: setattr(reduced, "value", 1.0),
        lambda: setattr(stated, "value", 7.0),
    ])


@stale
def how_a_class_is_copied_changes(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    class Plain:
        value = 1.0

    plain = Plain()
    plain.value = 2.0

    def f(x):
        return x * copy.deepcopy(plain).value

    return _called(torch, compile, f, [
        lambda: copyreg.pickle(Plain, lambda obj: (Own, (obj.value + 3,))),
        lambda: copyreg.dispatch_table.pop(Plain),
        lambda: setattr(Plain, "__getstate__", lambda self: {"value": 9.0}),
        lambda: setattr(Plain, "__deepcopy__", lambda self, memo: Own(5.0)),
        lambda: setattr(plain, "__deepcopy__", lambda memo: Own(6.0)),
    ])


@stale
def a_memo_outlives_the_call(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    class Kept:
        memo: Any = None

        def __deepcopy__(self, memo):
            self.memo = memo
            return self

    kept, outside = Kept(), {}

    def f(x):
        copy.deepcopy([[1.0], kept])
        return x * len(kept.memo) + len(copy.deepcopy([x.shape], outside))

    c = compile(f)
    return [[c(torch.ones(2) * i), len(kept.memo), len(outside)] for i in range(3)]


@stale
def copies_of_modules_train_by_themselves(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 3, bias=False), nn.BatchNorm1d(3), nn.Linear(3, 2)).double()
    net.register_forward_hook(lambda module, given, result: result * 2)
    outer = torch.optim.SGD(net.parameters(), lr=0.01)

    def step(x):
        inner = copy.deepcopy(net)
        optimizer = torch.optim.SGD(inner.parameters(), lr=0.05, momentum=0.9)
        for _ in range(2):
            optimizer.zero_grad()
            (inner(x) ** 2).sum().backward()
            optimizer.step()
        outer.zero_grad()
        loss = ((net(x) - inner(x).detach()) ** 2).sum()
        loss.backward()
        outer.step()
        return loss.detach()

    c = compile(step)
    torch.manual_seed(1)
    found = []
    for _ in range(4):
        found += [c(torch.randn(4, 3, dtype=torch.float64)), *net.state_dict().values()]
    whole(c, 2)
    return found


@stale
def gradients_of_copies(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """A tensor's is copied, a Parameter's is not."""
    torch.manual_seed(0)
    net, leaf = nn.Linear(3, 2), torch.ones(3, requires_grad=True)

    def f(x):
        made, other = copy.deepcopy((net, leaf))
        had = made.weight.grad is not None, other.grad is not None
        made(x * other).sum().backward()
        return made.weight.grad, other.grad, had

    c = compile(f)
    found = [c(torch.ones(2, 3)) for _ in range(2)]
    net(torch.ones(1, 3) * leaf).sum().backward()
    found += [c(torch.ones(2, 3)) for _ in range(2)]
    net.zero_grad()
    whole(c, 3)
    return [*found, c(torch.ones(2, 3)), net.weight.grad, leaf.grad]


@stale
def copies_share_memory_as_their_tensors_do(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    base, tied = torch.zeros(2, 3), nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
    tied[1].weight = tied[0].weight
    twin, row = base.detach(), base[0]

    def f(x):
        a, b = copy.deepcopy([base, row])
        a.add_(1)
        c, d = copy.deepcopy([row, base])
        d.add_(1)
        e, g = copy.deepcopy([twin, base])
        g.add_(1)
        nets = copy.deepcopy(tied)
        return a + b + c + d + e + x, nets[0].weight is nets[1].weight

    c = compile(f)
    found = [c(torch.ones(3))]
    base.add_(2)
    return [*found, c(torch.ones(3)), base]
