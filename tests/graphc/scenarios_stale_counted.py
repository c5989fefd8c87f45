"""(3, 6) What Python formats, counts, draws and sets at each call: texts, lengths, random numbers.
"""

from __future__ import annotations

import collections
import contextlib
import io
import json
import random
import warnings
from typing import Any

import numpy as np

from tests.graphc.scenarios_stale_repeated import logger
from tests.graphc.stale_scenario import Box, attempt, stale, whole


@stale
def texts_that_say_numbers(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """Printed, warned, logged and kept: one version says every number."""
    box = Box(n=0, rate=0.1, log=[], last=None)
    said = collections.deque()

    def f(x, k):
        box.n += 1
        box.rate = box.rate * 0.9
        print(f"{box.n}: {box.rate:.3e} {k!r:>8}", "a" + str(box.n))
        print("%d of %5.2f" % (box.n, k))  # noqa: UP031
        print("{0} {a:>4} {1}".format(box.n, k, a=box.rate))  # noqa: UP032
        print("=".join((repr(k), f"{box.n:03d}")))
        warnings.warn(f"step {box.n}", stacklevel=1)
        log.info(f"rate {box.rate:g}" + "!")
        box.log.append(f"{box.n:b}".zfill(8).upper())
        said.append(str(box.n) + f"{x.shape[0]}")
        box.last = f"<{box.n:>{4}}>" + format(box.rate, "g")
        said.append(type(box.last) is str and isinstance(box.last, str))
        said.append("{:>9}".format(str(box.last)) + repr(box.last) + format(box.last, ">9"))  # noqa: UP032
        return x * k, f"{box.n}", type(box.last)

    with (
        warnings.catch_warnings(record=True) as warned, logger("counted", 10) as (log, lines),
        contextlib.redirect_stdout(io.StringIO()) as printed,
    ):
        warnings.simplefilter("always")
        c = compile(f)
        results = [c(torch.ones(2), i * 0.5) for i in range(6)]
        box.n = 41
        results.append(c(torch.ones(2), 0.25))
    whole(c, 2)
    texts = [str(w.message) for w in warned]
    kinds = [type(text) for text in (*box.log, *said, box.last)]
    return results, printed.getvalue(), texts, list(lines), box.log, list(said), box.last, kinds


@stale
def texts_that_say_sizes(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    seen = []

    def f(x):
        seen.append(f"{x.shape[0]} rows of {x.shape}")
        print(f"batch of {x.shape[0]}")
        return x.sum(0)

    c = compile(f)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        results = [c(torch.ones(rows, 2)) for rows in (3, 4, 5, 3, 6)]
    whole(c)
    return results, seen, printed.getvalue()


@stale
def texts_that_steer(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """A text that is compared, measured, hashed or looked into is a constant of its version."""
    box = Box(n=7, table={"8": 1.0, "step 9": 2.0}, names=[])

    def f(x):
        box.n += 1
        name = f"step {box.n}"
        if name == "step 9" or len(str(box.n)) > 1 or "1" in name:
            x = x + 10
        if name.split()[1] in ("8", "10"):
            x = x * 2
        box.names += [name]
        setattr(box, f"at{box.n}", box.n)
        match f"{box.n}":
            case "11":
                x = x - 1
        kind = type(name) is str, name.__class__ is str, isinstance(name, str), sorted([name, "a"])
        y = x * box.table.get(str(box.n), 3.0) * box.table.get(name, 5.0)
        return y, {name: x}, name[-1], kind

    c = compile(f)
    return [c(torch.ones(2)) for _ in range(6)], box.names, sorted(vars(box))


@stale
def texts_of_errors(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    box = Box(n=0, kinds=[])

    def f(x):
        box.n += 1
        try:
            raise KeyError(f"number {box.n}")
        except KeyError as error:
            box.kinds.append(str(error))
        if box.n > 3:
            error = ValueError(f"step {box.n}", box.n)
            error.name, error.number = f"{box.n}", box.n
            raise error
        return x * box.n, json.dumps({"n": box.n, "text": f"{box.n}"})

    def call():
        try:
            return c(torch.ones(2))
        except ValueError as error:
            parts = *error.args, error.name, error.number
            return parts, [type(part) for part in parts]

    c = compile(f)
    return [call() for _ in range(6)], box.kinds


@stale
def warnings_that_filters_tell_apart(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """Whether a warning is an error may hang on what it says."""
    box = Box(n=0)

    def f(x):
        box.n += 1
        warnings.warn(f"step {box.n}", stacklevel=1)
        return x * box.n

    c = compile(f)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        warnings.filterwarnings("error", message="step 5")
        results = [attempt(c, torch.ones(2)) for _ in range(7)]
    return results, [str(w.message) for w in said if w.category is UserWarning]


@stale
def lengths_that_grow(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    box = Box(seen=[], table={}, queue=collections.deque(), n=0)

    def f(x):
        box.seen.append(x * 2)
        if len(box.seen) > 6:
            x = x + 100
        if len(box.queue) % 3 == 0:
            x = x * 2
        box.queue.append(f"entry {len(box.queue)}")
        print(f"{len(box.seen)} seen", len(box.table))
        return x * len(box.seen) / len(box.queue), len(box.seen)

    c = compile(f)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        results = [c(torch.ones(2)) for _ in range(12)]
        box.seen.clear()
        box.table["a"] = 1
        results += [c(torch.ones(2)) for _ in range(3)]
        box.queue.append("mine")
        results += [c(torch.ones(2)) for _ in range(3)]
    whole(c, 8)
    return results, box.seen, list(box.queue), printed.getvalue()


@stale
def windows_that_slide(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """A deque with a maxlen: what falls out of it need not be known."""
    window: Any = collections.deque(maxlen=3)
    other: Any = collections.deque([1.0, 2.0], maxlen=2)

    def f(x, k):
        window.append(x * k)
        other.append(k)
        if k > 5:
            other.append(f"{k}")
        if len(window) == 3:
            x = x + 100
        return x * len(window), len(other)

    c, results = compile(f), []
    for i in range(12):
        results.append((c(torch.ones(2), i * 1.0), list(window), list(other)))
        if i == 5:
            window.clear()
        if i == 8:
            window.appendleft(torch.zeros(1))
    whole(c, 8)
    return results


@stale
def lengths_after_writes(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """A key that was there already adds nothing."""
    table, log = {"a": 1}, []

    def f(x, k):
        before = len(table)
        table["b"] = k
        log.append(len(table) - before)
        log.append(len(log))
        return x * len(table)

    c = compile(f)
    results = [c(torch.ones(2), 1.0), c(torch.ones(2), 2.0)]
    del table["b"]
    results.append(c(torch.ones(2), 3.0))
    table["c"] = 1
    results += [c(torch.ones(2), 4.0), c(torch.ones(2), 5.0)]
    return results, table, log


@stale
def random_numbers_of_python_and_numpy(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    random.seed(1)
    np.random.seed(2)
    own, generator = random.Random(3), np.random.default_rng(4)
    weights, log = [1.0, 2.0, 4.0], []

    def f(x, s):
        a = random.random()
        x = x * a + random.uniform(0, s) + own.gauss(0.0, 1.0)
        x = x + float(np.random.rand()) * generator.normal(0.0, s) + random.choice(weights)
        log.append(f"{a:.3f} {own.random():.3f}")
        if random.random() < 0.3:
            x = x + 10
        return x, a, random.randint(0, 9)

    c = compile(f)
    results = [c(torch.ones(2), 1.0 + i) for i in range(8)]
    random.seed(1)
    own.seed(9)
    generator.bit_generator.state = np.random.default_rng(5).bit_generator.state
    results += [c(torch.ones(2), 1.0 + i) for i in range(8)]
    weights.append(8.0)
    results += [c(torch.ones(2), 1.5), random.random(), own.random(), np.random.rand()]
    whole(c)
    return results, log, generator.random()


@stale
def random_numbers_of_a_failing_call(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """What failed has drawn once, as eager Python has."""
    random.seed(1)
    table = torch.arange(4.0)

    def f(i, broken):
        a = random.random()
        if broken:
            raise ValueError
        return table[i] * a

    c = compile(f)
    results = [c(torch.tensor([1]), False), c(torch.tensor([2]), False)]
    results.append(attempt(c, torch.tensor([9]), False))
    results += [c(torch.tensor([2]), False), attempt(c, torch.tensor([1]), True)]
    return [*results, c(torch.tensor([2]), False), random.random()]


@stale
def random_order_of_python(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """Draws that steer what is done: shuffles and samples."""
    random.seed(4)
    order = [1.0, 2.0, 3.0]

    def f(x):
        random.shuffle(order)
        return x * order[0] + random.sample(order, 2)[0]

    c = compile(f)
    return [c(torch.ones(2)) for _ in range(12)], order, random.random()


@stale
def settings_switched_inside(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x, high):
        was = torch.get_default_dtype(), torch.get_float32_matmul_precision()
        torch.set_default_dtype(torch.float64)
        y = torch.ones(2) * 0.5
        torch.set_default_dtype(was[0])
        torch.set_float32_matmul_precision("high" if high else "medium")
        torch.set_warn_always(not torch.is_warn_always_enabled())
        return x * 2, y, was, torch.get_float32_matmul_precision()

    def state():
        return (
            torch.get_default_dtype(), torch.get_float32_matmul_precision(),
            torch.is_warn_always_enabled(),
        )

    c, results = compile(f), []
    try:
        for i in range(5):
            results += [c(torch.ones(2), i % 2 == 0), state()]
            if i == 2:
                torch.set_float32_matmul_precision("highest")
        torch.set_default_dtype(torch.float64)
        results += [c(torch.ones(2), True), state()]
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_float32_matmul_precision("highest")
        torch.set_warn_always(False)
    whole(c)
    return results


@stale
def settings_of_numpy(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x):
        old = np.seterr(divide="ignore")
        np.set_printoptions(precision=np.get_printoptions()["precision"] + 1)
        return x * (2 if np.geterr()["over"] == "warn" else 3), old["divide"]

    c, results = compile(f), []
    with np.errstate(divide="warn", over="warn"), np.printoptions(precision=4):
        for i in range(6):
            results += [c(torch.ones(2)), np.geterr(), np.get_printoptions()["precision"]]
            if i == 2:
                np.seterr(divide="raise", over="ignore")
            if i == 4:
                np.set_printoptions(precision=4)
    whole(c)
    return results


@stale
def seeded_inside(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """The seed that a generator names is that of the last seeding, without a draw, too."""
    def f(x, again):
        torch.manual_seed(3)
        if again:
            torch.manual_seed(5)
        return x * 2

    c, results = compile(f), []
    for i in range(4):
        torch.manual_seed(7 + i)
        results += [c(torch.ones(2), i % 2 == 0), torch.initial_seed(), torch.get_rng_state()]
    whole(c)
    return results
