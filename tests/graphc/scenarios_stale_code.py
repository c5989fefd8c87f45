"""(5) Code replaced between calls, and names that are only shared; (6) the outside."""

from __future__ import annotations

import contextvars
import importlib.util
import logging
import os
import random
import sys
import tempfile
import threading
import types
import uuid
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from tests.graphc.scenarios_stale_opaque import between, setter
from tests.graphc.stale_scenario import Box, attempt, stale, whole

t = step = mean = 0


def other(x: Any) -> Any:
    return x + 7


@stale
def function_replaced(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    aid = types.ModuleType("aid")
    aid.f = lambda v: v * 2

    def g(v):
        return v - 1

    return between(
        torch, compile, lambda x: g(aid.f(x)),
        setter(aid, "f", lambda v: v * 5), setter(g, "__code__", other.__code__),
    )


@stale
def defaults_replaced(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def g(v, k=2.0, *, add=1.0):
        return v * k + add

    return between(
        torch, compile, lambda x: g(x), setter(g, "__defaults__", (5.0,)),
        setter(g, "__kwdefaults__", {"add": 9.0}), lambda: g.__kwdefaults__.update(add=3.0),
    )


@stale
def methods_replaced(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    class A:
        def f(self, v):
            return v * 2

        @staticmethod
        def s(v):
            return v + 1

    class B:
        def f(self, v):
            return v - 9

        s = A.s

    a = A()
    return between(
        torch, compile, lambda x: a.f(x) + A.s(x),
        setter(A, "f", lambda self, v: v * 5), setter(a, "f", lambda v: v * 7),
        setter(A, "s", staticmethod(lambda v: v * 3)), lambda: a.__dict__.clear(),
        setter(a, "__class__", B),
    )


@stale
def operators_replaced(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    class Number:
        def __init__(self):
            self.v = 2.0

        def __len__(self):
            return 2

        def __call__(self, v):
            return v * self.v

    n = Number()
    return between(
        torch, compile, lambda x: n(x) + len(n), setter(n, "v", 3.0),
        setter(Number, "__len__", lambda self: 5), setter(Number, "__call__", lambda self, v: v),
    )


@stale
def library_function_replaced(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    relu = F.relu
    try:
        return between(
            torch, compile, lambda x: F.relu(x - 2), setter(F, "relu", lambda v: v * 3),
            setter(F, "relu", relu),
        )
    finally:
        F.relu = relu


@stale
def library_method_replaced(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    forward = nn.Linear.forward
    m = nn.Linear(3, 3)
    nn.init.constant_(m.weight, 0.5)
    try:
        return between(
            torch, compile, lambda x: m(x) * 1,
            setter(nn.Linear, "forward", lambda self, v: v * 3),
            setter(nn.Linear, "forward", forward), setter(m, "forward", lambda v: v + 1),
        )
    finally:
        nn.Linear.forward = forward


@stale
def hooks_and_parametrize(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    class Twice(nn.Module):
        def forward(self, w):
            return w * 2

    m, handles = nn.Linear(3, 3), []
    nn.init.constant_(m.weight, 0.5)
    return between(
        torch, compile, lambda x: m(x).detach(),
        lambda: handles.append(m.register_forward_hook(lambda m, i, o: o * 2)),
        lambda: handles.pop().remove(),
        lambda: torch.nn.utils.parametrize.register_parametrization(m, "weight", Twice()),
        lambda: m.weight.requires_grad,
    )


@stale
def names_that_are_only_shared(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    global t, step, mean
    c = compile(lambda x: x.t().sum() + x.mean())
    out = []
    for t in range(4):
        step, mean = torch.ones(t + 1), str(t)
        out.append(c(torch.ones(2, 3) * t))
    whole(c, 1)
    t = step = mean = 0
    return out


@stale
def attributes_that_nobody_reads(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    s = Box(k=2.0, epoch=0)
    c = compile(lambda x: x * s.k)
    out = []
    for i in range(4):
        s.epoch, s.note = i, str(i)
        out.append(c(torch.ones(3)))
    whole(c, 2)
    return out


# --- (6) the outside ----------------------------------------------------------------------------


@stale
def environment(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    os.environ.pop("GRAPHC_TEST_KEY", None)
    try:
        return between(
            torch, compile, lambda x: x * len(os.environ.get("GRAPHC_TEST_KEY", "ab")),
            lambda: os.environ.update(GRAPHC_TEST_KEY="abcd"),
        )
    finally:
        os.environ.pop("GRAPHC_TEST_KEY", None)


@stale
def context_and_thread_variables(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    var, here = contextvars.ContextVar("var", default=2.0), threading.local()
    here.k, here.n = 1.0, 0

    def f(x):
        here.n += 1
        return x * var.get() + here.k + here.n

    return between(torch, compile, f, lambda: var.set(5.0), setter(here, "k", 7.0))


@stale
def random_streams(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    random.seed(0)
    np.random.seed(0)
    own = random.Random(1)

    def f(x):
        return x * random.random() + float(np.random.rand()) + own.random() + torch.rand(3)

    return [*between(torch, compile, f, lambda: random.seed(3)), random.random(), torch.rand(1)]


@stale
def identifiers(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    made: set[Any] = set()

    def f(x):
        made.add(uuid.uuid4())
        return x * len(made)

    return between(torch, compile, f, lambda: made.clear())


@stale
def logging_and_warnings(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    logger = logging.getLogger("graphc.tests.stale")
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)

    def f(x):
        logger.info("rows %d", x.shape[0])
        warnings.warn("careful", UserWarning, stacklevel=2)
        return x * (2 if logger.isEnabledFor(logging.DEBUG) else 3)

    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            out = between(torch, compile, f, lambda: logger.setLevel(logging.DEBUG))
            own = [w for w in said if w.category.__name__ != "PerformanceWarning"]
            return [*out, lines, [str(w.message) for w in own]]
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)


@stale
def default_dtype_and_modes(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    w = nn.Parameter(torch.ones(3))

    def f(x):
        y = w * x + torch.ones(3)
        return y.detach(), str(y.dtype), y.requires_grad

    c = compile(f)
    out = [c(torch.ones(3))]
    try:
        torch.set_default_dtype(torch.float64)
        out.append(c(torch.ones(3)))
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.no_grad():
        out.append(c(torch.ones(3)))
    with torch.inference_mode():
        out.append(c(torch.ones(3)))
    return [*out, c(torch.ones(3))]


_CLASS = """
class Settings:
    scale = 1.5

    def twice(self):
        return self.scale * 2

def f(x):
    return x * Settings.scale + Settings().twice()
"""


@stale
def classes_of_a_bare_namespace(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    space: dict[str, Any] = {}  # without a __name__: classes say that they are of builtins
    exec(_CLASS, space)
    return _with_settings(torch, compile, space["f"], space["Settings"])


@stale
def classes_of_a_file_named_like_a_library_s(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "turtle.py"
        path.write_text(_CLASS)
        spec = importlib.util.spec_from_file_location("turtle", path)
        assert spec is not None and spec.loader is not None
        own = importlib.util.module_from_spec(spec)
        former = sys.modules.get("turtle")
        sys.modules["turtle"] = own
        try:
            spec.loader.exec_module(own)
            return _with_settings(torch, compile, own.f, own.Settings)
        finally:
            del sys.modules["turtle"]
            if former is not None:
                sys.modules["turtle"] = former


@stale
def classes_of_a_module_that_nobody_imported(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    own = types.ModuleType("turtledemo")
    exec(_CLASS, vars(own))
    return _with_settings(torch, compile, own.f, own.Settings)


def _with_settings(torch: Any, compile: Any, f: Any, settings: Any) -> list[Any]:
    c, out = compile(f), []
    for scale in (1.5, 2.5, 3.5):
        settings.scale = scale
        out.append(attempt(c, torch.ones(2)))
    settings.twice = lambda self: 7.0
    return [*out, attempt(c, torch.ones(2))]
