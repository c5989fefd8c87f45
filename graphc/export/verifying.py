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
from graphc.export.interpreting import interpreted, variant_for
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
        ("interpreter", lambda golden: interpreted(
            contents, variant_for(contents, golden.dims), golden.inputs, golden.dims
        )),
        ("compiled", lambda golden: _called(program, golden)),
    )
    for number, golden in enumerate(contents.goldens):
        for way, run in ways:
            call = f"call {number}" + (f" ({_sizes(golden.dims)})" if golden.dims else "")
            try:
                yield Row(call, way, *_compared(golden, run(golden)))
            except Exception as error:  # whatever it is: the file does not do what it did
                yield Row(call, way, float("inf"), f"raises {type(error).__name__}: {error}")


def _called(program: ExportedProgram, golden: Golden) -> list[Any]:
    numbered = iter(range(len(program.signature.specs())))

    def leaf(spec: Any) -> Any:
        number = next(numbered)
        return spec["value"] if "value" in spec else from_array(golden.inputs[number].copy())

    args, kwargs = containers.build(program.signature.arguments, leaf)
    result = program(*args, **kwargs)
    spec = program.variant_at(golden.dims).signature.results
    return [
        np.asarray(on_host(value._array)) if isinstance(value, Tensor) else value
        for _, value, _ in containers.match(spec, result, "the result")
    ]


def _compared(golden: Golden, found: list[Any]) -> tuple[float, str]:
    tolerance = Tolerance(golden.rtol, golden.atol)
    most = 0.0
    for leaf, wanted in golden.outputs.items():
        if not 0 <= leaf < len(found):
            return float("inf"), f"has {len(found)} results, and no result {leaf}"
        difference = closeness.first_difference([found[leaf]], [wanted], tolerance)
        if difference is not None:
            return float("inf"), f"result {leaf} {difference[1]}"
        most = max(most, closeness.share(found[leaf], wanted, tolerance))
    return most, ""


def _sizes(dims: Any) -> str:
    return ", ".join(f"{name} = {size}" for name, size in dims.items())
