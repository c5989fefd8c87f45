"""(6) The outside: printed lines, warnings, log records and variables that each call writes."""

from __future__ import annotations

import contextlib
import contextvars
import fractions
import functools
import heapq
import io
import logging
import os
import sys
import threading
import types
import warnings
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.graphc.scenarios_stale_effects import calls
from tests.graphc.stale_scenario import Box, stale, whole


class Kept(logging.Handler):
    """What was logged, and where from."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        place = f"{record.filename}:{record.funcName}"
        self.lines.append(f"{record.levelname} {record.getMessage()} {place}")


@contextlib.contextmanager
def logger(name: str, level: int) -> Any:
    """A logger of its own, and what it is told."""
    handler, found = Kept(), logging.getLogger(name)
    found.addHandler(handler)
    found.setLevel(level)
    found.propagate = False
    try:
        yield found, handler.lines
    finally:
        found.removeHandler(handler)
        found.setLevel(logging.NOTSET)


@stale
def printed_lines(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    box = Box(n=0, words=["a"])

    def f(x, k):
        box.n += 1
        print("call", box.n, k, box.words, f"{k}!", sep="|")
        print(x.shape[0], end=".\n")
        return x * k

    c = compile(f)
    with contextlib.redirect_stdout(io.StringIO()) as text:
        for k in (1.5, 2.5, 3.5, 3.5):
            c(torch.ones(3), k)
        box.words.append("b")
        c(torch.ones(3), 3.5)
    whole(c, 8)
    return text.getvalue()


@stale
def printed_in_between(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """A line that needs a value comes after those that do not."""

    def f(x):
        print("before")
        y = x * 2
        print(y.sum().item())
        print("after", str(y.shape))
        return y

    c = compile(f)
    with contextlib.redirect_stdout(io.StringIO()) as text:
        for i in range(3):
            c(torch.ones(3) * i)
    return text.getvalue()


@stale
def printed_elsewhere(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """Into a stream that the call itself puts in the place of stdout."""

    def f(x):
        with contextlib.redirect_stdout(io.StringIO()) as text:
            print("inside")
        return x * len(text.getvalue())

    c = compile(f)
    return [c(torch.ones(3)) for _ in range(3)]


@stale
def printed_before_an_error(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x, n):
        print("asked", n)
        if n > 2:
            raise ValueError("too many")
        return x * n

    c = compile(f)
    with contextlib.redirect_stdout(io.StringIO()) as text:
        for n in (1, 3, 1, 3):
            with contextlib.suppress(ValueError):
                c(torch.ones(3), n)
    return text.getvalue()


@stale
def warned(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """Each call warns, at the user's line; unless the filters make it an error."""

    def helper():
        warnings.warn("old", DeprecationWarning, stacklevel=2)

    def f(x):
        warnings.warn("careful", stacklevel=1)
        helper()
        return x * 2

    c = compile(f)
    out: list[Any] = []
    for action in ("always", "ignore", "always", "error", "always"):
        if action == "error":
            whole(c, 1)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter(action)  # type: ignore[arg-type]
            try:
                out.append(c(torch.ones(3)))
            except UserWarning as error:
                out.append(str(error))
        out += [(str(w.message), w.category.__name__, w.lineno) for w in said
                if not w.category.__name__.startswith("Perf")]
    return out


@stale
def warned_where_they_are_caught(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            warnings.warn("inside", stacklevel=1)
        return x * len(said)

    c = compile(f)
    return [c(torch.ones(3)) for _ in range(3)]


@stale
def log_records(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    with logger("graphc.tests.records", logging.INFO) as (log, lines):

        def f(x, n):
            log.info("step %d of %s", n, x.shape[0])
            log.debug("not said")
            y = x * 2 if log.isEnabledFor(logging.DEBUG) else x
            log.log(logging.ERROR, "failed")
            return y * n

        c = compile(f)
        out = [c(torch.ones(3), n) for n in (1, 2, 3, 3)]
        log.setLevel(logging.DEBUG)
        out += [c(torch.ones(3), 3), c(torch.ones(3), 3)]
        log.setLevel(logging.CRITICAL)
        out += [c(torch.ones(3), 3), c(torch.ones(3), 3)]
        whole(c, 8)
        return [*out, *lines]


@stale
def environment_written(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    name = "GRAPHC_TEST_COUNT_"  # no switch of graphc's own

    def f(x):
        os.environ[name] = str(int(os.environ.get(name, "0")) + 1)
        return x * int(os.environ[name])

    def change() -> None:
        os.environ[name] = "5"

    def state() -> Any:
        return os.environ[name], os.getenv(name)

    try:
        return calls(torch, compile, f, state, change, count=9)
    finally:
        os.environ.pop(name, None)


@stale
def context_variable_written(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """One that has a value, and one that has none before the first call."""
    var: contextvars.ContextVar[Any] = contextvars.ContextVar("var", default=0)
    other: contextvars.ContextVar[Any] = contextvars.ContextVar("other")
    var.set(0)

    def f(x):
        var.set(var.get() + 1)
        other.set(other.get(3) + 1)
        token = var.set(50)
        y = x * var.get()
        var.reset(token)
        return y * var.get() + other.get()

    return calls(torch, compile, f, lambda: (var.get(), other.get()), lambda: var.set(4), count=6)


@stale
def thread_local_state(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """Each thread has its own, also where another one has compiled."""
    here = threading.local()
    here.k = 2.0

    def f(x):
        here.n = getattr(here, "n", 0) + 1
        return x * here.k + here.n

    c = compile(f)
    out = [c(torch.ones(3)), c(torch.ones(3))]
    here.k = torch.ones(3) * 3
    out += [c(torch.ones(3)), here.n]

    def other() -> None:
        here.k = 7.0
        out.extend([c(torch.ones(3)), c(torch.ones(3)), here.n])

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    return [*out, c(torch.ones(3)), here.n]


@stale
def numbers_in_buffers(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    held, raw = array("d", [1.0, 2.0]), bytearray(b"ab")

    def f(x):
        held[0] += 1
        raw[-1] = (raw[0] + 1) % 200
        np.asarray(held)[1] = 9.0
        return x * held[0] + raw[1] + len(raw)

    def change() -> None:
        held[0] = 7.0
        raw.append(3)

    return calls(torch, compile, f, lambda: (held.tolist(), bytes(raw)), change, count=7)


@stale
def array_of_objects(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    held = np.array([[1.0, None], [0, "a"]], dtype=object)

    def f(x):
        held[1, 0] += 1
        held[0, 1] = x * 2
        return x * held[0, 0] + held[1, 0]

    def change() -> None:
        held[0, 0] = 3.0

    def state() -> Any:
        return held[1, 0], held[0, 1].clone(), held[1, 1]

    return calls(torch, compile, f, state, change, count=9)


@stale
def large_array(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    held = np.zeros(300_000, "f")

    def change() -> None:
        held[7] = 3

    return calls(torch, compile, lambda x: x + float(held[7]), lambda: 0, change, count=2)


@stale
def read_through_a_proxy(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    under = {"a": 1.0}
    proxy = types.MappingProxyType(under)

    def f(x):
        y = x * proxy["a"] + len(proxy) + proxy.get("c", 0)
        return y * 2 if "b" in proxy else y * sum(proxy.values())

    def change() -> None:
        under["a"] = 2.0

    return calls(
        torch, compile, f, lambda: 0, change, lambda: under.update(b=3), lambda: under.update(c=4),
        count=4,
    )


@stale
def heap_of_numbers(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    held = [5, 3, 8]

    def f(x):
        heapq.heappush(held, len(held))
        return x + heapq.heappop(held)

    return calls(torch, compile, f, lambda: list(held), lambda: held.append(-1), count=6)


@stale
def fractions_counted(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    box = Box(h=fractions.Fraction(0))

    def f(x):
        box.h += fractions.Fraction(1, 2)
        return x * float(box.h)

    def change() -> None:
        box.h = fractions.Fraction(7)

    return calls(torch, compile, f, lambda: str(box.h), change, count=6)


@stale
def sorted_by_a_comparison(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    box = Box(sign=1)

    def compared(a, b):
        return box.sign * (a - b)

    def f(x):
        return x * sorted([2, 3, 1], key=functools.cmp_to_key(compared))[0]

    return calls(torch, compile, f, lambda: 0, lambda: setattr(box, "sign", -1), count=2)


@stale
def names_of_an_object(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    box = Box(k=2)

    def f(x):
        text = "{0.k} {1[0]:>3}".format(box, [box.k])  # noqa: UP030, UP032
        return x * len([n for n in dir(box) if not n.startswith("_")]) + len(text) + box.k

    return calls(
        torch, compile, f, lambda: 0, lambda: setattr(box, "q", 1), lambda: setattr(box, "k", 300),
        count=3,
    )


@stale
def exceptions_looked_at(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """An exit stack asks which exception is handled: none, or one of the caller's."""
    closed: list[Any] = []

    def f(x):
        with contextlib.ExitStack() as stack:
            stack.callback(closed.append, len(closed))
            return x + len(closed) + (sys.exc_info()[1] is not None)

    c = compile(f)
    out: list[Callable[[], Any]] = [c(torch.ones(3))]
    try:
        raise ValueError
    except ValueError:
        out.append(c(torch.ones(3)))
    return [*out, c(torch.ones(3)), len(closed)]


@stale
def step_taken_back(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """What is open comes after a step that has made its state: all is taken back, and done once."""
    p = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([p], lr=0.125, momentum=0.5)
    lock = threading.Lock()

    def f(x, scales):
        optimizer.zero_grad()
        (p * x).sum().backward()
        optimizer.step()
        with lock:
            return x * scales[0] + p.detach()

    c = compile(f)
    return [c(torch.ones(3), [2.0]) for _ in range(3)], optimizer.state[p]


@stale
def exception_asked_for(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """Whether an exception is handled may differ from call to call."""
    c = compile(lambda x: x + (sys.exc_info()[1] is not None))
    out: list[Callable[[], Any]] = [c(torch.ones(3)), c(torch.ones(3))]
    try:
        raise ValueError
    except ValueError:
        out.append(c(torch.ones(3)))
    return [*out, c(torch.ones(3))]


class Watch:
    """Counts its reads."""

    reads = 0
    k = 2.0

    def __getattribute__(self, name):
        if name == "k":
            Watch.reads += 1
        return object.__getattribute__(self, name)


@stale
def attribute_hook(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    w = Watch()
    Watch.reads = 0

    def f(x):
        return x * w.k + Watch.reads

    def change() -> None:
        w.k = 3.0

    return calls(torch, compile, f, lambda: Watch.reads, change, count=4)


class Equal:
    """Equal to a number, by methods of its own."""

    k = 1

    def __eq__(self, other):
        return self.k == other

    def __hash__(self):
        return hash(self.k)


@stale
def member_by_its_own_methods(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    equal, numbers = Equal(), {1: "a", 5: "b"}

    def f(x):
        return x * (2 if equal in numbers else 3) + (equal in {7, 8})

    def change() -> None:
        equal.k = 2

    def again() -> None:
        numbers[2] = "c"

    def last() -> None:
        equal.k = 7

    return calls(torch, compile, f, lambda: 0, change, again, last, count=4)


@stale
def class_mapping_read(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    class Held:
        k = 1.0

    c = compile(lambda x: x * vars(Held)["k"] + Held.__dict__["k"])
    out = [c(torch.ones(3))]
    Held.k = 3.0
    return [*out, c(torch.ones(3))]


@stale
def class_state_made_new(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """What a call puts into a class is its own, also where it reads it again."""
    class Held:
        h: Any = {"n": 0, "t": torch.zeros(3)}

    def f(x):
        Held.h = {**Held.h, "n": Held.h["n"] + 1, "t": Held.h["t"] + x}
        return x * Held.h["t"] + Held.h["n"]

    c = compile(f)
    return [(c(torch.ones(3)), Held.h["n"], Held.h["t"].clone()) for _ in range(4)]
