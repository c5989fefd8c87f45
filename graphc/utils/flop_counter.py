"""torch.utils.flop_counter: the floating-point operations of products, convolutions and attention,
counted as eager operators run, on any device; on "meta" nothing is computed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from ..compiler import set_stance
from ..frontend.placement import wrap_runners
from ..frontend.values import Runner
from ..ir.op import Attrs, Op
from ..ops_registry import OpPacket
from .module_tracker import GLOBAL, ModuleTracker

Shapes = Sequence[tuple[int, ...]]
Count = tuple[str, int]  # torch's operator, floating-point operations


def _product(inputs: Shapes, results: Shapes, attrs: Attrs) -> Count:
    terms = math.prod(inputs[0][d] for d in attrs["contract_a"])
    return "bmm" if attrs["batch_a"] else "mm", 2 * math.prod(results[0]) * terms


def _convolution(inputs: Shapes, results: Shapes, attrs: Attrs) -> Count:
    return "convolution", 2 * math.prod(results[0]) * math.prod(inputs[1][1:])


def _input_gradient(inputs: Shapes, results: Shapes, attrs: Attrs) -> Count:
    return "convolution_backward", 2 * math.prod(inputs[0]) * math.prod(inputs[1][1:])


def _weight_gradient(inputs: Shapes, results: Shapes, attrs: Attrs) -> Count:
    # as torch counts: every pair of channels, of groups too
    kernel = math.prod(results[0][2:])
    return "convolution_backward", 2 * math.prod(inputs[1]) * inputs[0][1] * kernel


def _scores(inputs: Shapes) -> tuple[int, int]:
    """Operations of scores = q k^T, and of scores v."""
    q, k, v = inputs[:3]
    rows = 2 * math.prod(q[:-1]) * k[-2]
    return rows * q[-1], rows * v[-1]


def _attention(inputs: Shapes, results: Shapes, attrs: Attrs) -> Count:
    return "scaled_dot_product_attention", sum(_scores(inputs))


def _attention_gradient(inputs: Shapes, results: Shapes, attrs: Attrs) -> Count:
    scores, values = _scores(inputs)  # the scores again, and two gradients of each product
    return "scaled_dot_product_attention_backward", 3 * scores + 2 * values


# by operator record; torch counts nothing else either
FORMULAS: dict[str, Callable[[Shapes, Shapes, Attrs], Count]] = {
    "dot_general": _product, "conv": _convolution, "conv_input_grad": _input_gradient,
    "conv_weight_grad": _weight_gradient, "attention": _attention,
    "attention_grad": _attention_gradient,
}


class FlopCounterMode:
    """Inside the block, operations are counted by operator and by Module.

    A Linear counts as aten.mm, a transposed convolution as aten.convolution_backward. Compiled
    functions run eagerly. `depth`: Modules so deep are in the table that is printed at the end
    unless `display` is False.
    """

    def __init__(
        self, mods: Any = None, depth: int | None = 2, display: bool = True,
        custom_mapping: Any = None,
    ) -> None:
        if custom_mapping:
            raise NotImplementedError(
                "FlopCounterMode(custom_mapping=...) is not supported: FORMULAS of "
                "graphc.utils.flop_counter is by graphc's operators"
            )
        self.depth, self.display = depth, display
        self.flop_counts: dict[str, dict[OpPacket, int]] = {}
        self._tracker = ModuleTracker()

    def __enter__(self) -> FlopCounterMode:
        self.flop_counts = defaultdict(lambda: defaultdict(int))
        self._stance = set_stance("force_eager")
        self._tracker.__enter__()
        self._end = wrap_runners(self._counting)
        return self

    def __exit__(self, *exception: Any) -> None:
        self._end()
        self._tracker.__exit__()
        self._stance.__exit__(None, None, None)
        if self.display:
            print(self.get_table())

    def _counting(self, run: Runner) -> Runner:
        def counted(op: Op, buffers: list[Any], attrs: Attrs) -> Any:
            result = run(op, buffers, attrs)
            formula = FORMULAS.get(op.name)
            if formula is not None:
                results = result if isinstance(result, tuple) else (result,)
                self._add(*formula([b.shape for b in buffers], [r.shape for r in results], attrs))
            return result

        return counted

    def _add(self, name: str, flops: int) -> None:
        for parent in self._tracker.parents:
            self.flop_counts[parent][OpPacket(f"aten::{name}", None)] += flops

    def get_total_flops(self) -> int:
        """All that was counted."""
        return sum(self.flop_counts.get(GLOBAL, {}).values())

    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        """By the Module's name, and by torch.ops.aten's operator."""
        return {name: dict(counts) for name, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """A line for each Module and operator."""
        most = (math.inf if self.depth is None else self.depth) if depth is None else depth
        rows = [("Module", "FLOP", "% Total")]
        for name in sorted(self.flop_counts, key=lambda name: (name != GLOBAL, name)):
            level = 0 if name == GLOBAL else name.count(".") + 1
            if level > most:
                continue
            counts = self.flop_counts[name]
            rows.append(self._row(" " * level + name, sum(counts.values())))
            rows += [
                self._row(f"{' ' * level} - {op}", n) for op, n in counts.items()
            ]
        first, second, third = (max(map(len, column)) for column in zip(*rows, strict=True))
        lines = [f"{a:<{first}}  {b:>{second}}  {c:>{third}}" for a, b, c in rows]
        lines.insert(1, f"{'-' * first}  {'-' * second}  {'-' * third}")
        return "\n".join(lines)

    def _row(self, name: str, flops: int) -> tuple[str, str, str]:
        return name, _short(flops), f"{flops / max(self.get_total_flops(), 1):.2%}"


def _short(flops: int) -> str:
    for size, letter in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "K")):
        if flops >= size:
            return f"{flops / size:.3f}{letter}"
    return str(flops)


__all__ = ["FlopCounterMode"]
