"""`emit(kernel)`: a kernel as CUDA C; here, those of loops. Pure: nothing is compiled or run.

A stage is one `__global__` function: launches in order are the barrier between stages. Iterations
of a parallel loop are shared out to blocks, those of a vector loop to a block's threads; what lies
outside a vector loop is computed by every thread of the block alike, and stored by the first. A
vector loop's carries are summed per thread, then in shared memory by a fixed tree: results depend
on the block size alone, never on timing. What a stage keeps in shared memory lies in the launch's
dynamic part: first what the trees use, then its Locals.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphc.backends.cuda import templates
from graphc.backends.cuda.indices import index_text
from graphc.backends.cuda.prelude import PRELUDE
from graphc.backends.cuda.scalar import apply, c_type, combine, literal
from graphc.backends.cuda.source import OLDEST, SHARED_MOST, Source, Stage, Target
from graphc.ir.dim import Size
from graphc.ir.dtypes import DType
from graphc.ir.kernel import (
    Apply,
    Carry,
    Check,
    IndexValue,
    Kernel,
    Let,
    Literal,
    Load,
    Local,
    Loop,
    Scalar,
    Stmt,
    Store,
    Var,
)
from graphc.ir.kernel.combine import ARGUMENTS, identity
from graphc.ir.kernel.text import kernel_symbol
from graphc.ir.kernel.walk import children

BLOCK = 256  # threads; a power of two
_TREES = BLOCK * 16  # bytes: a value and its index of each thread


def emit(kernel: Kernel, target: Target = OLDEST) -> Source:
    """A kernel as CUDA C. Raises NotImplementedError for what there is no code for."""
    if kernel.template is not None:
        return templates.render(kernel, target)
    symbol = kernel_symbol(kernel)
    functions: list[str] = []
    stages: list[Stage] = []
    reductions: dict[str, str] = {}
    checks: list[Check] = []
    for number, body in enumerate(kernel.stages):
        name = f"{symbol}_stage{number}"
        emitter = _Stage(kernel, reductions, checks)
        functions.append(emitter.function(name, body))
        stages.append(Stage(name, _blocks(body), BLOCK, emitter.shared))
    text = "\n".join((PRELUDE, *reductions.values(), *functions))
    return Source(text, tuple(stages))


def _blocks(body: Sequence[Stmt]) -> Size:
    for stmt in body:
        if isinstance(stmt, Loop) and stmt.kind == "parallel":
            return stmt.extent
    return 1


class _Stage:
    """The function of one stage. `lanes`: inside a vector loop, where each thread goes its way."""

    def __init__(self, kernel: Kernel, reductions: dict[str, str], checks: list[Check]) -> None:
        self.kernel, self.reductions, self.checks = kernel, reductions, checks
        self.lines: list[str] = []
        self.indent = 1
        self.lanes = False
        self.count = 0
        self.shared = 0  # bytes

    def function(self, name: str, body: Sequence[Stmt]) -> str:
        parameters = [f"{c_type(p.dtype)}* {p.name}" for p in self.kernel.params]
        parameters += [f"i64 {dim}" for dim in self.kernel.dims]
        parameters.append("i64* status")
        self.statements(body)
        head = f'extern "C" __global__ void {name}({", ".join(parameters)}) {{'
        if self.shared > SHARED_MOST:
            raise NotImplementedError(f"{name} needs {self.shared} bytes of shared memory")
        shared = ["  DYNAMIC_SHARED(shared);"] if self.shared else []
        return "\n".join((head, *shared, *self.lines, "}\n"))

    def emit(self, line: str) -> None:
        self.lines.append("  " * self.indent + line)

    def fresh(self, name: str) -> str:
        self.count += 1
        return f"{name}_{self.count}"

    # Statements

    def statements(self, body: Sequence[Stmt], carries: Sequence[Carry] = ()) -> None:
        """Statements in order, then what a loop carries on; a Check encloses what follows it."""
        opened = 0
        for stmt in body:
            if isinstance(stmt, Let):
                dtype = stmt.value.dtype
                self.emit(f"const {c_type(dtype)} {stmt.name} = {self.scalar(stmt.value)};")
            elif isinstance(stmt, Store):
                self.store(stmt)
            elif isinstance(stmt, Loop):
                self.loop(stmt)
            elif isinstance(stmt, Local):
                self.local(stmt)
            else:
                self.open_check(stmt)
                opened += 1
        self.update(carries)
        for _ in range(opened):
            self.close()

    def local(self, stmt: Local) -> None:
        kind, start = c_type(stmt.dtype), self.reserve(stmt.size * stmt.dtype.itemsize)
        self.emit(f"{kind}* const {stmt.name} = ({kind}*)(shared + {start});")

    def reserve(self, size: int) -> int:
        """Where so many bytes of shared memory begin, behind those of the trees."""
        start = max(self.shared, _TREES)
        self.shared = start + -(-size // 16) * 16
        return start

    def open_check(self, stmt: Check) -> None:
        number = len(self.checks)
        self.checks.append(stmt)
        self.emit(f"const bool {(ok := self.fresh('ok'))} = {self.scalar(stmt.ok)};")
        self.emit(f"if (!{ok}) fail(status, {number}, {self.scalar(stmt.value)});")
        self.open(f"if ({ok}) {{")

    def open(self, line: str) -> None:
        self.emit(line)
        self.indent += 1

    def close(self) -> None:
        self.indent -= 1
        self.emit("}")

    def store(self, stmt: Store) -> None:
        place = f"{stmt.buffer}[{index_text(stmt.index)}]"
        value = self.scalar(stmt.value)
        if stmt.combine:
            value = combine(stmt.combine, value, place)
        conditions = [] if self.lanes else ["threadIdx.x == 0"]
        if stmt.mask is not None:
            conditions.append(self.scalar(stmt.mask))
        guard = f"if ({' && '.join(conditions)}) " if conditions else ""
        if self.lanes:
            self.emit(f"{guard}{place} = {value};")
            return
        self.emit("__syncthreads();")  # others may still read what was there
        self.emit(f"{guard}{place} = {value};")
        self.emit("__syncthreads();")

    # Loops

    def loop(self, loop: Loop) -> None:
        for carry in loop.carries:
            kind = c_type(carry.dtype)
            self.emit(f"{kind} {carry.name} = {self.scalar(carry.init)};")
        if loop.kind == "vector" and not self.lanes:
            self.vector(loop)
            return
        start, step = ("blockIdx.x", "gridDim.x") if loop.kind == "parallel" else ("0", "1")
        self.open(self._for(loop, start, step))
        self.statements(loop.body, loop.carries)
        self.close()

    def _for(self, loop: Loop, start: str, step: str) -> str:
        extent = index_text(loop.extent)
        return f"for (i64 {loop.var} = {start}; {loop.var} < {extent}; {loop.var} += {step}) {{"

    def vector(self, loop: Loop) -> None:
        """Iterations by thread; a carry starts as the identity in all threads but the first."""
        self.emit("__syncthreads();")
        inits = {c.name: self.fresh("init") for c in loop.carries}
        for carry in loop.carries:
            kind = c_type(carry.dtype)
            self.emit(f"const {kind} {inits[carry.name]} = {carry.name};")
            if carry.combine == "set":
                raise ValueError(f"carry {carry.name}: a vector loop cannot carry by 'set'")
            if carry.combine not in (*ARGUMENTS, "index"):
                start = literal(identity(carry.combine, carry.dtype), carry.dtype)
                self.emit(f"{carry.name} = {start};")
        self.lanes = True
        self.open(self._for(loop, "threadIdx.x", "blockDim.x"))
        self.statements(loop.body, loop.carries)
        self.close()
        self.lanes = False
        self.emit("__syncthreads();")
        for position, carry in enumerate(loop.carries):
            if carry.combine in ARGUMENTS:
                index = loop.carries[position + 1]
                function = self.arg_reduction(carry, index)
                self.emit(f"{function}(&{carry.name}, &{index.name}, shared);")
            elif carry.combine != "index":
                function = self.reduction(carry.combine, carry.dtype)
                total = f"{function}({carry.name}, shared)"
                self.emit(f"{carry.name} = {combine(carry.combine, inits[carry.name], total)};")

    def update(self, carries: Sequence[Carry]) -> None:
        """The carried values after an iteration: all read before any is written."""
        new = {c.name: self.fresh("next") for c in carries}
        for carry in carries:
            kind = c_type(carry.dtype)
            self.emit(f"const {kind} {new[carry.name]} = {self.scalar(carry.next)};")
        taken = ""
        for carry in carries:
            name, value = carry.name, new[carry.name]
            if carry.combine in ARGUMENTS:
                taken = self.fresh("taken")
                self.emit(f"const bool {taken} = better_{carry.combine[3:]}({value}, {name});")
                self.emit(f"if ({taken}) {name} = {value};")
            elif carry.combine == "index":
                self.emit(f"if ({taken}) {name} = {value};")
            else:
                first, second = (value, name) if carry.combine != "set" else (name, value)
                self.emit(f"{name} = {combine(carry.combine, first, second)};")

    def reduction(self, kind: str, dtype: DType) -> str:
        """The device function that combines a value over the block's threads."""
        name = f"block_{kind}_{dtype.name}"
        t = c_type(dtype)
        self.shared = max(self.shared, _TREES)
        self.reductions[name] = f"""\
__device__ inline {t} {name}({t} x, unsigned char* shared) {{
  {t}* const s = ({t}*)shared;
  const unsigned t = threadIdx.x;
  s[t] = x;
  __syncthreads();
  for (unsigned h = blockDim.x / 2; h > 0; h /= 2) {{
    if (t < h) s[t] = {combine(kind, "s[t + h]", "s[t]")};
    __syncthreads();
  }}
  x = s[0];
  __syncthreads();
  return x;
}}
"""
        return name

    def arg_reduction(self, carry: Carry, index: Carry) -> str:
        """The same for a value with its index; of equal values the lower index wins."""
        name = f"block_{carry.combine}_{carry.dtype.name}_{index.dtype.name}"
        t, i, better = c_type(carry.dtype), c_type(index.dtype), f"better_{carry.combine[3:]}"
        self.shared = max(self.shared, _TREES)
        self.reductions[name] = f"""\
__device__ inline void {name}({t}* x, {i}* index, unsigned char* shared) {{
  {t}* const s = ({t}*)shared;
  {i}* const at = ({i}*)(shared + {BLOCK * 8});
  const unsigned t = threadIdx.x;
  s[t] = *x;
  at[t] = *index;
  __syncthreads();
  for (unsigned h = blockDim.x / 2; h > 0; h /= 2) {{
    if (t < h) {{
      const bool tie = !{better}(s[t], s[t + h]) && at[t + h] < at[t];
      if ({better}(s[t + h], s[t]) || tie) {{ s[t] = s[t + h]; at[t] = at[t + h]; }}
    }}
    __syncthreads();
  }}
  *x = s[0];
  *index = at[0];
  __syncthreads();
}}
"""
        return name

    # Scalars

    def scalar(self, root: Scalar) -> str:
        """An expression; operators shared within it are named by a line of their own."""
        texts: dict[int, str] = {}
        stack = [root]
        while stack:
            scalar = stack[-1]
            pending = [part for part in children(scalar) if id(part) not in texts]
            if pending:
                stack += pending
                continue
            stack.pop()
            if id(scalar) not in texts:
                text = self._scalar(scalar, texts)
                if isinstance(scalar, Apply) and scalar is not root:
                    name = self.fresh("x")
                    self.emit(f"const {c_type(scalar.dtype)} {name} = {text};")
                    text = name
                texts[id(scalar)] = text
        return texts[id(root)]

    def _scalar(self, scalar: Scalar, texts: dict[int, str]) -> str:
        if isinstance(scalar, Literal):
            return literal(scalar.value, scalar.dtype)
        if isinstance(scalar, Var):
            return scalar.name
        if isinstance(scalar, IndexValue):
            return index_text(scalar.index)
        if isinstance(scalar, Load):
            load = f"{scalar.buffer}[{index_text(scalar.index)}]"
            if scalar.mask is None:
                return load
            other = literal(0, scalar.dtype)
            if scalar.other is not None:
                other = texts[id(scalar.other)]
            return f"({texts[id(scalar.mask)]} ? {load} : {other})"
        args = [texts[id(arg)] for arg in scalar.args]
        return apply(scalar.op, scalar.dtype, [arg.dtype for arg in scalar.args], args)
