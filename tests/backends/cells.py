"""The cells of a backend's table: an elementwise operator on operands of a dtype."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import NamedTuple

from graphc.ir import dtypes, ops  # noqa: F401  (the records register themselves)
from graphc.ir.dim import DimEnv
from graphc.ir.dtypes import DType
from graphc.ir.op import REGISTRY, Op, OpError
from graphc.ir.types import TensorType

ELEMENTWISE = [op for op in REGISTRY.values() if op.elementwise]


class Cell(NamedTuple):
    """An operator on operands of these dtypes."""

    op: Op
    inputs: tuple[DType, ...]
    result: DType

    @property
    def name(self) -> str:
        return "_".join([self.op.name, *(dtype.name for dtype in (*self.inputs, self.result))])


def cells(op: Op, kinds: Iterable[DType]) -> list[Cell]:
    """What the operator's type rule takes, of these dtypes."""
    kinds = list(kinds)
    found = []
    for dtype, target in itertools.product(kinds, kinds if op.name == "cast" else (None,)):
        given = (dtype,) * (op.arity or 0)
        if op.name == "where":
            given = dtypes.bool_, dtype, dtype
        try:
            types = tuple(TensorType(each, ()) for each in given)
            result = op.infer(types, {"dtype": target} if target else {}, DimEnv())
        except OpError:
            continue
        assert isinstance(result, TensorType)
        found.append(Cell(op, given, result.dtype))
    return found
