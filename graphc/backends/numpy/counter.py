"""Eager draws: of mt19937's stream, or from a counter, as compiled code then draws them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from graphc.ir import interpret
from graphc.ir.counter_draws import DRAWS, drawn
from graphc.ir.graph import Builder, Expr, Graph
from graphc.ir.ops.random import STATE

from .common import Array, Function

_KEPT = 256  # graphs of draws


class Draws:
    """Which of the two: injected, since no backend reads configuration."""

    by_counter: Callable[[], bool] = staticmethod(lambda: False)


def draws(table: Mapping[str, Function]) -> dict[str, Function]:
    """For the draws that there are from a counter, what eager mode runs."""
    return {name: _either(name, table) for name in DRAWS}


def _either(name: str, table: Mapping[str, Function]) -> Function:
    def run(state: Array, **attrs: Any) -> Any:
        if not Draws.by_counter():
            return table[name](state, **attrs)
        return tuple(interpret.evaluate(_graph(name, tuple(attrs.items())), [state], table))

    return run


@lru_cache(maxsize=_KEPT)
def _graph(name: str, attrs: tuple[tuple[str, Any], ...]) -> Graph:
    builder = Builder()
    state = Expr(builder, builder.input(STATE, "state"))
    return builder.build([x.node for x in drawn(name, state, dict(attrs))])
