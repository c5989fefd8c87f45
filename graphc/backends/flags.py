"""torch.backends: the flags of libraries that PyTorch uses and graphc does not.

Reading and setting them works and changes nothing, but for what they say of TF32, which graphc's
own kernels on a GPU follow.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from graphc import backends
from graphc.backends import cudnn
from graphc.ir.tf32 import Setting


class MatmulFlags:
    """torch.backends.cuda.matmul. `allow_tf32` and `fp32_precision` say whether float32 products on
    a GPU round what they multiply to TF32, as torch.set_float32_matmul_precision does: what was
    said last counts. Halves are summed in float32, whatever the others allow."""

    def __init__(self) -> None:
        self.allow_fp16_reduced_precision_reduction = True
        self.allow_bf16_reduced_precision_reduction = True
        self.allow_fp16_accumulation = False

    @property
    def allow_tf32(self) -> bool:
        """Whether they do."""
        return products()

    @allow_tf32.setter
    def allow_tf32(self, value: bool) -> None:
        Setting.matmul = "high" if value else "highest"

    @property
    def fp32_precision(self) -> str:
        """ "tf32", "ieee", or, where nobody has said anything, "none"."""
        return "tf32" if products() else "ieee" if Setting.matmul else "none"

    @fp32_precision.setter
    def fp32_precision(self, value: str) -> None:
        if value not in _MATMUL:
            raise RuntimeError(
                f"backend 'cuda' does not support precision {value!r}. Cure: one of "
                f"{', '.join(_MATMUL)}"
            )
        Setting.matmul = _MATMUL[value]


_MATMUL = {"tf32": "high", "ieee": "highest", "none": ""}


def products() -> bool:
    """Whether matrix products of float32 on a GPU may round what they multiply to TF32."""
    if Setting.matmul:
        return Setting.matmul != "highest"
    return "tf32" in (cudnn.fp32_precision, backends.fp32_precision)


def convolutions() -> bool:
    """Whether convolutions may: so it is in PyTorch, until one of the settings says no."""
    said = cudnn.conv.fp32_precision, cudnn.fp32_precision, backends.fp32_precision
    return cudnn.allow_tf32 and "tf32" in said and "ieee" not in said


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
