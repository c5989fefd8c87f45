"""What type rules share: checks of dtypes and shapes, with torch's messages.

A size may be symbolic, so nothing here decides by `==` alone: `DimEnv` decides and remembers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, TypeAlias

from .. import dtypes
from ..dim import DimEnv, Size
from ..dtypes import DType
from ..op import Attrs, OpError, TypeRule
from ..types import Shape, TensorType, Type

Types: TypeAlias = tuple[TensorType, ...]

_TORCH_SCALAR_NAMES = {
    "bool": "Bool", "u8": "Byte", "i8": "Char", "i16": "Short", "i32": "Int", "i64": "Long",
    "f16": "Half", "bf16": "BFloat16", "f32": "Float", "f64": "Double",
    "c64": "ComplexFloat", "c128": "ComplexDouble",
}

NUMBERS = frozenset(dtypes.INTEGERS + dtypes.FLOATS)
FLOATS = frozenset(dtypes.FLOATS)
INTEGERS = frozenset(dtypes.INTEGERS)
BITS = INTEGERS | {dtypes.bool_}
BOOL = frozenset({dtypes.bool_})
ANY = frozenset(dtypes.ALL)
COMPLEX = frozenset(dtypes.COMPLEX)

FIELD, RING, EVERY = FLOATS | COMPLEX, NUMBERS | COMPLEX, ANY | COMPLEX  # with complex numbers

_ACCEPTS = {
    NUMBERS: "integers and floats",
    FLOATS: "floats",
    INTEGERS: "integers",
    BITS: "integers and bool",
    BOOL: "bool",
}


def fail(message: str, kind: type[Exception] = RuntimeError) -> NoReturn:
    """Raise the error that the user will see as `kind`."""
    raise OpError(message, kind)


def require_dtype(name: str, dtype: DType, allowed: frozenset[DType]) -> None:
    """Raise NotImplementedError unless `dtype` is one of `allowed`."""
    if dtype not in allowed:
        scalar = _TORCH_SCALAR_NAMES.get(dtype.name, dtype.torch_name)
        fail(
            f'"{name}" not implemented for \'{scalar}\''
            f" (it takes {_ACCEPTS.get(allowed - COMPLEX, 'other dtypes')}; cast first)",
            NotImplementedError,
        )


def require_i64(name: str, index: TensorType) -> None:
    """Raise unless an index tensor holds int64."""
    if index.dtype is not dtypes.i64:
        fail(f"{name}(): Expected dtype int64 for index, got {index.dtype}")


def require_one_dtype(name: str, types: Sequence[TensorType]) -> DType:
    """The dtype that all of `types` have; promotion is the frontend's, by explicit casts."""
    first = types[0].dtype
    for other in types:
        if other.dtype is not first:
            fail(
                f"{name}: expected all inputs to have one dtype, but got "
                + " and ".join(str(t.dtype) for t in types)
            )
    return first


def require_dim(name: str, dim: int, rank: int) -> None:
    """Raise IndexError unless `dim` is a normalised dimension of a tensor with `rank` of them."""
    if not 0 <= dim < rank:
        low, high = (-rank, rank - 1) if rank else (-1, 0)
        fail(
            f"{name}: Dimension out of range (expected to be in range of [{low}, {high}], "
            f"but got {dim})",
            IndexError,
        )


def require_dims(name: str, dims: Sequence[int], rank: int) -> None:
    """Raise unless `dims` are distinct normalised dimensions."""
    for dim in dims:
        require_dim(name, dim, rank)
    if len(set(dims)) != len(dims):
        fail(f"{name}: dim {next(d for d in dims if list(dims).count(d) > 1)} appears "
             "multiple times in the list of dims")


def sizes_text(shape: Sequence[Size]) -> str:
    """A shape as torch's messages spell it: [2, 3]."""
    return "[" + ", ".join(str(size) for size in shape) + "]"


def merge_sizes(env: DimEnv, a: Size, b: Size) -> Size | None:
    """The one size that `a` and `b` are, the plainer spelling of the two; None if they differ."""
    if not env.equal(a, b):
        return None
    return a if isinstance(a, int) else b


def same_shape(env: DimEnv, a: Shape, b: Shape) -> bool:
    """Decide whether two shapes are equal."""
    return a == b or (len(a) == len(b) and all(env.equal(x, y) for x, y in zip(a, b, strict=True)))


def broadcast_shapes(env: DimEnv, *shapes: Shape) -> Shape:
    """The NumPy broadcast of shapes. Raises RuntimeError naming the sizes that do not match."""
    result = shapes[0]
    for shape in shapes[1:]:
        if shape != result:
            result = _broadcast_two(env, result, shape)
    return result


def _broadcast_two(env: DimEnv, a: Shape, b: Shape) -> Shape:
    if not a or not b:
        return a or b
    rank = max(len(a), len(b))
    out: list[Size] = list(a[: rank - len(b)] or b[: rank - len(a)])
    for i in range(len(out), rank):
        x, y = a[i - rank + len(a)], b[i - rank + len(b)]
        if x == y or (isinstance(y, int) and y == 1):
            out.append(x)
        elif isinstance(x, int) and x == 1:
            out.append(y)
        else:
            out.append(_broadcast_sizes(env, x, y, i))
    return tuple(out)


def _broadcast_sizes(env: DimEnv, x: Size, y: Size, position: int) -> Size:
    merged = merge_sizes(env, x, y)
    if merged is not None:
        return merged
    # an expression such as n - 5 can still be 1
    if env.equal(y, 1):
        return x
    if env.equal(x, 1):
        return y
    fail(
        f"The size of tensor a ({x}) must match the size of tensor b ({y}) "
        f"at non-singleton dimension {position}"
    )


def reduced_shape(shape: Shape, dims: Sequence[int], keepdim: bool) -> Shape:
    """`shape` with `dims` reduced away, or kept as size 1."""
    if keepdim:
        return tuple(1 if i in dims else size for i, size in enumerate(shape))
    return tuple(size for i, size in enumerate(shape) if i not in dims)


def elementwise_rule(
    name: str, allowed: frozenset[DType], result: DType | None = None
) -> TypeRule:
    """The type rule of a broadcasting operator on inputs of one dtype.

    `result` is the dtype of the result, None for that of the inputs.
    """

    def infer(types: Types, attrs: Attrs, env: DimEnv) -> Type:
        first = types[0]
        dtype = first.dtype
        if dtype not in allowed:
            require_dtype(name, dtype, allowed)
        shape = first.shape
        for other in types[1:]:
            if other.dtype is not dtype:
                require_one_dtype(name, types)
            if other.shape != shape:
                shape = _broadcast_two(env, shape, other.shape)
        return TensorType(dtype if result is None else result, shape)

    return infer


def require_length(name: str, attribute: str, value: Sequence[Any], length: int) -> None:
    """Raise unless a per-dimension attribute has one entry for each of `length` dimensions."""
    if len(value) != length:
        fail(f"{name}: {attribute} needs {length} entries, got {tuple(value)}")
