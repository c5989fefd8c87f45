"""Programs that are over before another thread would begin: the GIL is kept for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from graphc.ir.dim import Size, evaluate
from graphc.ir.kernel import Launch, Program
from graphc.ir.kernel.nest import Loop, Stmt

MOST_STEPS = 8
MOST_ITERATIONS = 1 << 14  # of the innermost loops: some 10 microseconds


def is_short(program: Program) -> bool:
    """Whether a program runs for microseconds, whatever its inputs hold."""
    steps = program.steps
    if len(steps) > MOST_STEPS:
        return False
    total = 0
    for step in steps:
        if not isinstance(step, Launch) or step.kernel.template is not None:
            return False
        if not all(isinstance(size, int) for size in step.dims):
            return False
        values = dict(zip(step.kernel.dims, step.dims, strict=True))
        sizes = {name: size for name, size in values.items() if isinstance(size, int)}
        for stage in step.kernel.stages:
            count = _iterations(stage, sizes)
            if count is None:
                return False
            total += count
    return total <= MOST_ITERATIONS


def _iterations(body: Iterable[Stmt], sizes: Mapping[str, int]) -> int | None:
    """How often the statements of a body run, together; None: it hangs on a loop's variable."""
    total = 1
    for part in body:
        if not isinstance(part, Loop):
            continue
        extent = _value(part.extent, sizes)
        if extent is None:
            return None
        # the last part of an axis may be short: it is largest where the loop begins, or ends
        inner = [_iterations(part.body, {**sizes, part.var: at}) for at in {0, max(extent - 1, 0)}]
        most = [count for count in inner if count is not None]
        if len(most) < len(inner):
            return None
        total += extent * max(most)
    return total


def _value(size: Size, sizes: Mapping[str, int]) -> int | None:
    if isinstance(size, int):
        return size
    if not set(size.variables()) <= sizes.keys():
        return None
    return evaluate(size, sizes)
