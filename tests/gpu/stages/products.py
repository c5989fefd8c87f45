"""Products of matrices: those that are generated, and PyTorch's, at shapes of models."""

from __future__ import annotations

from typing import Any

from ..bed import Bed
from ..results import Record, tried
from ..timing import Timed, peers

# (m, n, k): squares, GPT-2's layers at 8 x 1024 tokens, BERT's at 32 x 128, thin ones
SHAPES = (
    (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192),
    (8192, 2304, 768), (8192, 768, 768), (8192, 3072, 768), (8192, 768, 3072),
    (8192, 50257, 768), (768, 3072, 8192), (4096, 3072, 768), (4096, 768, 3072),
    (1, 4096, 4096), (8, 4096, 4096), (64, 4096, 4096), (4096, 64, 4096),
)


def run(bed: Bed, record: Record) -> None:
    """A line for each shape, dtype and epilogue: milliseconds, TFLOP/s, and whether it is right."""
    with bed.device():
        for dtype in ("bfloat16", "float16", "float32", "tf32"):
            for shape in SHAPES if bed.large else ((64, 48, 40),):
                for name, epilogue in EPILOGUES.items():
                    if name != "plain" and dtype in ("float32", "tf32"):
                        continue
                    said = f"{dtype} {name} {'x'.join(map(str, shape))}"
                    with tried(record, said):
                        record(said, **_measured(bed, dtype, shape, epilogue))


def _measured(bed: Bed, dtype: str, shape: tuple[int, int, int], epilogue: Any) -> dict[str, Any]:
    m, n, k = shape
    fields: dict[str, Any] = {}
    for package, torch in peers(bed).items():
        torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
        a, w, b = (
            torch.randn(*size, device="cuda").to(getattr(torch, dtype.replace("tf32", "float32")))
            for size in ((m, k), (n, k), (n,))
        )
        call = lambda a, w, b, torch=torch: epilogue(torch, a, w, b)  # noqa: E731
        # what PyTorch compiles of a product alone is its own, and takes a second
        ms = Timed(bed, package).median(
            call, (a, w, b), compiled=package == "graphc" or epilogue is not EPILOGUES["plain"]
        )
        fields[f"{package} ms"] = ms
        fields[f"{package} TFLOP/s"] = 2 * m * n * k / ms / 1e9 if ms else 0.0
        if package == "graphc" and m * n * k <= 1 << 32:
            found = torch.compile(call)(a, w, b).double().cpu()
            want = epilogue(torch, *(each.double().cpu() for each in (a, w, b)))
            fields["off"] = float((found - want).norm() / want.norm())
    return fields


EPILOGUES = {
    "plain": lambda torch, a, w, b: a @ w.t(),
    "bias, gelu": lambda torch, a, w, b: torch.nn.functional.gelu(a @ w.t() + b),
}
