"""What a template computes on each of its sums, as CUDA C: one thread's straight line."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.backends.cuda.indices import index_text
from graphc.backends.cuda.scalar import apply, c_type, combine, literal
from graphc.ir.kernel import Apply, IndexValue, Let, Literal, Load, Scalar, Stmt, Store, Var
from graphc.ir.kernel.walk import children


def epilogue_text(body: Sequence[Stmt]) -> str:
    """Lets and Stores, over variables that are in scope. An epilogue has nothing else."""
    writer = _Writer()
    for stmt in body:
        if isinstance(stmt, Let):
            writer.bind(stmt.name, stmt.value)
        elif isinstance(stmt, Store):
            writer.store(stmt)
        else:
            raise NotImplementedError(f"an epilogue with a {type(stmt).__name__}")
    return "\n".join(f"        {line}" for line in writer.lines)


class _Writer:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def bind(self, name: str, value: Scalar) -> None:
        text = self.scalar(value)
        self.lines.append(f"const {c_type(value.dtype)} {name} = {text};")

    def store(self, stmt: Store) -> None:
        place = f"{stmt.buffer}[{index_text(stmt.index)}]"
        value = self.scalar(stmt.value)
        if stmt.combine:
            value = combine(stmt.combine, value, place)
        guard = f"if ({self.scalar(stmt.mask)}) " if stmt.mask is not None else ""
        self.lines.append(f"{guard}{place} = {value};")

    def scalar(self, root: Scalar) -> str:
        """An expression; operators within it are named by a line of their own, once."""
        texts: dict[int, str] = {}
        stack = [root]
        while stack:
            scalar = stack[-1]
            pending = [part for part in children(scalar) if id(part) not in texts]
            stack += pending
            if pending:
                continue
            stack.pop()
            if id(scalar) in texts:
                continue
            text = self._scalar(scalar, texts)
            if isinstance(scalar, Apply) and scalar is not root:
                name = f"x_{len(self.lines)}"
                self.lines.append(f"const {c_type(scalar.dtype)} {name} = {text};")
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
        if isinstance(scalar, Apply):
            args = [texts[id(arg)] for arg in scalar.args]
            return apply(scalar.op, scalar.dtype, [arg.dtype for arg in scalar.args], args)
        assert isinstance(scalar, Load)
        load = f"{scalar.buffer}[{index_text(scalar.index)}]"
        if scalar.mask is None:
            return load
        other = literal(0, scalar.dtype) if scalar.other is None else texts[id(scalar.other)]
        return f"({texts[id(scalar.mask)]} ? {load} : {other})"
