"""summary(): what tensors look like, cheaply, and with nothing left behind."""

import math
import time

import numpy as np
import pytest

import graphc as torch
import graphc.nn as nn
from graphc.inspect.tensors import SAMPLE
from tests.inspect.pages import Page


def test_a_tensor() -> None:
    x = torch.tensor([[1.0, -2.0], [4.5, 0.5]], requires_grad=True)
    (found,) = torch.summary(x)
    assert (found.shape, found.dtype, found.device, found.bytes) == ((2, 2), "float32", "cpu", 16)
    assert (found.least, found.most, found.mean, found.wrong) == (-2.0, 4.5, 1.0, 0)
    assert str(torch.summary(x)) == (
        "float32[2, 2] on cpu, 16 B, requires_grad; -2 to 4.5, mean 1; [1, -2, 4.5, 0.5]"
    )


@pytest.mark.parametrize(
    ("values", "dtype", "said"),
    [
        ([1, 2, 3, 4, 5, 6, 7, 8], "int64", "[1, 2, 3, …, 6, 7, 8]"),
        ([True, False, True], "bool", "[True, False, True]"),
        ([1 + 2j, 3], "complex64", "[1+2j, 3+0j]"),
        ([0.5, 2], "bfloat16", "[0.5, 2]"),
        (7.0, "float16", "[7]"),
        ([], "float32", "no elements"),
    ],
)
def test_values_of_every_kind(values: object, dtype: str, said: str) -> None:
    (found,) = torch.summary(torch.tensor(values, dtype=getattr(torch, dtype)))
    assert found.values == said and found.dtype == dtype


def test_what_is_not_finite_is_counted_and_left_out() -> None:
    (found,) = torch.summary(torch.tensor([math.nan, 1.0, math.inf, 3.0, -math.inf]))
    assert (found.least, found.most, found.mean, found.wrong) == (1.0, 3.0, 2.0, 3)
    (found,) = torch.summary(torch.full((3,), math.nan))
    assert found.least is None and found.wrong == 3
    (found,) = torch.summary(torch.full((4,), 1.5e308, dtype=torch.float64))
    assert found.mean == pytest.approx(1.5e308)


def test_a_large_tensor_is_looked_at_in_places() -> None:
    x = torch.from_numpy(np.broadcast_to(np.float32(2.0), (100_000, 100_000)))  # 40 GB, if read
    started = time.perf_counter()
    (found,) = torch.summary(x)
    assert time.perf_counter() - started < 2.0
    assert found.sampled and SAMPLE // 4 <= found.looked_at <= SAMPLE and found.mean == 2.0
    assert "of 10,000,000,000 elements, evenly spaced" in str(found)


def test_a_transposed_view_is_read_as_it_lies() -> None:
    x = torch.arange(6.0).reshape(2, 3).t()[1:]
    (found,) = torch.summary(x)
    assert found.values == "[1, 4, 2, 5]" and (found.least, found.most) == (1.0, 5.0)


def test_many_have_names() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    names = [each.name for each in torch.summary(model)]
    assert names[:3] == ["0.weight", "0.bias", "1.weight"] and "1.running_mean" in names
    nested = torch.summary({"a": [torch.ones(2), (torch.zeros(1),)], "b<i>": torch.ones(3), "c": 1})
    assert [each.name for each in nested] == ["a.0", "a.1.0", "b<i>"]
    shown = nested._repr_html_()
    assert "b&lt;i&gt;" in shown and "3 tensors" in Page(shown).text


def test_of_a_sparse_tensor_what_is_stored() -> None:
    dense = torch.tensor([[0.0, 3.0, 0.0], [-1.0, 0.0, 0.0]])
    for kind in ("coo", "csr", "csc"):
        sparse = getattr(dense, "to_sparse" if kind == "coo" else f"to_sparse_{kind}")()
        (found,) = torch.summary([sparse])
        assert (found.shape, found.dtype) == ((2, 3), f"float32 sparse_{kind}")
        assert (found.stored, found.least, found.most, found.mean) == (2, -1.0, 3.0, 1.0)
        assert not found.sampled and found.values.startswith("2 stored: [")
        assert found.bytes > 8


def test_meta_and_wrong_arguments() -> None:
    (found,) = torch.summary(torch.empty(3, 4, device="meta"))
    assert found.device == "meta" and found.least is None and found.bytes == 48
    with pytest.raises(TypeError, match="got int"):
        torch.summary(3)
    assert repr(torch.summary([])) == "no tensors"


def test_a_notebook_shows_a_tensor_as_text() -> None:
    """As with torch: what is a number in a cell stays one."""
    assert not any(hasattr(torch.Tensor, f"_repr_{kind}_") for kind in ("html", "svg", "png"))
