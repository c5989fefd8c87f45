"""Attention forward and backward: what is generated, and what PyTorch picks."""

from __future__ import annotations

from typing import Any

from ..bed import Bed
from ..results import Record
from ..timing import Timed, peers

# batch, heads, queries and keys, head size
SHAPES = (
    (8, 12, 1024, 64), (4, 16, 2048, 64), (4, 16, 2048, 128), (2, 16, 4096, 128),
    (1, 16, 8192, 128), (32, 12, 128, 64), (2, 8, 2048, 256),
)


def run(bed: Bed, record: Record) -> None:
    """A line for each shape, masked or not."""
    with bed.device():
        for shape in SHAPES if bed.large else ((1, 2, 24, 32),):
            for causal in (False, True):
                name = f"{'causal ' if causal else ''}{'x'.join(map(str, shape))}"
                record(name, **_measured(bed, shape, causal))


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
