"""torch.autograd.functional: Jacobians, Hessians and their products with vectors, by the tape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..frontend.dispatch import apply
from ..frontend.functions import NAMES
from ..frontend.grad_mode import enable_grad
from ..frontend.history import requires_grad
from ..frontend.tensor import Tensor, alias, current
from ..func.jacobians import basis, rows
from ..func.one_piece import in_one_piece
from ..ir import ops
from .gradients import grad

Function = Callable[..., Any]


def _tuple_of(name: str, where: str, value: Any) -> tuple[bool, tuple[Tensor, ...]]:
    """Whether it is several, and as a tuple. Raises TypeError for anything but Tensors."""
    several = isinstance(value, tuple)
    found = value if several else (value,)
    for i, each in enumerate(found):
        if not isinstance(each, Tensor):
            raise TypeError(
                f"The {where} given to {name} must be either a Tensor or a tuple of Tensors but "
                + (f"the value at index {i} has type {type(each)}." if several
                   else f"the given {where} has type {type(each)}.")
            )
    return several, found


def _prepared(inputs: Sequence[Tensor], create_graph: bool) -> tuple[Tensor, ...]:
    """The inputs at a fresh place of the tape: connected to their history for `create_graph`."""
    return tuple(
        apply(ops.reshape, x, shape=x._graphc_type.shape)
        if create_graph and requires_grad(current(x)) else alias(x).requires_grad_()
        for x in inputs
    )


def _finished(value: Any, create_graph: bool) -> Any:
    if isinstance(value, tuple):
        return tuple(_finished(v, create_graph) for v in value)
    return value if create_graph else value.detach()


def _run(name: str, func: Function, inputs: Sequence[Tensor]) -> tuple[bool, tuple[Tensor, ...]]:
    return _tuple_of(name, "outputs of the user-provided function", func(*inputs))


def _vectors(
    v: Any, like: Sequence[Tensor], several: bool, what: str
) -> tuple[Tensor, ...]:
    """The vector, checked against the tensors that it goes with; ones for a single number."""
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(
                f"The vector v can only be None if {what} is a single Tensor with a single element."
            )
        return (NAMES["ones_like"](like[0]),)
    _, given = _tuple_of("the vector", "v", v)
    if len(given) != len(like):
        raise RuntimeError(
            f"v is a tuple of invalid length: should be {len(like)} but got {len(given)}."
        )
    for i, (one, other) in enumerate(zip(given, like, strict=True)):
        if tuple(one.shape) != tuple(other.shape):
            prefix = f"Entry {i} in " if several else ""
            raise RuntimeError(
                f"{prefix}v has invalid size: should be {other.shape} but got {one.shape}."
            )
    return given


def _check_strict(gradients: Sequence[Any], strict: bool, message: str) -> None:
    if strict:
        for i, gradient in enumerate(gradients):
            if gradient is None:
                raise RuntimeError(message.format(i=i))


def _pulled(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], vectors: Sequence[Any],
    create_graph: bool, strict: bool, message: str,
) -> tuple[Tensor, ...]:
    """Gradients with zeros where nothing flows, which `strict` forbids."""
    pairs = [
        (o, v) for o, v in zip(outputs, vectors, strict=True) if requires_grad(current(o))
    ]
    found: Sequence[Any] = [None] * len(inputs)
    if pairs:
        found = grad(
            [o for o, _ in pairs], inputs, [v for _, v in pairs], retain_graph=True,
            create_graph=create_graph, allow_unused=True,
        )
    _check_strict(found, strict, message)
    zeros = NAMES["zeros_like"]
    return tuple(zeros(x) if g is None else g for g, x in zip(found, inputs, strict=True))


_INDEPENDENT = "The output of the user-provided function is independent of input {i}. This is not "
_INDEPENDENT += "allowed in strict mode."


def vjp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(func(*inputs), v^T J): the product of a vector with the Jacobian."""
    with enable_grad():
        several, given = _tuple_of("vjp", "inputs", inputs)
        placed = _prepared(given, create_graph)
        many, outputs = _run("vjp", func, placed)
        vectors = _vectors(v, outputs, many, "the user-provided function's output")
        found = _pulled(outputs, placed, vectors, create_graph, strict, _INDEPENDENT)
    result = _finished(outputs if many else outputs[0], create_graph)
    return result, _finished(found if several else found[0], create_graph)


def jvp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(func(*inputs), J v): the product of the Jacobian with a vector."""
    with enable_grad():
        _, given = _tuple_of("jvp", "inputs", inputs)
        placed = _prepared(given, create_graph)
        vectors = _vectors(v, placed, len(placed) > 1, "the user-provided function's input")
        many, outputs = _run("jvp", func, placed)
        duals = tuple(NAMES["zeros_like"](o).requires_grad_() for o in outputs)
        slopes = _pulled(outputs, placed, duals, True, strict, _INDEPENDENT)
        found = _pulled(slopes, duals, vectors, create_graph, strict, _INDEPENDENT)
    result = _finished(outputs if many else outputs[0], create_graph)
    return result, _finished(found if many else found[0], create_graph)


@in_one_piece("jacobian()")
def jacobian(
    func: Function, inputs: Any, create_graph: bool = False, strict: bool = False,
    vectorize: bool = False, strategy: str = "reverse-mode",
) -> Any:
    """The Jacobian of each output with regard to each input: output shape + input shape."""
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(
            'Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your '
            'function has more outputs than inputs, "forward-mode" tends to be more performant.'
        )
    if strategy == "forward-mode" and create_graph:
        raise NotImplementedError(
            "torch.autograd.functional.jacobian: `create_graph=True` and "
            '`strategy="forward-mode"` are not supported together (yet).'
        )
    if strategy == "forward-mode" and not vectorize:
        raise NotImplementedError(
            'torch.autograd.functional.jacobian: `strategy="forward-mode"` requires '
            "`vectorize=True`."
        )
    if vectorize and strict:
        raise RuntimeError("torch.autograd.functional.jacobian: `strict=True` and "
                           "`vectorized=True` are not supported together.")
    with enable_grad():
        several, given = _tuple_of("jacobian", "inputs", inputs)
        placed = _prepared(given, create_graph)
        many, outputs = _run("jacobian", func, placed)
        if strict:
            ones = [NAMES["ones_like"](o) for o in outputs]
            _pulled(outputs, placed, ones, create_graph, True, _INDEPENDENT)
        units = basis(outputs)
        stacked: list[Any] = [None] * len(placed)
        pairs = [
            (o, u) for o, u in zip(outputs, units, strict=True) if requires_grad(current(o))
        ]
        if pairs:
            stacked = list(grad(
                [o for o, _ in pairs], placed, [u for _, u in pairs], retain_graph=True,
                create_graph=create_graph, allow_unused=True, is_grads_batched=True,
            ))
        total = units[0].shape[0]
        for i, (found, x) in enumerate(zip(stacked, placed, strict=True)):
            if found is None:
                stacked[i] = NAMES["zeros"]((total, *x.shape), dtype=x.dtype)
        parts = [rows(each, outputs) for each in stacked]  # by input, then output
    result = tuple(
        tuple(_finished(parts[i][o], create_graph) for i in range(len(placed)))
        for o in range(len(outputs))
    )
    if not several:
        flat = tuple(row[0] for row in result)
        return flat if many else flat[0]
    return result if many else result[0]


def _scalar(name: str, func: Function) -> Function:
    def checked(*inputs: Tensor) -> Tensor:
        found = func(*inputs)
        many, outputs = _tuple_of(name, "outputs of the user-provided function", found)
        if many and len(outputs) != 1:
            raise RuntimeError(
                f"The function given to {name} should return a single Tensor"
            )
        if outputs[0].numel() != 1:
            raise RuntimeError(
                f"The Tensor returned by the function given to {name} should contain a single "
                "element"
            )
        return outputs[0].reshape(())

    return checked


@in_one_piece("hessian()")
def hessian(
    func: Function, inputs: Any, create_graph: bool = False, strict: bool = False,
    vectorize: bool = False, outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The second derivatives of a scalar function: for inputs i and j, shape of i + shape of j."""
    several, given = _tuple_of("hessian", "inputs", inputs)
    scalar = _scalar("hessian", func)

    def gradient(*placed: Tensor) -> Any:
        return jacobian(scalar, placed, create_graph=True, strict=strict)

    with enable_grad():
        found = jacobian(gradient, given, create_graph=create_graph, strict=strict)
    return found if several else found[0][0]


def vhp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(func(*inputs), v^T H): the product of a vector with the Hessian of a scalar function."""
    with enable_grad():
        several, given = _tuple_of("vhp", "inputs", inputs)
        placed = _prepared(given, create_graph)
        vectors = _vectors(v, placed, several, "the user-provided function's input")
        output = _scalar("vhp", func)(*placed)
        slopes = _pulled([output], placed, [None], True, strict, _INDEPENDENT)
        found = _pulled(slopes, placed, vectors, create_graph, strict, _INDEPENDENT)
    return _finished(output, create_graph), _finished(
        found if several else found[0], create_graph
    )


def hvp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(func(*inputs), H v): the product of the Hessian of a scalar function with a vector."""
    return vhp(func, inputs, v, create_graph, strict)  # the Hessian is symmetric
