"""torch.autograd.gradcheck: gradients against central differences, in float64."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..frontend.functions import NAMES
from ..frontend.grad_mode import enable_grad, no_grad
from ..frontend.tensor import Tensor, from_array
from ..func.gradients import jvp
from ..testing.making import make_tensor
from .gradients import grad

Function = Callable[..., Any]


class GradcheckError(RuntimeError):
    """A gradient is not what differences say."""


def _tensors(values: Any) -> tuple[Any, ...]:
    return (values,) if isinstance(values, Tensor) else tuple(values)


def _outputs(func: Function, inputs: Sequence[Any]) -> list[Tensor]:
    found = func(*inputs)
    return [
        t for t in _tensors(found)
        if isinstance(t, Tensor) and (t.dtype.is_floating_point or t.dtype.is_complex)
    ]


def _reals(array: np.ndarray) -> np.ndarray:
    """An array's numbers in a row, a complex one being two real ones; row-major: its memory."""
    flat = array.reshape(-1)
    return flat.view(flat.real.dtype) if np.iscomplexobj(flat) else flat


def _units(like: Tensor) -> list[Tensor]:
    """For each of a tensor's real numbers, zeros like it with 1 there (1j: an imaginary part)."""
    found = []
    values = np.zeros(tuple(like.shape), like.detach().numpy().dtype)
    for i in range(_reals(values).size):
        one = values.copy()
        _reals(one)[i] = 1
        found.append(from_array(one))
    return found


def _numerical(
    func: Function, inputs: Sequence[Any], which: int, eps: float
) -> list[np.ndarray]:
    """Jacobians of all outputs with regard to one input: [real numbers of input, of output]."""
    x = inputs[which]
    base = np.array(x.detach().numpy(), order="C")
    columns: list[list[np.ndarray]] = []
    for i in range(_reals(base).size):
        values: list[list[np.ndarray]] = []
        for sign in (1, -1):
            moved = base.copy()
            _reals(moved)[i] += sign * eps
            given = list(inputs)
            given[which] = from_array(moved).requires_grad_(x.requires_grad)
            with enable_grad():
                found = _outputs(func, given)
            values.append([_reals(np.array(o.detach().numpy())) for o in found])
        columns.append([(a - b) / (2 * eps) for a, b in zip(*values, strict=True)])
    if not columns:
        return []
    return [np.stack(column) for column in zip(*columns, strict=True)]


def _analytical(
    outputs: Sequence[Tensor], x: Tensor, o: int, nondet_tol: float
) -> tuple[np.ndarray, bool]:
    """The Jacobian of one output by backward(), and whether a second run agrees."""
    output = outputs[o]
    units = _units(output)
    rows = _reals(x.detach().numpy())
    runs: list[np.ndarray] = []
    for _ in range(2):
        found = np.zeros((rows.size, len(units)), rows.dtype)
        for j, unit in enumerate(units if output.requires_grad else []):
            (g,) = grad(output, x, unit, retain_graph=True, allow_unused=True)
            if g is not None:
                if g.dtype is not x.dtype or tuple(g.shape) != tuple(x.shape):
                    raise GradcheckError(
                        f"grad is of type {g.dtype} and shape {list(g.shape)}, its input is "
                        f"{x.dtype} and {list(x.shape)}"
                    )
                found[:, j] = _reals(np.array(g.detach().resolve_conj().numpy()))
        runs.append(found)
    same = bool(np.all(np.abs(runs[0] - runs[1]) <= nondet_tol)) if runs[0].size else True
    return runs[0], same


def _check(
    func: Function, inputs: Sequence[Any], eps: float, atol: float, rtol: float,
    nondet_tol: float, check_undefined_grad: bool,
) -> None:
    wanted = [
        i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad
    ]
    if not wanted:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of the "
            "them have requires_grad=True."
        )
    for i in wanted:
        if inputs[i].dtype.itemsize < 8:
            warnings.warn(
                f"Input #{i} requires gradient and is not a double precision floating point or "
                "complex. This check will likely fail if all the inputs are not of double "
                "precision floating point or complex. ", stacklevel=4,
            )
        inputs[i].retain_grad()
    outputs = _outputs(func, inputs)
    with no_grad():
        numerical = {i: _numerical(func, inputs, i, eps) for i in wanted}
    for o in range(len(outputs)):
        for i in wanted:
            if not numerical[i]:
                continue
            expected = numerical[i][o]
            found, same = _analytical(outputs, inputs[i], o, nondet_tol)
            if not same:
                raise GradcheckError(
                    "Backward is not reentrant, i.e., running backward with same input and "
                    f"grad_output multiple times gives different values, although analytical "
                    f"gradient matches numerical gradient. The tolerance for nondeterminism was "
                    f"{nondet_tol}."
                )
            if not np.allclose(found, expected, rtol=rtol, atol=atol, equal_nan=True):
                raise GradcheckError(
                    f"Jacobian mismatch for output {o} with respect to input {i},\n"
                    f"numerical:{expected}\nanalytical:{found}\n"
                )
    if check_undefined_grad and len(outputs) > 1:
        _check_undefined(func, inputs, wanted)


def _check_undefined(func: Function, inputs: Sequence[Any], wanted: Sequence[int]) -> None:
    """An output that nothing is asked of must count as one whose gradient is zero."""
    for kept in range(len(_outputs(func, inputs))):
        outputs = _outputs(func, inputs)
        if not outputs[kept].requires_grad:
            continue
        one = grad(outputs[kept], [inputs[i] for i in wanted],
                   NAMES["ones_like"](outputs[kept]), retain_graph=True, allow_unused=True)
        tracked = [o for o, t in enumerate(outputs) if t.requires_grad]
        seeds = [
            NAMES["ones_like"](outputs[o]) if o == kept else NAMES["zeros_like"](outputs[o])
            for o in tracked
        ]
        every = grad([outputs[o] for o in tracked], [inputs[i] for i in wanted], seeds,
                     allow_unused=True)
        for a, b in zip(one, every, strict=True):
            first = 0.0 if a is None else a.detach().numpy()
            second = 0.0 if b is None else b.detach().numpy()
            if not np.allclose(first, second, equal_nan=True):
                raise GradcheckError(
                    "Expected backward function to handle undefined output grads. Please look at "
                    "the backward function: an undefined gradient is not treated as zero"
                )


def gradcheck(
    func: Function, inputs: Any, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
    raise_exception: bool = True, nondet_tol: float = 0.0, check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False, check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False, check_forward_ad: bool = False,
    check_backward_ad: bool = True, fast_mode: bool = False, masked: bool | None = None,
) -> bool:
    """Whether the gradients of `func` at `inputs` (float64) agree with central differences.

    Raises GradcheckError where they do not, unless `raise_exception` is false. `fast_mode` is
    accepted: the whole Jacobian is compared.
    """
    given = _tensors(inputs)
    try:
        _check(func, given, eps, atol, rtol, nondet_tol, check_undefined_grad)
        if check_forward_ad:
            _check_forward(func, given, eps, atol, rtol)
        if check_batched_grad:
            _check_batched(func, given)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _check_forward(
    func: Function, inputs: Sequence[Any], eps: float, atol: float, rtol: float
) -> None:
    wanted = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]
    numerical = {i: _numerical(func, inputs, i, eps) for i in wanted}
    for i in wanted:
        x = inputs[i]
        for k, unit in enumerate(_units(x)):

            def alone(value: Tensor, i: int = i) -> Any:
                return tuple(_outputs(func, [*inputs[:i], value, *inputs[i + 1 :]]))

            _, tangents = jvp(alone, (x.detach(),), (unit,))
            for o, tangent in enumerate(tangents):
                row = _reals(np.array(tangent.detach().numpy()))
                if not np.allclose(row, numerical[i][o][k], rtol=rtol, atol=atol):
                    raise GradcheckError(
                        f"Jacobian computed with forward mode mismatch for output {o} with "
                        f"respect to input {i}"
                    )


def _check_batched(func: Function, inputs: Sequence[Any]) -> None:
    wanted = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    for output in _outputs(func, inputs):
        if not output.requires_grad:
            continue
        seeds = NAMES["stack"]([NAMES["randn_like"](output).detach() for _ in range(2)])
        batched = grad(output, wanted, seeds, retain_graph=True, allow_unused=True,
                       is_grads_batched=True)
        for i in range(2):
            alone = grad(output, wanted, seeds[i], retain_graph=True, allow_unused=True)
            for a, b in zip(alone, batched, strict=True):
                if (a is None) != (b is None) or (
                    a is not None and not np.allclose(a.numpy(), b[i].numpy())
                ):
                    raise GradcheckError("While computing batched gradients, got another result "
                                         "than one by one")


def gradgradcheck(
    func: Function, inputs: Any, grad_outputs: Any = None, *, eps: float = 1e-6,
    atol: float = 1e-5, rtol: float = 1e-3, gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True, nondet_tol: float = 0.0, check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False, check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False, check_rev_over_rev: bool = True, fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Whether the gradients of the gradients of `func` agree with central differences."""
    given = _tensors(inputs)
    outputs = [o for o in _outputs(func, given) if o.requires_grad]
    if grad_outputs is None:
        seeds = tuple(  # drawn as torch draws them
            make_tensor(o.shape, dtype=o.dtype, device=o.device, low=-1, high=1,
                        requires_grad=True, noncontiguous=gen_non_contig_grad_outputs)
            for o in outputs
        )
    else:
        seeds = _tensors(grad_outputs)
    count = len(given)

    def gradients(*values: Any) -> tuple[Tensor, ...]:
        placed = [
            x if not (isinstance(x, Tensor) and x.dtype.is_floating_point) or x.requires_grad
            or not given[i].requires_grad else x.detach().requires_grad_()
            for i, x in enumerate(values[:count])
        ]
        inner = [x for x in placed if isinstance(x, Tensor) and x.requires_grad]
        found = [o for o in _outputs(func, placed) if o.requires_grad]
        return tuple(
            g for g in grad(found, inner, values[count:], create_graph=True, allow_unused=True)
            if g is not None
        )

    return gradcheck(
        gradients, (*given, *seeds), eps=eps, atol=atol, rtol=rtol,
        raise_exception=raise_exception, nondet_tol=nondet_tol,
        check_undefined_grad=False, check_batched_grad=check_batched_grad,
    )
