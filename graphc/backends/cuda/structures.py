"""The structs that calls are given, by cuda.h's names; a test holds their layouts against it."""

from __future__ import annotations

import ctypes

_dim3 = [f"{part}Dim{axis}" for part in ("grid", "block") for axis in "XYZ"]


class CUDA_KERNEL_NODE_PARAMS_v2(ctypes.Structure):
    """A launch in a graph."""

    _fields_ = [
        ("func", ctypes.c_void_p),
        *((name, ctypes.c_uint) for name in _dim3),
        ("sharedMemBytes", ctypes.c_uint),
        ("kernelParams", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kern", ctypes.c_void_p),
        ("ctx", ctypes.c_void_p),
    ]


def _side(name: str) -> list[tuple[str, type]]:
    return [
        (f"{name}XInBytes", ctypes.c_size_t),
        (f"{name}Y", ctypes.c_size_t),
        (f"{name}Z", ctypes.c_size_t),
        (f"{name}LOD", ctypes.c_size_t),
        (f"{name}MemoryType", ctypes.c_int),
        (f"{name}Host", ctypes.c_void_p),
        (f"{name}Device", ctypes.c_uint64),
        (f"{name}Array", ctypes.c_void_p),
        (f"reserved{int(name == 'dst')}", ctypes.c_void_p),
        (f"{name}Pitch", ctypes.c_size_t),
        (f"{name}Height", ctypes.c_size_t),
    ]


class CUDA_MEMCPY3D_v2(ctypes.Structure):
    """A copy in a graph."""

    _fields_ = [
        *_side("src"),
        *_side("dst"),
        ("WidthInBytes", ctypes.c_size_t),
        ("Height", ctypes.c_size_t),
        ("Depth", ctypes.c_size_t),
    ]


class CUDA_MEMSET_NODE_PARAMS_v1(ctypes.Structure):
    """A fill in a graph."""

    _fields_ = [
        ("dst", ctypes.c_uint64),
        ("pitch", ctypes.c_size_t),
        ("value", ctypes.c_uint),
        ("elementSize", ctypes.c_uint),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
    ]


STRUCTURES: tuple[type[ctypes.Structure], ...] = (
    CUDA_KERNEL_NODE_PARAMS_v2, CUDA_MEMCPY3D_v2, CUDA_MEMSET_NODE_PARAMS_v1,
)
# numbers that have names in cuda.h
CONSTANTS = {
    "CUDA_SUCCESS": 0,
    "CUDA_ERROR_NOT_READY": 600,
    "CU_LAUNCH_PARAM_END_AS_INT": 0,
    "CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT": 1,
    "CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT": 2,
    "CU_MEMORYTYPE_UNIFIED": 4,
    "CU_STREAM_NON_BLOCKING": 1,
    "CU_STREAM_CAPTURE_MODE_RELAXED": 2,
    "CU_EVENT_DEFAULT": 0,
    "CU_EVENT_DISABLE_TIMING": 2,
    "CU_MEMHOSTALLOC_PORTABLE": 1,
    "CU_MEMHOSTALLOC_DEVICEMAP": 2,
    "CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK": 0,
    "CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES": 1,
    "CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES": 3,
    "CU_FUNC_ATTRIBUTE_NUM_REGS": 4,
    "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES": 8,
}
