"""Who runs a workload: an Engine is told a row, and gives a function of the call's number.

Each runs in a process of its own (`worker.py`), at its best settings known to us and in the row's
dtype: nobody computes in a lower precision than the others.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from workloads import BATCHES, Workload, space

Call = Callable[[int], Any]


@dataclass(frozen=True)
class Engine:
    """`module`: what must be importable. `takes(row)`; `start(row, threads, files)` -> a Call.

    `files`: a folder with what `files.py` made of the row: model.onnx, state.npz.
    """

    name: str
    module: str
    takes: Callable[[Workload], bool]
    start: Callable[[Workload, int, Path], Call]


def _torch_like(package: str, compiled: bool, last: bool = False) -> Callable[..., Call]:
    def start(row: Workload, threads: int, files: Path) -> Call:
        s = space(package)
        s.torch.set_num_threads(threads)
        work = row.make(s)
        function = work.function
        if compiled and package == "torch" and row.family == "inference":
            import torch._inductor.config as inductor

            inductor.freezing = True
        if last and row.family in ("training", "inference"):
            work.module.to(memory_format=s.torch.channels_last)
        if compiled:
            function = s.torch.compile(function)
        calls = []
        for number in range(BATCHES):
            tensors = [s.torch.from_numpy(array) for array in row.inputs(number)]
            if row.dtype != "float32":
                lower = getattr(s.torch, row.dtype)
                tensors = [t.to(lower) if t.is_floating_point() else t for t in tensors]
            if last:
                tensors = [
                    t.to(memory_format=s.torch.channels_last) if t.dim() == 4 else t
                    for t in tensors
                ]
            calls.append(tensors)

        def call(number: int) -> Any:
            return function(*calls[number % BATCHES])

        # Kernels may ask for gradients inside; inference does not.
        if row.family == "inference":
            return s.torch.inference_mode()(call)
        return call if row.family == "training" else s.torch.no_grad()(call)

    return start


def _jax(row: Workload, threads: int, files: Path) -> Call:
    import jax

    jax.config.update("jax_compilation_cache_dir", os.environ["BENCHMARK_CACHE"])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    saved = files / "state.npz"
    state = {}
    if saved.exists():
        with np.load(saved) as arrays:
            state = {name: jax.numpy.asarray(arrays[name]) for name in arrays.files}
    assert row.jax is not None
    function = row.jax(jax, state)
    if not getattr(row.jax, "jitted", False):
        function = jax.jit(function)
    calls = [
        [jax.numpy.asarray(a, row.dtype if a.dtype == np.float32 else None)
         for a in row.inputs(number)]
        for number in range(BATCHES)
    ]
    return lambda number: jax.block_until_ready(function(*calls[number % BATCHES]))


def _onnxruntime(row: Workload, threads: int, files: Path) -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(
        str(files / "model.onnx"), options, providers=["CPUExecutionProvider"]
    )
    names = [given.name for given in session.get_inputs()]
    of = onnxruntime.OrtValue.ortvalue_from_numpy
    feeds = [
        {name: of(array) for name, array in zip(names, row.inputs(number), strict=True)}
        for number in range(BATCHES)
    ]
    outputs = [given.name for given in session.get_outputs()]
    return lambda number: session.run_with_ort_values(outputs, feeds[number % BATCHES])


def _openvino(row: Workload, threads: int, files: Path) -> Call:
    import openvino

    core = openvino.Core()
    compiled = core.compile_model(
        core.read_model(str(files / "model.onnx")), "CPU",
        {
            "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32", "CACHE_DIR": os.environ["BENCHMARK_CACHE"],
        },
    )
    request = compiled.create_infer_request()
    feeds = [row.inputs(number) for number in range(BATCHES)]
    return lambda number: request.infer(
        list(feeds[number % BATCHES]), share_inputs=True, share_outputs=True
    )


def _always(row: Workload) -> bool:
    return True


def _exported(row: Workload) -> bool:
    return row.exports


ENGINES = {
    engine.name: engine for engine in (
        Engine("torch", "torch", _always, _torch_like("torch", False)),
        Engine("torch channels_last", "torch", lambda row: row.convolves,
               _torch_like("torch", False, last=True)),
        Engine("torch.compile", "torch", _always, _torch_like("torch", True)),
        Engine("onnxruntime", "onnxruntime", _exported, _onnxruntime),
        Engine("openvino", "openvino", _exported, _openvino),
        Engine("jax", "jax", lambda row: row.jax is not None, _jax),
        Engine("graphc", "graphc", _always, _torch_like("graphc", True)),
        Engine("graphc channels_last", "graphc", lambda row: row.convolves,
               _torch_like("graphc", True, last=True)),
        Engine("graphc eager", "graphc", _always, _torch_like("graphc", False)),
    )
}
OURS = "graphc"
OURS_LAST = "graphc channels_last"  # beside torch's of the same images
EAGER = "graphc eager"
ON_REQUEST = (OURS_LAST, EAGER)  # never count as peers


def values(result: Any) -> np.ndarray:
    """The first array of what a call gave, flat, in float64."""
    while isinstance(result, (tuple, list, dict)) or hasattr(result, "to_dict"):
        if hasattr(result, "to_dict"):
            result = result.to_dict()
        result = next(iter(result.values())) if isinstance(result, dict) else result[0]
    if hasattr(result, "detach"):
        result = result.detach()
    if "bfloat16" in str(getattr(result, "dtype", "")) and hasattr(result, "float"):
        result = result.float()  # NumPy has no such numbers
    if hasattr(result, "numpy"):
        result = result.numpy()
    return np.asarray(result, np.float64).ravel()
