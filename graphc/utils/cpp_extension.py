"""torch.utils.cpp_extension: C++ and CUDA extensions, which are built on PyTorch's own headers."""

from __future__ import annotations

from typing import NoReturn

from .. import unsupported

_CURE = "write it in tensor operations, which compile() fuses, or as a torch.library.custom_op"

globals().update(unsupported.table("torch.utils.cpp_extension", _CURE, functions="""
    load load_inline include_paths library_paths verify_ninja_availability
""", kinds="""
    BuildExtension
"""))

CUDA_HOME: str | None = None
ROCM_HOME: str | None = None


def CppExtension(name: str, sources: list[str], *args: object, **kwargs: object) -> NoReturn:
    """Raises NotImplementedError: PyTorch's headers are not here."""
    unsupported.refuse("torch.utils.cpp_extension.CppExtension()", _CURE)


CUDAExtension = CppExtension


def is_ninja_available() -> bool:
    """False."""
    return False
