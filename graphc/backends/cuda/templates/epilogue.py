"""What a template computes on its sums, as CUDA C: one thread's straight line, for one sum or for
neighbours of a row, whose accesses to memory are then of 16 bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphc.backends.cuda.scalar import c_type
from graphc.backends.cuda.statements.expressions import Expressions
from graphc.backends.cuda.statements.indices import Indices
from graphc.backends.cuda.statements.lanes import LaneAccess
from graphc.backends.cuda.statements.lines import Lines
from graphc.backends.cuda.statements.pieces import FIRST, LANE, Piece, Pieces
from graphc.backends.cuda.statements.steps import divides, pack_start, step
from graphc.backends.cuda.templates.gemm_sizes import Sizes
from graphc.backends.cuda.templates.tallies import Tallies
from graphc.ir.dim import Dim, Size
from graphc.ir.dtypes import DType
from graphc.ir.kernel import Apply, Let, Load, Scalar, Stmt, Store
from graphc.ir.kernel.walk import parts, scalars
from graphc.ir.op import REGISTRY

_ACCESS = 16  # bytes, at most
_MOST_LANES = 8
_LEFT = "left_"  # how many lanes there are yet
_MOST_WORK = 400  # additions' worth of work that is written out for all lanes


def lanes_of(body: Sequence[Stmt], along: str, extent: Size) -> int:
    """How many neighbours along a variable of that extent a thread takes: as many as make 16 bytes
    of the smallest type that is stored or read so. One, where rows do not begin at such an access,
    or where a result does not lie along the variable. A row may end in between (see `epilogue`),
    if its first element is the variable's 0, as n's is."""
    if not along or not isinstance(extent, int):
        return 1
    stores = [stmt for stmt in body if isinstance(stmt, Store)]
    if any(s.mask is not None or s.combine for s in stores):
        return 1
    if any(step(s.index, along, _MOST_LANES) != 1 for s in stores):
        return 1
    dense = [(s.index, s.value.dtype) for s in stores]
    dense += [
        (s.index, s.dtype)
        for s in _parts(body)
        if isinstance(s, Load) and step(s.index, along, _MOST_LANES) == 1
    ]
    least = min((dtype.itemsize for _, dtype in dense), default=_ACCESS // _MOST_LANES)
    lanes = min(_MOST_LANES, _ACCESS // least)
    while lanes > 2 and lanes * _work(body) > _MOST_WORK:
        lanes //= 2
    aligned = all(_is_aligned(index, along, dtype, lanes) for index, dtype in dense)
    return lanes if aligned and (along == "n" or extent % lanes == 0) else 1


def epilogue(
    body: tuple[Stmt, ...], sizes: Sizes, acc: str = "", along: str = "", lanes: int = 1,
    left: str = "",
) -> str:
    """The text of Lets, Stores and Partials (tallies), over i64s that are in scope; an epilogue
    has nothing else. Of several lanes, `along` is the variable of the first. `acc`: a lane begins
    with it; LANE is its number. `left`: C, how many lanes there are yet, where that may be
    fewer (not with tallies)."""
    tallies = Tallies(body)
    body = tallies.without(body)
    if found := [stmt for stmt in body if not isinstance(stmt, (Let, Store))]:
        raise NotImplementedError(f"an epilogue with a {type(found[0]).__name__}")
    lines, indices, body = Lines(), Indices(), sizes.statements(body)
    scalars = Expressions(lines, indices, {})
    for name in sizes.names():
        indices.unknown(name)
    if lanes > 1:
        lines.emit(f"const i64 {FIRST} = {along};")
        own = [acc]
        if left:
            lines.emit(f"const i64 {_LEFT} = {left};")
            own.insert(0, f"if ({LANE} >= {_LEFT}) break;")
        neighbours = _Neighbours(scalars, along, lanes, body, bool(left))
        neighbours.piece(Piece(body), tallies.values.keys(), own)
        for line in tallies.lines(lanes):
            lines.emit(line)
        return lines.text()
    if acc:
        lines.emit(f"const int {LANE} = 0;")
        lines.emit(acc)
    for stmt in body:
        if isinstance(stmt, Let) and stmt.name in tallies.values:
            kind = c_type(stmt.value.dtype)
            lines.emit(f"const {kind} {stmt.name}[1] = {{{scalars.scalar(stmt.value)}}};")
        elif isinstance(stmt, Let):
            scalars.bind(stmt)
        elif isinstance(stmt, Store):
            scalars.put(stmt)
    for line in tallies.lines(1):
        lines.emit(line)
    return lines.text()


class _Neighbours(Pieces):
    """Of one row. Sizes are open in the text: whether an access may be one is asked at run time
    (lanes_of expects that it may)."""

    def __init__(
        self, scalars: Expressions, along: str, lanes: int, body: Sequence[Stmt], has_tail: bool
    ) -> None:
        inner = frozenset(stmt.name for stmt in body if isinstance(stmt, Let))
        super().__init__(scalars, along, lanes, inner)
        self.has_tail = has_tail

    def is_pack(self, access: LaneAccess) -> bool:
        index = access.index
        if not access.plain or step(index, self.var, self.width) != 1:
            return False
        return not (isinstance(index, Dim) and index.variables() & self.inner)

    def whole(self, place: str) -> str:
        aligned = f"is_aligned<{self.width}>({place})"
        return f"{aligned} && {_LEFT} >= {self.width}, {_LEFT}" if self.has_tail else aligned


def _parts(body: Sequence[Stmt]) -> Iterator[Scalar]:
    return parts(scalar for stmt in body for scalar in scalars(stmt))


def _cost(scalar: Apply) -> int:
    found = REGISTRY.get(scalar.op)
    return 1 if found is None or found.cost is None else found.cost


def _work(body: Sequence[Stmt]) -> int:
    """What is done with one sum costs, in additions."""
    return sum(_cost(s) for s in _parts(body) if isinstance(s, Apply))


def _is_aligned(index: Size, along: str, dtype: DType, lanes: int) -> bool:
    """Whether accesses of lanes begin where such accesses may, if the buffer does and `along` is a
    multiple of the lanes."""
    whole = min(lanes, _ACCESS // dtype.itemsize)
    return divides(whole, pack_start(index, along, lanes))
