"""What torch.library's operators do with tensors of the device meta: their fake kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("beside_meta")


def by_decorator(t: Any) -> Any:
    def doubled(x: t.Tensor) -> t.Tensor:
        return t.from_numpy(x.detach().numpy() * np.float32(2))

    doubled.__annotations__ = {"x": t.Tensor, "return": t.Tensor}
    op = t.library.custom_op("fakes::doubled", mutates_args=())(doubled)
    op.register_fake(lambda x: t.empty_like(x))
    return op


def by_functions(t: Any) -> Any:
    t.library.define("fakes::halved", "(Tensor x) -> Tensor")
    t.library.impl("fakes::halved", "cpu")(lambda x: t.from_numpy(x.numpy() / np.float32(2)))
    t.library.register_fake("fakes::halved")(lambda x: t.empty_like(x))
    return t.ops.fakes.halved


def by_library(t: Any) -> Any:
    library = t.library.Library("fakes_of_library", "DEF")
    library.define("sums(Tensor[] xs) -> Tensor")
    library.impl("sums", lambda xs: t.from_numpy(sum(x.numpy() for x in xs)), "CPU")
    library.impl("sums", lambda xs: t.empty_like(xs[0]), "Meta")
    kept.append(library)
    return lambda x: t.ops.fakes_of_library.sums([x, x])


kept: list[Any] = []


@pytest.mark.parametrize("make", [by_decorator, by_functions, by_library])
def test_as_torch(make: Any) -> None:
    found = []
    for t in (graphc, torch):
        op = make(t)
        call = graphc.compile(op) if t is graphc else op
        shape = op(t.empty(2, 3, device="meta"))
        assert shape.device.type == "meta" and tuple(shape.shape) == (2, 3)
        found.append([op(t.ones(3)).numpy(), *[call(t.arange(3.0)).numpy() for _ in range(3)]])
    for ours, its in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, its)
