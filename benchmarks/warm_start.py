"""From a process's start to the first result of a training step, above `import numpy`.

    python benchmarks/warm_start.py [--models mlp gpt] [--rounds 5] [--threads 1]

Each round is a process of its own over a cache that an earlier one has filled (warm), then one over
an empty cache (cold). It imports numpy and draws a batch, which the figures leave out, then imports
graphc, makes the model, and calls the compiled step once. The step's own work, which is printed
beside, and what is left without it, is the quickest of three later calls: native code for calls is
made in one of them. Seconds of wall time, and of the process's CPU time, which other programs
lengthen less.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from engines import ROOT, spread
from models import NAMES

_CHILD = """
import json, sys, time
marks = {}
def mark(name):
    marks[name] = time.perf_counter(), time.process_time()
import numpy
from models import batch, load, make, training_step
from suite.zoo import lstm
name = sys.argv[1]
if name == "lstm":
    rng = numpy.random.default_rng(0)
    arrays = rng.standard_normal((32, 50, 64), numpy.float32), rng.integers(0, 10, 32)
else:
    arrays = batch(name)
mark("numpy")
space = load("graphc")
torch = space.torch
torch.set_num_threads(int(sys.argv[2]))
torch.manual_seed(0)
mark("import")
if name == "lstm":
    model = lstm(space, 64, 128, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
else:
    model, optimizer = make(space, name)
x, y = map(torch.from_numpy, arrays)
mark("model")
step = torch.compile(training_step(space, model, optimizer))
mark("compiler")
float(step(x, y))
mark("first")
for each in ("second", "third", "fourth"):
    float(step(x, y))
    mark(each)
print(json.dumps(marks))
"""
_MODELS = (*NAMES, "lstm")
_PARTS = ("import", "model", "compiler", "first")
_CALLS = ("first", "second", "third", "fourth")


def started(model: str, threads: int, cache: Path) -> dict[str, tuple[float, float]]:
    """(wall, CPU) seconds of each part, in a fresh process."""
    environment = {
        **os.environ, "GRAPHC_CACHE_DIR": str(cache),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "benchmarks")]),
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # as where graphc is installed
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, model, str(threads)], env=environment, check=True,
        capture_output=True, text=True,
    )
    marks = json.loads(done.stdout)
    before = dict(zip(_PARTS, ("numpy", *_PARTS), strict=False))
    found = {
        part: tuple(marks[part][i] - marks[before[part]][i] for i in (0, 1)) for part in _PARTS
    }
    found["whole"] = tuple(marks["first"][i] - marks["numpy"][i] for i in (0, 1))
    calls = list(pairwise(marks[call] for call in _CALLS))
    found["step"] = tuple(min(end[i] - begin[i] for begin, end in calls) for i in (0, 1))
    return found


def line(name: str, rounds: list[dict[str, tuple[float, float]]]) -> str:
    """The medians."""
    wall, low, high = spread([each["whole"][0] for each in rounds])
    cpu = spread([each["whole"][1] for each in rounds])[0]
    parts = ", ".join(
        f"{part} {spread([each[part][1] for each in rounds])[0]:.3f}" for part in (*_PARTS, "step")
    )
    above = spread([each["whole"][0] - each["step"][0] for each in rounds])[0]
    return (
        f"{name}: {wall:.3f} ({low:.3f}-{high:.3f}), without the step's work {above:.3f}; "
        f"CPU {cpu:.3f}: {parts}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--models", nargs="+", choices=_MODELS, default=list(_MODELS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    print("seconds above `import numpy` to the first result: wall (quartiles), CPU: CPU by part")
    for model in args.models:
        found: dict[str, list[dict[str, tuple[float, float]]]] = {"warm": [], "cold": []}
        with tempfile.TemporaryDirectory() as filled:
            started(model, args.threads, Path(filled, "cache"))
            for _ in range(args.rounds):
                found["warm"].append(started(model, args.threads, Path(filled, "cache")))
                with tempfile.TemporaryDirectory() as empty:
                    found["cold"].append(started(model, args.threads, Path(empty, "cache")))
        for kind, rounds in found.items():
            print(line(f"{model}, {kind}", rounds), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
