"""Timed choice: each way to multiply at shapes of models, what was taken, and that what is taken is
kept. The table of choice.py comes of these lines."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import graphc
from graphc import config

from ..bed import Bed
from ..results import Record, tried

# (m, n, k) of x [m, k] @ w [n, k]^T, and its gradients' layouts
SHAPES = ((8192, 3072, 768), (8192, 768, 3072), (768, 3072, 8192), (8192, 50304, 768),
          (4096, 4096, 4096), (16, 4096, 4096))
SMALL = ((24, 40, 136),)
LAYOUTS: dict[str, Any] = {
    "x w^T": lambda m, n, k: ((m, k), (n, k), lambda x, w: x @ w.t()),
    "x w": lambda m, n, k: ((m, k), (k, n), lambda x, w: x @ w),
    "x^T w": lambda m, n, k: ((k, m), (k, n), lambda x, w: x.t() @ w),
}


def run(bed: Bed, record: Record) -> None:
    """A line for each product; the first is tried again from disk."""
    with (
        bed.device(), tempfile.TemporaryDirectory() as folder,
        config.override(cache_dir=Path(folder), cuda_libraries="auto"),
    ):
        for dtype in ("bfloat16", "float32") if bed.large else ("float32",):
            for shape in SHAPES if bed.large else SMALL:
                for name, made in LAYOUTS.items():
                    product = f"{dtype} {name} {'x'.join(map(str, shape))}"
                    with tried(record, product):
                        record(product, **_tuned(dtype, made(*shape)))
        again = _tuned(dtype, made(*shape))
        record("kept", found="(timed earlier)" in again["said"], seconds=again["seconds"])


def _tuned(dtype: str, work: Any) -> dict[str, Any]:
    left, right, call = work
    x, w = (
        graphc.randn(*size, device="cuda").to(getattr(graphc, dtype)) for size in (left, right)
    )
    compiled = graphc.compile(call, mode="max-autotune", dynamic=False)
    began = time.perf_counter()
    found = compiled(x, w)
    graphc.cuda.synchronize()
    seconds = time.perf_counter() - began
    off = float((found - call(x, w)).double().norm() / found.double().norm())
    said = graphc.explain(compiled, x, w).parts[0].built.executable.stats.remarks
    line = next((line for line in said if "not timed" in line or " ms" in line), "")
    return {"said": line.split(": ", 1)[-1], "seconds": seconds, "off": off}
