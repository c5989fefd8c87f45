"""Steps on arrays (replayed_steps.py) as one Python function, a line for each: what goes over a
list of them takes as long for a step as NumPy does on few numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .storage import Storage
from .tensor import Tensor


def straight(
    codes: Sequence[tuple[Any, Any]], results: Sequence[int], tensors: int, shared: bool
) -> Callable[[list[Tensor]], list[Tensor]]:
    """What runs them on tensors and gives new ones, as Arrays.run does: `codes` are its steps, all
    of which have run, each with what makes the view that it may be."""
    names: dict[str, Any] = {"new": object.__new__, "Tensor": Tensor, "Storage": Storage}
    lines = [f"[{', '.join(f'v{i}' for i in range(tensors))}] = [t._graphc_array for t in tensors]"]
    lines += [f"m{i} = v{i}" for i in range(tensors) if shared]
    count = tensors
    for at, (step, view) in enumerate(codes):
        names[f"run{at}"] = step.signature.ready
        given = []
        for i, source in enumerate(step.sources):
            if type(source) is int:
                given.append(f"v{source}")
            else:
                names[f"c{at}_{i}"] = source._graphc_array
                given.append(f"c{at}_{i}")
        made = range(count, count + len(step.signature.results))
        count = made.stop
        call = f"{', '.join(f'v{i}' for i in made)} = run{at}({', '.join(given)})"
        memory = [f"m{i} = v{i}" for i in made if shared]
        if view is None:
            lines += [call, *memory]
            continue
        names[f"view{at}"] = view
        lines += [f"v{made[0]} = view{at}({given[0]})"]
        if shared:
            lines += [f"m{made[0]} = m{step.sources[0]}"]
        lines += [f"if v{made[0]} is None:", *[f"    {line}" for line in (call, *memory)]]
    for at, i in enumerate(results):
        lines += [
            f"t{at} = new(Tensor)", f"t{at}._graphc_array = v{i}",
            f"t{at}._graphc_storage = Storage({'m' if shared else 'v'}{i})",
        ]
    lines.append(f"return [{', '.join(f't{at}' for at in range(len(results)))}]")
    text = "\n".join(["def run(tensors):", *[f"    {line}" for line in lines]])
    exec(compile(text, "<graphc>", "exec", dont_inherit=True), names)
    found: Callable[[list[Tensor]], list[Tensor]] = names["run"]
    return found
