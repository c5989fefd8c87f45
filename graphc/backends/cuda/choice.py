"""How contractions are computed: who multiplies matrices, where nobody has said, by architecture,
as data. What is timed instead is `tuning/`'s.

Nothing is in the table that was not measured, or does not follow from what is known of the chips;
all that is not there is generated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from graphc.backends.cuda.apart import Products
from graphc.ir.kernel import Product


class Chosen(NamedTuple):
    """Of a program's kernels, by their ids: what a library multiplies, the plans of those that do
    not have the usual one, and what explain() is to say of it."""

    products: Products | None = None
    plans: Mapping[int, object] = {}
    said: tuple[str, ...] = ()


# By architecture and what is multiplied: from how many multiplications on cuBLASLt does it.
#
# f64: generated code multiplies by ordinary arithmetic, the library by tensor cores, which have
# twice its peak (NVIDIA's data sheets: A100 9.7 and 19.5 TFLOP/s, H100 and H200 34 and 67).
# tf32 on Hopper: mma.sync reaches 63 to 65% of what wgmma does (arXiv 2501.12084), which generated
# code has for halves alone.
LIBRARY: dict[tuple[str, str], int] = {
    ("sm_80", "f64"): 1 << 30,
    ("sm_90", "f64"): 1 << 30,
    ("sm_90", "tf32"): 1 << 33,
}


def prefers_library(product: Product, architecture: str) -> bool:
    """Whether the table has a product; one of symbolic sizes it has not."""
    kind = "tf32" if product.tf32 else product.left.dtype.name
    least = LIBRARY.get((architecture.rstrip("a"), kind))
    work = product.multiplications
    return least is not None and isinstance(work, int) and work >= least
