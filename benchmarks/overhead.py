"""What graphc costs beside the arithmetic: calls, imports, memory.

    python benchmarks/overhead.py [--rounds 7] [--threads 1] [--models mlp gpt]

Call overhead: a function of one operation on 4 numbers; then whole calls whose kernels are replaced
by code that does nothing: a function of ten tensors, and training steps. Import: a fresh process
each, against a bare interpreter. Memory: peak resident bytes of a process after 5 training steps.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from engines import ENGINES, ROOT, Runner, Worker, spread
from models import NAMES


def calls(rounds: int, inductor: bool) -> None:
    """Microseconds per call of `x + 1` on 4 numbers, interleaved in one process."""
    functions: dict[str, Callable[[], Any]] = {}
    for engine, (package, compiled) in ENGINES.items():
        if engine == "torch.compile" and not inductor:
            continue
        torch: Any = importlib.import_module(package)
        torch.set_num_threads(1)
        x = torch.ones(4)
        one = torch.compile(_add_one) if compiled else _add_one
        functions[engine] = lambda one=one, x=x: one(x)  # type: ignore[misc]
    for function in functions.values():
        for _ in range(100):
            function()
    print("call of x + 1 on 4 numbers, us: median (quartiles)")
    _tell(functions, rounds, 5000, time.perf_counter)


def _tell(
    functions: dict[str, Callable[[], Any]], rounds: int, count: int, clock: Callable[[], float]
) -> None:
    """Microseconds of a call of each, `count` calls at a time, in turn."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            start = clock()
            for _ in range(count):
                function()
            times[name].append((clock() - start) / count)
    for name, values in times.items():
        middle, low, high = (1e6 * value for value in spread(values))
        print(f"  {name:<26}{middle:8.2f} ({low:.2f}-{high:.2f})")


def _add_one(x: Any) -> Any:
    return x + 1


def beside(models: list[str], rounds: int) -> None:
    """Microseconds of a call whose compiled code does nothing: what is left are guards, fetching
    memory, what outputs and gradients are made of. Processor time of the calling thread: another
    one may still make memory ready (touched.py)."""
    import graphc
    from graphc.backends.llvm.executable import Executable

    made = Executable.__init__
    kept, nothing = _nothing()

    def empty(self: Executable, *args: Any, **options: Any) -> None:
        made(self, *args, **options)
        self.code = nothing
        self._run = type(self._run)(nothing)

    graphc.set_num_threads(1)
    calls: dict[str, Callable[[], Any]] = {}
    Executable.__init__ = empty  # type: ignore[method-assign]
    try:
        ten = [graphc.randn(64) for _ in range(10)]
        joined = graphc.compile(lambda *some: sum(some[1:], some[0]))
        calls["a function of ten tensors"] = lambda: joined(*ten)
        for model in models:
            runner = Runner("graphc", model, 1)
            x, y = runner.batches[0]
            calls[f"{model} training step"] = lambda step=runner.step, x=x, y=y: step(x, y)  # type: ignore[misc]
        for call in calls.values():
            for _ in range(20):
                call()
    finally:
        Executable.__init__ = made  # type: ignore[method-assign]
    print("a call beside its kernels, us: median (quartiles)")
    _tell(calls, rounds, 1000, time.thread_time)
    del kept


def _nothing() -> tuple[Any, int]:
    """A function that returns 0 at once: what keeps it, and its address."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly("define i64 @nothing() {\n ret i64 0\n}")
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine, engine.get_function_address("nothing")


def imports(rounds: int) -> None:
    """Seconds that a fresh process needs to import a package, the bare interpreter's taken off."""
    statements = {"": "pass", "numpy": "import numpy", "graphc": "import graphc",
                  "graphc.nn": "import graphc.nn", "torch": "import torch"}
    times: dict[str, list[float]] = {name: [] for name in statements}
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for _ in range(rounds + 1):  # the first round reads the files from disk and is dropped
        for name, statement in statements.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", statement], env=environment, check=True)
            times[name].append(time.perf_counter() - start)
    bare = spread(times.pop("")[1:])[0]
    print("import, s: median (quartiles)")
    for name, values in times.items():
        middle, low, high = (value - bare for value in spread(values[1:]))
        print(f"  {name:<15}{middle:8.3f} ({low:.3f}-{high:.3f})")


def memory(models: list[str], threads: int) -> None:
    """Peak resident memory of each engine's process."""
    engines = [engine for engine in ENGINES if engine != "torch.compile"]
    print("peak resident memory after 5 training steps, MB (in brackets: above the start)")
    for model in models:
        cells = []
        for engine in engines:
            with Worker(engine, model, threads) as worker:
                before = worker.ask("memory")["bytes"]
                worker.ask("steps", count=5)
                peak = worker.ask("memory")["bytes"]
            cells.append(f"{engine} {peak / 1e6:.0f} ({(peak - before) / 1e6:.0f})")
        print(f"  {model}: {', '.join(cells)}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--models", nargs="*", choices=NAMES, default=list(NAMES))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--inductor", action="store_true", help="torch.compile as well")
    args = parser.parse_args()
    calls(args.rounds, args.inductor)
    beside(args.models, args.rounds)
    imports(args.rounds)
    memory(args.models, args.threads)
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
