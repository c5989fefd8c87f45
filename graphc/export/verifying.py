"""`python -m graphc verify m.gcx`: does the file's program give here what it gave at its export?"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from graphc.export import archive, closeness, containers
from graphc.export.closeness import Tolerance
from graphc.export.contents import Contents, Golden
from graphc.export.errors import ExportError
from graphc.export.interpreting import computed, variant_for, written_names
from graphc.export.program import ExportedProgram
from graphc.frontend.tensor import Tensor, from_array
from graphc.ir.memory import on_host


class Row(NamedTuple):
    """One recorded call, run in one way. `off`: the largest distance, in units of what is allowed;
    `said`: what differs, "" where nothing does."""

    call: str
    way: str
    off: float
    said: str


def main(path: Path) -> int:
    """Print a table of the recorded calls of a file. Returns 0, or 1 where a result differs, or 2
    for a file that cannot be read, or that holds no recorded call."""
    try:
        contents = archive.read(path)
    except (ExportError, OSError) as error:
        print(f"graphc verify: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(f"{path}: {contents.kind} {contents.main.graph.name}, {len(contents.variants)} "
          f"graph(s), {len(contents.weights.arrays)} array(s), written by graphc "
          f"{contents.writer or 'unknown'}")
    if contents.checked:
        sizes = "; ".join(_sizes(dims) or "the example" for dims in contents.checked)
        print(f"compared with eager mode at export: {sizes}")
    for native in contents.native:
        print(f"{native['file']}: native code for {native['target']}, as the manifest hashes it; "
              "it is not run")
    failed, count = False, 0
    for row in rows(contents):
        count += 1
        failed |= bool(row.said)
        verdict = row.said or f"within {row.off:.1%} of what is allowed"
        print(f"{'FAIL' if row.said else 'ok':4}  {row.call:24}  {row.way:12}  {verdict}")
    if not count:
        print(f"graphc verify: {path} holds no recorded call: nothing was run", file=sys.stderr)
        return 2
    return int(failed)


def rows(contents: Contents) -> Iterator[Row]:
    """Each recorded call, by the reference interpreter and by code that is compiled here."""
    program = ExportedProgram(contents)
    ways: tuple[tuple[str, Callable[[Golden], list[Any]]], ...] = (
        ("interpreter", lambda golden: computed(
            contents, variant_for(contents, golden.dims), golden.inputs, golden.dims
        )),
        ("compiled", lambda golden: _called(program, golden)),
    )
    for number, golden in enumerate(contents.goldens):
        for way, run in ways:
            call = f"call {number}" + (f" ({_sizes(golden.dims)})" if golden.dims else "")
            try:
                yield Row(call, way, *_compared(contents, golden, run(golden)))
            except Exception as error:  # whatever it is: the file does not do what it did
                yield Row(call, way, float("inf"), f"raises {type(error).__name__}: {error}")


def _called(program: ExportedProgram, golden: Golden) -> list[Any]:
    numbered = iter(range(len(program.signature.specs())))

    def leaf(spec: Any) -> Any:
        number = next(numbered)
        return spec["value"] if "value" in spec else from_array(golden.inputs[number].copy())

    args, kwargs = containers.build(program.signature.arguments, leaf)
    contents = program.contents
    # from the state that was recorded, which a call may change
    state = {name: from_array(a.copy()) for name, a in contents.weights.arrays.items()}
    result = program._run(state, args, kwargs)
    variant = program.variant_at(golden.dims)
    spec = variant.signature.results
    found = [value for _, value, _ in containers.match(spec, result, "the result")]
    found += [state[name] for name in written_names(contents, variant)]
    return [np.asarray(on_host(v._graphc_array)) if isinstance(v, Tensor) else v for v in found]


def _compared(contents: Contents, golden: Golden, found: list[Any]) -> tuple[float, str]:
    tolerance = Tolerance(golden.rtol, golden.atol)
    names = written_names(contents, variant_for(contents, golden.dims))
    results = len(found) - len(names)
    wanted = [(leaf, f"result {leaf}", array) for leaf, array in golden.outputs.items()]
    wanted += [(results + names.index(name), name, array)
               for name, array in golden.written.items() if name in names]
    most = 0.0
    for place, name, array in wanted:
        if not 0 <= place < len(found):
            return float("inf"), f"has {results} results, and no {name}"
        difference = closeness.first_difference([found[place]], [array], tolerance)
        if difference is not None:
            return float("inf"), f"{name} {difference[1]}"
        most = max(most, closeness.share(found[place], array, tolerance))
    return most, ""


def _sizes(dims: Any) -> str:
    return ", ".join(f"{name} = {size}" for name, size in dims.items())
