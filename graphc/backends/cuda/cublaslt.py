"""cuBLASLt through ctypes: products of matrices, described once per problem.

What is passed per call is what the call depends on: no workspace but the caller's, no mode of the
handle. docs.nvidia.com/cuda/cublas, "Using the cuBLASLt API"
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

from graphc.backends.cuda.driver import Stream
from graphc.backends.cuda.libraries import Found
from graphc.backends.cuda.prototypes import bind, parse

PROTOTYPES = parse("""
    const char * cublasLtGetStatusString(cublasStatus_t)
    cublasStatus_t cublasLtCreate(cublasLtHandle_t *)
    cublasStatus_t cublasLtDestroy(cublasLtHandle_t)
    cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *, cublasComputeType_t, \
cudaDataType)
    cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t)
    cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t, \
cublasLtMatmulDescAttributes_t, const void *, size_t)
    cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *, cudaDataType, uint64_t, \
uint64_t, int64_t)
    cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t)
    cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t, \
cublasLtMatrixLayoutAttribute_t, const void *, size_t)
    cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *)
    cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t)
    cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, \
cublasLtMatmulPreferenceAttributes_t, const void *, size_t)
    cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, \
cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, \
cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t *, int *)
    cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t, const void *, \
const void *, cublasLtMatrixLayout_t, const void *, cublasLtMatrixLayout_t, const void *, \
const void *, cublasLtMatrixLayout_t, void *, cublasLtMatrixLayout_t, \
const cublasLtMatmulAlgo_t *, void *, size_t, cudaStream_t)
""".replace("\\\n", ""))
_POINTERS = ("Handle", "MatmulDesc", "MatrixLayout", "MatmulPreference")
_ENUMS = (
    "cublasStatus_t", "cublasComputeType_t", "cudaDataType", "cublasLtMatmulDescAttributes_t",
    "cublasLtMatrixLayoutAttribute_t", "cublasLtMatmulPreferenceAttributes_t",
)
TYPES = {
    **{f"cublasLt{name}_t": ctypes.c_void_p for name in _POINTERS},
    **dict.fromkeys(_ENUMS, ctypes.c_int),
    "cudaStream_t": ctypes.c_void_p, "uint64_t": ctypes.c_uint64, "int64_t": ctypes.c_int64,
}
# by the headers' names
CONSTANTS = {
    "CUBLAS_STATUS_SUCCESS": 0,
    "CUBLAS_OP_N": 0, "CUBLAS_OP_T": 1,
    "CUBLAS_COMPUTE_32F": 68, "CUBLAS_COMPUTE_64F": 70, "CUBLAS_COMPUTE_32F_FAST_TF32": 77,
    "CUDA_R_32F": 0, "CUDA_R_64F": 1, "CUDA_R_16F": 2, "CUDA_R_16BF": 14,
    "CUBLASLT_MATMUL_DESC_TRANSA": 3, "CUBLASLT_MATMUL_DESC_TRANSB": 4,
    "CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT": 5, "CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET": 6,
    "CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES": 1,
    "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES": 5,
    "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES": 6,
    "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES": 7,
    "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES": 8,
}
WORKSPACE = 32 << 20  # bytes that a call may use
PROPOSALS = 8  # of the library's heuristic that are looked at, at most
DATA_TYPES = {"f32": "CUDA_R_32F", "f64": "CUDA_R_64F", "f16": "CUDA_R_16F", "bf16": "CUDA_R_16BF"}
_MOST_ALIGNED = 256  # bytes; what lies so is told no better


class Algorithm(ctypes.Structure):
    """cublasLtMatmulAlgo_t"""

    _fields_ = [("data", ctypes.c_uint64 * 8)]


class Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t"""

    _fields_ = [
        ("algo", Algorithm),
        ("workspaceSize", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("wavesCount", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    ]


class CublasError(RuntimeError):
    """cuBLASLt refused a call; the message has its words."""


class Matrix(NamedTuple):
    """One operand, or the result: element (row, column) of product b lies at b * stride
    + row * pitch + column; "transposed": at b * stride + column * pitch + row. Strides of a batch
    of one have no meaning."""

    dtype: str
    pitch: int
    stride: int
    transposed: bool = False


class Problem(NamedTuple):
    """result[b, m, n] = the sum over k of left[b, m, k] right[b, k, n], in the arithmetic of
    `compute`."""

    batch: int
    m: int
    n: int
    k: int
    left: Matrix
    right: Matrix
    result: Matrix
    compute: str
    proposal: int = 0  # of the library's own: which of those it makes, the one it likes best first


class _Described(NamedTuple):
    """A problem's descriptors, and how it is computed."""

    operation: int
    layouts: tuple[int, int, int]  # of the right operand, the left one, the result
    algorithm: Algorithm
    workspace: int
    number: int  # of the proposal: the last one, where there are not as many as was asked for


class CublasLt:
    """The library in one context, which is current where this is made and called. Safe to share
    between threads."""

    def __init__(self, found: Found) -> None:
        self.found = found
        self._calls = bind(found.handle, PROTOTYPES, TYPES)
        self._lock = threading.Lock()
        self._known: dict[tuple[Problem, tuple[int, int, int]], _Described] = {}
        self._handle = ctypes.c_void_p()
        self._do("Create", ctypes.byref(self._handle))

    def close(self) -> None:
        """Gives everything back. Nothing may be called behind it."""
        with self._lock:
            for each in self._known.values():
                self._do("MatmulDescDestroy", each.operation)
                for layout in each.layouts:
                    self._do("MatrixLayoutDestroy", layout)
            self._known.clear()
            self._do("Destroy", self._handle)

    def multiply(
        self, problem: Problem, left: int, right: int, result: int, workspace: int, stream: Stream
    ) -> None:
        """Begins a product on a stream, at addresses; `workspace`: of WORKSPACE bytes. Raises
        CublasError, also for a problem that the library does not take."""
        sides = ((problem.left, left), (problem.right, right), (problem.result, result))
        alignments = [alignment(matrix, problem.batch, at) for matrix, at in sides]
        d = self._described(problem, (alignments[0], alignments[1], alignments[2]))
        scalar = ctypes.c_double if problem.compute.endswith("64F") else ctypes.c_float
        one, zero = scalar(1.0), scalar(0.0)
        of_right, of_left, of_result = d.layouts
        self._do(
            "Matmul", self._handle, d.operation, ctypes.byref(one), right, of_right, left, of_left,
            ctypes.byref(zero), result, of_result, result, of_result, ctypes.byref(d.algorithm),
            workspace, d.workspace, stream,
        )

    def proposals(self, problem: Problem, left: int, right: int, result: int) -> int:
        """How many ways the library knows at such addresses, PROPOSALS at most; it knows no more
        of what comes first than its heuristic tells."""
        at = zip((problem.left, problem.right, problem.result), (left, right, result), strict=True)
        a, b, c = (alignment(matrix, problem.batch, address) for matrix, address in at)
        last = problem._replace(proposal=PROPOSALS - 1)
        try:
            return self._described(last, (a, b, c)).number + 1
        except CublasError:
            return 0

    def _described(self, problem: Problem, alignments: tuple[int, int, int]) -> _Described:
        key = problem, alignments
        with self._lock:
            if key not in self._known:
                self._known[key] = self._describe(problem, alignments)
            return self._known[key]

    def _describe(self, p: Problem, alignments: tuple[int, int, int]) -> _Described:
        """cuBLAS counts by columns: the product of the transposes, right one first, is the
        transposed result, which by columns lies as the result does by rows."""
        scale = "CUDA_R_64F" if p.compute.endswith("64F") else "CUDA_R_32F"
        operation = self._make(
            "MatmulDescCreate", CONSTANTS[f"CUBLAS_COMPUTE_{p.compute}"], CONSTANTS[scale]
        )
        made = [("MatmulDescDestroy", operation)]
        try:
            for name, matrix in (("A", p.right), ("B", p.left)):
                word = CONSTANTS[f"CUBLAS_OP_{'T' if matrix.transposed else 'N'}"]
                attribute = CONSTANTS[f"CUBLASLT_MATMUL_DESC_TRANS{name}"]
                self._set("MatmulDescSetAttribute", operation, attribute, ctypes.c_int32(word))
            layouts = []
            for matrix, rows, columns in (
                (p.right, p.k, p.n), (p.left, p.m, p.k), (p.result, p.m, p.n)
            ):
                layouts.append(self._layout(matrix, rows, columns, p.batch))
                made.append(("MatrixLayoutDestroy", layouts[-1]))
            found = self._choose(operation, layouts, alignments, p.proposal)
        except CublasError:
            for call, handle in made:
                self._do(call, handle)
            raise
        return _Described(operation, (layouts[0], layouts[1], layouts[2]), *found)

    def _layout(self, matrix: Matrix, rows: int, columns: int, batch: int) -> int:
        high, wide = (rows, columns) if matrix.transposed else (columns, rows)
        dtype = CONSTANTS[DATA_TYPES[matrix.dtype]]
        layout = self._make("MatrixLayoutCreate", dtype, high, wide, matrix.pitch)
        if batch > 1:
            for name, value in (
                ("BATCH_COUNT", ctypes.c_int32(batch)),
                ("STRIDED_BATCH_OFFSET", ctypes.c_int64(matrix.stride)),
            ):
                attribute = CONSTANTS[f"CUBLASLT_MATRIX_LAYOUT_{name}"]
                self._set("MatrixLayoutSetAttribute", layout, attribute, value)
        return layout

    def _choose(
        self, operation: int, layouts: Sequence[int], alignments: tuple[int, int, int],
        proposal: int,
    ) -> tuple[Algorithm, int, int]:
        """One of what the library's heuristic proposes, the workspace that it takes, and its
        number."""
        preference = self._make("MatmulPreferenceCreate")
        left, right, result = alignments
        of_right, of_left, of_result = layouts
        found, count = (Heuristic * (proposal + 1))(), ctypes.c_int()
        try:
            for name, value in (
                ("MAX_WORKSPACE_BYTES", ctypes.c_uint64(WORKSPACE)),
                *((f"MIN_ALIGNMENT_{side}_BYTES", ctypes.c_uint32(number)) for side, number in
                  (("A", right), ("B", left), ("C", result), ("D", result))),
            ):
                attribute = CONSTANTS[f"CUBLASLT_MATMUL_PREF_{name}"]
                self._set("MatmulPreferenceSetAttribute", preference, attribute, value)
            self._do(
                "MatmulAlgoGetHeuristic", self._handle, operation, of_right, of_left, of_result,
                of_result, preference, proposal + 1, found, ctypes.byref(count),
            )
        finally:
            self._do("MatmulPreferenceDestroy", preference)
        works = [number for number in range(count.value) if not found[number].state]
        if not works:
            raise CublasError("cublasLtMatmulAlgoGetHeuristic: no algorithm for this product")
        number = min(proposal, len(works) - 1)
        chosen = found[works[number]]
        return chosen.algo, int(chosen.workspaceSize), number

    def _make(self, call: str, *arguments: Any) -> int:
        made = ctypes.c_void_p()
        self._do(call, ctypes.byref(made), *arguments)
        assert made.value is not None
        return made.value

    def _set(self, call: str, handle: int, attribute: int, value: Any) -> None:
        self._do(call, handle, attribute, ctypes.byref(value), ctypes.sizeof(value))

    def _do(self, call: str, *arguments: Any) -> None:
        status = self._calls[f"cublasLt{call}"](*arguments)
        if status:
            meaning: bytes = self._calls["cublasLtGetStatusString"](status)
            raise CublasError(f"cublasLt{call}: {meaning.decode()}")


_BYTES = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}


def alignment(matrix: Matrix, batch: int, address: int) -> int:
    """What every line of a matrix is aligned to, in bytes."""
    size = _BYTES[matrix.dtype]
    number = address | matrix.pitch * size | (matrix.stride * size if batch > 1 else 0)
    return min(number & -number, _MOST_ALIGNED) if number else _MOST_ALIGNED
