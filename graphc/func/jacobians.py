"""torch.func.jacrev, jacfwd and hessian: the function runs once, its derivative is mapped over a
basis of the outputs or of the inputs."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ..frontend.dispatch import apply
from ..frontend.grad_mode import enable_grad
from ..frontend.tensor import Tensor
from ..frontend.tree import flatten, unflatten
from ..frontend.vmap import vmap
from ..frontend.worlds import TensorValue
from ..ir import dtypes, ops
from ..ir.batching import move_dim
from ..ir.dim import product
from .gradients import Pushforward, outputs_of, split_aux, substituted
from .one_piece import in_one_piece
from .tape import (
    Function,
    fresh_tree,
    grad_mode,
    has_outside,
    materialised,
    pull,
    released,
)


def basis(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The unit vectors of all elements together: for each tensor, [elements of all, *shape]."""
    sizes = [product(t._graphc_type.shape) for t in tensors]
    total: Any = 0
    for size in sizes:
        total = total + size
    found: list[Tensor] = []
    start: Any = 0
    for tensor, size in zip(tensors, sizes, strict=True):
        shape = (total, size)
        row = apply(ops.iota, shape=shape, dim=0, dtype=dtypes.i64)
        column = apply(ops.iota, shape=shape, dim=1, dtype=dtypes.i64)
        offset = apply(ops.full, shape=(), value=start, dtype=dtypes.i64)
        unit = apply(ops.eq, row, apply(ops.add, column, offset))
        unit = apply(ops.cast, unit, dtype=tensor._graphc_type.dtype)
        found.append(apply(ops.reshape, unit, shape=(total, *tensor._graphc_type.shape)))
        start = start + size
    return found


def rows(stacked: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """[elements of all, *rest] as one tensor [*shape, *rest] for each of `tensors`."""
    rest = stacked._graphc_type.shape[1:]
    found: list[Tensor] = []
    start: Any = 0
    for tensor in tensors:
        shape = tensor._graphc_type.shape
        size: Any = product(shape)
        part = apply(
            ops.slice, stacked, starts=(start, *[0] * len(rest)), stops=(start + size, *rest),
            steps=(1,) * (len(rest) + 1),
        )
        found.append(apply(ops.reshape, part, shape=(*shape, *rest)))
        start = start + size
    return found


def columns(stacked: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """[elements of all, *rest] as one tensor [*rest, *shape] for each of `tensors`."""
    found: list[Tensor] = []
    for tensor, part in zip(tensors, rows(stacked, tensors), strict=True):
        value = TensorValue(part)
        for _ in tensor._graphc_type.shape:
            value = move_dim(value, 0, len(value.type.shape) - 1)
        found.append(value.tensor)
    return found


def jacrev(
    func: Function, argnums: int | tuple[int, ...] = 0, *, has_aux: bool = False,
    chunk_size: int | None = None, _preallocate_and_copy: bool = False,
) -> Function:
    """torch.func.jacrev: the Jacobian by reverse mode; of shape output shape + input shape."""
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")

    @functools.wraps(func)
    @in_one_piece("jacrev()")
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        outer = grad_mode()
        with enable_grad():
            of_chosen, chosen = substituted(func, argnums, args, kwargs)
            placed, inputs = fresh_tree(chosen)
            output, aux = split_aux(of_chosen(*placed), has_aux, "jacrev(f)(*args)")
            outputs, structure = outputs_of("jacrev(f)(*args)", output)
            outside = has_outside([*outputs, *flatten(aux)[0]], inputs)

            def pulled(*cotangents: Tensor) -> list[Tensor]:
                return materialised(pull(outputs, cotangents, inputs, outside), inputs)

            stacked = vmap(pulled, chunk_size=chunk_size)(*basis(outputs))
        by_input = [rows(column, outputs) for column in stacked]
        in_structure = flatten(chosen)[1]
        jacobians: list[Any] = []
        for o in range(len(outputs)):
            tree = unflatten([column[o] for column in by_input], in_structure)
            jacobians.append(tree[0] if isinstance(argnums, int) else tree)
        result = _nested(jacobians, structure, outside, outer)
        return (result, released(aux, outside, outer)) if has_aux else result

    return wrapper


def jacfwd(
    func: Function, argnums: int | tuple[int, ...] = 0, has_aux: bool = False, *,
    randomness: str = "error",
) -> Function:
    """torch.func.jacfwd: the Jacobian by forward mode; of shape output shape + input shape."""

    @functools.wraps(func)
    @in_one_piece("jacfwd()")
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        outer = grad_mode()
        with enable_grad():
            of_chosen, chosen = substituted(func, argnums, args, kwargs)
            placed, inputs = fresh_tree(chosen)
            output, aux = split_aux(of_chosen(*placed), has_aux, "jacfwd(f)(*args)")
            outputs, structure = outputs_of("jacfwd(f)(*args)", output)
            push = Pushforward(outputs, inputs)
            outside = push.outside or has_outside([*outputs, *flatten(aux)[0]], inputs)

            def pushed(*tangents: Tensor) -> list[Tensor]:
                return materialised(push(tangents, outer), outputs)

            stacked = vmap(pushed, randomness=randomness)(*basis(inputs))
        in_structure = flatten(chosen)[1]
        jacobians: list[Any] = []
        for column in stacked:
            tree = unflatten(list(columns(column, inputs)), in_structure)
            jacobians.append(tree[0] if isinstance(argnums, int) else tree)
        result = _nested(jacobians, structure, outside, outer)
        return (result, released(aux, outside, outer)) if has_aux else result

    return wrapper


def _nested(jacobians: list[Any], structure: Any, outside: bool, outer: bool) -> Any:
    return unflatten([released(j, outside, outer) for j in jacobians], structure)


def hessian(func: Function, argnums: int | tuple[int, ...] = 0) -> Function:
    """torch.func.hessian: the second derivative, jacfwd of jacrev."""
    return jacfwd(jacrev(func, argnums), argnums)
