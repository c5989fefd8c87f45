"""`print_program(program)`: the steps of a program and the buffers that each is bound to.

    program f (s0), arena 128 B
      copy a0=in1 o0=arena n=8
      repeat i1 < s0
        tanh a0=arena + 64*(i1 % 2) o0=out0 + 32*i1 n=8
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..dim import Size
from .program import Branch, BufferRef, Launch, Program, ProgramStep, Routine

_SHORT = {"input": "in", "output": "out", "const": "const"}


def print_program(program: Program) -> str:
    """The text of a planned graph."""
    dims = f" ({', '.join(program.dims)})" if program.dims else ""
    head = f"program {program.name}{dims}, arena {_size(program.arena_bytes)} B"
    return "\n".join([head, *_steps(program.steps, "  ")]) + "\n"


def _steps(steps: Sequence[ProgramStep], margin: str) -> Iterator[str]:
    inside = margin + "  "
    for step in steps:
        if isinstance(step, Launch):
            names = [param.name for param in step.kernel.params]
            dims = zip(step.kernel.dims, map(_size, step.dims), strict=True)
            bound = [*zip(names, map(_buffer, step.buffers), strict=True), *dims]
            yield margin + " ".join([step.kernel.name, *(f"{k}={v}" for k, v in bound)])
        elif isinstance(step, Routine):
            yield f"{margin}call {step.op} {_all(step.inputs)} -> {_all(step.outputs)}"
        elif isinstance(step, Branch):
            yield f"{margin}if {_buffer(step.flag)}"
            yield from _steps(step.then, inside)
            yield f"{margin}else"
            yield from _steps(step.otherwise, inside)
        elif step.flag is None:
            assert step.count is not None
            yield f"{margin}repeat {step.var} < {_size(step.count)}"
            yield from _steps(step.steps, inside)
        else:
            most = "" if step.count is None else f" < {_size(step.count)}"
            yield f"{margin}repeat {step.var}{most} while {_buffer(step.flag)} of"
            yield from _steps(step.test, inside)
            yield f"{margin}do"
            yield from _steps(step.steps, inside)


def _all(refs: Iterable[BufferRef]) -> str:
    return ", ".join(map(_buffer, refs))


def _buffer(ref: BufferRef) -> str:
    name = "arena" if ref.space == "arena" else f"{_SHORT[ref.space]}{ref.index}"
    return name if ref.offset == 0 else f"{name} + {_size(ref.offset)}"


def _size(size: Size) -> str:
    return str(size) if isinstance(size, int) else size.text()
