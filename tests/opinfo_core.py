"""What an operator's test record is made of (see tests/opinfo.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from graphc.ir import dtypes
from graphc.ir.dtypes import DType

torch: Any = pytest.importorskip("torch", reason="torch is what operators are compared with")

TORCH = {d.name: getattr(torch, d.torch_name) for d in dtypes.ALL}
RNG = np.random.Generator


@dataclass(frozen=True)
class Sample:
    """One call of an operator.

    `gradient` False: a point where the gradient is not compared (it is not defined, or huge).
    """

    arrays: tuple[np.ndarray, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    gradient: bool = True

    def __str__(self) -> str:
        shapes = ", ".join(f"{dtypes.from_numpy(a.dtype).name}{list(a.shape)}" for a in self.arrays)
        return f"({shapes}; {', '.join(f'{k}={v}' for k, v in self.attrs.items())})"


Samples = Callable[[DType, RNG], Iterator[Sample]]


@dataclass(frozen=True)
class OpInfo:
    """The test record of one operator.

    samples(dtype, rng) yields calls whose (first) inputs have that dtype.
    reference(*torch tensors, **attrs) computes the same with torch: a tensor, or a tuple in which
    None stands for a result that is not compared. It may be given wider floats than the operator.
    gradient: why the gradient is not compared with torch's; empty: it is.
    numeric: why the gradient is not compared with finite differences; empty: it is.
    tolerance: how many times the dtype's usual error is allowed.
    skips: test name -> reason, for other tests that use these records.
    """

    name: str
    samples: Samples
    reference: Callable[..., Any]
    dtypes: tuple[DType, ...]
    gradient: str = ""
    numeric: str = ""
    tolerance: float = 1.0
    skips: dict[str, str] = field(default_factory=dict)


OPINFOS: dict[str, OpInfo] = {}


def record(
    name: str,
    samples: Samples,
    reference: Callable[..., Any],
    types: tuple[DType, ...],
    **options: Any,
) -> None:
    """Add a record. Raises ValueError where the name is taken."""
    if name in OPINFOS:
        raise ValueError(f"two test records for {name}")
    OPINFOS[name] = OpInfo(name, samples, reference, types, **options)


# --- arrays ----------------------------------------------------------------------------------


def draw(
    rng: RNG, dtype: DType, shape: tuple[int, ...], low: float = -10.0, high: float = 10.0
) -> np.ndarray:
    """Random values of a dtype: floats in [low, high), integers in its part that they can hold."""
    if dtype.kind == "bool":
        return np.asarray(rng.integers(0, 2, shape), np.bool_)
    if dtype.is_float:
        return np.asarray(rng.uniform(low, high, shape)).astype(dtype.numpy)
    limits = np.iinfo(dtype.numpy)
    return np.asarray(
        rng.integers(max(int(low), limits.min), min(int(high), limits.max), shape), dtype.numpy
    )


def distinct(rng: RNG, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Random values without ties (at most 256 of them)."""
    count = int(np.prod(shape, dtype=int))
    values = rng.permutation(count)
    if dtype.kind == "int":
        values = values - min(count // 2, 128)
    if dtype.is_float:
        values = values * 0.25 - count * 0.125
    return values.reshape(shape).astype(dtype.numpy)


def to_torch(array: np.ndarray) -> Any:
    """A copy as a torch tensor."""
    if array.dtype == dtypes.bf16.numpy:
        bits = torch.tensor(array.view(np.int16))
        return bits.view(torch.bfloat16)
    return torch.tensor(array)


def from_torch(tensor: Any) -> np.ndarray:
    """A copy as an array."""
    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(dtypes.bf16.numpy).copy()
    return tensor.numpy().copy()


def as_tuple(value: Any) -> tuple[Any, ...]:
    """Results as a tuple, however many there are."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


BOOL = (dtypes.bool_,)
INTS = dtypes.INTEGERS
FLOATS = dtypes.FLOATS
NUMBERS = (*INTS, *FLOATS)
BITS = (*BOOL, *INTS)
ANY = dtypes.ALL
