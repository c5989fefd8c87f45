"""Every kernel of the recorded models, with the numbers that it had there, against what the Kernel
interpreter wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from graphc.backends.cuda.driver import Function
from graphc.backends.cuda.emit import emit
from graphc.backends.cuda.prelude import PRELUDE
from graphc.backends.cuda.source import Source, batch

from .. import bundle, recorded
from ..bed import Bed, difference
from ..launching import Placed
from ..recorded import Recorded
from ..results import Record

_TOGETHER = 32  # kernels of one text


def run(bed: Bed, record: Record) -> None:
    """A line for each wrong kernel, and one for each model."""
    launches = list(_launches(bed))
    right: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    for start in range(0, len(launches), _TOGETHER):
        part = launches[start : start + _TOGETHER]
        sources = {launch.symbol: emit(launch.kernel, bed.target) for _, launch in part}
        names = [stage.name for source in sources.values() for stage in source.stages]
        functions = bed.functions(batch(sources.values()).removeprefix(PRELUDE), *names)
        for model, launch in part:
            fault = _fault(bed, launch, sources[launch.symbol], functions)
            (wrong if fault else right)[model] += 1
            if fault:
                record(launch.symbol, model=model, wrong=fault)
    for model in dict.fromkeys(model for model, _ in launches):
        record(model, right=right[model], wrong=wrong[model])


def _launches(bed: Bed) -> Iterable[tuple[str, Recorded]]:
    """Of the bundle, where there is one; else recorded now."""
    path = bundle.FOLDER / bundle.KERNELS
    if bed.large and path.exists():
        return recorded.load(path)
    found = recorded.record(recorded.MODELS if bed.large else ("bert",))
    return ((model, launch) for model, each in found.items() for launch in each)


def _fault(
    bed: Bed, launch: Recorded, source: Source, functions: Mapping[str, Function]
) -> str:
    """What is wrong of what a kernel writes; "" where nothing is."""
    placed = Placed(bed, launch.kernel, source, functions, launch.before, launch.dims)
    with placed:
        placed.begin()
        found = placed.found()
    return "; ".join(_differences(launch, found))


def _differences(launch: Recorded, found: list[np.ndarray]) -> Iterable[str]:
    most = recorded.tolerance(launch.kernel)
    for param, have, want in zip(launch.kernel.params, found, launch.after, strict=True):
        if param.dtype.is_float:
            finite = np.isfinite(want.astype("f8"))
            off = difference(have[finite], want[finite])
            same = np.array_equal(np.isfinite(have.astype("f8")), finite)
            if off > most or not same:
                yield f"{param.name} ({param.access}) is off by {off:.2g}"
        elif not np.array_equal(have, want):
            yield f"{param.name} ({param.access}) differs at {int((have != want).sum())} places"
