"""torch.func.grad, grad_and_value, vjp, jvp and linearize.

A jvp is two vjps: the gradient of f's outputs for cotangents u is linear in u, and its own
gradient with regard to u, for cotangents v, is J v (j-towns.github.io, "A new trick for
calculating Jacobian vector products", 2017). So every operator with a gradient has a jvp.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ..frontend.grad_mode import enable_grad
from ..frontend.tensor import Tensor
from ..frontend.tree import Structure, flatten, unflatten
from .tape import (
    Function,
    fresh_tree,
    grad_mode,
    has_outside,
    materialised,
    pull,
    released,
    tracked,
    zeros_like,
)


def _chosen(argnums: int | tuple[int, ...], count: int) -> tuple[int, ...]:
    if isinstance(argnums, int) and not isinstance(argnums, bool):
        numbers: tuple[int, ...] = (argnums,)
    elif isinstance(argnums, tuple) and argnums and all(isinstance(a, int) for a in argnums):
        numbers = argnums
    elif isinstance(argnums, tuple) and not argnums:
        raise RuntimeError("argnums must be a non-empty tuple of ints")
    else:
        raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    for number in numbers:
        if not -count <= number < count:
            raise RuntimeError(f"Got argnum={number}, but only {count} positional inputs")
    normal = tuple(n % count for n in numbers)
    if len(set(normal)) != len(normal):
        raise RuntimeError(f"argnums elements must be unique, got {argnums}")
    return normal


def substituted(
    func: Function, argnums: int | tuple[int, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Function, tuple[Any, ...]]:
    """`func` as a function of the chosen arguments alone, and those."""
    numbers = _chosen(argnums, len(args))

    def of_chosen(*values: Any) -> Any:
        given = list(args)
        for number, value in zip(numbers, values, strict=True):
            given[number] = value
        return func(*given, **kwargs)

    return of_chosen, tuple(args[n] for n in numbers)


def split_aux(result: Any, has_aux: bool, name: str) -> tuple[Any, Any]:
    """The function's output and its auxiliary data."""
    if not has_aux:
        return result, None
    if not (isinstance(result, tuple) and len(result) == 2):
        raise RuntimeError(
            f"{name}: output of function f should be a tuple: (output, aux) if has_aux is True"
        )
    return result


def grad_and_value(
    func: Function, argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Function:
    """torch.func.grad_and_value: a function that gives (gradients, value) of a scalar `func`."""

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        outer = grad_mode()
        with enable_grad():
            of_chosen, chosen = substituted(func, argnums, args, kwargs)
            placed, inputs = fresh_tree(chosen)
            output, aux = split_aux(of_chosen(*placed), has_aux, "grad_and_value(f)(*args)")
            if not isinstance(output, Tensor):
                raise RuntimeError(
                    "Expected f(*args) to return a Tensor, got: "
                    f"{type(output).__name__}"
                )
            if output.ndim != 0:
                raise RuntimeError(
                    "Expected f(*args) to return a scalar tensor, got tensor with "
                    f"{output.ndim} dims. Maybe you wanted to use the vjp or jacrev APIs instead?"
                )
            outside = has_outside([output, *flatten(aux)[0]], inputs)
            found = pull([output], [None], inputs, outside, False)
            structure = flatten(chosen)[1]
            gradients = unflatten(list(materialised(found, inputs)), structure)
        if isinstance(argnums, int):
            gradients = gradients[0]
        gradients, output, aux = (released(v, outside, outer) for v in (gradients, output, aux))
        return (gradients, (output, aux)) if has_aux else (gradients, output)

    return wrapper


def grad(
    func: Function, argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Function:
    """torch.func.grad: a function that gives the gradients of a scalar `func`."""
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        gradients, value = both(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return wrapper


def outputs_of(name: str, result: Any) -> tuple[list[Tensor], Structure]:
    """A function's results, which must be tensors."""
    leaves, structure = flatten(result)
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise RuntimeError(
                f"{name}: Expected f(*args) to return only Tensors, got {type(leaf).__name__}"
            )
    if not leaves:
        raise RuntimeError(f"{name}: Expected f to be a function that has non-empty output")
    return leaves, structure


class Pullback:
    """vjp's second result: cotangents of the outputs to gradients of the inputs."""

    def __init__(
        self, outputs: list[Tensor], structure: Structure, inputs: list[Tensor],
        in_structure: Structure, outside: bool,
    ) -> None:
        self.outputs, self.structure = outputs, structure
        self.inputs, self.in_structure = inputs, in_structure
        self.outside = outside

    def __call__(
        self, cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None
    ) -> Any:
        given, structure = flatten(cotangents)
        if structure != self.structure:
            raise RuntimeError(
                f"Expected pytree structure of cotangents to be the same as pytree structure of "
                f"outputs to the function. cotangents: {structure}, primal output: "
                f"{self.structure}"
            )
        create = create_graph
        if create is None:
            create = grad_mode() and (self.outside or any(tracked(c) for c in given))
        found = pull(self.outputs, given, self.inputs, create, retain_graph)
        return unflatten(list(materialised(found, self.inputs)), self.in_structure)


def vjp(func: Function, *primals: Any, has_aux: bool = False) -> Any:
    """torch.func.vjp: (output, vjp_fn), and aux where `has_aux`; vjp_fn maps cotangents of the
    output to the tuple of gradients of the primals."""
    outer = grad_mode()
    with enable_grad():
        placed, inputs = fresh_tree(primals)
        output, aux = split_aux(func(*placed), has_aux, "vjp(f, *primals)")
        outputs, structure = outputs_of("vjp(f, *primals)", output)
        outside = has_outside([*outputs, *flatten(aux)[0]], inputs)
    pullback = Pullback(outputs, structure, inputs, flatten(primals)[1], outside)
    output, aux = released(output, outside, outer), released(aux, outside, outer)
    return (output, pullback, aux) if has_aux else (output, pullback)


class Pushforward:
    """Tangents of the inputs to tangents of the outputs, by the gradient of a gradient."""

    def __init__(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
        self.outputs = outputs
        self.inputs = inputs
        self.cotangents = [zeros_like(o).requires_grad_() if tracked(o) else None for o in outputs]
        self.given = [c for c in self.cotangents if c is not None]
        self.gradients = pull(outputs, self.cotangents, inputs, True)
        self.outside = has_outside(
            [g for g in self.gradients if g is not None], [*inputs, *self.given]
        )

    def __call__(self, tangents: Sequence[Tensor], outer_grad: bool) -> list[Any]:
        """The tangent of each output; None where an output does not depend on the inputs."""
        create = outer_grad and (self.outside or any(tracked(t) for t in tangents))
        pairs = [
            (g, t) for g, t in zip(self.gradients, tangents, strict=True) if tracked(g)
        ]
        if not pairs or not self.given:
            return [None] * len(self.outputs)
        found = iter(pull([g for g, _ in pairs], [t for _, t in pairs], self.given, create))
        return [None if c is None else next(found) for c in self.cotangents]


def _checked_tangents(name: str, primals: Any, tangents: Any) -> list[Any]:
    given, structure = flatten(tangents)
    leaves, want = flatten(primals)
    if structure != want:
        raise RuntimeError(
            f"{name}: Expected primals and tangents to have the same python structure. For "
            f"example, if primals is a tuple of 3 tensors, tangents also must be. Got primals "
            f"with structure {want} and tangents with structure {structure}"
        )
    for primal, tangent in zip(leaves, given, strict=True):
        if tuple(primal.shape) != tuple(tangent.shape):
            raise RuntimeError(
                f"{name}: Expected tangents to have the shapes of the primals, got "
                f"{list(tangent.shape)} for {list(primal.shape)}"
            )
    return given


def jvp(
    func: Function, primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False
) -> Any:
    """torch.func.jvp: (output, jvp_out), and aux where `has_aux`; jvp_out is the derivative of
    `func` at `primals` (a tuple) in the direction `tangents`."""
    name = "jvp(f, primals, tangents)"
    if not isinstance(primals, tuple):
        raise RuntimeError(
            f"{name}: Expected primals to be a tuple. E.g. it should be valid to call f(*primals)."
        )
    given = _checked_tangents(name, primals, tangents)
    outer = grad_mode()
    with enable_grad():
        placed, inputs = fresh_tree(primals)
        output, aux = split_aux(func(*placed), has_aux, name)
        outputs, structure = outputs_of(name, output)
        push = Pushforward(outputs, inputs)
        found = push(given, outer)
        if strict and any(t is None for t in found):
            raise RuntimeError(
                f"{name}: Output {found.index(None)} is independent of the inputs. "
                "This is not allowed in strict mode"
            )
        tangent = unflatten(list(materialised(found, outputs)), structure)
        outside = push.outside or has_outside([*outputs, *flatten(aux)[0]], inputs)
    kept = outside or any(tracked(t) for t in given)
    output, aux = (released(v, outside, outer) for v in (output, aux))
    tangent = released(tangent, kept, outer)
    return (output, tangent, aux) if has_aux else (output, tangent)


def linearize(func: Function, *primals: Any) -> tuple[Any, Function]:
    """torch.func.linearize: (output, jvp_fn); jvp_fn maps tangents to the derivative of `func` at
    `primals` without running it again."""
    outer = grad_mode()
    with enable_grad():
        placed, inputs = fresh_tree(primals)
        output = func(*placed)
        outputs, structure = outputs_of("linearize(f, *primals)", output)
        push = Pushforward(outputs, inputs)

    def jvp_fn(*tangents: Any) -> Any:
        given = _checked_tangents("linearize(f, *primals)'s jvp_fn", primals, tangents)
        found = push(given, grad_mode())
        return unflatten(list(materialised(found, outputs)), structure)

    return released(output, has_outside(outputs, inputs), outer), jvp_fn
