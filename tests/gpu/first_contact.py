"""The first hour on a GPU, in one command:

    python -m tests.gpu.first_contact                  # all stages, in order
    python -m tests.gpu.first_contact --from training  # that one, and those behind it
    python -m tests.gpu.first_contact --only kernels ceilings
    python -m tests.gpu.first_contact --rehearse       # no GPU: on the emulator, with small sizes

Each stage is a process of its own with a time limit: a lost context, or a hang, ends that stage
alone. The limit is its share of the time that is left, so that every stage gets to say something,
and what one leaves the others have. What is found is a JSON line at once (tests/gpu/results.jsonl),
and a table at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from . import bed as beds
from .results import RAISED, Results, new_run, said

FOLDER = Path(__file__).parent
BEGAN = time.monotonic()


class Stage(NamedTuple):
    """A module of stages/, whose `run(bed, record)` is the work, and its share of the time: seconds
    of nine minutes, where all stages run and each takes what it may."""

    name: str
    seconds: int
    what: str


STAGES = (
    Stage("environment", 25, "driver, device, libraries and their versions"),
    Stage("ceilings", 30, "copies, products of libraries, launches, nodes of graphs"),
    Stage("driver", 30, "every call of the Driver, by its tests"),
    Stage("scalars", 30, "every operator of every dtype at its edges, and its error"),
    Stage("kernels", 60, "every kernel of small models against the interpreter's numbers"),
    Stage("training", 60, "losses of small models, beside the CPU's"),
    Stage("models", 150, "GPT-2 124M, ResNet-50 and BERT-base, their kernels, beside PyTorch"),
    Stage("products", 50, "products of matrices beside PyTorch's"),
    Stage("attention", 40, "attention beside PyTorch's"),
    Stage("bandwidth", 30, "kernels of rows, columns and elements beside a copy"),
    Stage("libraries", 40, "products by cuBLASLt, between CUDA graphs and captured in them"),
    Stage("tuning", 45, "each way to multiply, timed: mode max-autotune"),
    Stage("routines", 20, "linear algebra and Fourier transforms by CuPy"),
    Stage("parity", 50, "operators, modules, optimizers, by the tests of devices"),
    Stage("sanitizer", 15, "compute-sanitizer over the kernels"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the number of stages that did not come to their end."""
    asked = _parser().parse_args(arguments)
    if asked.stage:
        return _child(asked)
    results = new_run(asked.results)
    names = [stage.name for stage in STAGES]
    chosen = [
        stage for stage in STAGES
        if stage.name in (asked.only or names[names.index(asked.start):])
    ]
    end = time.monotonic() + 60 * asked.minutes
    failed = 0
    for at, stage in enumerate(chosen):
        left = end - time.monotonic()
        share = stage.seconds / sum(each.seconds for each in chosen[at:])
        failed += _run(stage, results, asked, left * share)
    print("\n" + "\n".join(map(said, results.lines())))
    print(f"{len(chosen) - failed} of {len(chosen)} stages came to their end; {results.path}")
    return failed


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.first_contact")
    names = [stage.name for stage in STAGES]
    parser.add_argument("--from", dest="start", choices=names, default=names[0])
    parser.add_argument("--only", nargs="+", choices=names)
    parser.add_argument("--rehearse", action="store_true", help="on the emulator")
    parser.add_argument("--minutes", type=float, default=9.0, help="for all stages together")
    parser.add_argument("--results", type=Path, default=FOLDER / "results.jsonl")
    parser.add_argument("--stage", choices=names, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=60.0, help=argparse.SUPPRESS)
    parser.add_argument("--run", type=int, default=0, help=argparse.SUPPRESS)
    return parser


def _run(stage: Stage, results: Results, asked: argparse.Namespace, limit: float) -> bool:
    """One stage, in a process, for so many seconds. Returns whether it failed."""
    record = results.recorder(stage.name, "")
    if limit < 5:
        record("not begun", reason="the time of all stages is over")
        return True
    command = [
        sys.executable, "-m", "tests.gpu.first_contact", "--stage", stage.name,
        "--run", str(results.run), "--results", str(results.path), "--seconds", f"{limit:.0f}",
        *(["--rehearse"] if asked.rehearse else []),
    ]
    began = time.monotonic()
    child = subprocess.Popen(command, start_new_session=True)
    try:
        code = child.wait(limit)
        ended = "ok" if code == 0 else f"exit status {code}"
    except subprocess.TimeoutExpired:
        ended = "stopped: it took too long"
    finally:
        _end(child)
    record("stage", ended=ended, seconds=round(time.monotonic() - began, 1))
    return ended != "ok"


def _end(child: subprocess.Popen[bytes]) -> None:
    """What a stage has begun, tests say, would be in the way of the next one's times."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _child(asked: argparse.Namespace) -> int:
    """A stage, in this process."""
    module = importlib.import_module(f"{__package__}.stages.{asked.stage}")
    results = Results(asked.results, asked.run)
    try:
        bed = beds.emulated() if asked.rehearse else beds.nvidia()
        bed = replace(bed, seconds=asked.seconds - (time.monotonic() - BEGAN))
        module.run(bed, results.recorder(asked.stage, bed.name))
    except Exception as error:
        traceback.print_exc()
        results.recorder(asked.stage, "")("failed", error=f"{type(error).__name__}: {error}")
        return 1
    lines = [line for line in results.lines() if line["stage"] == asked.stage]
    return int(any(line["name"] == RAISED for line in lines))


if __name__ == "__main__":
    sys.exit(main())
