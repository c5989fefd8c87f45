"""Products of vectors, matrices and batches of them; einsum is in einsum.py."""

from __future__ import annotations

from typing import Any

from graphc.ir import dtypes, ops
from graphc.ir.dim import product

from .. import float32, promote
from ..dispatch import apply
from ..errors import kind_name, located
from ..numbers import is_traced_number
from ..ownership import owns_result
from ..replayed import replayed
from ..tensor import Tensor
from . import pointwise as P
from .arguments import (
    as_sequence,
    broadcast_sizes,
    environment,
    named,
    recorded_as,
    shape,
    with_out,
    wrap_dim,
    write_out,
)
from .dtype_names import CPP_NAMES
from .joining import stack
from .older_calls import scales_first


def _same_dtype(a: Tensor, b: Tensor) -> None:
    if a.dtype is not b.dtype:
        raise RuntimeError(located(
            f"expected m1 and m2 to have the same dtype, but got: {CPP_NAMES[a.dtype]} != "
            f"{CPP_NAMES[b.dtype]}. Cure: convert one of them with .to(dtype)"
        ))


def _same_scalar_type(a: Tensor, b: Tensor) -> None:
    if a.dtype is not b.dtype:
        raise RuntimeError(located(
            f"expected scalar type {promote._name(a.dtype)} but found {promote._name(b.dtype)}. "
            "Cure: convert one of them with .to(dtype)"
        ))


def dot_general(
    a: Tensor, b: Tensor, contract_a: tuple[int, ...], contract_b: tuple[int, ...],
    batch_a: tuple[int, ...] = (), batch_b: tuple[int, ...] = (),
) -> Tensor:
    """Batched contraction; the result's dims are batch, free of a, free of b."""
    result: Tensor = apply(
        ops.dot_general, a, b, batch_a=batch_a, batch_b=batch_b,
        contract_a=contract_a, contract_b=contract_b, **float32.of_product(a, b),
    )
    return result


def _require_tensors(name: str, *values: Any) -> None:
    for i, value in enumerate(values):
        if not isinstance(value, Tensor):
            argument = ("input", _SECOND.get(name, "other"))[i]
            raise TypeError(located(
                f"{name}(): argument '{argument}' (position {i + 1}) must be Tensor, not "
                f"{kind_name(value)}"
            ))


_SECOND = {"mm": "mat2", "bmm": "mat2", "mv": "vec", "dot": "tensor"}


@replayed
@with_out
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """The matrix product with broadcast batch dims; 1-d tensors are vectors."""
    _require_tensors("matmul", input, other)
    return matmul_of_tensors(input, other)


def matmul_of_tensors(input: Tensor, other: Tensor) -> Tensor:
    """matmul() where both are known to be Tensors."""
    a, b = shape(input), shape(other)
    if not a or not b:
        raise RuntimeError(located(
            "both arguments to matmul need to be at least 1D, but they are "
            f"{len(a)}D and {len(b)}D"
        ))
    if len(a) == 1 and len(b) == 1:
        return dot(input, other)
    if len(a) == 2 and len(b) == 1:
        return mv(input, other)
    (_same_dtype if len(a) <= 2 or len(b) <= 2 else _same_scalar_type)(input, other)
    inner_b = len(b) - 1 if len(b) == 1 else len(b) - 2
    if not environment().equal(a[-1], b[inner_b]):
        raise _mismatch(a, b)
    if len(b) <= 2:  # the rows of a, whatever its batch
        found = dot_general(input, other, (len(a) - 1,), (inner_b,))
        return found if len(a) == 2 else named(found, "UnsafeViewBackward0")
    if len(a) == 1:
        return dot_general(other, input, (len(b) - 2,), (0,))
    return _batched(input, other, a, b)


def _mismatch(a: Any, b: Any) -> RuntimeError:
    if len(a) >= 2 and len(b) == 1:
        rows = product(a[:-1])
        return RuntimeError(located(
            f"size mismatch, got input ({rows}), mat ({rows}x{a[-1]}), vec ({b[0]})"
        ))
    if len(b) <= 2 or len(a) <= 2:
        rows = a[-2] if len(a) == 2 else product(a[:-1]) if len(b) <= 2 else 1
        return RuntimeError(located(
            "mat1 and mat2 shapes cannot be multiplied "
            f"({rows}x{a[-1]} and {b[-2]}x{b[-1]})"
        ))
    return RuntimeError(located(
        "Expected size for first two dimensions of batch2 tensor to be: "
        f"[{product(a[:-2])}, {a[-1]}] but got: [{product(b[:-2])}, {b[-2]}]."
    ))


def _batched(x: Tensor, y: Tensor, a: Any, b: Any) -> Tensor:
    lead_a, lead_b = a[:-2], b[:-2]
    batch = broadcast_sizes(lead_a, lead_b)
    if lead_a != batch:
        x = apply(ops.expand, x, shape=(*batch, *a[-2:]))
    if lead_b != batch:
        y = apply(ops.expand, y, shape=(*batch, *b[-2:]))
    n = len(batch)
    dims = tuple(range(n))
    found = dot_general(x, y, (n + 1,), (n,), dims, dims)
    return named(found, "UnsafeViewBackward0")


def _require_rank(argument: str, x: Tensor, rank: int) -> None:
    if x.ndim != rank:
        raise RuntimeError(located(f"{argument} must be a {rank}D tensor, got {x.ndim}D"))


@replayed
@with_out
def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices."""
    _require_tensors("mm", input, mat2)
    if input.ndim != 2 or mat2.ndim != 2:
        which = ("self", input) if input.ndim != 2 else ("mat2", mat2)
        raise RuntimeError(located(f"{which[0]} must be a matrix, got {which[1].ndim}D tensor"))
    return matmul(input, mat2)


@with_out
def _int_mm(input: Tensor, mat2: Tensor) -> Tensor:
    """[m, k] int8 or uint8 @ [k, n] int8 -> int32, exact but for what wraps (torch._int_mm)."""
    _require_tensors("_int_mm", input, mat2)
    for name, x in (("self", input), ("mat2", mat2)):
        if x.ndim != 2:
            raise RuntimeError(located(
                f"int_mm_out_cpu: Expected {name} to be of dimension 2 but got {x.ndim}"
            ))
    inner, other = shape(input)[1], shape(mat2)[0]
    if not environment().equal(inner, other):
        raise RuntimeError(located(
            f"int_mm_out_cpu: self.size(1) needs to match mat2.size(0) but got {inner} and {other}"
        ))
    for name, x, allowed, wanted in (
        ("self", input, (dtypes.i8, dtypes.u8), "int8 or uint8"),
        ("mat2", mat2, (dtypes.i8,), "of type int8"),
    ):
        if x.dtype not in allowed:
            raise RuntimeError(located(
                f"int_mm_out_cpu: Expected {name} dtype to be {wanted} but got "
                f"{CPP_NAMES[x.dtype]}. Cure: .to(int8)"
            ))
    return matmul(input.to(dtypes.i32), mat2.to(dtypes.i32))


@replayed
@with_out
def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """[b, n, k] @ [b, k, m]; no broadcasting."""
    _require_tensors("bmm", input, mat2)
    _require_rank("batch1", input, 3)
    _require_rank("batch2", mat2, 3)
    _same_scalar_type(input, mat2)
    a, b = shape(input), shape(mat2)
    env = environment()
    if not env.equal(a[0], b[0]) or not env.equal(a[2], b[1]):
        raise RuntimeError(located(
            f"Expected size for first two dimensions of batch2 tensor to be: [{a[0]}, {a[2]}] "
            f"but got: [{b[0]}, {b[1]}]."
        ))
    return named(dot_general(input, mat2, (2,), (1,), (0,), (0,)), "BmmBackward0")


@replayed
@with_out
def mv(input: Tensor, vec: Tensor) -> Tensor:
    """A matrix times a vector."""
    _require_tensors("mv", input, vec)
    a, b = shape(input), shape(vec)
    if len(a) != 2 or len(b) != 1:
        raise RuntimeError(located(
            f"vector + matrix @ vector expected, got 1, {len(a)}, {len(b)}"
        ))
    if not environment().equal(a[1], b[0]):
        raise RuntimeError(located(
            f"size mismatch, got input ({a[0]}), mat ({a[0]}x{a[1]}), vec ({b[0]})"
        ))
    _same_dtype(input, vec)
    return named(dot_general(input, vec, (1,), (0,)), "MvBackward0")


@replayed
@with_out
def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """The inner product of two vectors."""
    _require_tensors("dot", input, tensor)
    a, b = shape(input), shape(tensor)
    if len(a) != 1 or len(b) != 1:
        raise RuntimeError(located(
            f"1D tensors expected, but got {len(a)}D and {len(b)}D tensors"
        ))
    if input.dtype is not tensor.dtype:
        raise RuntimeError(located(
            "dot : expected both vectors to have same dtype, but found "
            f"{promote._name(input.dtype)} and {promote._name(tensor.dtype)}"
        ))
    if not environment().equal(a[0], b[0]):
        raise RuntimeError(located(
            f"inconsistent tensor size, expected tensor [{a[0]}] and src [{b[0]}] to have the "
            f"same number of elements, but got {a[0]} and {b[0]} elements respectively"
        ))
    return named(dot_general(input, tensor, (0,), (0,)), "DotBackward0")


def vdot(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inner product of two vectors, the first conjugated."""
    first = input.conj() if isinstance(input, Tensor) and input.dtype.is_complex else input
    found = dot(first, other)
    return found if out is None else write_out(out, found)


@with_out
def inner(input: Tensor, other: Tensor) -> Tensor:
    """Sums over the last dims of both."""
    if input.ndim == 0 or other.ndim == 0:
        return P.mul(input, other)  # type: ignore[no-any-return]
    _same_dtype(input, other)
    return dot_general(input, other, (input.ndim - 1,), (other.ndim - 1,))


@replayed
@with_out
def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """[n] and [m] to [n, m]."""
    P.require_tensors("outer", input, vec2)
    for name, x in (("self", input), ("vec2", vec2)):
        if x.ndim != 1:
            raise RuntimeError(located(
                f"outer: Expected 1-D argument {name}, but got {x.ndim}-D"
            ))
    return P.mul(input.unsqueeze(1), vec2)  # type: ignore[no-any-return]


ger = outer


def _rank_one(a: Tensor, b: Tensor) -> Tensor:
    """outer(); half precision as a contraction, whose gradients are rounded once."""
    half = a.dtype.is_float and a.dtype.bits == 16
    if half and a.dtype is b.dtype and a.ndim == b.ndim == 1:
        return dot_general(a, b, (), ())
    return outer(a, b)


_ROUNDED_ONCE = ("addbmm", "addmm", "addmv", "baddbmm")  # in half precision, at the end


def _whole(name: str, x: Tensor, argument: str, factor: Any) -> Any:
    """A factor among integers (or bools): cut to one, or refused by the operators that refuse."""
    if is_traced_number(factor):
        factor = factor.item()
    if name == "addr" and isinstance(factor, float):
        raise RuntimeError(located(
            f"For integral input tensors, argument {argument} must not be a floating point number."
        ))
    return bool(factor) if x.dtype is dtypes.bool_ else int(factor)


def _scaled_sum(name: str, multiply: Any, *factors: str) -> Any:
    def function(
        input: Tensor, *given: Tensor, beta: Any = 1, alpha: Any = 1, **named_factors: Tensor
    ) -> Tensor:
        if len(given) > 2 and (older := scales_first(name, input, given)) is not None:
            input, given, beta, alpha = older
        rest = [factor for factor in factors[len(given):] if factor in named_factors]
        found = (*given, *(named_factors.pop(factor) for factor in rest))
        if len(found) != 2 or named_factors:
            raise TypeError(located(
                f"{name}() takes input, {factors[0]} and {factors[1]}, beta= and alpha=; got "
                f"{1 + len(given)} positional arguments and {[*rest, *named_factors]}"
            ))
        return compute(input, *found, beta=beta, alpha=alpha)

    def compute(input: Tensor, first: Tensor, second: Tensor, beta: Any, alpha: Any) -> Tensor:
        for word, x, y in (("self", input, second), (factors[0], first, second)):
            if name in ("addmm", "addmv", "baddbmm") and x.dtype is not y.dtype:
                raise RuntimeError(located(
                    f"{word} and {factors[1]} must have the same dtype, but got "
                    f"{promote._name(x.dtype)} and {promote._name(y.dtype)}. Cure: convert one of "
                    "them with .to(dtype)"
                ))
        same = input.dtype is first.dtype is second.dtype
        if name in _ROUNDED_ONCE and same and first.dtype.bits == 16 and first.dtype.is_float:
            a, b, c = (promote.cast(x, dtypes.f32) for x in (input, first, second))
            return promote.cast(compute(a, b, c, beta, alpha), first.dtype)
        found = multiply(first, second)
        if not found.dtype.differentiable:
            alpha, beta = _whole(name, found, "alpha", alpha), _whole(name, found, "beta", beta)
        if alpha != 1:
            found = P.mul(found, alpha)
        if beta == 0:  # NaN in the input does not count
            result: Tensor = found
        else:
            result = P.add(input if beta == 1 else P.mul(input, beta), found)
        if result.ndim != found.ndim or not all(
            environment().equal(n, m) for n, m in zip(shape(result), shape(found), strict=True)
        ):
            raise RuntimeError(located(
                f"{name}: input of shape {list(shape(input))} does not broadcast to "
                f"{list(shape(found))}"
            ))
        return named(result, f"{name.capitalize()}Backward0")

    function.__name__ = name
    function.__doc__ = f"beta * input + alpha * product ({name})."
    return replayed(with_out(function))


addmm = _scaled_sum("addmm", mm, "mat1", "mat2")
addmv = _scaled_sum("addmv", mv, "mat", "vec")
addr = _scaled_sum("addr", _rank_one, "vec1", "vec2")
baddbmm = _scaled_sum("baddbmm", bmm, "batch1", "batch2")
addbmm = _scaled_sum(
    "addbmm", lambda a, b: bmm(a, b).sum(0, dtype=a.dtype), "batch1", "batch2"
)


@recorded_as("ViewBackward0")
def tensordot(a: Tensor, b: Tensor, dims: Any = 2, out: Any = None) -> Tensor:
    """Contract the last `dims` dims of a with the first of b, or the named pairs."""
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if is_traced_number(dims):
        dims = dims.__index__()
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(located(f"tensordot expects dims >= 0, but got dims={dims}"))
        if dims > min(a.ndim, b.ndim):
            raise RuntimeError(located(
                f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}"
            ))
        left = tuple(range(a.ndim - dims, a.ndim))
        right = tuple(range(dims))
    else:
        first, second = dims
        left = tuple(wrap_dim(d, a.ndim) for d in as_sequence(first))
        right = tuple(wrap_dim(d, b.ndim) for d in as_sequence(second))
    if len(left) != len(right):
        raise RuntimeError(located("both dimension lists should have same length"))
    env = environment()
    for i, j in zip(left, right, strict=True):
        m, n = shape(a)[i], shape(b)[j]
        if env.equal(m, 1) and not env.equal(n, 1):  # a size of 1 broadcasts: sum the other
            b = b.sum(j, keepdim=True, dtype=b.dtype)
        elif env.equal(n, 1) and not env.equal(m, 1):
            a = a.sum(i, keepdim=True, dtype=a.dtype)
        elif not env.equal(m, n):
            # torch counts the dims of an int `dims` from the end
            first = i - a.ndim if isinstance(dims, int) else i
            raise RuntimeError(located(
                f"contracted dimensions need to match, but first has size {m} in dim {first} and "
                f"second has size {n} in dim {j}"
            ))
    _same_dtype(a, b)
    result = dot_general(a, b, left, right)
    if out is not None:
        return write_out(out, result)
    return result


@replayed
@with_out
@owns_result
@recorded_as("UnsafeViewBackward0")
def kron(input: Tensor, other: Tensor) -> Tensor:
    """The Kronecker product."""
    rank = max(input.ndim, other.ndim)
    a = (1,) * (rank - input.ndim) + shape(input)
    b = (1,) * (rank - other.ndim) + shape(other)
    left = input.reshape(tuple(n for size in a for n in (size, 1)))
    right = other.reshape(tuple(n for size in b for n in (1, size)))
    final = tuple(m * n for m, n in zip(a, b, strict=True))
    return P.mul(left, right).reshape(final)  # type: ignore[no-any-return]


@owns_result
def chain_matmul(*matrices: Tensor) -> Tensor:
    """The product of matrices, from the left."""
    result = matrices[0]
    for matrix in matrices[1:]:
        result = mm(result, matrix)
    return result


@replayed
@recorded_as("TraceBackward0")
def trace(input: Tensor) -> Tensor:
    """The sum of a matrix's diagonal."""
    if input.ndim != 2:
        raise RuntimeError(located("trace: expected a matrix"))
    return input.diagonal().sum()  # type: ignore[no-any-return]


@replayed
@with_out
@recorded_as("LinalgCrossBackward0")
def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """The cross product along a dim of size 3."""
    P.require_tensors("cross", input, other)
    if input.ndim != other.ndim:
        raise RuntimeError(located(
            "linalg.cross: inputs must have the same number of dimensions."
        ))
    if dim is None:
        sizes = shape(input)
        env = environment()
        dim = next((i for i, n in enumerate(sizes) if env.equal(n, 3)), None)
        if dim is None:
            raise RuntimeError(located("no dimension of size 3 in input"))
    lengths = [shape(x)[wrap_dim(dim, x.ndim)] for x in (input, other)]
    if any(isinstance(n, int) and n != 3 for n in lengths):
        raise RuntimeError(located(
            f"linalg.cross: inputs dimension {dim} must have length 3. "
            f"Got {lengths[0]} and {lengths[1]}"
        ))
    a = [input.select(dim, i) for i in range(3)]
    b = [other.select(dim, i) for i in range(3)]
    parts = [
        P.sub(P.mul(a[(i + 1) % 3], b[(i + 2) % 3]), P.mul(a[(i + 2) % 3], b[(i + 1) % 3]))
        for i in range(3)
    ]
    rank = parts[0].ndim + 1
    return stack(parts, dim if dim >= 0 else dim + rank)
