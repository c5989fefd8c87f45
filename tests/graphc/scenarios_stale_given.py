"""(8) Containers among the arguments: each call writes to its own."""

from __future__ import annotations

import collections
import dataclasses
import functools
from typing import Any, ClassVar

from tests.graphc.stale_scenario import attempt, stale, whole


@dataclasses.dataclass
class Item:
    """An object whose attributes are arguments."""

    t: Any
    k: float = 2.0


@stale
def lists_of_the_arguments(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x, log):
        log.append(x * 2)
        log[0] = log[0] + 1
        return x + len(log), log

    c = compile(f)
    own = [torch.ones(2)]
    results = []
    for given in (own, [torch.zeros(2)], own, own, [torch.ones(2) * 4]):
        result, back = c(torch.ones(2), given)
        results.append((result, list(given), back is given))
    whole(c, 3)
    return results


@stale
def dicts_of_the_arguments(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """A batch that a function adds to: keys come, change and go, in their order."""

    def f(batch, state):
        batch["y"] = batch["x"] * 2
        batch["n"] = batch.get("n", 0) + 1
        batch["part"] = {"z": [batch.pop("z"), batch["y"]]}
        state.move_to_end("a")
        state["inner"].append(batch["n"])
        return batch

    c = compile(f)
    results = []
    for i in range(4):
        batch = {"x": torch.ones(2) * i, "z": torch.ones(1)}
        state = collections.OrderedDict(a=1, inner=[i])
        back = c(batch, state)
        results.append((batch, list(batch), list(state), state["inner"], back is batch))
    whole(c)
    return results


@stale
def objects_of_the_arguments(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(item, parts):
        item.k += 1
        item.t = item.t * item.k
        item.seen = [item.t]
        parts[0]["a"] = parts[1]
        parts.append(parts[0])
        return item.t, parts[0]

    c = compile(f)
    own = Item(torch.ones(2))
    results = []
    for item in (own, Item(torch.zeros(2), 3.0), own, own):
        parts = [{}, torch.ones(1) * len(results)]
        _, first = c(item, parts)
        results.append((item.t, item.k, item.seen, first is parts[0] is parts[2], parts))
    whole(c)
    return results


@stale
def one_container_twice(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """Two arguments may be one container, at the first call or at a later one."""

    def make():
        def f(a, b):
            a.append(b[0] * 2)
            b.append(1.0)
            return len(a), len(b)

        return compile(f)

    first, later = make(), make()
    results = []
    for c, starts in ((first, True), (later, False)):
        for i in range(4):
            one, other = [torch.ones(2)], [torch.ones(2) * 3]
            given = (one, one) if starts == (i % 2 == 0) else (one, other)
            results.append((c(*given), one, other))
    return results


@stale
def a_container_that_is_elsewhere(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """The argument may be what the function also finds in a variable."""

    def make(held):
        def f(a):
            a.append(held[0])
            held[0] = a[0] * 2
            return len(held), len(a), held[0]

        def g(a):
            held.append(a[0])
            return len(held), len(a)

        return compile(f), compile(g)

    results = []
    for order in ((0, 0, 1, 0, 1), (1, 0, 1)):
        held = [torch.ones(2) * 3]
        for c in make(held):
            for same in order:
                given = held if same else [torch.ones(2)]
                results.append((c(given), list(given), list(held)))
    return results


@stale
def containers_that_stay(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """What is kept of an argument is the very container of that call."""
    kept: list[Any] = []

    def f(a, pair):
        kept.append(a)
        a.append(1)
        return pair, (pair, a)

    c = compile(f)
    results = []
    for i in range(4):
        given, pair = [torch.ones(2) * i], (torch.ones(1), i)
        back, (again, own) = c(given, pair)
        kept[-1].append(2)
        results.append((given, kept[-1] is given, back is pair, again is pair, own is given))
    return results


@stale
def containers_of_a_failing_call(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(log, i, broken):
        log.append(len(log))
        if broken:
            raise ValueError
        return table[i]

    table = torch.arange(3.0)
    c = compile(f)
    results = []
    for i, broken in ((1, False), (0, False), (2, True), (2, False)):
        log = [0]
        results.append((attempt(c, log, torch.tensor(i), broken), log))
    return results


@stale
def containers_and_values(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """Where Python needs a value, what it keeps of an argument is the call's own container."""
    kept: list[Any] = [None]

    def f(batch):
        kept[0] = batch
        if batch["x"].sum().item() > 1:
            batch["n"] = 1
        kept.append(batch)
        return batch

    c, results = compile(f), []
    for i in range(3):
        batch = {"x": torch.ones(2) * i}
        back = c(batch)
        results.append((batch, kept[0] is batch, kept[-1] is batch, back is batch, len(kept)))
    return results


@stale
def what_calls_are_given_was_there_already(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """A place that holds the very tensor that the first call puts there: others put theirs."""

    class Slot:
        __slots__ = ("last",)

    state, rows, table, slot, cell = Item(None), [None], {"k": None}, Slot(), None
    norm = nn.BatchNorm1d(3)

    def f(x):
        nonlocal cell
        state.t, rows[0], table["k"], slot.last, cell = x, x, x, x, x
        state.k = x.grad
        norm.running_mean = x
        return x * 2

    def held():
        return state.t, rows[0], table["k"], slot.last, cell, norm.running_mean

    def given(k):
        x = torch.full((3,), float(k))
        x.grad = torch.full((3,), k + 0.5)
        return x

    results = []
    for first in (0, 1):
        c, inputs = compile(f), [given(k) for k in range(first, 4)]
        state.t = rows[0] = table["k"] = slot.last = cell = norm.running_mean = inputs[0]
        state.k = inputs[0].grad
        for i in (0, 0, 1, 1, 2, 0, 1):
            x = inputs[i]
            results.append((c(x), [y is x for y in held()], state.k is x.grad, list(state.k)))
        whole(c, 1)
    return results


@dataclasses.dataclass
class Batch:
    """Not all of it are fields, and not all fields are set."""

    x: Any
    mask: Any = dataclasses.field(init=False)
    gain: dataclasses.InitVar[float] = 2.0
    scale: ClassVar[float] = 1.0

    def __post_init__(self, gain: float) -> None:
        self.gained = gain

    @functools.cached_property
    def double(self) -> Any:
        """Kept among the attributes."""
        return self.x * 2


@stale
def attributes_that_are_no_fields(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(batch):
        shift = getattr(batch, "shift", 0.0)
        return batch.double * batch.scale * batch.gained + shift, hasattr(batch, "mask")

    c, out = compile(f), []
    for i in range(10):
        batch = Batch(torch.ones(2) * i, gain=1.0 + (i > 3))
        if i in (2, 3, 7):
            batch.scale = 3.0 + i  # type: ignore[misc]
        if i in (4, 5, 7):
            batch.shift = torch.ones(2) * i  # type: ignore[attr-defined]
        if i == 6:
            batch.mask = 1
        out += [c(batch), list(vars(batch))]
        batch.x = batch.x + 100  # what is kept stays
        out.append(c(batch))
    whole(c)
    return out


class Bag(dict):  # type: ignore[type-arg]
    """A dictionary with attributes."""


class Point(collections.namedtuple("Point", "x y")):
    """A tuple with attributes."""


class Text(str):
    """A text with attributes."""


@stale
def attributes_of_containers_and_texts(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(part, x):
        n = part["x"] if isinstance(part, dict) else part[0]
        return x * getattr(part, "scale", 1.0), n

    c, out, x = compile(f), [], torch.ones(2)
    for make in (lambda: Bag(x=1.0), lambda: collections.OrderedDict(x=1.0), lambda: Point(1, 2),
                 lambda: Text("a")):
        for scale in (None, None, 2.0, 3.0, None, 2.0):
            part = make()
            if scale is not None:
                part.scale = scale
            out.append(c(part, x))
    return out


@stale
def keys_that_are_equal(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """1, 1.0 and True are equal, and so are 0.0 and -0.0."""
    def f(given):
        return sum(key * value for key, value in given.items()), [repr(key) for key in given]

    def g(given):
        return sum(given.values()), [repr(key) for key in given]

    c, d, x = compile(f), compile(g), torch.ones(2, dtype=torch.int64)
    out = [c({key: x}) for key in (1, 1, 1.0, True, 1, 0.0, -0.0, 1.0)]
    return out + [d({key: x}) for key in ((1, "a"), (True, "a"), (1.0, "a"), (1, "a"))]


@stale
def containers_that_are_the_same_one(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    known, x = [torch.ones(2)], torch.ones(2)

    def f(a, b):
        return a[0] * (2 if a is b else 3) + (b is known) + (a is not None)

    c, other = compile(f), [x * 5]
    return [c(a, b) for a, b in ((other, known), (other, other), (known, other), (known, known))]


@stale
def an_argument_called_self(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    c = compile(lambda self, k=2.0: self * k)
    return [c(torch.ones(2)), c(self=torch.ones(2)), c(k=3.0, self=torch.ones(2))]
