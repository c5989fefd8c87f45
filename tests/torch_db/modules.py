"""torch's module_db run on both packages: initial weights, forward, gradients, errors."""

from __future__ import annotations

import re
import sys
import types
import unittest
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

import graphc
from graphc import nn

if "expecttest" not in sys.modules:  # the databases import it and do not use it
    try:
        import expecttest  # noqa: F401
    except ImportError:
        stub = types.ModuleType("expecttest")
        stub.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        stub.assert_expected_inline = None  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stub

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_modules import ModuleErrorEnum, module_db

INFOS = {info.name: info for info in module_db}
ASPECTS = ("init", "forward", "gradient", "compiled", "compiled gradient", "errors")
COMPILED_CASES = 3  # of each module
MOST_CASES = 48  # of each module, in training and in evaluation; LinearCrossEntropyLoss has 857


class Untranslatable(Exception):
    """An argument that has no counterpart: a torch module or function."""


def translate(value: Any) -> Any:
    """A torch value as graphc's: tensors copied, dtypes by name, containers item by item."""
    if isinstance(value, torch.nn.utils.rnn.PackedSequence):
        return nn.utils.rnn.PackedSequence(*(translate(part) for part in value))
    if isinstance(value, torch.Tensor):
        made = graphc.from_numpy(value.detach().numpy().copy())
        return made.requires_grad_(True) if value.requires_grad else made
    if isinstance(value, torch.dtype):
        return getattr(graphc, str(value).split(".")[1])
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, torch.nn.Module) or callable(value):
        name = getattr(value, "__name__", "")
        if getattr(torch.nn.functional, name, None) is value:
            return getattr(nn.functional, name)
        raise Untranslatable(f"{value!r:.60}")
    if isinstance(value, dict):
        return {key: translate(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(translate(item) for item in value)
    return value


class Case(NamedTuple):
    """One sample of the database."""

    number: int
    training: bool
    sample: Any


def cases(name: str, dtype: Any) -> Iterator[Case]:
    """The samples of a module, in training and in evaluation."""
    info = INFOS[name]
    for training in (True, False):
        torch.manual_seed(1)
        samples = info.module_inputs_func(
            info, device="cpu", dtype=dtype, requires_grad=True, training=training
        )
        for number, sample in enumerate(samples[:MOST_CASES]):
            yield Case(number, training, sample)


def dtype_of(name: str) -> Any:
    """float64 where the module takes it."""
    dtypes = INFOS[name].dtypes
    return torch.float64 if torch.float64 in dtypes else dtypes[0]


def build(name: str, case: Case) -> tuple[Any, Any]:
    """The module in both packages, each from seed 0."""
    made = case.sample.constructor_input
    ours_class: Any = graphc
    for part in INFOS[name].module_cls.__module__.split(".")[1:]:
        ours_class = getattr(ours_class, part)
    ours_class = getattr(ours_class, INFOS[name].module_cls.__name__)
    args, kwargs = translate(made.args), translate(made.kwargs)
    dtype = dtype_of(name)
    torch.manual_seed(0)
    theirs = INFOS[name].module_cls(*made.args, **made.kwargs)
    graphc.manual_seed(0)
    ours = ours_class(*args, **kwargs)
    same_state(theirs, ours)
    pair = theirs.to(dtype), ours.to(translate(dtype))
    for module in pair:
        module.train(case.training)
    return pair


def same_state(theirs: Any, ours: Any) -> None:
    """Raise AssertionError unless both have the same keys and bit-equal values."""
    want, have = theirs.state_dict(), ours.state_dict()
    assert list(have) == list(want), f"keys {list(have)} are not {list(want)}"
    for key, value in want.items():
        if isinstance(value, torch.nn.parameter.UninitializedTensorMixin):
            assert nn.parameter.is_lazy(have[key]), key
        elif isinstance(value, torch.Tensor):
            np.testing.assert_array_equal(have[key].numpy(), value.numpy(), err_msg=key)


def leaves(value: Any) -> list[Any]:
    """The tensors in nested containers, in order."""
    if hasattr(value, "dtype"):
        return [value]
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in leaves(item)]
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in leaves(item)]
    return []


def run(package: Any, module: Any, args: Any, kwargs: Any) -> Any:
    """The output from seed 2."""
    package.manual_seed(2)
    return module(*args, **kwargs)


def backward(package: Any, output: Any, inputs: list[Any], module: Any) -> list[Any]:
    """Gradients of a weighted sum of the outputs with respect to inputs and parameters."""
    total: Any = None
    for i, leaf in enumerate(leaves(output)):
        if leaf.dtype.is_floating_point and leaf.requires_grad:
            weights = np.cos(np.arange(leaf.numel()) + i).reshape(tuple(leaf.shape))
            term = (leaf * package.from_numpy(weights).to(leaf.dtype)).sum()
            total = term if total is None else total + term
    if total is None:
        return []
    if package is torch:
        total.backward(retain_graph=True)  # samples share the graph of their inputs
    else:
        total.backward()
    return [leaf.grad for leaf in (*inputs, *module.parameters())]


def agree(have: Any, want: Any, tolerance: float, what: str) -> None:
    """Raise AssertionError unless the tensors are equal in shape, dtype and (nearly) value."""
    ours, theirs = leaves(have), leaves(want)
    assert len(ours) == len(theirs), f"{what}: {len(ours)} tensors instead of {len(theirs)}"
    for h, w in zip(ours, theirs, strict=True):
        assert str(h.dtype) == str(w.dtype), f"{what}: {h.dtype} instead of {w.dtype}"
        assert tuple(h.shape) == tuple(w.shape), f"{what}: {h.shape} instead of {w.shape}"
        np.testing.assert_allclose(
            h.detach().numpy(), w.detach().numpy(), rtol=tolerance, atol=tolerance, err_msg=what
        )


class Outcome(NamedTuple):
    """What one aspect of one case came to: "" for right, else why not."""

    aspect: str
    case: str
    why: str


def _attempt(aspect: str, case: Case, function: Any) -> Outcome:
    label = f"{case.number} {'train' if case.training else 'eval'}"
    try:
        function()
    except Untranslatable as error:
        return Outcome(aspect, label, f"skipped: {' '.join(str(error).split())}")
    except Exception as error:
        text = " ".join(str(error).split())
        return Outcome(aspect, label, f"{type(error).__name__}: {text:.160}")
    return Outcome(aspect, label, "")


def examine(name: str, compiled: bool = True) -> list[Outcome]:
    """Every aspect of every case of a module."""
    found: list[Outcome] = []
    dtype = dtype_of(name)
    tolerance = 1e-8 if dtype == torch.float64 else 2e-4
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in cases(name, dtype):
            found += _examine_case(name, case, tolerance, False)
            if compiled and case.number < COMPILED_CASES and case.training:
                found += _examine_case(name, case, tolerance, True)
        found += examine_errors(name)
    return found


def _examine_case(name: str, case: Case, tolerance: float, compiled: bool) -> list[Outcome]:
    state: dict[str, Any] = {}

    def init() -> None:
        state["pair"] = build(name, case)

    def forward() -> None:
        theirs, ours = state["pair"]
        given = case.sample.forward_input
        # the database's tensors are shared by the runs: their gradients are cleared
        for leaf in leaves((given.args, given.kwargs)):
            leaf.grad = None
        args, kwargs = translate(given.args), translate(given.kwargs)
        want = run(torch, theirs, given.args, given.kwargs)
        call = graphc.compile(ours) if compiled else ours
        have = run(graphc, call, args, kwargs)
        state.update(args=(args, kwargs), want=want, have=have)
        agree(have, want, tolerance, "output")
        same = (leaf for leaf in zip(ours.buffers(), theirs.buffers(), strict=True))
        for h, w in same:
            agree(h, w, tolerance, "buffer")

    def gradient() -> None:
        theirs, ours = state["pair"]
        given = case.sample.forward_input
        pairs = [
            (t, o) for t, o in zip(leaves((given.args, given.kwargs)), leaves(state["args"]),
                                   strict=True)
            if t.requires_grad and t.is_leaf
        ]
        want = backward(torch, state["want"], [t for t, _ in pairs], theirs)
        have = backward(graphc, state["have"], [o for _, o in pairs], ours)
        assert len(have) == len(want)
        for i, (h, w) in enumerate(zip(have, want, strict=True)):
            assert (h is None) == (w is None), f"gradient {i} is {h} instead of {w}"
            if w is not None:
                agree(h, w, tolerance, f"gradient {i}")

    prefix = "compiled" if compiled else ""
    first = _attempt("init", case, init)
    if first.why:
        return [] if compiled else [first]
    second = _attempt(prefix or "forward", case, forward)
    results = [second] if compiled else [first, second]
    if "want" in state and not second.why and leaves(state["want"]):
        results.append(_attempt(f"{prefix} gradient".strip(), case, gradient))
    return results


def examine_errors(name: str) -> list[Outcome]:
    """Whether the database's wrong inputs raise torch's error with torch's message."""
    info = INFOS[name]
    if info.module_error_inputs_func is None:
        return []
    found = []
    samples = info.module_error_inputs_func(
        info, device="cpu", dtype=torch.float64, requires_grad=False, training=False
    )
    for number, error in enumerate(samples):
        case = Case(number, False, error.module_error_input)
        found.append(_attempt("errors", case, lambda e=error, c=case: _refuses(name, e, c)))
    return found


def _refuses(name: str, error: Any, case: Case) -> None:
    ours_class = getattr(nn, INFOS[name].module_cls.__name__)
    made, given = case.sample.constructor_input, case.sample.forward_input
    args, kwargs = translate(made.args), translate(made.kwargs)
    try:
        if error.error_on == ModuleErrorEnum.CONSTRUCTION_ERROR:
            ours_class(*args, **kwargs)
        else:
            module = ours_class(*args, **kwargs)
            module(*translate(given.args), **translate(given.kwargs))
    except error.error_type as raised:
        assert re.search(error.error_regex, str(raised)), (
            f"message {raised} does not match {error.error_regex}"
        )
        return
    raise AssertionError(f"{error.error_type.__name__} expected: {error.error_regex}")
