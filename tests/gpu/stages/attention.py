"""Attention forward and backward: the engines that generate it, held against float64 and against
each other in time; and what PyTorch picks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from graphc.backends.cuda.emit import emit
from graphc.backends.cuda.prelude import PRELUDE
from graphc.backends.cuda.source import Target
from graphc.ir import dtypes
from tests.backends.cuda.attention_cases import Case, meaning, operands

from ..bed import Bed, difference
from ..launching import Placed
from ..results import Record, tried
from ..timing import Timed, peers

# batch, heads, queries and keys, head size
SHAPES = (
    (8, 12, 1024, 64), (4, 16, 2048, 64), (4, 16, 2048, 128), (2, 16, 4096, 128),
    (1, 16, 8192, 128), (32, 12, 128, 64), (2, 8, 2048, 256),
)
_SMALL = (1, 2, 70, 32)  # of a rehearsal
_KINDS = {"attention": 4.0, "attention_grad": 10.0}  # operations of a pair and an element of a head
_ENGINES = {"mma.sync": Target("sm_80"), "wgmma": Target("sm_90a")}
_BF16, _BOOL = dtypes.bf16, dtypes.bool_
VALUES = {
    "64": Case(m=300, n=333, e=64, f=64, dtype=_BF16),
    "64, causal, drawn": Case(m=333, n=300, e=64, f=64, dtype=_BF16, causal=True, drop="draw"),
    "128, bool mask": Case(m=300, n=333, e=128, f=128, dtype=_BF16, mask=(_BOOL, (300, 333))),
    "128 and 96, added mask": Case(
        m=130, n=400, e=128, f=96, dtype=dtypes.f16, mask=(dtypes.f16, (2, 1, 400)), drop="kept"
    ),
    "256, causal": Case(m=200, n=200, e=256, f=256, dtype=_BF16, causal=True),
    "30, causal": Case(m=70, n=140, e=30, f=30, dtype=_BF16, causal=True),
}


def run(bed: Bed, record: Record) -> None:
    """Values of each engine, its times, and those of whole calls: a line each."""
    _values(bed, record)
    for shape in SHAPES if bed.large else (_SMALL,):
        for kind, causal in ((kind, causal) for kind in _KINDS for causal in (False, True)):
            name = f"{kind} {'causal ' if causal else ''}{'x'.join(map(str, shape))}"
            with tried(record, name):
                record(name, **_of_engines(bed, kind, shape, causal))
    with bed.device():
        for shape in SHAPES if bed.large else ((1, 2, 24, 32),):
            for causal in (False, True):
                name = f"{'causal ' if causal else ''}{'x'.join(map(str, shape))}"
                with tried(record, name):
                    record(name, **_measured(bed, shape, causal))


def _engines(bed: Bed) -> Mapping[str, Target]:
    """Those that the device has; the emulator has all."""
    found = dict(_ENGINES)
    if bed.large and bed.target.architecture != "sm_90a":
        del found["wgmma"]
    return found


def _placed(bed: Bed, case: Case, target: Target, arrays: list[np.ndarray]) -> Placed:
    kernel = case.kernel()
    source = emit(kernel, target)
    text = source.text.removeprefix(PRELUDE)
    functions = bed.functions(text, *(stage.name for stage in source.stages))
    return Placed(bed, kernel, source, functions, arrays)


def _values(bed: Bed, record: Record) -> None:
    """How far each result is from the template's meaning in float64; a second launch gives the
    same bits."""
    names = list(VALUES) if bed.large else ["30, causal"]
    for kind, name in ((kind, name) for kind in _KINDS for name in names):
        case = replace(VALUES[name], kind=kind)
        kernel = case.kernel()
        arrays = operands(kernel, {})
        want = meaning(kernel, arrays, {})
        fields: dict[str, Any] = {}
        with tried(record, f"{kind} {name}"):
            for engine, target in _engines(bed).items():
                fields |= _off(bed, case, target, engine, arrays, want)
        record(f"{kind} {name}", **fields)


def _off(
    bed: Bed, case: Case, target: Target, engine: str, arrays: list[np.ndarray],
    want: list[np.ndarray],
) -> dict[str, Any]:
    kernel = case.kernel()
    poisoned = [
        np.full_like(array, np.nan) if param.access == "out" else array
        for param, array in zip(kernel.params, arrays, strict=True)
    ]
    with _placed(bed, case, target, poisoned) as placed:
        placed.begin()
        first = placed.found()
        placed.begin()
        again = placed.found()
    results = [n for n, param in enumerate(kernel.params) if param.access == "out"]
    return {
        f"{engine} off": max(difference(first[n], want[n]) for n in results),
        f"{engine} repeats": all(first[n].tobytes() == again[n].tobytes() for n in results),
    }


def _of_engines(
    bed: Bed, kind: str, shape: tuple[int, int, int, int], causal: bool
) -> dict[str, Any]:
    """Milliseconds of each engine, and how far their results are apart."""
    batch, heads, length, size = shape
    case = Case(
        kind, (batch * heads,), length, length, size, size, dtypes.bf16, causal=causal
    )
    work = _KINDS[kind] * batch * heads * length**2 * size / (2 if causal else 1)
    fields: dict[str, Any] = {}
    results: list[list[np.ndarray]] = []
    arrays = _random(case)
    for engine, target in _engines(bed).items():
        with _placed(bed, case, target, arrays) as placed:
            repeat, warm = (20, 3) if bed.large else (1, 0)
            _, ms, _ = bed.milliseconds(placed.begin, repeat, warm)
            found = placed.found()
        params = zip(case.kernel().params, found, strict=True)
        results.append([array for param, array in params if param.access == "out"])
        fields[f"{engine} ms"] = ms
        fields[f"{engine} TFLOP/s"] = work / ms / 1e9 if ms else 0.0
    if len(results) == 2:
        pairs = zip(*results, strict=True)
        fields["apart"] = max(difference(second, first) for first, second in pairs)
    return fields


def _random(case: Case) -> list[np.ndarray]:
    """Operands of a case, of which a part is repeated: what is large takes long to draw. Rows of
    probabilities sum up to about 1."""
    kernel = case.kernel()
    rng = np.random.default_rng(0)
    assert isinstance(case.n, int)
    reads = {operand.buffer: name for name, operand in kernel.template.inputs}  # type: ignore[union-attr]
    found = []
    for param in kernel.params:
        assert isinstance(param.size, int)
        some = rng.standard_normal(min(param.size, 1 << 20))
        if reads.get(param.name) == "lse":
            some = some * 0 + math.log(case.n) + 0.5
        found.append(np.resize(some.astype(param.dtype.numpy), param.size))
    return found


def _measured(bed: Bed, shape: tuple[int, int, int, int], causal: bool) -> dict[str, Any]:
    batch, heads, length, size = shape
    flops = 4 * batch * heads * length**2 * size / (2 if causal else 1)
    fields: dict[str, Any] = {}
    for package, torch in peers(bed).items():
        q, k, v, g = (torch.randn(*shape, device="cuda").to(torch.bfloat16) for _ in range(4))
        attend = torch.nn.functional.scaled_dot_product_attention

        def forward(q: Any, k: Any, v: Any, attend: Any = attend) -> Any:
            return attend(q, k, v, is_causal=causal)

        def backward(q: Any, k: Any, v: Any, g: Any, torch: Any = torch) -> Any:
            inputs = [each.detach().requires_grad_() for each in (q, k, v)]
            return torch.autograd.grad(forward(*inputs), inputs, g)

        timed = Timed(bed, package)
        for part, work, ms in (
            ("forward", flops, timed.median(forward, (q, k, v))),
            ("both", 3.5 * flops, timed.median(backward, (q, k, v, g))),
        ):
            fields[f"{package} {part} ms"] = ms
            fields[f"{package} {part} TFLOP/s"] = work / ms / 1e9 if ms else 0.0
    return fields
