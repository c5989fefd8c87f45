"""(4), (6) Effects that each call of one graph repeats: containers that change their length."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

from tests.graphc.stale_scenario import Box, stale, whole


def calls(
    torch: Any, compile: Any, function: Any, state: Callable[[], Any],
    *changes: Callable[[], Any], count: int = 12,
) -> list[Any]:
    """Results and state over two calls before and two after each change; one graph."""
    c = compile(function)
    out = []
    for i, change in enumerate((None, *changes)):
        if change is not None:
            change()
        for k in range(2):
            out += [c(torch.ones(3) * (i + k)), state()]
    whole(c, count)
    return out


@stale
def written_as_it_was(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """What a call writes is there already at the first call, and no longer at a later one."""
    flags, held, box = {"on": True}, [1, 2], Box(k=3)
    seen: Any = 1

    def f(x):
        nonlocal seen
        flags["on"], held[0], box.k, seen = True, 1, 3, 1
        return x + 1

    def change():
        nonlocal seen
        flags["on"], held[0], box.k, seen = False, 7, 7, 7

    return calls(torch, compile, f, lambda: (dict(flags), list(held), box.k, seen), change, count=2)


@stale
def written_from_the_end(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    held = [1.0, 2.0]

    def f(x):
        held[-1] = 7.0
        return x

    return calls(torch, compile, f, lambda: list(held), lambda: held.append(3.0), count=2)


@stale
def reversed_in_place(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    held = [1.0, 2.0, 3.0]

    def f(x):
        held.reverse()
        return x

    def change():
        held[:] = [4.0, 5.0, 6.0]

    return calls(torch, compile, f, lambda: list(held), change, count=4)


@stale
def state_with_two_names(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """A tensor that the call replaces in one place stays what it is in another."""
    box = Box(h=torch.ones(3))
    box.alias = box.h

    def f(x):
        box.h = box.h * 2 + x
        return box.alias * 1

    return calls(torch, compile, f, lambda: (box.h.clone(), box.alias.clone()), count=3)


@stale
def list_grows(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """What is only put at the end is put at the end of what there is: one version."""
    log: list[Any] = []

    def f(x):
        log.append(x * 2)
        log.extend([1, (x, "a")])
        log.append({"x": x + 1})
        return x

    def state() -> Any:
        return [len(log), *(v for item in log for v in (
            item.values() if isinstance(item, dict) else item if isinstance(item, tuple) else [item]
        ))]

    return calls(torch, compile, f, state, log.clear, lambda: log.insert(0, 5), count=1)


@stale
def list_grows_and_is_read(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    log = [1.0]

    def f(x):
        log.append(2.0)
        y = x * log[-1] + log[0]
        log[-1] = 3.0
        return y * log[1] if len(log) > 3 else y

    def change():
        log[0] = 9.0

    return calls(torch, compile, f, lambda: list(log), change, log.clear, count=9)


@stale
def own_item_by_position(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """An item that the call itself has put there, by its number from the front."""
    log = [1.0, 2.0]

    def f(x):
        log.append(5.0)
        return x * log[2]

    def change():
        log[:] = [1.0, 2.0, 3.0]

    return calls(torch, compile, f, lambda: list(log), change, count=4)


@stale
def list_reshaped(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    held = [3.0, 1.0, 2.0]

    def f(x):
        first = held.pop(0)
        held.insert(1, first)
        held[1:2] = [first, 8.0]
        del held[-1]
        held.sort()
        return x * held[0]

    def change():
        held[:] = [5.0, 7.0, 6.0]

    return calls(torch, compile, f, lambda: list(held), change, count=4)


@stale
def window_of_tensors(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """A full window keeps its length: its tensors are fetched, not guarded."""
    window: Any = collections.deque(maxlen=2)
    c = compile(lambda x: (window.append(x * 2), x + window[0])[1])
    out = [c(torch.ones(3) * i) for i in range(8)]
    whole(c, 3)
    window[0] = torch.zeros(3)
    window.append(torch.ones(3))
    return [*out, c(torch.ones(3)), *window]


@stale
def rotated_tensors(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    held = [torch.ones(3), torch.ones(3) * 2]

    def f(x):
        held.append(held.pop(0) + x)
        return x * held[0]

    def twice():
        held[1] = held[0]

    def thrice():
        held.append(torch.ones(3) * 5)

    return calls(torch, compile, f, lambda: [h.clone() for h in held], twice, thrice, count=5)


@stale
def one_tensor_twice(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """Two items are one tensor at the first call, and two at a later one."""
    t = torch.ones(3)
    held = [t, t]

    def f(x):
        held.reverse()
        return x * held[0] + held[1] * 3

    def change():
        held[:] = [torch.ones(3) * 4, torch.ones(3) * 5]

    return calls(torch, compile, f, lambda: [h.clone() for h in held], change, count=5)


@stale
def dict_reshaped(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    d: dict[str, Any] = {"a": 1.0, "b": 2.0}

    def f(x):
        y = x * d.pop("a")
        d["a"] = 3.0
        d["c"] = d.setdefault("b", 5.0) + 1
        del d["b"]
        return y

    def change():
        d["b"] = 7.0

    def order():
        d.clear()
        d.update(b=1.0, z=2.0, a=4.0)

    return calls(torch, compile, f, lambda: list(d.items()), change, order, count=8)


@stale
def removed_where_it_is_not(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    d = {"a": 1.0}

    def f(x):
        return x + (d.pop("a") if "a" in d else 5.0)

    def change():
        d["a"] = 2.0

    return calls(torch, compile, f, lambda: list(d.items()), change, count=4)


@stale
def ordered_dict_moved(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    d = collections.OrderedDict(a=1.0, b=2.0, c=3.0)

    def f(x):
        d.move_to_end(next(iter(d)))
        return x * next(iter(d.values()))

    def change():
        d["a"] = 9.0

    return calls(torch, compile, f, lambda: list(d.items()), change, count=4)


@stale
def set_changes(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    met: set[Any] = {1}
    tensors: set[Any] = set()
    t = torch.ones(3)

    def f(x):
        met.add(len(met) + 1)
        met.discard(1)
        tensors.add(t)
        return x * sum(met) + sum(tensors)

    return calls(
        torch, compile, f, lambda: (sorted(met), len(tensors)), met.clear, tensors.clear, count=7
    )


@stale
def array_written(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    import numpy as np

    a = np.zeros(3)

    def f(x):
        a[0] += 1
        a[1] = 5
        return x * float(a[0])

    def change():
        a[:] = [7, 8, 9]

    return calls(torch, compile, f, lambda: a.tolist(), change, count=5)


@stale
def arrays_that_share_memory(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """A write to a part is one to the whole, and is done once."""
    import numpy as np

    a, raw = np.arange(4.0), bytearray(b"abc")
    part, seen = a[1:3], np.asarray(raw)

    def f(x):
        part[0] += 1
        seen[1] += 1
        return x * float(a[1]) + raw[1]

    c = compile(f)
    out = [(c(torch.ones(3)), a.tolist(), bytes(raw)) for _ in range(3)]
    a[1], raw[1] = 9.0, 3
    return [*out, c(torch.ones(3)), a.tolist(), bytes(raw)]


@stale
def array_under_a_tensor(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """NumPy writes to a tensor's memory before the tensor is read, and after."""
    import numpy as np

    a = np.arange(3.0)
    t = torch.from_numpy(a)

    def f(x):
        y = x + t
        a[0] += 1
        return y * 2 + t

    c = compile(f)
    return [(c(torch.ones(3)), a.tolist()) for _ in range(4)]


@stale
def own_items_are_read_back(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """What a call puts into a container is not there before it, also where it reads all of it."""
    past: list[Any] = []
    kept: dict[str, Any] = {}

    def f(x):
        past.append((x * 1, x * 2))
        kept["pair"] = [x + 1, x]
        return sum(a * b for a, b in past) + sum(v[0] for v in kept.values())

    c = compile(f)
    out = []
    for i in range(5):
        if i == 3:
            past.clear()
        out.append((c(torch.ones(3) * i), [a + b for a, b in past], list(kept["pair"])))
    return out


@stale
def counted_after_a_write_by_key(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """A key that a call writes makes the dict longer where it was not there, only there."""
    box, store = Box(z=1), {"a": 1}

    def f(x):
        box.b = x * 2
        store["k"] = 1
        return x + len(vars(box)) + 10 * len(store)

    def change(*keys):
        vars(box).clear()
        store.clear()
        for key in keys:
            setattr(box, key, 0)
            store[key] = 0

    c = compile(f)
    out = [c(torch.ones(2))]
    for keys in ((), ("b",), ("k",), ("b", "k"), ("z",), ("z", "b"), ("q", "k")):
        change(*keys)
        out += [c(torch.ones(2)), sorted(vars(box)), sorted(store)]
    return out
