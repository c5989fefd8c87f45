"""What the driver refuses, as exceptions that say the call, CUDA's name for it and what to do."""

from __future__ import annotations

from graphc.ir.memory import AcceleratorError, OutOfMemoryError


class CudaError(AcceleratorError):
    """`call` was refused, with CUDA's `name` for the reason: "CUDA_ERROR_INVALID_VALUE"."""

    def __init__(self, call: str, name: str, meaning: str, detail: str = "") -> None:
        self.call, self.name = call, name
        said = f"{call}: {name} ({meaning})"
        cure = CURES.get(name)
        parts = [said, detail, f"Cure: {cure}" if cure else ""]
        super().__init__(". ".join(part for part in parts if part))


class CudaOutOfMemory(CudaError, OutOfMemoryError):
    """The device has no such piece of memory. Nothing was allocated, and CUDA goes on."""


class CudaContextLost(CudaError):
    """A kernel failed in a way after which this process cannot use CUDA any more. The call that
    says so is not the one that failed: kernels run behind the host."""

    def __init__(self, call: str, name: str, meaning: str, detail: str = "") -> None:
        lost = "an earlier launch failed; this process's CUDA context is lost, with all its memory"
        super().__init__(call, name, meaning, f"{lost}. {detail}" if detail else lost)


_DRIVER = "install a driver that is as new as the CUDA libraries (`python -m graphc doctor`)"
_LOST = (
    "start the process anew; `compute-sanitizer python SCRIPT` names the kernel and the address"
)

# Those after which, as cuda.h says, the process must be started anew.
LOST = frozenset({
    "CUDA_ERROR_CONTAINED", "CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_LAUNCH_TIMEOUT",
    "CUDA_ERROR_HARDWARE_STACK_ERROR", "CUDA_ERROR_ILLEGAL_INSTRUCTION",
    "CUDA_ERROR_MISALIGNED_ADDRESS", "CUDA_ERROR_INVALID_ADDRESS_SPACE", "CUDA_ERROR_INVALID_PC",
    "CUDA_ERROR_LAUNCH_FAILED", "CUDA_ERROR_TENSOR_MEMORY_LEAK", "CUDA_ERROR_EXTERNAL_DEVICE",
})

CURES = {
    **dict.fromkeys(LOST, _LOST),
    "CUDA_ERROR_OUT_OF_MEMORY": "a smaller batch, fewer tensors alive, or another device",
    "CUDA_ERROR_NO_DEVICE": "give the process a GPU: see CUDA_VISIBLE_DEVICES, `nvidia-smi`, and "
    "for a container `--gpus all`",
    "CUDA_ERROR_STUB_LIBRARY": "this libcuda is the toolkit's, for linking alone: take its folder "
    "(.../stubs) out of LD_LIBRARY_PATH",
    "CUDA_ERROR_SYSTEM_NOT_READY": "start the service nvidia-fabricmanager, which NVSwitch needs",
    "CUDA_ERROR_UNKNOWN": "load the kernel module nvidia_uvm (`nvidia-modprobe -u`), or see dmesg",
    "CUDA_ERROR_INVALID_IMAGE": "compile for this device's architecture",
    "CUDA_ERROR_NOT_INITIALIZED": "CUDA does not survive a fork: start workers by 'spawn'",
    "CUDA_ERROR_INVALID_CONTEXT": "make a context current in this thread",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "compile for this device's architecture",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "restart after the driver's update: its two halves differ",
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE": _DRIVER,
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": _DRIVER,
    "CUDA_ERROR_DEVICE_UNAVAILABLE": "another process has the device to itself (`nvidia-smi -q`)",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": "fewer threads a block, or fewer registers and less "
    "shared memory a thread",
}


def error_of(call: str, name: str, meaning: str, detail: str = "") -> CudaError:
    """The exception for CUDA's name of an error."""
    kind = CudaError
    if name == "CUDA_ERROR_OUT_OF_MEMORY":
        kind = CudaOutOfMemory
    elif name in LOST:
        kind = CudaContextLost
    return kind(call, name, meaning, detail)
