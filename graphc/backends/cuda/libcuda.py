"""NVIDIA's Driver, through ctypes. docs.nvidia.com/cuda/cuda-driver-api"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

from graphc.backends.cuda import libraries
from graphc.backends.cuda.driver import (
    Attribute,
    Context,
    Dim3,
    Event,
    Executable,
    Function,
    Graph,
    Launch,
    Memory,
    Module,
    Node,
    Stream,
    Usage,
)
from graphc.backends.cuda.errors import CudaError, CudaOutOfMemory, error_of
from graphc.backends.cuda.prepared import Prepared
from graphc.backends.cuda.prototypes import bind, parse
from graphc.backends.cuda.structures import (
    CONSTANTS,
    CUDA_MEMCPY3D_v2,
    CUDA_MEMSET_NODE_PARAMS_v1,
)

# By the names that libcuda exports: cuda.h's macros lead to those with _v2.
PROTOTYPES = parse("""
    CUresult cuGetErrorName(CUresult, const char **)
    CUresult cuGetErrorString(CUresult, const char **)
    CUresult cuInit(unsigned int)
    CUresult cuDriverGetVersion(int *)

    CUresult cuDeviceGetCount(int *)
    CUresult cuDeviceGet(CUdevice *, int)
    CUresult cuDeviceGetName(char *, int, CUdevice)
    CUresult cuDeviceTotalMem_v2(size_t *, CUdevice)
    CUresult cuDeviceGetAttribute(int *, CUdevice_attribute, CUdevice)
    CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice)
    CUresult cuDevicePrimaryCtxRelease_v2(CUdevice)
    CUresult cuCtxSetCurrent(CUcontext)
    CUresult cuCtxSynchronize(void)
    CUresult cuMemGetInfo_v2(size_t *, size_t *)

    CUresult cuModuleLoadData(CUmodule *, const void *)
    CUresult cuModuleUnload(CUmodule)
    CUresult cuModuleGetFunction(CUfunction *, CUmodule, const char *)
    CUresult cuFuncGetAttribute(int *, CUfunction_attribute, CUfunction)
    CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int)
    CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *, CUfunction, int, size_t)
    CUresult cuLaunchKernel(CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, \
unsigned int, unsigned int, unsigned int, CUstream, void **, void **)

    CUresult cuMemAlloc_v2(CUdeviceptr *, size_t)
    CUresult cuMemFree_v2(CUdeviceptr)
    CUresult cuMemHostAlloc(void **, size_t, unsigned int)
    CUresult cuMemFreeHost(void *)
    CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *, void *, unsigned int)
    CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr, const void *, size_t, CUstream)
    CUresult cuMemcpyDtoHAsync_v2(void *, CUdeviceptr, size_t, CUstream)
    CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, size_t, CUstream)
    CUresult cuMemsetD8Async(CUdeviceptr, unsigned char, size_t, CUstream)
    CUresult cuMemsetD16Async(CUdeviceptr, unsigned short, size_t, CUstream)
    CUresult cuMemsetD32Async(CUdeviceptr, unsigned int, size_t, CUstream)

    CUresult cuStreamCreateWithPriority(CUstream *, unsigned int, int)
    CUresult cuStreamDestroy_v2(CUstream)
    CUresult cuStreamSynchronize(CUstream)
    CUresult cuStreamQuery(CUstream)
    CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned int)
    CUresult cuEventCreate(CUevent *, unsigned int)
    CUresult cuEventDestroy_v2(CUevent)
    CUresult cuEventRecord(CUevent, CUstream)
    CUresult cuEventQuery(CUevent)
    CUresult cuEventSynchronize(CUevent)
    CUresult cuEventElapsedTime(float *, CUevent, CUevent)

    CUresult cuGraphCreate(CUgraph *, unsigned int)
    CUresult cuGraphDestroy(CUgraph)
    CUresult cuGraphAddKernelNode_v2(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, \
const CUDA_KERNEL_NODE_PARAMS *)
    CUresult cuGraphAddMemcpyNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, \
const CUDA_MEMCPY3D *, CUcontext)
    CUresult cuGraphAddMemsetNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, \
const CUDA_MEMSET_NODE_PARAMS *, CUcontext)
    CUresult cuStreamBeginCapture_v2(CUstream, CUstreamCaptureMode)
    CUresult cuStreamEndCapture(CUstream, CUgraph *)
    CUresult cuGraphAddChildGraphNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUgraph)
    CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec, CUgraphNode, CUgraph)
    CUresult cuGraphInstantiateWithFlags(CUgraphExec *, CUgraph, unsigned long long)
    CUresult cuGraphExecDestroy(CUgraphExec)
    CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec, CUgraphNode, \
const CUDA_KERNEL_NODE_PARAMS *)
    CUresult cuGraphLaunch(CUgraphExec, CUstream)
    CUresult cuCtxGetCurrent(CUcontext *)

    CUresult cuProfilerStart(void)
    CUresult cuProfilerStop(void)
""".replace("\\\n", ""))

TYPES = {
    **dict.fromkeys(
        (
            "CUresult", "CUdevice", "CUdevice_attribute", "CUfunction_attribute",
            "CUstreamCaptureMode",
        ),
        ctypes.c_int,
    ),
    "CUdeviceptr": ctypes.c_uint64,
    **dict.fromkeys(
        (
            "CUcontext", "CUmodule", "CUfunction", "CUstream", "CUevent", "CUgraph",
            "CUgraphNode", "CUgraphExec",
        ),
        ctypes.c_void_p,
    ),
}
_NOT_READY = CONSTANTS["CUDA_ERROR_NOT_READY"]
_NAME_BYTES = 256


class LibCuda:
    """See Driver. Raises CudaError where there is no device."""

    def __init__(self, library: ctypes.CDLL) -> None:
        try:
            self._calls = bind(library, PROTOTYPES, TYPES)
        except AttributeError as error:
            raise libraries.MissingLibrary(
                "a function of CUDA 12", libraries.DRIVER_CURE, str(error)
            ) from None
        self._launch_kernel = self._calls["cuLaunchKernel"]
        self._do("cuInit", 0)

    def _do(self, call: str, *arguments: Any) -> None:
        code = self._calls[call](*arguments)
        if code:
            raise self._error(call, code)

    def _error(self, call: str, code: int, detail: str = "") -> CudaError:
        texts = []
        for ask in ("cuGetErrorName", "cuGetErrorString"):
            text = ctypes.c_char_p()
            known = not self._calls[ask](code, ctypes.byref(text))
            texts.append((text.value or b"").decode() if known else f"error {code}")
        return error_of(call, texts[0], texts[1], detail)

    def _handle(self, call: str, *arguments: Any) -> int:
        """What a call makes, by its first parameter."""
        made = ctypes.c_void_p()
        self._do(call, ctypes.byref(made), *arguments)
        return made.value or 0

    def _number(self, call: str, *arguments: Any) -> int:
        """An int, by a call's first parameter."""
        number = ctypes.c_int()
        self._do(call, ctypes.byref(number), *arguments)
        return number.value

    def _happened(self, call: str, handle: int) -> bool:
        code: int = self._calls[call](handle)
        if code not in (0, _NOT_READY):
            raise self._error(call, code)
        return code == 0

    # devices and contexts

    def version(self) -> tuple[int, int]:
        """See Driver."""
        number = self._number("cuDriverGetVersion")
        return number // 1000, number % 1000 // 10

    def device_count(self) -> int:
        """See Driver."""
        return self._number("cuDeviceGetCount")

    def _device(self, device: int) -> int:
        return self._number("cuDeviceGet", device)

    def device_name(self, device: int) -> str:
        """See Driver."""
        text = ctypes.create_string_buffer(_NAME_BYTES)
        self._do("cuDeviceGetName", text, _NAME_BYTES, self._device(device))
        return text.value.decode()

    def device_memory(self, device: int) -> int:
        """See Driver."""
        size = ctypes.c_size_t()
        self._do("cuDeviceTotalMem_v2", ctypes.byref(size), self._device(device))
        return size.value

    def attribute(self, device: int, attribute: Attribute) -> int:
        """See Driver."""
        return self._number("cuDeviceGetAttribute", attribute, self._device(device))

    def retain(self, device: int) -> Context:
        """See Driver."""
        return Context(self._handle("cuDevicePrimaryCtxRetain", self._device(device)))

    def release(self, device: int) -> None:
        """See Driver."""
        self._do("cuDevicePrimaryCtxRelease_v2", self._device(device))

    def make_current(self, context: Context) -> None:
        """See Driver."""
        self._do("cuCtxSetCurrent", context)

    def synchronise(self) -> None:
        """See Driver."""
        self._do("cuCtxSynchronize")

    def profile(self, on: bool) -> None:
        """See Driver."""
        self._do("cuProfilerStart" if on else "cuProfilerStop")

    def memory(self) -> Memory:
        """See Driver."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._do("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return Memory(free.value, total.value)

    # code

    def load(self, cubin: bytes) -> Module:
        """See Driver."""
        return Module(self._handle("cuModuleLoadData", cubin))

    def unload(self, module: Module) -> None:
        """See Driver."""
        self._do("cuModuleUnload", module)

    def function(self, module: Module, name: str) -> Function:
        """See Driver."""
        return Function(self._handle("cuModuleGetFunction", module, name.encode()))

    def usage(self, function: Function) -> Usage:
        """See Driver."""
        return Usage(*(
            self._number("cuFuncGetAttribute", CONSTANTS[f"CU_FUNC_ATTRIBUTE_{name}"], function)
            for name in (
                "NUM_REGS", "LOCAL_SIZE_BYTES", "SHARED_SIZE_BYTES", "MAX_THREADS_PER_BLOCK"
            )
        ))

    def allow_shared(self, function: Function, size: int) -> None:
        """See Driver."""
        attribute = CONSTANTS["CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"]
        self._do("cuFuncSetAttribute", function, attribute, size)

    def blocks_at_once(self, function: Function, threads: int, shared: int = 0) -> int:
        """See Driver."""
        call = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
        return self._number(call, function, threads, shared)

    def prepare(
        self, function: Function, grid: Dim3, block: Dim3, arguments: bytes, shared: int = 0
    ) -> Prepared:
        """See Driver."""
        return Prepared(function, grid, block, arguments, shared)

    def launch(self, launch: Launch, stream: Stream) -> None:
        """See Driver."""
        assert isinstance(launch, Prepared)
        code = self._launch_kernel(*launch.words, stream, None, launch.extra)
        if code:
            raise self._error("cuLaunchKernel", code)

    # memory

    def allocate(self, size: int) -> int:
        """See Driver."""
        address = ctypes.c_uint64()
        code = self._calls["cuMemAlloc_v2"](ctypes.byref(address), size)
        if code:
            raise self._refused(code, size)
        return address.value

    def _refused(self, code: int, size: int) -> CudaError:
        error = self._error("cuMemAlloc_v2", code, f"{size:,} bytes were asked for")
        if not isinstance(error, CudaOutOfMemory):
            return error
        free, total = self.memory()
        asked = f"{size:,} bytes were asked for, {free:,} of {total:,} are free"
        return self._error("cuMemAlloc_v2", code, asked)

    def free(self, address: int) -> None:
        """See Driver."""
        self._do("cuMemFree_v2", address)

    def allocate_host(self, size: int) -> int:
        """See Driver."""
        flags = CONSTANTS["CU_MEMHOSTALLOC_PORTABLE"] | CONSTANTS["CU_MEMHOSTALLOC_DEVICEMAP"]
        return self._handle("cuMemHostAlloc", size, flags)

    def free_host(self, address: int) -> None:
        """See Driver."""
        self._do("cuMemFreeHost", address)

    def device_address(self, host: int) -> int:
        """See Driver."""
        return self._handle("cuMemHostGetDevicePointer_v2", host, 0)

    def copy_in(self, target: int, source: int, size: int, stream: Stream) -> None:
        """See Driver."""
        self._do("cuMemcpyHtoDAsync_v2", target, source, size, stream)

    def copy_out(self, target: int, source: int, size: int, stream: Stream) -> None:
        """See Driver."""
        self._do("cuMemcpyDtoHAsync_v2", target, source, size, stream)

    def copy(self, target: int, source: int, size: int, stream: Stream) -> None:
        """See Driver."""
        self._do("cuMemcpyDtoDAsync_v2", target, source, size, stream)

    def fill(self, target: int, value: int, width: int, count: int, stream: Stream) -> None:
        """See Driver."""
        self._do(f"cuMemsetD{8 * width}Async", target, value, count, stream)

    # streams and events

    def create_stream(self, priority: int = 0) -> Stream:
        """See Driver."""
        flags = CONSTANTS["CU_STREAM_NON_BLOCKING"]
        return Stream(self._handle("cuStreamCreateWithPriority", flags, priority))

    def destroy_stream(self, stream: Stream) -> None:
        """See Driver."""
        self._do("cuStreamDestroy_v2", stream)

    def wait_for_stream(self, stream: Stream) -> None:
        """See Driver."""
        self._do("cuStreamSynchronize", stream)

    def stream_done(self, stream: Stream) -> bool:
        """See Driver."""
        return self._happened("cuStreamQuery", stream)

    def order(self, stream: Stream, event: Event) -> None:
        """See Driver."""
        self._do("cuStreamWaitEvent", stream, event, 0)

    def create_event(self, timing: bool = False) -> Event:
        """See Driver."""
        flags = CONSTANTS["CU_EVENT_DEFAULT" if timing else "CU_EVENT_DISABLE_TIMING"]
        return Event(self._handle("cuEventCreate", flags))

    def destroy_event(self, event: Event) -> None:
        """See Driver."""
        self._do("cuEventDestroy_v2", event)

    def record(self, event: Event, stream: Stream) -> None:
        """See Driver."""
        self._do("cuEventRecord", event, stream)

    def event_done(self, event: Event) -> bool:
        """See Driver."""
        return self._happened("cuEventQuery", event)

    def wait_for_event(self, event: Event) -> None:
        """See Driver."""
        self._do("cuEventSynchronize", event)

    def elapsed(self, start: Event, end: Event) -> float:
        """See Driver."""
        milliseconds = ctypes.c_float()
        self._do("cuEventElapsedTime", ctypes.byref(milliseconds), start, end)
        return milliseconds.value

    # graphs

    def create_graph(self) -> Graph:
        """See Driver."""
        return Graph(self._handle("cuGraphCreate", 0))

    def destroy_graph(self, graph: Graph) -> None:
        """See Driver."""
        self._do("cuGraphDestroy", graph)

    def _node(
        self, call: str, graph: Graph, after: Sequence[Node], parameters: Any, *more: Any
    ) -> Node:
        nodes = (ctypes.c_void_p * len(after))(*after) if after else None
        return Node(
            self._handle(call, graph, nodes, len(after), ctypes.byref(parameters), *more)
        )

    def add_launch(self, graph: Graph, after: Sequence[Node], launch: Launch) -> Node:
        """See Driver."""
        assert isinstance(launch, Prepared)
        return self._node("cuGraphAddKernelNode_v2", graph, after, launch.node())

    def add_copy(
        self, graph: Graph, after: Sequence[Node], target: int, source: int, size: int
    ) -> Node:
        """See Driver."""
        anywhere = CONSTANTS["CU_MEMORYTYPE_UNIFIED"]  # the driver knows whose an address is
        parameters = CUDA_MEMCPY3D_v2(
            srcMemoryType=anywhere, srcDevice=source, dstMemoryType=anywhere, dstDevice=target,
            WidthInBytes=size, Height=1, Depth=1,
        )
        return self._node("cuGraphAddMemcpyNode", graph, after, parameters, self._context())

    def add_fill(
        self, graph: Graph, after: Sequence[Node], target: int, value: int, width: int, count: int
    ) -> Node:
        """See Driver."""
        parameters = CUDA_MEMSET_NODE_PARAMS_v1(
            dst=target, value=value, elementSize=width, width=count, height=1
        )
        return self._node("cuGraphAddMemsetNode", graph, after, parameters, self._context())

    def _context(self) -> int:
        return self._handle("cuCtxGetCurrent")

    def begin_capture(self, stream: Stream) -> None:
        """See Driver. Other threads, and what a library does beside its launches, go on."""
        mode = CONSTANTS["CU_STREAM_CAPTURE_MODE_RELAXED"]
        self._do("cuStreamBeginCapture_v2", stream, mode)

    def end_capture(self, stream: Stream) -> Graph:
        """See Driver."""
        graph = ctypes.c_void_p()
        self._do("cuStreamEndCapture", stream, ctypes.byref(graph))
        return Graph(graph.value or 0)

    def add_graph(self, graph: Graph, after: Sequence[Node], inner: Graph) -> Node:
        """See Driver."""
        nodes = (ctypes.c_void_p * len(after))(*after) if after else None
        return Node(self._handle("cuGraphAddChildGraphNode", graph, nodes, len(after), inner))

    def instantiate(self, graph: Graph) -> Executable:
        """See Driver."""
        return Executable(self._handle("cuGraphInstantiateWithFlags", graph, 0))

    def destroy_executable(self, executable: Executable) -> None:
        """See Driver."""
        self._do("cuGraphExecDestroy", executable)

    def update_launch(self, executable: Executable, node: Node, launch: Launch) -> None:
        """See Driver."""
        assert isinstance(launch, Prepared)
        parameters = ctypes.byref(launch.node())
        self._do("cuGraphExecKernelNodeSetParams_v2", executable, node, parameters)

    def update_graph(self, executable: Executable, node: Node, inner: Graph) -> None:
        """See Driver."""
        self._do("cuGraphExecChildGraphNodeSetParams", executable, node, inner)

    def launch_graph(self, executable: Executable, stream: Stream) -> None:
        """See Driver."""
        self._do("cuGraphLaunch", executable, stream)


@functools.cache
def driver() -> LibCuda:
    """This machine's. Raises MissingLibrary, or CudaError where there is no device."""
    return LibCuda(libraries.find(libraries.DRIVER).handle)
