"""What torch refuses, warns of, and does among NaNs, in single calls."""

from __future__ import annotations

import io
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import graphc
from graphc.frontend import errors

NAN = float("nan")


@pytest.mark.parametrize("value", [-1.5, -0.5, -1.0, 255.5])
@pytest.mark.parametrize("call", [
    lambda t, v: t.zeros(2, dtype=t.uint8).fill_(v),
    lambda t, v: t.full((2,), v, dtype=t.uint8),
    lambda t, v: t.zeros(2, dtype=t.uint8).new_full((), v),
    lambda t, v: t.zeros(2, dtype=t.uint8).masked_fill(t.tensor([True, False]), v),
    lambda t, v: t.zeros(2, dtype=t.uint8).__setitem__(0, v),
])
def test_floats_do_not_wrap_into_bytes(call: Callable[[Any, Any], Any], value: float) -> None:
    for t in (graphc, torch):
        with pytest.raises(RuntimeError, match="uint8_t without overflow"):
            call(t, value)
        assert t.full((2,), -1, dtype=t.uint8).tolist() == [255, 255]
        assert t.full((2,), 1.9, dtype=t.uint8).tolist() == [1, 1]


@pytest.mark.parametrize("name", ["amax", "amin", "max", "min"])
@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_of_extrema_among_nans(name: str, compiled: bool) -> None:
    """amax() has none but NaN, max() shares it among the NaNs."""
    def run(t: Any, values: Any, compiled: bool = False) -> Any:
        x = t.tensor(values, requires_grad=True)

        def call(x: Any) -> Any:
            return getattr(x, name)() * 2

        (graphc.compile(call) if compiled else call)(x).backward()
        return x.grad.numpy()

    for values in ([[1.0, NAN], [NAN, 3.0]], [[1.0, 3.0], [3.0, 1.0]], 2.0):
        np.testing.assert_array_equal(run(graphc, values, compiled), run(torch, values))


@pytest.mark.parametrize("size", [1, 2, 3, (2, 3), (6, 5), (4, 3), (5, 4)])
def test_adaptive_max_pools_take_the_last_nan(size: Any) -> None:
    values = np.arange(60.0).reshape(2, 1, 6, 5)
    values[0, 0, 1, 1] = values[0, 0, 1, 2] = values[0, 0, 4, 3] = NAN
    values[1] = 7.0  # ties go to the first
    ours, wanted = (
        t.nn.functional.adaptive_max_pool2d(t.tensor(values), size, return_indices=True)
        for t in (graphc, torch)
    )
    for mine, its in zip(ours, wanted, strict=True):
        np.testing.assert_array_equal(mine.numpy(), its.numpy())
    flat = values.reshape(2, 30)
    for outputs in (1, 4, 7):
        ours, wanted = (
            t.nn.functional.adaptive_max_pool1d(t.tensor(flat), outputs, return_indices=True)
            for t in (graphc, torch)
        )
        np.testing.assert_array_equal(ours[1].numpy(), wanted[1].numpy())


def test_take_along_dim_wants_as_many_dims() -> None:
    for t in (graphc, torch):
        with pytest.raises(RuntimeError, match="2 dimensions for input, and 1 dimensions"):
            t.take_along_dim(t.zeros(2, 3), t.tensor([0, 1]), 1)
    with pytest.raises(IndexError, match="out of bounds"):
        graphc.take_along_dim(graphc.zeros(2, 3), graphc.tensor([[0, 3]]), 1)


def warned(call: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    for each in caught:
        assert each.category is UserWarning and each.filename == __file__
    return [str(each.message).split(" (Triggered")[0] for each in caught]


@pytest.mark.parametrize("call", [
    lambda t: t.tensor(t.arange(2)), lambda t: t.zeros(2).new_tensor(t.arange(2)),
    lambda t: t.tensor([t.tensor(1.0), t.tensor(2.0)]), lambda t: t.as_tensor(t.arange(2)),
    lambda t: t.zeros(2, 3).T, lambda t: t.zeros(2, 3, 4).mT, lambda t: t.range(0, 3),
    lambda t: t.arange(3)[t.tensor([1, 0, 1], dtype=t.uint8)],
    *[lambda t, make=make: make(t, t.zeros(3)) for make in (
        lambda t, out: t.add(t.ones(2), 1, out=out), lambda t, out: t.sum(t.ones(2, 2), 0, out=out),
        lambda t, out: t.cat([t.ones(2)], out=out), lambda t, out: t.ones(2, out=out),
        lambda t, out: t.eye(2, out=out), lambda t, out: t.exp(t.ones(2), out=t.zeros(0)),
    )],
])
def test_warns_as_torch_does(call: Callable[[Any], Any]) -> None:
    assert warned(lambda: call(graphc)) == warned(lambda: call(torch))


@pytest.mark.parametrize("call, text", [
    (lambda t: t.zeros(2, 3, 4).T, "tensors of dimension other than 2"),
    (lambda t: t.arange(3).T, "tensors of dimension other than 2"),
    (lambda t: t.tensor(1.0).T, "Tensor.T is deprecated on 0-D tensors"),
    (lambda t: t.meshgrid(t.arange(2), t.arange(3)), "required to pass the indexing argument"),
    (lambda t: float(t.ones(1, requires_grad=True)), "Converting a tensor with requires_grad=True"),
    (lambda t: t.where(t.ones(2, dtype=t.uint8), 1.0, 2.0), "received a uint8 condition"),
])
def test_warns_once(
    call: Callable[[Any], Any], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch has warned before, or has not: its own flag cannot be reset."""
    monkeypatch.setattr(errors, "_said", set())
    (message,) = warned(lambda: call(graphc))
    assert text in message
    assert warned(lambda: call(graphc)) == []


def test_integers_and_numbers_without_history_do_not_warn(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in torch: float() alone warns, and in grad mode alone; LBFGS is outside of it."""
    monkeypatch.setattr(errors, "_said", set())
    x = graphc.ones(1, requires_grad=True)
    optimizer = graphc.optim.LBFGS([x])

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (x * x).sum()
        loss.backward()
        return loss

    def calls() -> None:
        assert int(x) == 1 and x.item() == 1
        with graphc.no_grad():
            assert float(x) == 1
        optimizer.step(closure)

    assert warned(calls) == []


@pytest.mark.parametrize("dtype", ["int8", "int64", "bool"])
@pytest.mark.parametrize("call", [
    lambda x: x.bernoulli(), lambda x: x.uniform_(), lambda x: x.log_normal_(),
    lambda x: x.histogram(3), lambda x: x.bool().geometric_(0.5),
])
def test_a_dtype_that_is_not_implemented(call: Callable[[Any], Any], dtype: str) -> None:
    for t in (torch, graphc):
        with pytest.raises(NotImplementedError, match="not implemented for"):
            call(t.tensor([[2, 1], [1, 3]]).to(getattr(t, dtype)))


def test_sgn_in_place_of_complex_numbers() -> None:
    for t in (torch, graphc):
        x = t.tensor([3 + 4j, 0, -2])
        assert x.sgn_() is x
        np.testing.assert_allclose(x.numpy(), [0.6 + 0.8j, 0, -1], rtol=1e-6)


@pytest.mark.parametrize("rank", [1, 3])
def test_h_is_of_matrices(rank: int) -> None:
    for t in (torch, graphc):
        with pytest.raises(RuntimeError, match=f"Got {rank}-D tensor"):
            _ = t.zeros([2] * rank).H
    assert graphc.tensor(1 + 2j).H.item() == 1 - 2j
    assert graphc.zeros(2, 3).H.shape == (3, 2)


def test_padding_by_an_unknown_name() -> None:
    for t in (torch, graphc):
        with pytest.raises(RuntimeError, match="Invalid padding string"):
            t.nn.functional.conv1d(t.zeros(1, 1, 5), t.zeros(1, 1, 3), padding="full")


def test_products_of_turned_batches_are_row_major() -> None:
    for t in (torch, graphc):
        x = t.zeros(4, 3, 5, 2).permute(3, 2, 1, 0)
        assert (x @ x.transpose(-1, -2)).stride() == (45, 9, 3, 1)
        assert (x @ t.zeros(2, 5, 4, 3)).stride() == (45, 9, 3, 1)
        whole = x.to(t.int64)
        assert (whole @ whole.transpose(-1, -2)).stride() == (45, 9, 3, 1)


@pytest.mark.parametrize("call, word", [
    (lambda t: t.nn.MSELoss(size_average=False), "sum"),
    (lambda t: t.nn.functional.l1_loss(t.ones(2), t.ones(2), reduce=False), "none"),
    (lambda t: t.nn.functional.cross_entropy(t.ones(1, 2), t.tensor([1]), None, True), "mean"),
])
def test_older_words_for_a_reduction(call: Callable[[Any], Any], word: str) -> None:
    (ours,) = warned(lambda: call(graphc))  # torch's name its own file's line
    assert ours.endswith(f"please use reduction='{word}' instead.")
    with pytest.warns(UserWarning, match="will be deprecated") as found:
        call(torch)
    assert [str(each.message) for each in found] == [ours]


def test_bools_to_the_power_of_a_bool() -> None:
    for exponent in (True, False, 0, 1, 2):
        ours, wanted = (t.tensor([True, False]) ** exponent for t in (graphc, torch))
        assert str(ours.dtype) == str(wanted.dtype) and ours.tolist() == wanted.tolist()
    x = graphc.tensor([True, False])
    assert x.pow_(False).tolist() == [True, True]


def test_several_dims_in_a_row() -> None:
    for t in (torch, graphc):
        assert t.zeros(1, 1, 3).squeeze(0, 1).shape == (3,)
        assert t.zeros(1, 1, 3).squeeze_(0, 1).shape == (3,)
        assert t.ones(2, 3).count_nonzero(0, 1).item() == 6


@pytest.mark.parametrize("call", [
    lambda t, x: x.dot(3), lambda t, x: x.allclose(1), lambda t, x: x.isclose(1.0),
    lambda t, x: x.outer(1), lambda t, x: x.dist(1), lambda t, x: x.cross(3), lambda t, x: x.mv(1),
    lambda t, x: x.addcmul(1, 2), lambda t, x: x.addmm(1, 2), lambda t, x: x.bmm(3),
    lambda t, x: x.index_select(0, 1), lambda t, x: x.masked_select(1), lambda t, x: x.view_as(1),
    lambda t, x: t.logical_not(1), lambda t, x: t.isin(1, 2), lambda t, x: t.meshgrid(1, 2),
    lambda t, x: t.dot(x, 3), lambda t, x: t.where(1, x, x), lambda t, x: x.std(0, 1),
])
def test_a_number_in_the_place_of_a_tensor(call: Callable[[Any, Any], Any]) -> None:
    for t in (torch, graphc):
        with pytest.raises(TypeError):
            call(t, t.ones(2))


def test_a_method_counts_from_its_first_argument() -> None:
    with pytest.raises(TypeError, match=r"dot\(\): argument '\w+' \(position 1\) must be Tensor"):
        graphc.ones(2).dot(3)
    with pytest.raises(TypeError, match=r"dot\(\): argument '\w+' \(position 2\) must be Tensor"):
        graphc.dot(graphc.ones(2), 3)


def test_complex_numbers_as_real_ones() -> None:
    for t in (torch, graphc):
        assert float(t.tensor(2 + 0j)) == 2.0 and int(t.tensor(2 + 0j)) == 2
        for kind, name in ((float, "double"), (int, "int64_t")):
            with pytest.raises(RuntimeError, match=f"type {name} without overflow"):
                kind(t.tensor(1 + 2j))


@pytest.mark.parametrize("data, kind", [
    (b"", EOFError), (b"garbage", pickle.UnpicklingError), (b"PK\3\4garbage", RuntimeError),
])
def test_load_of_what_is_no_file_of_save(data: bytes, kind: type[Exception]) -> None:
    for t in (torch, graphc):
        with pytest.raises(kind):
            t.load(io.BytesIO(data))


@pytest.mark.parametrize("name", ["sort", "topk", "cummax"])
def test_gradients_of_selections_have_no_history_of_their_own(name: str) -> None:
    """The places where they look are no function of x."""
    for t in (torch, graphc):
        x = t.tensor([3.0, 1.0, 2.0], requires_grad=True)
        y = x.sort()[0] if name == "sort" else x.topk(2)[0] if name == "topk" else x.cummax(0)[0]
        (plain,) = t.autograd.grad(y.sum(), x, create_graph=True)
        assert not plain.requires_grad
        y = x.sort()[0] if name == "sort" else x.topk(2)[0] if name == "topk" else x.cummax(0)[0]
        (twice,) = t.autograd.grad((y * y).sum(), x, create_graph=True)
        assert twice.requires_grad


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("call", [
    lambda t, x, n: x * n,
    lambda t, x, n: n * x,
    lambda t, x, n: x / n,
    lambda t, x, n: x // n,
    lambda t, x, n: t.div(x, n, rounding_mode="trunc"),
    lambda t, x, n: x.clone().mul_(n),
    lambda t, x, n: x.clone().div_(n),
    lambda t, x, n: x + n,
    lambda t, x, n: x - n,
])
def test_what_has_no_dims_is_not_rounded_to_half_precision(
    call: Callable[[Any, Any, Any], Any], dtype: str
) -> None:
    numbers = np.linspace(0.01, 30, 501)
    for number in (3.14159265, 0.333333, 3e5):
        for wide in ("float32", "float64"):
            found = [
                call(
                    t, t.tensor(numbers).to(getattr(t, dtype)),
                    t.tensor(number, dtype=getattr(t, wide)),
                ).double().numpy()
                for t in (torch, graphc)
            ]
            np.testing.assert_array_equal(found[1], found[0])
