"""What a template computes on its sums, as CUDA C: one thread's straight line, for one sum or for
`LANES` neighbours of a row, whose accesses to memory are then of 16 bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from graphc.backends.cuda.indices import index_text
from graphc.backends.cuda.scalar import apply, c_type, combine, literal
from graphc.ir.dim import Dim, Size, substitute, unwrap
from graphc.ir.dtypes import DType
from graphc.ir.kernel import Apply, IndexValue, Let, Literal, Load, Scalar, Stmt, Store, Var
from graphc.ir.kernel.walk import children, parts, scalars
from graphc.ir.op import REGISTRY

_ACCESS = 16  # bytes, at most
_MOST_LANES = 8
_MOST_WORK = 400  # additions' worth of work that is written out for all lanes


@dataclass(frozen=True, slots=True)
class Epilogue:
    """CUDA C that goes around the statements on one sum: `before` and `after` a loop over lanes
    whose variable is `lane`; `inside` it, `acc` is in scope."""

    lanes: int
    before: str
    inside: str
    after: str

    def text(self, acc: str) -> str:
        """All of it; `acc` is the text of a sum, over `lane`."""
        if self.lanes == 1:
            return f"        const int lane = 0;\n        {acc}\n{self.inside}"
        return (
            f"{self.before}\n        #pragma unroll\n"
            f"        for (int lane = 0; lane < {self.lanes}; lane++) {{\n        {acc}\n"
            f"{self.inside}\n        }}\n{self.after}"
        )


def lanes_of(body: Sequence[Stmt], along: str, extent: Size) -> int:
    """How many neighbours along a variable of that extent a thread takes: as many as make 16 bytes
    of the smallest type that is stored or read so. One, where rows are no whole number of such
    accesses, where they do not begin at one, or where a result does not lie along the variable."""
    if not along or not isinstance(extent, int):
        return 1
    stores = [stmt for stmt in body if isinstance(stmt, Store)]
    if any(s.mask is not None or s.combine or not _is_dense(s.index, along) for s in stores):
        return 1
    dense = [(s.index, s.value.dtype) for s in stores]
    dense += [
        (s.index, s.dtype)
        for s in _parts(body) if isinstance(s, Load) and _is_dense(s.index, along)
    ]
    lanes = min(_MOST_LANES, _ACCESS // min(dtype.itemsize for _, dtype in dense))
    while lanes > 2 and lanes * _work(body) > _MOST_WORK:
        lanes //= 2
    aligned = all(_is_aligned(index, along, dtype, lanes) for index, dtype in dense)
    return lanes if aligned and extent % lanes == 0 else 1


def epilogue(body: Sequence[Stmt], along: str = "", lanes: int = 1) -> Epilogue:
    """The text of Lets and Stores, over variables that are in scope; an epilogue has nothing else.
    Of several lanes, `along` is the variable of the first, outside of the loop."""
    writer = _Writer(along if lanes > 1 else "", lanes)
    for stmt in body:
        if isinstance(stmt, Let):
            writer.bind(stmt.name, stmt.value)
        elif isinstance(stmt, Store):
            writer.store(stmt)
        else:
            raise NotImplementedError(f"an epilogue with a {type(stmt).__name__}")
    if lanes == 1:
        return Epilogue(1, "", _indented(writer.lines), "")
    first = f"{along}_first"
    before = [f"const i64 {first} = {along};", *writer.before]
    inside = [f"const i64 {along} = {first} + lane;", *writer.lines]
    return Epilogue(lanes, _indented(before), _indented(inside), _indented(writer.after))


def epilogue_text(body: Sequence[Stmt]) -> str:
    """That of one sum, where `acc` is in scope."""
    return epilogue(body).inside


def _indented(lines: Iterable[str]) -> str:
    return "\n".join(f"        {line}" for line in lines)


def _parts(body: Sequence[Stmt]) -> Iterator[Scalar]:
    return parts(scalar for stmt in body for scalar in scalars(stmt))


def _cost(scalar: Apply) -> int:
    found = REGISTRY.get(scalar.op)
    return 1 if found is None or found.cost is None else found.cost


def _work(body: Sequence[Stmt]) -> int:
    """What is done with one sum costs, in additions."""
    return sum(_cost(s) for s in _parts(body) if isinstance(s, Apply))


def _is_dense(index: Size, along: str) -> bool:
    """Whether a step along a variable is one to the next element."""
    if not isinstance(index, Dim) or along not in index.variables():
        return False
    return unwrap(substitute(index, {along: Dim.var(along) + 1}) - index) == 1


def _is_aligned(index: Size, along: str, dtype: DType, lanes: int) -> bool:
    """Whether accesses of lanes begin where such accesses may, if the buffer does and `along` is a
    multiple of the lanes."""
    whole = min(lanes, _ACCESS // dtype.itemsize)
    rest = substitute(index, {along: 0})
    terms = rest.terms if isinstance(rest, Dim) else (((), rest),)
    return all(number % whole == 0 for _, number in terms)


class _Writer:
    def __init__(self, along: str, lanes: int) -> None:
        self.along, self.lanes = along, lanes
        self.before: list[str] = []
        self.lines: list[str] = []
        self.after: list[str] = []
        self._packs: dict[tuple[str, Size], str] = {}

    def bind(self, name: str, value: Scalar) -> None:
        text = self.scalar(value)
        self.lines.append(f"const {c_type(value.dtype)} {name} = {text};")

    def store(self, stmt: Store) -> None:
        place = f"{stmt.buffer}[{index_text(stmt.index)}]"
        value = self.scalar(stmt.value)
        if self.along:
            name, kind = f"out_{len(self.after)}", c_type(stmt.value.dtype)
            self.before.append(f"Pack<{kind}, {self.lanes}> {name};")
            self.lines.append(f"{name}.x[lane] = {value};")
            self.after.append(f"store_pack(&{place}, {name}, is_aligned<{self.lanes}>(&{place}));")
            return
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
            if self.along and _is_dense(scalar.index, self.along):
                return f"{self._pack(scalar, load)}.x[lane]"
            return load
        other = literal(0, scalar.dtype) if scalar.other is None else texts[id(scalar.other)]
        return f"({texts[id(scalar.mask)]} ? {load} : {other})"

    def _pack(self, load: Load, place: str) -> str:
        """All lanes' values of what lies along them, read before the loop."""
        key = load.buffer, load.index
        if key not in self._packs:
            name = self._packs[key] = f"in_{len(self._packs)}"
            kind = f"Pack<{c_type(load.dtype)}, {self.lanes}>"
            aligned = f"is_aligned<{self.lanes}>(&{place})"
            self.before.append(
                f"const {kind} {name} = load_pack<{self.lanes}>(&{place}, {aligned});"
            )
        return self._packs[key]
