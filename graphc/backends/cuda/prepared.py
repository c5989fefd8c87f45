"""A launch as cuLaunchKernel is told of it. docs.nvidia.com/cuda/cuda-driver-api"""

from __future__ import annotations

import ctypes
from typing import Any

from graphc.backends.cuda.driver import Dim3, Function, check_grid
from graphc.backends.cuda.structures import CONSTANTS, CUDA_KERNEL_NODE_PARAMS_v2


class Prepared:
    """See Launch. One C buffer holds the packed arguments, as cuLaunchKernel's `extra` wants them,
    and every other argument is an object of ctypes: sending it makes nothing anew."""

    def __init__(
        self, function: Function, grid: Dim3, block: Dim3, arguments: bytes, shared: int
    ) -> None:
        check_grid(grid, block)
        packed = bytearray(arguments)
        self.arguments = memoryview(packed)
        self._size = ctypes.c_size_t(len(packed))
        self.extra = None if not packed else (ctypes.c_void_p * 5)(
            CONSTANTS["CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT"], _address(packed),
            CONSTANTS["CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT"], ctypes.addressof(self._size),
            CONSTANTS["CU_LAUNCH_PARAM_END_AS_INT"],
        )
        self._function, self._block, self._shared = function, block, shared
        self.words = self._words(grid)

    def resize(self, grid: Dim3) -> None:
        """See Launch."""
        check_grid(grid, self._block)
        self.words = self._words(grid)

    def _words(self, grid: Dim3) -> tuple[Any, ...]:
        numbers = map(ctypes.c_uint, (*grid, *self._block, self._shared))
        return (ctypes.c_void_p(self._function), *numbers)

    def node(self) -> CUDA_KERNEL_NODE_PARAMS_v2:
        """As a graph is told."""
        extra = None if self.extra is None else ctypes.addressof(self.extra)
        return CUDA_KERNEL_NODE_PARAMS_v2(*self.words, None, extra)


def _address(packed: bytearray) -> int:
    """Where its bytes are; a memoryview of it keeps them there."""
    return ctypes.addressof(ctypes.c_char.from_buffer(packed))
