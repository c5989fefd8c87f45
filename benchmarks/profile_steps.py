"""Time of each native step of a compiled training step, slowest first.

    python benchmarks/profile_steps.py gpt [--rows 25]
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict

import numpy as np
from models import NAMES, batch, load, make, training_step

import graphc as torch
from graphc.engine.version.call import Call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=NAMES)
    parser.add_argument("--rows", type=int, default=25)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    space = load("graphc")
    torch.manual_seed(0)
    model, optimizer = make(space, args.model)
    step = torch.compile(training_step(space, model, optimizer))
    x, y = (torch.from_numpy(a) for a in batch(args.model))
    step(x, y)
    version = step.version(x, y)
    call = Call([x, y], ((x, y), {}))
    version.check(call)
    version.fetch(call)
    inputs = [np.ascontiguousarray(a).copy() for a in call.arrays]
    mutated = version.engine.mutated
    outputs = [
        np.empty(t.static_shape, t.dtype.numpy) if i not in mutated else inputs[mutated[i]]
        for i, t in enumerate(version.engine.output_types)
    ]
    executable = version.engine.built.executable
    best: dict[int, float] = {}
    steps = executable.program.steps
    for _ in range(args.repeats):
        last = time.perf_counter()

        def visit(number: int, step: object, fetch: object) -> None:
            nonlocal last
            now = time.perf_counter()
            best[number] = min(best.get(number, 1e9), now - last)
            last = time.perf_counter()

        executable.trace(inputs, outputs, visit)
    total = sum(best.values())
    print(f"{args.model}: {len(steps)} steps, {total * 1e3:.2f} ms")
    kinds: dict[str, float] = defaultdict(float)
    for number, seconds in sorted(best.items(), key=lambda item: -item[1])[: args.rows]:
        one = steps[number]
        kernel = getattr(one, "kernel", None)
        name = kernel.name if kernel else one.op
        ops = ",".join(dict.fromkeys(getattr(one, "ops", ())))
        sizes = ""
        if kernel is not None and kernel.contraction is not None:
            c = kernel.contraction
            sizes = f"{c.kind} b{c.batch} m{c.m} n{c.n} k{c.k} "
            flops = 2 * c.batch * c.m * c.n * c.k
            sizes += f"{flops / seconds / 1e9:.0f} GF/s"
        print(f"{number:4d} {seconds * 1e6:9.1f} us  {name[:30]:30s} {sizes} {ops[:90]}")
    for number, seconds in best.items():
        kernel = getattr(steps[number], "kernel", None)
        contraction = kernel is not None and kernel.contraction is not None
        kinds["contraction" if contraction else "loops"] += seconds
    print({kind: f"{seconds * 1e3:.2f} ms" for kind, seconds in kinds.items()})


if __name__ == "__main__":
    main()
