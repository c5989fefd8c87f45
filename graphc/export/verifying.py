"""`python -m graphc verify m.gcx`: does the file's program give here what it gave at its export?"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from graphc.export import archive, closeness, containers
from graphc.export.closeness import Tolerance
from graphc.export.contents import Contents, Golden, Variant
from graphc.export.errors import ExportError
from graphc.export.interpreting import computed, variant_for, written_names
from graphc.export.native.program import NativeProgram, load_native
from graphc.export.program import ExportedProgram
from graphc.export.steps import compared as _compared
from graphc.export.steps.interpreted import InterpretedStep
from graphc.export.steps.program import ExportedStep
from graphc.frontend.tensor import Tensor, from_array
from graphc.ir.memory import on_host


class Row(NamedTuple):
    """One recorded call, run in one way. `off`: the largest distance, in units of what is allowed;
    `said`: what differs, "" where nothing does."""

    call: str
    way: str
    off: float
    said: str


def main(path: Path, trust: Sequence[str] = ()) -> int:
    """Print a table of the recorded calls of a file. Machine code in it is run if its SHA-256 is
    among `trust`. Returns 0, or 1 where a result differs, or 2 for a file that cannot be read, that
    holds no recorded call, or no code that is trusted where `trust` names some."""
    try:
        contents = archive.read(path)
        codes = archive.read_native(path)[1] if contents.native else ()
        native = load_native(path, trust) if trust else None
    except (ExportError, ValueError, OSError) as error:
        print(f"graphc verify: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(f"{path}: {contents.kind} {contents.main.graph.name}, {len(contents.variants)} "
          f"graph(s), {len(contents.weights.arrays)} array(s), written by graphc "
          f"{contents.writer or 'unknown'}")
    if contents.checked:
        sizes = "; ".join(_sizes(dims) or "the example" for dims in contents.checked)
        print(f"compared with eager mode at export: {sizes}")
    for code in codes:
        runs = native is not None and native.digest == code.sha256
        print(f"{code.file}: native code for {code.target}, SHA-256 {code.sha256}: "
              + ("run, as trusted" if runs else "not run"))
    failed, count = False, 0
    for row in rows(contents, native):
        count += 1
        failed |= bool(row.said)
        verdict = row.said or f"within {row.off:.1%} of what is allowed"
        print(f"{'FAIL' if row.said else 'ok':4}  {row.call:24}  {row.way:12}  {verdict}")
    if not count:
        print(f"graphc verify: {path} holds no recorded call: nothing was run", file=sys.stderr)
        return 2
    return int(failed)


def rows(contents: Contents, native: NativeProgram | None = None) -> Iterator[Row]:
    """Each recorded call, by the reference interpreter, by code that is compiled here, and by the
    file's own."""
    if contents.kind == "step":
        yield from _rows_of_step(contents)
        return
    program = ExportedProgram(contents)
    ways: list[tuple[str, Callable[[Golden], list[Any]]]] = [
        ("interpreter", lambda golden: computed(
            contents, variant_for(contents, golden.dims), golden.inputs, golden.dims
        )),
        ("compiled", lambda golden: _called(program, golden)),
    ]
    if native is not None:
        ways.append(("native", lambda golden: _run(native, program, golden)))
    for number, golden in enumerate(contents.goldens):
        for way, run in ways:
            if way == "native" and not _takes(native, golden.dims):
                continue  # the code is for other sizes than all that were exported
            names = written_names(contents, variant_for(contents, golden.dims))
            yield _row(number, way, golden, names, run)


def _rows_of_step(contents: Contents) -> Iterator[Row]:
    """The same of a training step, from the state that each call found."""
    def called(kind: type[ExportedStep], golden: Golden) -> list[Any]:
        step = kind(_compared.apart(contents, golden))
        args, kwargs = _arguments(step, golden)
        return _compared.called(step, args, kwargs, list(golden.written))

    for number, golden in enumerate(contents.goldens):
        for way, kind in (("interpreter", InterpretedStep), ("compiled", ExportedStep)):
            run = partial(called, kind)
            yield _row(number, way, golden, list(golden.written), run)


def _row(
    number: int, way: str, golden: Golden, written: list[str], run: Callable[[Golden], list[Any]]
) -> Row:
    """A recorded call, run in one way. `written`: the names behind the results of `run`."""
    call = f"call {number}" + (f" ({_sizes(golden.dims)})" if golden.dims else "")
    try:
        return Row(call, way, *_difference(golden, run(golden), written))
    except Exception as error:  # whatever it is: the file does not do what it did
        return Row(call, way, float("inf"), f"raises {type(error).__name__}: {error}")


def _arguments(
    program: ExportedProgram | ExportedStep, golden: Golden
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    numbered = iter(range(len(program.signature.specs())))

    def leaf(spec: Any) -> Any:
        number = next(numbered)
        if "number" in spec:
            return golden.numbers.get(spec["number"], spec["value"])
        return spec["value"] if "value" in spec else from_array(golden.inputs[number].copy())

    args, kwargs = containers.build(program.signature.arguments, leaf)
    return args, kwargs


def _takes(native: NativeProgram | None, dims: Mapping[str, int]) -> bool:
    """Whether sizes are within those that the code was made for."""
    return native is not None and all(
        size.least <= dims.get(size.name, size.least) <= size.most for size in native.model.sizes
    )


def _run(native: NativeProgram, program: ExportedProgram, golden: Golden) -> list[Any]:
    args, kwargs = _arguments(program, golden)
    return _leaves(program.variant_at(golden.dims), native(*args, **kwargs))


def _called(program: ExportedProgram, golden: Golden) -> list[Any]:
    args, kwargs = _arguments(program, golden)
    contents = program.contents
    # from the state that was recorded, which a call may change
    state = {name: from_array(a.copy()) for name, a in contents.weights.arrays.items()}
    result = program._run(state, args, kwargs)
    variant = program.variant_at(golden.dims)
    written = [state[name] for name in written_names(contents, variant)]
    return [*_leaves(variant, result), *map(_plain, written)]


def _leaves(variant: Variant, result: Any) -> list[Any]:
    spec = variant.signature.results
    return [_plain(value) for _, value, _ in containers.match(spec, result, "the result")]


def _plain(value: Any) -> Any:
    return np.asarray(on_host(value._graphc_array)) if isinstance(value, Tensor) else value


def _difference(golden: Golden, found: list[Any], names: list[str]) -> tuple[float, str]:
    tolerance = Tolerance(golden.rtol, golden.atol)
    results = len(found) - len(names)
    wanted = [(leaf, f"result {leaf}", array, golden.apart.get(f"out.{leaf}", 0.0))
              for leaf, array in golden.outputs.items()]
    wanted += [(results + names.index(name), name, array, golden.apart.get(f"write.{name}", 0.0))
               for name, array in golden.written.items() if name in names]
    most = 0.0
    for place, name, array, apart in wanted:
        if not 0 <= place < len(found):
            return float("inf"), f"has {results} results, and no {name}"
        difference = closeness.first_difference([found[place]], [array], tolerance, [apart])
        if difference is not None:
            return float("inf"), f"{name} {difference[1]}"
        most = max(most, closeness.share(found[place], array, tolerance, apart))
    return most, ""


def _sizes(dims: Any) -> str:
    return ", ".join(f"{name} = {size}" for name, size in dims.items())
