"""torch.cuda.cudart(): what scripts ask of the CUDA runtime, by the driver, as no runtime is
loaded."""

from __future__ import annotations

from typing import Any, NoReturn

from .. import unsupported
from ..ir.memory import AcceleratorError
from .available import gpu, needs_gpu
from .devices import mem_get_info


class CudaError(AcceleratorError):
    """torch.cuda.CudaError: a code of the runtime that is not success."""


class _Codes:
    """What calls give: they raise what fails."""

    success = 0


class _Runtime:
    """The functions by the runtime's names."""

    cudaError = _Codes

    def cudaProfilerStart(self) -> int:
        """A profiler that watches (`nsys profile --capture-range=cudaProfilerApi`) records."""
        return _profile(True)

    def cudaProfilerStop(self) -> int:
        """It records no more."""
        return _profile(False)

    def cudaMemGetInfo(self, device: Any = None) -> tuple[int, int]:
        """Bytes: free, and in all."""
        free, total = mem_get_info(device)
        return free, total

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        unsupported.refuse(
            f"torch.cuda.cudart().{name}",
            "the functions of torch.cuda, or the package cuda-bindings",
        )


_RUNTIME = _Runtime()


@needs_gpu
def cudart() -> _Runtime:
    """The runtime's functions that graphc has."""
    return _RUNTIME


def check_error(res: int) -> None:
    """Raises CudaError for a code that is not success."""
    if res != _Codes.success:
        raise CudaError(f"CUDA error {res}")


def _profile(on: bool) -> int:
    found = gpu()
    found.activate()
    found.driver.profile(on)
    return _Codes.success
