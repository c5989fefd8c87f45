"""torch.cuda's questions about devices, and which of them is the current one."""

from __future__ import annotations

from types import TracebackType
from typing import Any, NamedTuple

from .. import unsupported
from .available import device_count, end_recording, gpu, gpus, index_of, is_available, needs_gpu
from .places import raise_failed


class _CudaDeviceProperties(NamedTuple):
    """What torch.cuda.get_device_properties gives."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    warp_size: int
    max_threads_per_block: int
    max_threads_per_multi_processor: int
    regs_per_multiprocessor: int
    shared_memory_per_block: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    L2_cache_size: int
    clock_rate: int  # kHz
    memory_clock_rate: int  # kHz
    memory_bus_width: int  # bits
    pci_domain_id: int
    pci_bus_id: int
    pci_device_id: int
    is_integrated: int
    is_multi_gpu_board: int

    def __repr__(self) -> str:
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory >> 20}MB, "
            f"multi_processor_count={self.multi_processor_count}, "
            f"L2_cache_size={self.L2_cache_size >> 20}MB)"
        )


def is_initialized() -> bool:
    """Whether a GPU was used."""
    return bool(gpus().begun)


def init() -> None:
    """Begin to use the current GPU, where there is one; the first use does."""
    if is_available():
        gpu().activate()


@needs_gpu
def current_device() -> int:
    """The number of the GPU that "cuda" means."""
    return int(gpus().current_index)


@needs_gpu
def set_device(device: Any) -> None:
    """"cuda" means this GPU from now on, in this thread; nothing for a negative number."""
    index = index_of(device)
    if index >= 0:
        gpu(index)
        gpus().select(index)


@needs_gpu
def synchronize(device: Any = None) -> None:
    """Wait for all that a GPU was asked for. Raises what failed there."""
    end_recording("waiting for a GPU")
    found = gpu(device)
    found.synchronise()
    raise_failed(found)


@needs_gpu
def get_device_name(device: Any = None) -> str:
    """"NVIDIA H200" """
    return str(gpu(device).name)


@needs_gpu
def get_device_capability(device: Any = None) -> tuple[int, int]:
    """(9, 0)"""
    major, minor = gpu(device).capability
    return major, minor


@needs_gpu
def get_device_properties(device: Any = None) -> _CudaDeviceProperties:
    """The facts of a GPU."""
    found = gpu(device)
    major, minor = found.capability
    return _CudaDeviceProperties(
        name=found.name, major=major, minor=minor, total_memory=found.total_memory, **found.facts()
    )


@needs_gpu
def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Bytes of a GPU's memory: free, and in all."""
    found = gpu(device)
    found.activate()
    free, total = found.driver.memory()
    return free, total


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the current GPU computes in bfloat16 (Ampere and later do)."""
    return is_available() and gpu().capability >= (8, 0)


def is_tf32_supported() -> bool:
    """Whether the current GPU multiplies in TF32 (Ampere and later do)."""
    return is_bf16_supported()


def get_arch_list() -> list[str]:
    """The architectures that code is made for: those of the GPUs that are there."""
    found = {device.capability for device in gpus().devices}
    return [f"sm_{major}{minor}" for major, minor in sorted(found)]


def get_gencode_flags() -> str:
    """Those architectures, as nvcc is told."""
    numbers = [name.removeprefix("sm_") for name in get_arch_list()]
    return " ".join(f"-gencode compute=compute_{n},code=sm_{n}" for n in numbers)


def get_sync_debug_mode() -> int:
    """0: nobody is told of what waits for a GPU."""
    return 0


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Only 0, "default". Raises NotImplementedError for those that warn and fail, ValueError for
    others."""
    if debug_mode in (1, 2, "warn", "error"):
        unsupported.refuse(
            f"torch.cuda.set_sync_debug_mode({debug_mode!r})",
            "torch.profiler, which shows where the host waits",
        )
    if debug_mode not in (0, "default"):
        raise ValueError(
            "invalid value of debug_mode, expected 0, 1, 2 or `default`, `warn`, `error`"
        )


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """False: what goes from one GPU to another goes by the host."""
    return False


def ipc_collect() -> None:
    """Nothing is shared with other processes."""


class device:  # torch spells this class in lower case
    """A context in which "cuda" means this GPU: nothing for None and negative numbers. Entering
    raises RuntimeError where it is not there."""

    def __init__(self, device: Any) -> None:
        self.idx = -1 if device is None else index_of(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx < 0:
            return
        if not device_count():
            raise RuntimeError(
                f"PyTorch was compiled without CUDA support: torch.cuda.device({self.idx}) "
                "selects nothing. Cure: guard it with torch.cuda.is_available()"
            )
        gpu(self.idx)
        self.prev_idx = gpus().select(self.idx)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.prev_idx >= 0:
            gpus().select(self.prev_idx)
            self.prev_idx = -1


class device_of(device):
    """The context of a tensor's GPU: nothing for a tensor on the CPU."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if obj.is_cuda else -1)
