"""dynamic=True on functions that run in segments: values, and no version per size."""

from collections.abc import Callable
from typing import Any

import pytest

import graphc
from tests.graphc import tiers

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "masked_select": lambda x: x.masked_select(x > 0.5) * 2,
    "mode": lambda x: graphc.mode(x)[0] + x,
    "bool": lambda x: x * 2 if x.sum() > 1 else x - 1,
    "item": lambda x: x * max(x.max().item(), -1.0) + x.shape[0],
    "list": lambda x: graphc.cat([x, graphc.tensor(x.tolist())]).sum(),
}


@pytest.mark.parametrize("mode", tiers.MODES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_size(name: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tiers.use(mode, monkeypatch)
    run = graphc.compile(FUNCTIONS[name], dynamic=True)
    for size in (3, 5, 6, 7):
        x = graphc.rand(size)
        graphc.testing.assert_close(run(x), FUNCTIONS[name](x))
    assert run.segments is not None and run.segments.compile_count <= 6
