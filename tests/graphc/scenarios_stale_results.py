"""(7) Results of every kind; (8) aliasing; (9) what a call that raises leaves."""

from __future__ import annotations

import collections
import dataclasses
import functools
import gc
import os
import types
import weakref
from typing import Any

from tests.graphc.stale_scenario import Box, attempt, stale, whole


@dataclasses.dataclass
class Output(collections.OrderedDict):
    """Hugging Face's form of a model's output."""

    loss: Any = None
    logits: Any = None

    def __post_init__(self):
        for field in dataclasses.fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)


def thrice(torch: Any, compile: Any, function: Any) -> list[Any]:
    """Three calls, and whether two of the results are one object."""
    c = compile(function)
    found = [c(torch.full((3,), float(i))) for i in range(3)]
    return [*found, found[0] is found[1]]


@stale
def model_output(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    found = thrice(torch, compile, lambda x: Output(logits=x * 2))
    parts = [[type(o).__name__, list(o), o.logits, o["logits"], o.loss] for o in found[:3]]
    return [*parts, [o.logits is o["logits"] for o in found[:3]], found[3]]


@stale
def namespace_and_object(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    found = thrice(torch, compile, lambda x: (types.SimpleNamespace(y=x * 2), Box(y=x + 1)))[:3]
    return [[type(a).__name__, a.y, b.y] for a, b in found] + [found[0][0] is found[1][0]]


@stale
def queue_and_sets(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x):
        return collections.deque([x * 2, 1], maxlen=4), {1, 2}, {x * 3}

    found = thrice(torch, compile, f)[:3]
    return [
        [type(q).__name__, q.maxlen, list(q), sorted(s), list(u)] for q, s, u in found
    ] + [found[0][0] is found[1][0], found[0][1] is found[1][1]]


@stale
def dictionaries(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x):
        d = collections.defaultdict(list)
        d["k"].append(x * 2)
        return d, collections.OrderedDict(a=x), collections.Counter(a=1)

    found = thrice(torch, compile, f)[:3]
    out = [[type(part).__name__ for part in parts] + list(parts) for parts in found]
    found[0][0]["new"].append(1)
    return [*out, found[0][0], found[1][0]]


@stale
def generators_and_iterators(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x):
        y = x * 2
        return (y * k for k in (1, 2)), iter([y, 1]), map(float, [1, 2]), zip([y], [3], strict=True)

    return [[list(part) for part in parts] for parts in thrice(torch, compile, f)[:3]]


@stale
def returned_lambdas(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    s = Box(k=1.0)

    def f(x):
        y, k = x * 2, s.k
        s.k += 1
        return lambda: y * k, functools.partial(torch.add, y)

    found = thrice(torch, compile, f)[:3]
    return [[a(), b(1)] for a, b in found]


@stale
def parameters_come_back(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    m = nn.Linear(3, 3)
    c = compile(lambda x: (m.weight, list(m.parameters()), m, x))
    out = []
    for i in range(3):
        w, all_of_them, same, _ = c(torch.ones(i + 1))
        out += [w is m.weight, type(w).__name__, all_of_them[1] is m.bias, same is m]
    return out


@stale
def cache_filled_by_the_first_call(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    made: list[int] = []

    @functools.lru_cache
    def table(n):
        made.append(n)
        return torch.arange(n) * 1.0

    c = compile(lambda x: x + table(x.shape[0]))
    out = [c(torch.ones(n)) for n in (3, 3, 4, 3, 4)]
    table(3).add_(1)
    out += [c(torch.ones(3)), table(3), list(made)]
    table.cache_clear()
    return [*out, c(torch.ones(3)), made, table.cache_info().currsize]


@stale
def containers_of_the_state(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    s = Box(log=[torch.zeros(3)], d={"a": 1})
    c = compile(lambda x: (s.log, s.d, x * 2))
    out = []
    for _ in range(3):
        log, d, y = c(torch.ones(3))
        out += [log is s.log, d is s.d, y, len(log), log[0] is s.log[0]]
        s.log.append(y)
    return out


@stale
def arguments_come_back(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    c = compile(lambda x, d, o: (x, d, o, d["l"]))
    out = []
    for i in range(3):
        x, d, o = torch.ones(3), {"l": [i]}, Box(k=i)
        a, b, e, g = c(x, d, o)
        out += [a is x, b is d, e is o, g is d["l"]]
    return out


# --- (8) aliasing --------------------------------------------------------------------------------


@stale
def one_tensor_twice(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x, y):
        x.add_(1)
        return x * y, x is y

    c = compile(f)
    a, b = torch.ones(3), torch.full((3,), 2.0)
    return [c(a, b), c(a, a), c(a, b), c(b, b), c(b, a), a, b]


@stale
def views_of_arguments_written(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x, y):
        x[0].add_(1)
        x.t()[1].mul_(2)
        return y * 2

    c = compile(f)
    base = torch.ones(4, 3)
    out = [c(base, torch.ones(3)), base.clone(), c(base, base[0]), base.clone()]
    return [*out, c(base[1:], base[1]), base.clone(), c(base[:2], base[1:]), base]


@stale
def overlapping_states(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    base = torch.zeros(6)
    s = Box(a=base[:3], b=base[3:])

    def f(x):
        s.a.add_(x)
        return s.b * 2 + x

    c = compile(f)
    out = [c(torch.ones(3))]
    s.b = base[1:4]
    out.append(c(torch.ones(3)))
    s.b = s.a
    return [*out, c(torch.ones(3)), base]


@stale
def grad_mode_set_by_a_call(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    w = nn.Parameter(torch.ones(3))

    def f(x, on):
        torch.set_grad_enabled(on)
        return w * x

    c = compile(f)
    out = []
    for on in (False, True, False, False, True):
        y = c(torch.ones(3), on)
        out += [y.detach(), y.requires_grad, torch.is_grad_enabled()]
    torch.set_grad_enabled(True)
    return out


# --- (9) calls that raise ------------------------------------------------------------------------


@stale
def counters_in_finally(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    s = Box(tried=0, done=0, last=None, h=torch.zeros(3))

    def f(x, bad):
        s.tried += 1
        try:
            s.h = x * s.tried
            if bad:
                raise ValueError("bad")
            return s.h * s.done
        finally:
            s.done += 1
            s.last = "bad" if bad else s.tried * 2

    c = compile(f)
    out = []
    for bad in (False, True, False, True, True, False):
        out += [attempt(c, torch.ones(3), bad), s.tried, s.done, s.last, s.h]
    return out


@stale
def an_error_that_is_caught_inside(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    failed: list[str] = []

    def f(x, n):
        try:
            return x + torch.ones(n)
        except RuntimeError as error:
            failed.append(type(error).__name__)
            return x * 2

    c = compile(f)
    return [[c(torch.ones(3), n), len(failed)] for n in (3, 4, 3, 5, 4)]


@stale
def writes_before_an_error(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    w = nn.Parameter(torch.ones(3))
    opt = torch.optim.SGD([w], lr=0.1, momentum=0.5)
    log: list[int] = []

    def f(x, n):
        log.append(n if os.getpid() else 0)  # of the process: in segments, as in eager mode
        opt.zero_grad()
        (w * x).sum().backward()
        opt.step()
        return w + torch.ones(n)

    c = compile(f)
    out = []
    for n in (3, 4, 3, 4):
        found = attempt(c, torch.ones(3), n)
        out += [found if isinstance(found, str) else found.detach(), w.detach().clone(), len(log)]
    return out


@stale
def lbfgs(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    w = nn.Parameter(torch.ones(3))
    opt = torch.optim.LBFGS([w], lr=0.5, max_iter=3)

    def step(x):
        def closure():
            opt.zero_grad()
            loss = (w * w * x).sum()
            loss.backward()
            return loss

        return opt.step(closure)

    c = compile(step)
    return [[c(torch.full((3,), 1.0 + i)).detach(), w.detach().clone()] for i in range(3)]


@stale
def lazy_modules(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    m = nn.LazyLinear(2)
    c = compile(m)
    out = []
    for _ in range(3):
        y = c(torch.ones(4, 3))
        out += [list(y.shape), list(m.weight.shape), type(m).__name__]
    return out


@stale
def resized_out(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x, out):
        torch.add(x, 1, out=out)
        return out * 2

    c = compile(f)
    found = []
    for n in (3, 4, 3):
        out = torch.empty(0)
        found += [c(torch.ones(n), out), out, list(out.shape)]
    return found


@stale
def arguments_are_freed(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    c = compile(lambda m, x: m(x))
    out = []
    for _ in range(3):
        m = nn.Linear(3, 3)
        weak, weight = weakref.ref(m), weakref.ref(m.weight)
        c(m, torch.ones(3))
        del m
        gc.collect()
        out += [weak() is None, weight() is None]
    return out


@stale
def functions_given_back(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """A function of the call has the call's own tensors, and variables that are its own."""
    kept: list[Any] = []

    def f(x):
        y, n = x * 2, 0

        def more(k=1):
            nonlocal n
            n += k
            return y + n

        def count():
            return n

        more.tag = x + 1  # type: ignore[attr-defined]
        kept.append(lambda: y * 3)
        return more, count, kept.append

    c = compile(f)
    found = [c(torch.ones(3) * i) for i in range(4)]
    whole(c, 1)
    out = []
    for more, count, append in found:
        out += [more(), more(5), count(), more.tag, more.__name__]
        append(lambda: 0)
    return [*out, *(function() for function in kept)]


@stale
def errors_given_back(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """An exception that was never raised is made again; one that was has a traceback."""
    def f(x, raised):
        error = ValueError("kept", x.shape[0])
        error.note = x * 2  # type: ignore[attr-defined]
        if raised:
            try:
                raise error
            except ValueError:
                pass
        return error

    c = compile(f)
    found = [c(torch.ones(3) * i, False) for i in range(3)]
    whole(c, 1)
    found += [c(torch.ones(3), True), c(torch.ones(3) * 2, True)]
    same = len({id(e) for e in found}) < len(found)
    return [same, *((e.args, e.note, e.__traceback__ is None) for e in found)]


@stale
def data_comes_back(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """What is written through `.data` is no write that autograd sees, whoever made the alias."""
    own = lambda x: (lambda y: (y, y.data, y.data[1:]))(x * 1)  # noqa: E731
    out = []
    for f in (lambda x: (x, x.data, x.data[1:]), own, lambda x: (x, x.detach(), x[1:].detach())):
        c = compile(f)
        for which in (1, 2, 1):
            w = torch.arange(4.0, requires_grad=True)
            given = c(w * 2)
            y = given[0]
            square = y * y
            given[which].mul_(3)
            out += [y, y._version, given[which]._version, attempt(square.sum().backward), w.grad]
    return out
