"""One input of a template: a buffer, and where in it each element lies."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...dim import Dim, Size, floordiv, mod, substitute, unwrap
from ...dtypes import DType
from ...record import record
from ..bounds import Scope
from ..lanes import Array, eval_index

if TYPE_CHECKING:
    from ..text import Reader
    from ..verify import Verifier

_KEPT = 4096  # indices that were looked at: planning, lowering and emitting each ask


@record
class Operand:
    """`index` is an element offset into `buffer`, an expression over the template's variables."""

    buffer: str
    index: Size
    dtype: DType

    def text(self) -> str:
        return f"{self.buffer}[{self.index}]: {self.dtype.name}"

    @classmethod
    def read(cls, reader: Reader) -> Operand:
        buffer, index = reader.take(), reader.size()
        reader.expect(":")
        return cls(buffer, index, reader.dtype())

    def verify(self, side: str, extents: Mapping[str, Size], verifier: Verifier) -> None:
        """Fail unless every element for variables below `extents` lies inside the buffer."""
        if verifier.buffers.get(self.buffer, (None,))[0] is not self.dtype:
            verifier.fail(f"{side} operand {self.buffer} is not {self.dtype.name}")
        verifier.scope = Scope({name: verifier.plain(size) for name, size in extents.items()})
        verifier.loops = []
        if 0 not in verifier.scope.extents.values():
            verifier.access(self.buffer, self.index, None)

    def gather(
        self, memory: Mapping[str, Array], env: Mapping[str, Any], shape: tuple[int, ...],
        dtype: np.dtype[Any],
    ) -> Array:
        """The elements for variables that are arrays which broadcast to `shape`."""
        where = np.broadcast_to(np.asarray(eval_index(self.index, env)), shape)
        found: Array = memory[self.buffer][where].astype(dtype, copy=False)
        return found


@lru_cache(maxsize=_KEPT)
def strides_of(index: Size, names: tuple[str, ...]) -> tuple[Size, ...] | None:
    """(offset where all `names` are 0, the stride of each), or None if it is not affine in them."""
    origin = substitute(index, dict.fromkeys(names, 0))
    result, total = [origin], origin
    for name in names:
        step = substitute(index, {other: int(other == name) for other in names})
        result.append(unwrap(step - origin))
        total = total + result[-1] * Dim.var(name)
    return tuple(result) if total == index else None


def base_and_strides(operand: Operand, first: str, second: str) -> tuple[Size, Size, Size]:
    """An operand's offset at (0, 0) and its strides along two of m, n and k.

    Raises ValueError if the index is not affine in them.
    """
    strides = strides_of(operand.index, (first, second))
    if strides is None:
        raise ValueError(f"index {operand.index} is not affine in {first} and {second}")
    return strides[0], strides[1], strides[2]


class PanelShape(NamedTuple):
    """Panels that a right operand may lie in: their columns, and the values of a word."""

    columns: int
    group: int


class Panels(NamedTuple):
    """A right operand that lies in panels of words of `group` values, neighbours along k: element
    (k, n) at base + n // columns * panel + k // group * columns * group + n % columns * group
    + k % group."""

    base: Size
    columns: int
    panel: int
    group: int = 1


@lru_cache(maxsize=_KEPT)
def panels_of(index: Size) -> Panels | None:
    """The panels of an index over k and n; None where it has another form. Of one panel, n need not
    be divided, if it is of words of several values."""
    if not isinstance(index, Dim):
        return None
    n, k = Dim.var("n"), Dim.var("k")
    atoms = [atom for monomial, _ in index.terms for atom, _ in monomial]
    divided = [atom.args for atom in atoms if atom.kind == "floordiv"]
    group = next((unwrap(b) for a, b in divided if a == k), 1)
    columns = next((unwrap(b) for a, b in divided if a == n), None)
    if not isinstance(group, int) or (columns is None and group == 1):
        return None
    base = substitute(index, {"k": 0, "n": 0})
    row = unwrap(substitute(index, {"k": group, "n": 0}) - base)
    step, in_step = floordiv(k, group), mod(k, group)
    if columns is None and isinstance(row, int):
        whole = base + n * group + step * row + in_step
        return Panels(base, row // group, row, group) if whole == index else None
    if not isinstance(columns, int):
        return None
    panel = unwrap(substitute(index, {"k": 0, "n": columns}) - base)
    width = columns * group
    in_panel = step * width + mod(n, columns) * group + in_step
    if not isinstance(panel, int) or base + floordiv(n, columns) * panel + in_panel != index:
        return None
    return Panels(base, columns, panel, group)


@lru_cache(maxsize=_KEPT)
def panels_of_weights(index: Size) -> PanelShape:
    """The panels that a conv_last's weights lie in (ConvGeometry.last); of no columns where there
    are none."""
    assert isinstance(index, Dim)
    atoms = [atom for monomial, _ in index.terms for atom, _ in monomial]

    def divisor(name: str) -> int:
        found = [
            unwrap(atom.args[1]) for atom in atoms
            if atom.kind in ("floordiv", "mod") and atom.args[0] == Dim.var(name)
        ]
        return found[0] if found and isinstance(found[0], int) else 0

    return PanelShape(divisor("image"), divisor("channel") or 1)


def acc_text(acc: DType, tf32: bool) -> str:
    """What a template sums in, and whether float32 operands are rounded to TF32."""
    return f"{acc.name} tf32" if tf32 else acc.name


def read_acc(reader: Reader) -> tuple[DType, bool]:
    """What `acc_text` says."""
    acc, narrow = reader.dtype(), reader.peek() == "tf32"
    if narrow:
        reader.expect("tf32")
    return acc, narrow
