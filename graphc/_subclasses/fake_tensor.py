"""Tensors without data, which PyTorch traces with; graphc has none."""

from typing import Any

from .. import unsupported

_CURE = "graphc.compile traces with symbolic tensors of its own"
FakeTensor = unsupported.kind("torch._subclasses.fake_tensor.FakeTensor", _CURE)
FakeTensorMode = unsupported.kind("torch._subclasses.fake_tensor.FakeTensorMode", _CURE)


def is_fake(x: Any) -> bool:
    """False."""
    return False
