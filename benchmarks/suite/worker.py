"""One engine with one workload in a process of its own, which is asked over pipes.

    worker = Worker("graphc", "softmax 4096x1024", 1, cache=folder, files=folder, limit=60)
    worker.ask("first")               {"seconds": of the call, "values": a few of its numbers;
                                      for a training step, the loss of a later one}
    worker.ask("sample", seconds=0.2) {"seconds": [of one call, ...]}
    worker.ask("memory")              {"bytes": peak}
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
STEPS = 4  # of training, before its loss is compared: what gradients and updates did is in it
_SHORTEST = 50e-6  # seconds of a sample: shorter calls are made several at a time
_CACHES = ("GRAPHC_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "BENCHMARK_CACHE")
_THREADS = ("GRAPHC_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Worker:
    """`started`: when the process began, on time.perf_counter's clock. `limit`: seconds in which an
    answer has to come."""

    def __init__(
        self, engine: str, row: str, threads: int, cache: Path, files: Path, limit: float
    ) -> None:
        environment = dict(os.environ)
        environment.update({name: str(cache / name) for name in _CACHES})
        environment.update({name: str(threads) for name in _THREADS})
        environment["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT, ROOT / "benchmarks", HERE)))
        self.name = f"{engine} on {row}"
        self._limit = limit
        self._errors = open(cache / "errors.txt", "w+")  # noqa: SIM115
        self.started = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, __file__, engine, row, str(threads), str(files)], env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
        )

    def ask(self, question: str, **arguments: Any) -> dict[str, Any]:
        """Raises RuntimeError with the end of its errors if the process died, or took too long."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        try:
            stdin.write(json.dumps([question, arguments]) + "\n")
            stdin.flush()
            if not select.select([stdout], [], [], self._limit)[0]:
                raise RuntimeError(f"{self.name} took more than {self._limit:g} s ({question})")
            line = stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            code = self._process.wait()
            self._errors.seek(0)
            tail = self._errors.read()[-600:]
            raise RuntimeError(f"{self.name} stopped with {code}: {tail}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def since_start(self) -> float:
        """Seconds of this process's life."""
        return time.perf_counter() - self.started

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()


def few_of(found: np.ndarray) -> list[float]:
    """Some of the numbers, and two sums that each of them is in (most may be zeros)."""
    signs = np.cos(np.arange(found.size))
    sums = [float(np.abs(found).mean()), float((found * signs).mean())] if found.size else []
    return [*found[:: max(1, found.size // 64)][:64].tolist(), *sums]


def serve(engine: str, name: str, threads: int, files: Path) -> None:
    """Answers questions; whatever an engine prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    cores = sorted(os.sched_getaffinity(0))[:threads]
    os.sched_setaffinity(0, cores)  # XLA's threads are as many as there are cores
    from engines import ENGINES, values
    from workloads import every

    row = every()[name]
    call = ENGINES[engine].start(row, threads, files)
    count = 0
    for line in sys.stdin:
        question, arguments = json.loads(line)
        if question == "first":
            begin = time.perf_counter()
            result = call(0)
            seconds = time.perf_counter() - begin
            for step in range(1, STEPS if row.family == "training" else 1):
                result = call(step)
            found = values(result)
            answer: dict[str, Any] = {"seconds": seconds, "values": few_of(found)}
        elif question == "sample":
            spent = []
            together = 1
            end = time.perf_counter() + arguments["seconds"]
            while time.perf_counter() < end or len(spent) < 3:
                begin = time.perf_counter()
                for _ in range(together):
                    count += 1
                    call(count)
                one = (time.perf_counter() - begin) / together
                if one * together < _SHORTEST:
                    together = int(2 * _SHORTEST / one) + 1
                spent.append(one)
            answer = {"seconds": spent}
        else:
            lines = Path("/proc/self/status").read_text().splitlines()
            (peak,) = (text.split()[1] for text in lines if text.startswith("VmHWM:"))
            answer = {"bytes": int(peak) * 1024}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
