"""torch.backends.cudnn: flags that scripts set. There is no cuDNN; graphc's own convolutions of
float32 on a GPU round what they multiply to TF32 unless `allow_tf32`, or an `fp32_precision`, says
no. The others change nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

enabled = True
benchmark = False
benchmark_limit: int | None = 10
deterministic = False
allow_tf32 = True
fp32_precision = "none"


class Precision:
    """torch.backends.cudnn.conv and .rnn."""

    def __init__(self) -> None:
        self.fp32_precision = "tf32"


conv, rnn = Precision(), Precision()


def version() -> int | None:
    """None: there is no cuDNN."""
    return None


def is_available() -> bool:
    """False."""
    return False


def is_acceptable(tensor: Any) -> bool:
    """False: tensors live on the CPU."""
    return False


@contextmanager
def flags(
    enabled: bool = False, benchmark: bool = False, benchmark_limit: int = 10,
    deterministic: bool = False, allow_tf32: bool = True, fp32_precision: str = "none",
    depthwise_kernel: str = "auto",
) -> Iterator[None]:
    """Other values inside a `with` block."""
    names = ("enabled", "benchmark", "benchmark_limit", "deterministic", "allow_tf32",
             "fp32_precision")
    values = (enabled, benchmark, benchmark_limit, deterministic, allow_tf32, fp32_precision)
    here = globals()
    before = {name: here[name] for name in names}
    here.update(zip(names, values, strict=True))
    try:
        yield
    finally:
        here.update(before)
