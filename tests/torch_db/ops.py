"""torch's op_db run on graphc: `python -m tests.torch_db.ops --write docs/coverage_operators.md`.

For each operator: does graphc have it; are values and dtypes the same over torch's own sample
inputs; the gradients; the same compiled; do the invalid inputs raise.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import graphc
from tests.torch_db.convert import copy, difference, leaves, to_numpy, twin

COLUMNS = ("forward", "dtypes", "gradient", "compiled", "compiled gradient", "errors")
_SAMPLES, _COMPILED = 24, 2  # of each dtype; torch has up to some hundreds
_DTYPES = (torch.int64, torch.bool, torch.float64, torch.bfloat16, torch.complex64)
# not part of torch's public interface, or of a kind that graphc leaves out as a whole
_INTERNAL = ("_", "torch._", "sparse.", "torch.ops.", "ops.", "jiterator_")
Outcome = dict[str, str]  # column -> "" (right) or what is wrong; a missing column: not applicable


def public(op: Any) -> bool:
    """Whether ordinary code can call it."""
    name = op.name
    if not op.dtypes:  # a variant of another device
        return False
    return name.startswith("__") or not (name.startswith(_INTERNAL) or "sparse" in name)


def title(op: Any) -> str:
    """The operator's name, with its variant."""
    return op.name + (f" ({op.variant_test_name})" if op.variant_test_name else "")


def ours(op: Any) -> Callable[..., Any] | None:
    """graphc's function for an OpInfo: torch's Python wrapper run on graphc, or the same name."""
    if isinstance(op.op, types.FunctionType) and "torch" in op.op.__globals__ and (
        "common_methods" in op.op.__module__ or "opinfo" in op.op.__module__
    ):
        return _on_graphc(op.op)
    place: Any = graphc
    if isinstance(op.op, torch._ops.OpOverload):
        found = getattr(getattr(graphc.ops, op.op.namespace), op.name, None)
        return found if callable(found) else None
    for part in op.name.split("."):
        place = getattr(place, part, None)
    if not callable(place) and "." not in op.name:
        place = getattr(graphc.Tensor, op.name, None)
    return place if callable(place) else None


def _on_graphc(function: types.FunctionType) -> types.FunctionType:
    """A function of PyTorch's test helpers, and those it calls, with graphc in torch's place."""
    names = {**function.__globals__, "torch": graphc, "F": graphc.nn.functional}
    for name in function.__code__.co_names:
        helper = names.get(name)
        if isinstance(helper, types.FunctionType) and helper.__module__.startswith("torch.testing"):
            names[name] = _on_graphc(helper)
    made = types.FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _samples(op: Any, dtype: torch.dtype, grad: bool, count: int) -> list[Any]:
    torch.manual_seed(0)
    np.random.seed(0)
    found = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=grad), 400))
    step = max(1, len(found) // count)
    return found[::step][:count]


def _call(
    function: Callable[..., Any], sample: Any, convert: Callable[[Any], Any]
) -> tuple[Any, Any]:
    arguments = convert(((sample.input, *sample.args), sample.kwargs))
    return function(*arguments[0], **arguments[1]), arguments


# singular vectors, eigenvectors: right up to a sign or phase, which torch's samples take out
_GAUGE = ("svd", "eig", "lowrank", "linalg.lstsq")
# positions of equal elements: any is right where no stable order is asked for
_TIES = ("sort", "argsort", "topk", "kthvalue", "msort")
_UNINITIALISED = ("empty", "new_empty")


def _comparable(op: Any, sample: Any, result: Any, given: Any) -> Any:
    """The part of a result that is determined."""
    if any(part in op.name for part in _GAUGE):
        return sample.output_process_fn_grad(result)
    if op.name.startswith(_UNINITIALISED):
        return tuple(result.shape), result.dtype
    if op.name in _TIES and not sample.kwargs.get("stable"):
        return _at_positions(op, sample, result, given)
    return result


def _at_positions(op: Any, sample: Any, result: Any, given: Any) -> Any:
    """The elements at the positions instead of the positions."""
    x = given[0][0]
    names = ("input", "dim") if "sort" in op.name else ("input", "k", "dim")
    arguments = {**dict(zip(names, given[0], strict=False)), **sample.kwargs}
    dim = arguments.get("dim", 0 if op.name == "msort" else -1)
    if op.name == "msort" or x.ndim == 0:
        return result
    positions = result if op.name == "argsort" else result[1]
    if op.name == "kthvalue" and not (arguments.get("keepdim") or len(given[0]) > 3):
        positions = positions.unsqueeze(dim)
    at = x.gather(dim, positions)
    return at if op.name == "argsort" else (result[0], at, result[1].shape)


def _total(outputs: list[Any], module: Any) -> Any:
    """A weighted sum of all elements."""
    total: Any = 0
    for i, output in enumerate(outputs):
        weights = np.cos(np.arange(output.numel()) + i).reshape(tuple(output.shape))
        weighted = output * module.from_numpy(weights).to(output.dtype)
        part = weighted.sum()
        total = total + (part.abs() if part.is_complex() else part)
    return total


def _gradients(result: Any, arguments: Any, kind: Any, module: Any) -> list[Any]:
    outputs = [o for o in leaves(result, kind) if o.requires_grad]
    inputs = [t for t in leaves(arguments, kind) if t.requires_grad]
    if outputs:
        _total(outputs, module).backward()
    # an input without elements: torch sometimes says None, sometimes an empty tensor
    return [t.grad if t.numel() else None for t in inputs]


_FEW = 300  # elements that are moved one by one


def _as_measured(op: Any, function: Callable[..., Any], sample: Any, mine: list[Any]) -> bool:
    """Whether graphc's gradients are what differences of its results say, where torch's differ."""
    wrapped = _wrapped(op, function, graphc)
    given = copy(((sample.input, *sample.args), sample.kwargs))
    inputs = [t for t in leaves(given, torch.Tensor) if t.requires_grad]
    if any(t.dtype is not torch.float64 for t in inputs) or sum(t.numel() for t in inputs) > _FEW:
        return False

    def total() -> float:
        args, kwargs = twin(given)
        graphc.manual_seed(7)
        outputs = leaves(sample.output_process_fn_grad(wrapped(*args, **kwargs)), graphc.Tensor)
        found = [o.detach() for o in outputs if o.requires_grad]
        return float(_total(found, graphc).item()) if found else 0.0

    for tensor, gradient in zip(inputs, mine, strict=True):
        values = tensor.detach()
        for place in itertools.product(*map(range, tensor.shape)):
            kept, ends = float(values[place]), []
            for step in (1e-6, -1e-6):
                values[place] = kept + step
                ends.append(total())
            values[place] = kept
            slope = (ends[0] - ends[1]) / 2e-6
            found = 0.0 if gradient is None else float(gradient[place].item())
            if not abs(slope - found) <= 1e-5 + 1e-4 * abs(slope):
                return False
    return True


_WIDE = {torch.float32: torch.float64, torch.bfloat16: torch.float64, torch.float16: torch.float64,
         torch.complex64: torch.complex128}


def _widened(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().to(_WIDE.get(value.dtype, value.dtype))
    if isinstance(value, (tuple, list)):
        items = [_widened(v) for v in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {key: _widened(v) for key, v in value.items()}
    return _WIDE.get(value, value) if isinstance(value, torch.dtype) else value


def _no_worse(op: Any, sample: Any, have: Any, want: Any) -> bool:
    """Whether graphc's result is as near to that of double precision as torch's, which is near."""
    args, kwargs = _widened(((sample.input, *sample.args), sample.kwargs))
    exact = leaves(op.op(*args, **kwargs), torch.Tensor)
    ours, theirs = leaves(have, graphc.Tensor), leaves(want, torch.Tensor)
    if not len(exact) == len(ours) == len(theirs):
        return False
    for e, h, w in zip(exact, ours, theirs, strict=True):
        if not tuple(e.shape) == tuple(h.shape) == tuple(w.shape) or not e.numel():
            return False
        right = to_numpy(e)
        kind = np.complex128 if e.is_complex() else np.float64
        error, theirs_error = (
            np.abs(array.astype(kind) - right).max()
            for array in (np.asarray(h.detach()._graphc_array), to_numpy(w))
        )
        if np.isnan(theirs_error):  # torch has NaN where there is a number
            theirs_error = error
        if not error <= theirs_error <= 0.05 * np.abs(right).max():
            return False
    return True


def _wrapped(op: Any, function: Callable[..., Any], module: Any) -> Callable[..., Any]:
    """With the input made symmetric, triangular, ... where the operator reads only a part."""
    wrapper = op.gradcheck_wrapper
    if "identity" in wrapper.__name__ or op.name.startswith("masked."):
        return function
    if module is graphc:
        wrapper = _on_graphc(wrapper)
    return lambda *args, **kwargs: wrapper(function, *args, **kwargs)


# torch's float64 polynomials are good to 1e-7 only: 3e-7 off the true value where graphc is 1e-16
_ROUGH = ("special.bessel_",)


def _compare(op: Any, function: Callable[..., Any], sample: Any, grad: bool) -> str:
    torch.manual_seed(7)
    want, given = _call(op.op, sample, copy)
    graphc.manual_seed(7)
    have, taken = _call(function, sample, twin)
    ours, theirs = (
        _comparable(op, sample, have, taken), _comparable(op, sample, want, given)
    )
    wrong = difference(ours, theirs)
    if wrong.endswith("differ)") and op.name.startswith(_ROUGH):
        wrong = difference(ours.to(graphc.float32), theirs.to(torch.float32))
    if wrong.endswith("differ)") and ours is have and _no_worse(op, sample, have, want):
        wrong = ""
    if wrong or not grad:
        return wrong
    torch.manual_seed(7)
    want, given = _call(_wrapped(op, op.op, torch), sample, copy)
    graphc.manual_seed(7)
    have, taken = _call(_wrapped(op, function, graphc), sample, twin)
    want, have = sample.output_process_fn_grad(want), sample.output_process_fn_grad(have)
    if not any(o.requires_grad for o in leaves(want, torch.Tensor)):
        return ""
    try:
        theirs = _gradients(want, given, torch.Tensor, torch)
    except (RuntimeError, NotImplementedError):  # torch has no derivative of it
        return ""
    mine = _gradients(have, taken, graphc.Tensor, graphc)
    wrong = difference(mine, theirs, path="gradient")
    return "" if wrong and _as_measured(op, function, sample, mine) else wrong


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return graphc.compile(lambda *args, **kwargs: function(*args, **kwargs))


def _first(attempts: Iterator[str]) -> str:
    """The first thing that is wrong."""
    try:
        return next((text for text in attempts if text), "")
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def check(op: Any) -> Outcome:
    """Every column of one operator."""
    function = ours(op)
    if function is None:
        return {"forward": "missing"}
    found: Outcome = {}
    base = torch.float32 if torch.float32 in op.dtypes else next(iter(sorted(op.dtypes, key=str)))
    samples = _samples(op, base, False, _SAMPLES)
    found["forward"] = _first(_compare(op, function, s, False) for s in samples)
    others = [d for d in _DTYPES if d in op.dtypes and d is not base]
    by_dtype = (
        (d, _first(_compare(op, function, s, False) for s in _samples(op, d, False, 6)))
        for d in others
    )
    found["dtypes"] = next((f"{d}: {text}" for d, text in by_dtype if text), "")
    quick = samples[:: max(1, len(samples) // _COMPILED)][:_COMPILED]
    found["compiled"] = _first(_compare(op, _compiled(function), s, False) for s in quick)
    if op.supports_autograd and torch.float64 in op.dtypes:
        with_grad = _samples(op, torch.float64, True, _SAMPLES // 2)
        found["gradient"] = _first(_compare(op, function, s, True) for s in with_grad)
        quick = with_grad[:: max(1, len(with_grad) // _COMPILED)][:_COMPILED]
        found["compiled gradient"] = _first(
            _compare(op, _compiled(function), s, True) for s in quick
        )
    if op.error_inputs_func is not None:
        found["errors"] = _first(_accepted(op, function, e) for e in op.error_inputs("cpu"))
    return found


_MOST_DIMS = 64  # NumPy's arrays have no more


def _accepted(op: Any, function: Callable[..., Any], error: Any) -> str:
    sample = error.sample_input
    given = leaves((sample.input, sample.args, sample.kwargs), torch.Tensor)
    if any(t.ndim > _MOST_DIMS for t in given):
        return ""
    try:
        _call(op.op, sample, copy)
    except Exception:
        pass
    else:  # torch's own tests call it in another way
        return ""
    kinds = error.error_type if isinstance(error.error_type, tuple) else (error.error_type,)
    try:
        _call(function, sample, twin)
    except kinds:
        return ""
    except Exception as other:
        names = ", ".join(k.__name__ for k in kinds)
        return f"{type(other).__name__} instead of {names}: {str(other).splitlines()[0]:.80}"
    return f"no error for {str(sample.args)[:60]}: {error.error_regex:.60}"


def titles(prefixes: tuple[str, ...] = ("",)) -> list[str]:
    """The operators that are looked at, whose names start so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return [title(op) for op in op_db if public(op) and op.name.startswith(prefixes)]


def _work(names: list[str], results: Any) -> None:
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

    torch.set_num_threads(1)
    graphc.set_num_threads(1)
    wanted = set(names)
    for op in op_db:
        if title(op) in wanted:
            results.put((title(op), None))
            try:
                results.put((title(op), check(op)))
            except Exception as error:  # the database's own code, which runs under this torch
                results.put((title(op), {"forward": f"no samples: {type(error).__name__}"}))
    results.put(None)


def run(names: list[str], limit: float = 120.0) -> dict[str, Outcome]:
    """Every operator in a child process, so that a crash or a hang costs one operator."""
    context = multiprocessing.get_context("spawn")
    found: dict[str, Outcome] = {}
    left = list(names)
    while left:
        results: Any = context.Queue()
        child = context.Process(target=_work, args=(left, results))
        child.start()
        current = ""
        while True:
            try:
                message = results.get(timeout=limit)
            except Exception:
                message = (current, {"forward": "crash or hang"})
                child.kill()
            if message is None:
                break
            current, outcome = message
            if outcome is None:
                continue
            found[current] = outcome
            print(f"{current}: {_state(outcome)}", file=sys.stderr, flush=True)
            if outcome.get("forward") == "crash or hang":
                break
        child.join()
        left = [t for t in left if t not in found]
    return found


def _state(outcome: Outcome) -> str:
    return "; ".join(f"{c}: {outcome[c]}" for c in COLUMNS if outcome.get(c)) or "ok"


def table(found: dict[str, Outcome]) -> str:
    """The whole result as Markdown: shares first, then what is not right."""
    lines = [
        "# Operators", "",
        "PyTorch 2.13's own operator database (`op_db`: inputs, gradients, invalid inputs) run",
        "on graphc; written by `python -m tests.torch_db.ops --write`. Not counted: sparse",
        "tensors, internal operators (names with a leading underscore) and what runs on CUDA",
        "alone (jiterator). Where a value differs from PyTorch's, double precision decides (right",
        "is what is as near to it as PyTorch's); where a gradient differs, differences decide.", "",
        "| column | right | of | share |", "| --- | --- | --- | --- |",
    ]
    for column in COLUMNS:
        rows = [o for o in found.values() if column in o or o["forward"] == "missing"]
        right = sum(1 for o in rows if o.get(column) == "")
        share = 100 * right / max(1, len(rows))
        lines.append(f"| {column} | {right} | {len(rows)} | {share:.1f}% |")
    missing = sorted(t for t, o in found.items() if o["forward"] == "missing")
    lines += ["", f"## Missing ({len(missing)})", "", ", ".join(f"`{t}`" for t in missing), ""]
    lines += ["## Not right", "", "| operator | column | what |", "| --- | --- | --- |"]
    for name, outcome in sorted(found.items()):
        for column in COLUMNS:
            text = outcome.get(column, "")
            if text and text != "missing":
                text = text.replace("|", "\\|").replace("\n", " ")
                lines.append(f"| `{name}` | {column} | {text[:160]} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only operators whose name starts so")
    parser.add_argument("--write", type=Path, help="the table's file")
    parser.add_argument("--json", type=Path, help="the raw outcomes")
    options = parser.parse_args()
    found = run(titles(tuple(options.names) or ("",)))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    text = table(found)
    if options.write:
        options.write.write_text(text)
    else:
        print(text)
    return 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
