"""What installed packages are made of: configurations that answer for themselves, proxies,
signatures, enumerations, decorators, context variables and attributes of argument tensors."""

from __future__ import annotations

import contextvars
import enum
import functools
import inspect
import sys
import types
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from tests.graphc.scenarios_stale_opaque import between, setter
from tests.graphc.stale_scenario import stale, whole

COLLECTED: contextvars.ContextVar[Any] = contextvars.ContextVar("COLLECTED", default=None)


class Config:
    """A configuration whose attributes have second names."""

    names = {"width": "hidden_size"}

    def __init__(self, **values: Any) -> None:
        self.asked = 0
        vars(self).update(values)

    def __getattribute__(self, key: str) -> Any:
        if key == "__class__":
            asked = super().__getattribute__("__dict__")
            asked["asked"] += 1
        if key != "names" and key in super().__getattribute__("names"):
            key = super().__getattribute__("names")[key]
        return super().__getattribute__(key)


@stale
def attributes_with_second_names(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    config = Config(hidden_size=2.0, other=None)

    def f(x):
        y = x * config.width
        if config is not None and getattr(config, "depth", None) is None:
            y = y + 1
        return y if config.other is None else y * config.other

    c = compile(f)
    out = [c(torch.ones(2)), c(torch.ones(2))]
    for change in (
        setter(config, "hidden_size", 5.0), setter(config, "other", 3.0),
        setter(config, "depth", 1), lambda: Config.names.update(width="other"),
    ):
        change()
        out += [c(torch.ones(2)), c(torch.ones(2))]
    Config.names["width"] = "hidden_size"
    whole(c)
    return [out, object.__getattribute__(config, "__dict__")["asked"]]


@stale
def class_that_an_object_claims(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    class Stand:
        kind = dict

        @property
        def __class__(self) -> Any:
            return self.kind

    stand = Stand()
    f = lambda x: x * 2 if isinstance(stand, dict) else x * 3  # noqa: E731
    c = compile(f)
    out = [c(torch.ones(2)), c(torch.ones(2))]
    Stand.kind = list
    out += [c(torch.ones(2)), c(torch.ones(2))]
    whole(c)
    return out


@stale
def property_that_raises_attribute_error(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    class Lazy:
        table = {"scale": 2.0}

        @property
        def scale(self) -> float:
            raise AttributeError("not yet")

        def __getattr__(self, name: str) -> Any:
            return self.table[name]

    lazy = Lazy()
    return between(
        torch, compile, lambda x: x * lazy.scale, lambda: Lazy.table.update(scale=7.0)
    )


@stale
def proxies_of_mappings(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    table = {"a": 2.0, "b": 3.0}
    proxy = types.MappingProxyType(table)

    class Names:
        one = 1.0

    def f(x):
        y = x * proxy["a"] + proxy.get("c", 0.0) + sum(proxy.values()) + len(proxy)
        y = y + sum(v for k, v in proxy.items() if "a" in proxy)
        return y * Names.__dict__["one"] + len([k for k in vars(Names) if k == "two"])

    c = compile(f)
    out = [c(torch.ones(2)), c(torch.ones(2))]
    for change in (
        lambda: table.update(a=5.0), lambda: table.update(c=1.0), setter(Names, "one", 2.0),
        setter(Names, "two", 2.0), lambda: table.pop("a") and table.update(a=1.0),
    ):
        change()
        out += [c(torch.ones(2)), c(torch.ones(2))]
    whole(c)
    return out


class Mode(enum.Enum):
    FAST = "fast"
    SLOW = "slow"


@stale
def members_found_by_value(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    holder = types.SimpleNamespace(mode="fast")
    f = lambda x: x * 2 if Mode(holder.mode) is Mode.FAST else x * 3  # noqa: E731
    c = compile(f)
    out = [c(torch.ones(2)), c(torch.ones(2))]
    holder.mode = "slow"
    out += [c(torch.ones(2)), c(torch.ones(2))]
    whole(c)
    return out


@stale
def signatures(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    class Block:
        def chunk(self, a, b=2.0):
            return a * b

    block = Block()

    def f(x):
        parameters = inspect.signature(block.chunk).parameters
        return block.chunk(x) * len(parameters)

    c = compile(f)
    out = [c(torch.ones(2)), c(torch.ones(2))]
    Block.chunk.__defaults__ = (5.0,)
    out += [c(torch.ones(2)), c(torch.ones(2))]
    Block.chunk = lambda self, a: a * 3
    out += [c(torch.ones(2)), c(torch.ones(2))]
    whole(c)
    return out


@stale
def decorated_by_modes(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    scale = types.SimpleNamespace(k=2.0)

    @torch.no_grad()
    def aside(x, f):
        return f(x) * scale.k

    @torch.no_grad()
    def steps(n):
        for i in range(n):
            yield i * scale.k

    def f(x):
        return x + aside(x, lambda v: v * scale.k) + sum(steps(3))

    c = compile(f)
    out = []
    for change in (lambda: None, setter(scale, "k", 3.0), setter(scale, "k", torch.ones(2))):
        change()
        for _ in range(2):
            x = torch.ones(2, requires_grad=True)
            y = c(x)
            y.sum().backward()
            out.append((y, x.grad))
    whole(c)
    return out


@stale
def context_variables_set_inside(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def inner(x):
        found = COLLECTED.get()
        if found is not None:
            found.append(x * 2)
        return x + 1

    def f(x):
        token = COLLECTED.set([])
        try:
            y = inner(x)
            found = COLLECTED.get()
        finally:
            COLLECTED.reset(token)
        return y, found, COLLECTED.get()

    c = compile(f)
    out = [c(torch.ones(2)), c(torch.ones(2) * 3)]
    token = COLLECTED.set(5)
    out += [c(torch.ones(2)), c(torch.ones(2) * 3)]
    COLLECTED.reset(token)
    whole(c)
    return out


@stale
def context_variables_left_set(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    variable: contextvars.ContextVar[Any] = contextvars.ContextVar("variable", default=0)

    def f(x):
        variable.set(variable.get() + 1)
        return x * variable.get()

    c = compile(f)
    out = []
    for _ in range(3):
        out += [c(torch.ones(2)), variable.get()]
    variable.set(10)
    return [*out, c(torch.ones(2)), variable.get()]


@stale
def attributes_of_arguments(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x):
        return x * 2 if not hasattr(x, "tag") else x * x.tag

    c = compile(f)
    marked, other = torch.ones(2), torch.ones(2)
    marked.tag = other.tag = 5.0
    out = [c(torch.ones(2)), c(torch.ones(2)), c(marked), c(marked), c(other)]
    other.tag = 7.0
    out += [c(other), c(torch.ones(2))]
    whole(c)
    return out


@stale
def attributes_given_to_arguments(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x):
        x.tag = "seen"
        return x * 2

    c = compile(f)
    xs = [torch.ones(2) * i for i in range(3)]
    return [(c(x), x.tag) for x in xs]


@stale
def imports_for_the_first_time(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    for name in ("colorsys", "wave"):
        sys.modules.pop(name, None)

    def f(x):
        import colorsys
        from wave import WAVE_FORMAT_PCM

        return x * colorsys.ONE_THIRD + WAVE_FORMAT_PCM

    c = compile(f)
    out = [c(torch.ones(2)), c(torch.ones(2))]
    sys.modules["colorsys"].ONE_THIRD = 2.0
    out += [c(torch.ones(2)), c(torch.ones(2))]
    del sys.modules["colorsys"]
    whole(c)
    return out


@dataclass
class Output(OrderedDict):
    """A result as Hugging Face's ModelOutput is: a dict with its fields as attributes."""

    logits: Any = None
    hidden: Any = None

    def __post_init__(self) -> None:
        empty = all(self.__dict__.get(name) is None for name in ("hidden",))
        for name in ("logits",) if empty else ("logits", "hidden"):
            super().__setitem__(name, self.__dict__[name])


@stale
def results_that_a_closure_has_seen(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    c = compile(lambda x: Output(logits=x * 2))
    out = []
    for i in range(3):
        found = c(torch.ones(2) * i)
        out += [found.logits, found["logits"], list(found), type(found).__name__]
    whole(c)
    return out


@stale
def sizes_in_caches(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    factor = [2.0]

    @functools.lru_cache(4)
    def split(recipe, shape, names):
        return shape[0] * factor[0], (*shape[1:], len(names))

    cached = functools.lru_cache(None)(functools.partial(lambda k, n: k * n, 3))

    def f(x):
        scale, rest = split("a b", x.shape, (("a", 2), ("b", x.shape[1])))
        return x * scale + cached(x.shape[0]) + len(rest)

    c = compile(f)
    out = [c(torch.ones(n, 3)) for n in (2, 2, 4, 4, 5, 2)]
    factor[0] = 7.0
    out.append(c(torch.ones(2, 3)))
    split.cache_clear()
    out += [c(torch.ones(n, 3)) for n in (2, 4)]
    whole(c)
    return out
