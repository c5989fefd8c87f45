"""Cold compile of a training step: from the first call to its result, all caches empty.

    python benchmarks/compile_time.py [--models mlp gpt] [--rounds 3] [--threads 1] [--inductor]

Each measurement is a fresh process with empty cache folders; importing is not counted, loading
LLVM is. The second line of each model is graphc's time by stage, in milliseconds.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from engines import ROOT, Worker, spread
from models import NAMES

_STAGES = """
import sys
from engines import Runner
runner = Runner("graphc", sys.argv[1], int(sys.argv[2]))
import graphc
from graphc.inspect.explain import explain
times = explain(runner.step, *runner.batches[0]).times
print(", ".join(f"{name} {1e3 * value:.0f}" for name, value in times.items()))
"""


def cold(engine: str, model: str, threads: int) -> float:
    """Seconds of the first step in a fresh process."""
    with Worker(engine, model, threads, cold=True) as worker:
        seconds: float = worker.ask("first")["seconds"]
    return seconds


def stages(model: str, threads: int) -> str:
    """graphc's compile time by stage, in a fresh process with an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ, "GRAPHC_CACHE_DIR": str(Path(folder, "cache")),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "benchmarks")]),
        }
        result = subprocess.run(
            [sys.executable, "-c", _STAGES, model, str(threads)], env=environment, check=True,
            capture_output=True, text=True,
        )
    return result.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--models", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--inductor", action="store_true", help="torch.compile as well (slow)")
    args = parser.parse_args()
    engines = ["graphc", "torch.compile"] if args.inductor else ["graphc"]
    print("seconds to the first result, caches empty: median (quartiles)")
    for model in args.models:
        found: dict[str, list[float]] = {engine: [] for engine in engines}
        for _ in range(args.rounds):
            for engine in engines:
                found[engine].append(cold(engine, model, args.threads))
        middles = {engine: spread(values) for engine, values in found.items()}
        text = ", ".join(f"{e} {m:.2f} ({a:.2f}-{b:.2f})" for e, (m, a, b) in middles.items())
        if args.inductor:
            text += f": {middles['torch.compile'][0] / middles['graphc'][0]:.1f}x faster"
        print(f"{model}: {text}", flush=True)
        print(f"    {stages(model, args.threads)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
