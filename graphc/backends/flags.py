"""torch.backends: the flags of libraries that PyTorch uses and graphc does not.

Reading and setting them works and changes nothing: graphc's numbers do not depend on them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class MatmulFlags:
    """torch.backends.cuda.matmul."""

    def __init__(self) -> None:
        self.allow_tf32 = False
        self.allow_fp16_reduced_precision_reduction = True
        self.allow_bf16_reduced_precision_reduction = True
        self.allow_fp16_accumulation = False
        self.fp32_precision = "none"


class PlanCache:
    """torch.backends.cuda.cufft_plan_cache."""

    def __init__(self) -> None:
        self.size = 0
        self.max_size = 0

    def clear(self) -> None:
        """Nothing to clear."""


class AttentionFlags:
    """Which implementations of attention may be used: noted."""

    def __init__(self) -> None:
        self.flash = self.math = self.mem_efficient = self.cudnn = True


attention = AttentionFlags()


def _getter(name: str) -> Any:
    def enabled() -> bool:
        return bool(getattr(attention, name))

    enabled.__name__ = f"{name}_sdp_enabled"
    enabled.__doc__ = "What was set; True at first."
    return enabled


def _setter(name: str) -> Any:
    def enable(enabled: bool) -> None:
        setattr(attention, name, bool(enabled))

    enable.__name__ = f"enable_{name}_sdp"
    enable.__doc__ = "Noted: graphc has one attention, for all of them."
    return enable


@contextmanager
def sdp_kernel(
    enable_flash: bool = True, enable_math: bool = True, enable_mem_efficient: bool = True,
    enable_cudnn: bool = True,
) -> Iterator[None]:
    """Other attention flags inside a `with` block."""
    before = dict(vars(attention))
    attention.flash, attention.math = enable_flash, enable_math
    attention.mem_efficient, attention.cudnn = enable_mem_efficient, enable_cudnn
    try:
        yield
    finally:
        vars(attention).update(before)


def is_built() -> bool:
    """False: no CUDA."""
    return False


def preferred(backend: Any = None) -> str:
    """torch.backends.cuda.preferred_linalg_library and _blas_library: noted nowhere."""
    return "default"


CUDA: dict[str, Any] = {
    "matmul": MatmulFlags(),
    "cufft_plan_cache": PlanCache(),
    "sdp_kernel": sdp_kernel,
    "is_built": is_built,
    "preferred_linalg_library": preferred,
    "preferred_blas_library": preferred,
    "is_flash_attention_available": is_built,
    **{f"{name}_sdp_enabled": _getter(name) for name in vars(attention)},
    **{f"enable_{name}_sdp": _setter(name) for name in vars(attention)},
}
