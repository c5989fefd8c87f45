"""Training steps on each engine, each in a process of its own that is told what to run.

    worker = Worker("graphc", "gpt", threads=1)
    worker.ask("first")          # {"seconds": ..., "loss": ...}: compiles
    worker.ask("steps", count=5) # {"seconds": [...], "loss": ...}
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

# name -> (package, compiled)
ENGINES = {
    "torch": ("torch", False),
    "torch.compile": ("torch", True),
    "graphc eager": ("graphc", False),
    "graphc": ("graphc", True),
}
BATCHES = 4  # different ones, in turn: no step may live off the one before
ROOT = Path(__file__).parents[1]


class Runner:
    """One model's training step on one engine, in this process."""

    def __init__(self, engine: str, model: str, threads: int, dtype: str = "float32") -> None:
        from models import batch, load, make, training_step

        package, compiled = ENGINES[engine]
        space = load(package)
        torch: Any = importlib.import_module(package)
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        self.model, self.optimizer = make(space, model)
        if dtype == "float64":
            self.model.double()
        step = training_step(space, self.model, self.optimizer)
        self.step = torch.compile(step) if compiled else step
        self.batches = []
        for seed in range(BATCHES):
            x, y = (torch.from_numpy(a) for a in batch(model, seed))
            self.batches.append((x.to(getattr(torch, dtype)) if x.is_floating_point() else x, y))
        self.count = 0

    def _timed(self) -> tuple[float, float]:
        x, y = self.batches[self.count % BATCHES]
        self.count += 1
        start = time.perf_counter()
        loss = self.step(x, y)
        seconds = time.perf_counter() - start
        return seconds, float(loss.detach())

    def first(self) -> dict[str, Any]:
        """One step: the first one traces and compiles."""
        seconds, loss = self._timed()
        return {"seconds": seconds, "loss": loss}

    def steps(self, count: int) -> dict[str, Any]:
        """`count` steps, each timed."""
        times = [self._timed() for _ in range(count)]
        return {"seconds": [t for t, _ in times], "loss": times[-1][1]}

    def memory(self) -> dict[str, Any]:
        """The process's peak resident memory in bytes.

        Linux's VmHWM: getrusage's ru_maxrss also counts what the parent had when it forked.
        """
        lines = Path("/proc/self/status").read_text().splitlines()
        (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
        return {"bytes": int(peak) * 1024}


class Worker:
    """A Runner in a fresh process. `cold`: with caches of its own, empty at first."""

    def __init__(
        self, engine: str, model: str, threads: int, dtype: str = "float32", cold: bool = False
    ) -> None:
        self.engine, self.model = engine, model
        environment = dict(os.environ)
        for name in ("GRAPHC_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            environment[name] = str(threads)
        self._folder = tempfile.TemporaryDirectory() if cold else None
        if self._folder is not None:
            for name in ("GRAPHC_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
                environment[name] = str(Path(self._folder.name, name))
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "benchmarks")])
        self._process = subprocess.Popen(
            [sys.executable, __file__, engine, model, str(threads), dtype],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )
        self.ready = self._answer()

    def ask(self, question: str, **arguments: Any) -> dict[str, Any]:
        """The answer of a Runner's method. Raises RuntimeError if the process died."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([question, arguments]) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(
                f"{self.engine} on {self.model} stopped with {self._process.wait()}"
            )
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process and remove its caches."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        if self._folder is not None:
            self._folder.cleanup()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _serve(engine: str, model: str, threads: str, dtype: str) -> None:
    """Answer questions from standard input; what the engine prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    runner = Runner(engine, model, int(threads), dtype)
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        question, arguments = json.loads(line)
        print(json.dumps(getattr(runner, question)(**arguments)), file=answers, flush=True)


def spread(values: list[float]) -> tuple[float, float, float]:
    """Median, first and third quartile."""
    ordered = sorted(values)

    def at(part: float) -> float:
        position = part * (len(ordered) - 1)
        low = int(position)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (position - low) * (ordered[high] - ordered[low])

    return at(0.5), at(0.25), at(0.75)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
