"""Functions that run in segments: whole scripts, and single operators of known segments.

    python benchmarks/segments.py [--rounds 5] [--calls 50] [--scripts vae gan] [--against DIR]

Scripts: CPU time of the first 50 calls of a fresh process, compilation with empty caches
included, and of those from the tenth on, over eager mode's. Operators: what a call of one in a
segment that is compiled already costs, over eager mode's. One thread; rounds are interleaved.
`--against`: another checkout of graphc, in the same rounds.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from engines import ROOT, spread
from segment_scripts import SCRIPTS, TUNED

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "x.sin()": lambda x, w: x.sin(),
    "x.relu()": lambda x, w: x.relu(),
    "x + w": lambda x, w: x + w,
    "x * 1.5": lambda x, w: x * 1.5,
    "x @ w": lambda x, w: x @ w,
    "x[0:8]": lambda x, w: x[0:8],
    "x.reshape(8, 8)": lambda x, w: x.reshape(8, 8),
    "x.t()": lambda x, w: x.t(),
    "x.softmax(1)": lambda x, w: x.softmax(1),
}
_CHAIN = 50  # operators in a segment


def _space() -> SimpleNamespace:
    names = {"torch": "", "nn": ".nn", "F": ".nn.functional"}
    return SimpleNamespace(**{
        short: importlib.import_module("graphc" + path) for short, path in names.items()
    })


def _script(name: str, large: bool, compiled: bool, calls: int) -> list[float]:
    """CPU seconds of each call of a script."""
    space = _space()
    space.torch.set_num_threads(1)
    space.torch.manual_seed(0)
    function, call = SCRIPTS[name](space, large)
    if compiled:
        function = space.torch.compile(function)
    times = []
    for i in range(calls):
        start = time.process_time()
        call(function, i)
        times.append(time.process_time() - start)
    return times


def _operators(grad: bool) -> dict[str, tuple[float, float]]:
    """Microseconds of an operator, eager and in a known segment."""
    torch = _space().torch
    found = {}
    for name, operator in OPERATORS.items():
        def chain(x: Any, w: Any, operator: Callable[[Any, Any], Any] = operator) -> Any:
            for _ in range(_CHAIN):
                x = operator(x, w)
            if float(x.sum()) > 1e30:
                return w
            return x

        compiled = torch.compile(chain)
        compiled.always_compiled = True
        x, w = torch.ones(8, 8, requires_grad=grad), torch.full((8, 8), 0.125, requires_grad=grad)
        times: list[list[float]] = [[], []]
        for i in range(12):
            for which, function in enumerate((chain, compiled)):
                start = time.process_time()
                for _ in range(20):
                    function(x, w)
                if i > 1:
                    times[which].append((time.process_time() - start) / (20 * (_CHAIN + 1)))
        eager, known = (1e6 * spread(values)[0] for values in times)
        found[name] = eager, known
    return found


def _ask(root: str, *command: Any) -> Any:
    """What a fresh process finds."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {
            **os.environ, "PYTHONPATH": root, "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1", "GRAPHC_THREADS": "1", "GRAPHC_CACHE_DIR": cache,
        }
        found = subprocess.run(
            [sys.executable, __file__, "--worker", json.dumps(command)], env=environment,
            check=True, stdout=subprocess.PIPE, text=True,
        )
    return json.loads(found.stdout)


def scripts(names: list[str], roots: dict[str, str], rounds: int, calls: int) -> None:
    """Compiled over eager, from the first call and from the tenth."""
    print(f"{calls} calls, from the tenth: compiled over eager, medians (quartiles)")
    for name in names:
        for large in (False, True):
            ratios: dict[str, list[tuple[float, float]]] = {label: [] for label in roots}
            for _ in range(rounds):
                for label, root in roots.items():
                    eager = _ask(root, "script", name, large, False, calls)
                    compiled = _ask(root, "script", name, large, True, calls)
                    ratios[label].append(
                        (sum(compiled) / sum(eager), sum(compiled[9:]) / sum(eager[9:]))
                    )
            line = f"  {name + (' large' if large else ''):<20}"
            for label, found in ratios.items():
                columns = [spread(list(column)) for column in zip(*found, strict=True)]
                texts = [f"{m:.2f} ({low:.2f}-{high:.2f})" for m, low, high in columns]
                line += f"  {label} " + ", ".join(texts)
            print(line + ("" if name in TUNED else "  (not tuned on)"), flush=True)


def operators(roots: dict[str, str], rounds: int) -> None:
    """Known segments, operator by operator."""
    print("an operator of a known segment, us: eager, segment, ratio of medians")
    for grad in (False, True):
        seen: dict[str, dict[str, list[Any]]] = {}
        for _ in range(rounds):
            for label, root in roots.items():
                for name, pair in _ask(root, "operators", grad).items():
                    seen.setdefault(name, {}).setdefault(label, []).append(pair)
        for name, by_label in seen.items():
            line = f"  {name + (', recorded' if grad else ''):<26}"
            for label, pairs in by_label.items():
                eager, known = (spread(list(values))[0] for values in zip(*pairs, strict=True))
                line += f"  {label} {eager:6.2f} {known:6.2f} {known / eager:5.2f}"
            print(line, flush=True)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=50)
    parser.add_argument("--scripts", nargs="*", choices=list(SCRIPTS), default=list(SCRIPTS))
    parser.add_argument("--scripts-only", action="store_true", help="no single operators")
    parser.add_argument("--against", help="another checkout")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        warnings.simplefilter("ignore")
        kind, *rest = json.loads(args.worker)
        print(json.dumps((_script if kind == "script" else _operators)(*rest)))
        return 0
    roots = {"": str(ROOT)} if args.against is None else {
        "before": os.path.abspath(args.against), "now": str(ROOT)
    }
    if not args.scripts_only:
        operators(roots, args.rounds)
    scripts(args.scripts, roots, args.rounds, args.calls)
    return 0


if __name__ == "__main__":
    sys.exit(main())
