"""Times a model's file on one engine, as client.c times a library: `worker.py ENGINE FILE THREADS
INPUT ANSWER`. INPUT is a .npy file; the first answer goes to ANSWER, and the seconds of loading to
stdout; then each line of stdin, a count, is answered by so many seconds of calls."""

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Run = Callable[[], np.ndarray]


def graphc(path: str, threads: int, x: np.ndarray) -> tuple[Run, float]:
    from graphc.export import load_library

    start = time.perf_counter()
    model = load_library(path, threads=threads)
    seconds = time.perf_counter() - start
    return lambda: np.asarray(model(x)), seconds


def onnxruntime(path: str, threads: int, x: np.ndarray) -> tuple[Run, float]:
    import onnxruntime as ort

    start = time.perf_counter()
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    seconds = time.perf_counter() - start
    name = session.get_inputs()[0].name
    return lambda: session.run(None, {name: x})[0], seconds


def openvino(path: str, threads: int, x: np.ndarray) -> tuple[Run, float]:
    import openvino as ov

    start = time.perf_counter()
    model = ov.Core().compile_model(path, "CPU", {
        "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    })
    request = model.create_infer_request()
    seconds = time.perf_counter() - start
    return lambda: request.infer([x], share_outputs=True)[0], seconds


def aotinductor(path: str, threads: int, x: np.ndarray) -> tuple[Run, float]:
    import torch
    import torch._inductor.package

    torch.set_num_threads(threads)
    start = time.perf_counter()
    model = torch._inductor.aoti_load_package(path)
    seconds = time.perf_counter() - start
    given = torch.from_numpy(x)

    def run() -> np.ndarray:
        with torch.no_grad():
            return model(given).numpy()

    return run, seconds


def main(engine: str, path: str, threads: str, given: str, answer: str) -> None:
    engines: dict[str, Any] = {
        "graphc": graphc, "onnxruntime": onnxruntime, "openvino": openvino,
        "aotinductor": aotinductor,
    }
    run, seconds = engines[engine](path, int(threads), np.load(given))
    np.ascontiguousarray(run()).tofile(answer)
    print(f"{seconds:.9f}", flush=True)
    for line in sys.stdin:
        taken = []
        for _ in range(int(line)):
            start = time.perf_counter()
            run()
            taken.append(time.perf_counter() - start)
        print(*(f"{each:.9f}" for each in taken), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
