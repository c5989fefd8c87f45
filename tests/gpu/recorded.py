"""Launches of small training steps with what they read and what they have to write, as the Kernel
interpreter says: what a device's kernels are held against, where nothing has to be interpreted."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import large, models
from graphc import backends, compile, from_numpy
from graphc.backends import Host
from graphc.backends.cuda.backend import CudaBackend
from graphc.backends.host.memory import HOST
from graphc.backends.numpy.backend import Interpreted
from graphc.ir.dim import evaluate
from graphc.ir.kernel import Kernel, Launch, Leaf, Program
from graphc.ir.kernel.program import Visit
from graphc.ir.kernel.text import kernel_symbol, parse_kernel, print_kernel

Array = np.ndarray[Any, Any]
MODELS = ("mlp", "lenet", *large.WORKS)


class Recorded(NamedTuple):
    """A launch: its buffers before and behind it, and the values of the kernel's dims."""

    symbol: str
    kernel: Kernel
    dims: tuple[int, ...]
    before: list[Array]
    after: list[Array]


class Recording(CudaBackend):
    """The CUDA backend's kernels, interpreted; the first launch of each is kept."""

    memory = HOST  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.launches: dict[str, Recorded] = {}

    def build(self, program: Program, host: Host) -> _Seen:  # type: ignore[override]
        return _Seen(program, host, self.launches)


class _Seen(Interpreted):
    def __init__(self, program: Program, host: Host, launches: dict[str, Recorded]) -> None:
        super().__init__(program, host.table)
        self._launches = launches

    def trace(
        self, inputs: Sequence[Array], outputs: Sequence[Array], before: Visit, after: Visit,
        dims: Sequence[int] = (),
    ) -> None:
        """See Executable. What the caller visits is not called: nobody asks."""
        env = dict(zip(self.program.dims, dims, strict=True))
        kept: list[Array] = []

        def begin(number: int, step: Leaf, fetch: Any) -> None:
            kept[:] = _buffers(step, fetch, env) if isinstance(step, Launch) else []

        def end(number: int, step: Leaf, fetch: Any) -> None:
            if isinstance(step, Launch):
                symbol = kernel_symbol(step.kernel)
                if symbol not in self._launches:
                    values = tuple(evaluate(size, env) for size in step.dims)
                    self._launches[symbol] = Recorded(
                        symbol, step.kernel, values, list(kept), _buffers(step, fetch, env)
                    )

        super().trace(inputs, outputs, begin, end, dims)


def _buffers(step: Launch, fetch: Any, env: Mapping[str, int]) -> list[Array]:
    named = {
        name: evaluate(size, env) for name, size in zip(step.kernel.dims, step.dims, strict=True)
    }
    return [
        fetch(ref, param.dtype.numpy, evaluate(param.size, named)).copy()
        for ref, param in zip(step.buffers, step.kernel.params, strict=True)
    ]


def record(names: Sequence[str] = MODELS) -> dict[str, list[Recorded]]:
    """By model, the distinct kernels of two calls."""
    recording = Recording()
    backends.register("recorded cuda", lambda: recording, ("debug",))
    found = {}
    for name in names:
        seen = set(recording.launches)
        function, inputs = _work(name)
        compiled = compile(function, backend="recorded cuda", fullgraph=True)
        for _ in range(2):
            compiled(*inputs)
        found[name] = [r for s, r in recording.launches.items() if s not in seen]
    return found


def _work(name: str) -> tuple[Any, tuple[Any, ...]]:
    """A function to be compiled and its inputs, of few numbers."""
    if name in large.WORKS:
        return large.WORKS[name].make(large.load("graphc"), "cpu", True)
    space = models.load("graphc")
    model, optimizer = models.make(space, name)
    x, y = models.batch(name)
    step = models.training_step(space, model, optimizer)
    return step, (from_numpy(x[:2]), from_numpy(y[:2]))


def save(path: Path, found: Mapping[str, Sequence[Recorded]]) -> None:
    """One file: per launch an entry of text and arrays."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for model, launches in found.items():
            for launch in launches:
                arrays = {
                    f"{kind}{n}": array.view(np.uint8)
                    for kind, each in (("before", launch.before), ("after", launch.after))
                    for n, array in enumerate(each)
                }
                buffer = BytesIO()
                np.savez(buffer, **arrays)
                place = f"{model}/{launch.symbol}"
                head = {"dims": launch.dims, "text": print_kernel(launch.kernel)}
                archive.writestr(f"{place}.json", json.dumps(head))
                archive.writestr(f"{place}.npz", buffer.getvalue())


def load(path: Path) -> Iterator[tuple[str, Recorded]]:
    """(model, launch) of a file that `save` made."""
    with zipfile.ZipFile(path) as archive:
        for name in sorted(n for n in archive.namelist() if n.endswith(".json")):
            head = json.loads(archive.read(name))
            kernel = parse_kernel(head["text"])
            kept = np.load(BytesIO(archive.read(name.replace(".json", ".npz"))))
            before, after = (
                [
                    kept[f"{kind}{n}"].view(param.dtype.numpy)
                    for n, param in enumerate(kernel.params)
                ]
                for kind in ("before", "after")
            )
            model, _, symbol = name.removesuffix(".json").partition("/")
            yield model, Recorded(symbol, kernel, tuple(head["dims"]), before, after)


def tolerance(kernel: Kernel) -> float:
    """How far ||found - want|| / ||want|| may be off: by the least exact of its floats."""
    names = {param.dtype.name for param in kernel.params if param.dtype.is_float}
    widest = {"bf16": 2e-2, "f16": 2e-3, "f32": 1e-4, "f64": 1e-10}
    return max((widest[name] for name in names), default=0.0)
