"""The call of a draw's code (draw.py) as a function like a kernel's, in the driver's module."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.backends.llvm.draw import draw_of, symbol
from graphc.backends.llvm.emit_index import Indices
from graphc.backends.llvm.target import Target
from graphc.backends.llvm.text import Module
from graphc.backends.llvm.text import Value as Word
from graphc.backends.llvm.values import Value
from graphc.ir import dtypes
from graphc.ir.kernel import Routine


def emit_draw(module: Module, target: Target, step: Routine, dims: Sequence[str]) -> str:
    """Defines void @NAME(ptr args, ptr status), and gives the name. In `args` are the addresses of
    the state, of the values and of the state behind them, and the program's dims."""
    draw = draw_of(step.op, dict(step.attrs))
    assert draw is not None
    name = f"draw_{module.count_use('draw')}"
    callee = symbol(draw.kind)
    module.declare(f"declare void @{callee}(ptr, ptr, ptr, i64, i64, i64)")
    f = module.function(f"void @{name}(ptr %args, ptr %status)", linkage="internal")
    before, out, state = (f.load(f.gep("%args", i, "i64"), "ptr", 8) for i in range(3))
    context = Indices(f, module, target, {})
    for i, dim in enumerate(dims):
        word = f.load(f.gep("%args", 3 + i, "i64"), "i64", 8)
        context.bind(dim, Value(word, dtypes.i64, 1, 0))
    count: Word = 1
    for size in draw.shape:
        count = f.mul(count, context.index(size))
    first, second = (*draw.numbers, 0, 0)[:2]
    f.call(
        "void", f"@{callee}", f"ptr {before}", f"ptr {out}", f"ptr {state}", f"i64 {count}",
        f"i64 {first}", f"i64 {second}",
    )
    f.ret()
    return name
