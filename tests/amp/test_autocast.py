"""autocast against PyTorch's: which functions it casts, its state, and a training run."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
import graphc.nn.functional as F

torch = pytest.importorskip("torch")

X = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
CLASSES = np.array([0, 1, 2, 3])
Call = Callable[[Any, Any], Any]

CALLS: dict[str, Call] = {
    "mm": lambda t, a: t.mm(a, a), "matmul": lambda t, a: a @ a, "vector": lambda t, a: a @ a[0],
    "addmm": lambda t, a: t.addmm(a, a, a), "bmm": lambda t, a: t.bmm(a[None], a[None]),
    "baddbmm": lambda t, a: t.baddbmm(a[None], a[None], a[None]),
    "einsum": lambda t, a: t.einsum("ij,jk->ik", a, a),
    "tensordot": lambda t, a: t.tensordot(a, a, 1),
    "linear": lambda t, a: t.nn.functional.linear(a, a, a[0]),
    "conv2d": lambda t, a: t.nn.functional.conv2d(a[None, None], a[None, None, :2, :2]),
    "conv1d": lambda t, a: t.nn.functional.conv1d(a[None], a[:, :, None]),
    "conv_transpose2d": lambda t, a: t.nn.functional.conv_transpose2d(
        a[None, None], a[None, None, :2, :2]),
    "attention": lambda t, a: t.nn.functional.scaled_dot_product_attention(
        a[None], a[None], a[None]),
    "softmax": lambda t, a: a.softmax(0), "exp": lambda t, a: a.exp(), "sum": lambda t, a: a.sum(),
    "layer_norm": lambda t, a: t.nn.functional.layer_norm(a, (4,)),
    "prod": lambda t, a: a.prod(), "trace": lambda t, a: t.trace(a),
    "cat": lambda t, a: t.cat([a, a.float()]), "add": lambda t, a: a + a.float(),
    "mse_loss": lambda t, a: t.nn.functional.mse_loss(a, a * 2),
    "l1_loss": lambda t, a: t.nn.functional.l1_loss(a, a * 2),
    "cross_entropy": lambda t, a: t.nn.functional.cross_entropy(a, t.from_numpy(CLASSES)),
    "nll_loss": lambda t, a: t.nn.functional.nll_loss(a, t.from_numpy(CLASSES)),
    "bce_with_logits": lambda t, a: t.nn.functional.binary_cross_entropy_with_logits(a, a),
    "smooth_l1": lambda t, a: t.nn.functional.smooth_l1_loss(a, a * 2),
    "kl_div": lambda t, a: t.nn.functional.kl_div(a, a.abs(), reduction="batchmean"),
    "huber": lambda t, a: t.nn.functional.huber_loss(a, a * 2),
    "max_pool2d": lambda t, a: t.nn.functional.max_pool2d(a[None], 2),
    "avg_pool3d": lambda t, a: t.nn.functional.avg_pool3d(
        a[None, None].expand(1, 4, 4, 4), 2),
    **{f"{mode} {count}": lambda t, a, mode=mode, count=count: t.nn.functional.pad(
        a.reshape(1, 4, *(4, 2, 2)[:count - 1], -1), (1, 0) * count, mode)
       for mode in ("reflect", "replicate", "circular") for count in (1, 2, 3)},
    "fractional_max_pool2d": lambda t, a: t.nn.functional.fractional_max_pool2d(
        a[None], 2, output_size=2, _random_samples=t.full((1, 1, 2), 0.25)),
    "fractional_max_pool3d": lambda t, a: t.nn.functional.fractional_max_pool3d(
        a[None, None].expand(1, 4, 4, 4), 2, output_size=2,
        _random_samples=t.full((1, 1, 3), 0.25)),
    "relu": lambda t, a: a.relu(), "gelu": lambda t, a: t.nn.functional.gelu(a),
    "mm with out": lambda t, a: t.mm(a, a, out=t.empty_like(a)),
    "addmm_": lambda t, a: a.clone().addmm_(a, a), "exp_": lambda t, a: a.clone().exp_(),
    "chain_matmul": lambda t, a: t.linalg.multi_dot([a, a, a]),
    "outer": lambda t, a: a[0].outer(a[0]),
    "cov": lambda t, a: a.cov(), "inner": lambda t, a: t.inner(a, a[0]),
    "matrix_power": lambda t, a: a.matrix_power(3), "inv": lambda t, a: t.linalg.inv(a),
    "qr": lambda t, a: t.linalg.qr(a)[1].abs(), "rfft": lambda t, a: t.fft.rfft(a).real,
    "quantile": lambda t, a: a.quantile(0.5),
    "indices": lambda t, a: t.from_numpy(CLASSES) @ t.from_numpy(CLASSES),
}


@pytest.mark.parametrize("name", list(CALLS))
@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float64"])
def test_results_as_in_torch(name: str, kind: str) -> None:
    results = []
    for t in (torch, graphc):
        a = t.from_numpy(X).to(getattr(t, kind))
        with t.autocast("cpu", dtype=t.bfloat16):
            try:
                results.append(CALLS[name](t, a))
            except (RuntimeError, NotImplementedError):
                results.append(None)
    want, have = results
    if want is None:
        return  # torch has no such mix of dtypes
    assert str(have.dtype) == str(want.dtype)
    room = 2e-2 if want.dtype == torch.bfloat16 or kind == "bfloat16" else 1e-5
    np.testing.assert_allclose(
        have.double().numpy(), want.double().numpy(), rtol=room, atol=room
    )


@pytest.mark.parametrize("kind,settings", [
    ("LSTM", {}), ("LSTM", {"num_layers": 2, "bidirectional": True}), ("LSTM", {"proj_size": 2}),
    ("LSTM", {"bias": False, "batch_first": True}), ("GRU", {}), ("RNN", {}), ("LSTMCell", {}),
])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("packed", [False, True])
def test_recurrent_layers_as_in_torch(
    kind: str, settings: dict[str, Any], dtype: str, packed: bool
) -> None:
    results = []
    for t in (torch, graphc):
        layer = getattr(t.nn, kind)(4, 3, **settings).to(getattr(t, dtype))
        for k, weight in enumerate(layer.parameters()):
            weight.data = t.linspace(-1, 1, weight.numel(), dtype=weight.dtype).reshape(
                weight.shape) * (0.3 + 0.1 * k)
        x = t.from_numpy(X).to(getattr(t, dtype)).requires_grad_()
        rows = x if kind == "LSTMCell" else x[:, None]
        if packed and kind != "LSTMCell":
            rows = t.nn.utils.rnn.pack_sequence([x, x[:2]])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, of projections
            with t.autocast("cpu", dtype=t.bfloat16):
                try:
                    found = layer(rows)
                except RuntimeError as error:
                    if t is torch and "primitive descriptor" in str(error):
                        pytest.skip("PyTorch has no such layer of bfloat16 on this CPU")
                    raise
            out, rest = (found[0].data if packed and kind != "LSTMCell" else found[0]), found[1]
            out.double().square().sum().backward()
        parts = [out, *(rest if isinstance(rest, tuple) else [rest]), x.grad,
                 *(weight.grad for weight in layer.parameters())]
        results.append([(str(part.dtype)[-8:], part.detach().double().numpy()) for part in parts])
    want, have = results
    assert [dtype for dtype, _ in have] == [dtype for dtype, _ in want]
    for (_, a), (_, b) in zip(want, have, strict=True):
        np.testing.assert_allclose(b, a, rtol=5e-2, atol=3e-2)


def test_nesting_and_flags() -> None:
    for t in (torch, graphc):
        a = t.ones(2, 2)
        with t.autocast(device_type="cpu", dtype=t.float16):
            assert t.is_autocast_enabled("cpu") and t.get_autocast_dtype("cpu") == t.float16
            assert (a @ a).dtype == t.float16
            with t.amp.autocast("cpu", enabled=False):
                assert not t.is_autocast_enabled("cpu")
                assert (a @ a).dtype == t.float32
                with t.autocast("cpu"):
                    assert (a @ a).dtype == t.float16  # the dtype in force outside
            assert (a @ a).dtype == t.float16
        assert not t.is_autocast_enabled("cpu") and t.get_autocast_dtype("cpu") == t.bfloat16

        @t.autocast("cpu")
        def step(x: Any) -> Any:
            return x @ x

        assert step(a).dtype == t.bfloat16
        assert t.get_autocast_dtype("cuda") == t.float16 and not t.is_autocast_enabled()
        assert t.amp.is_autocast_available("cpu")


@pytest.mark.parametrize("make", [
    lambda t: t.autocast("cuda"), lambda t: t.cuda.amp.autocast(), lambda t: t.amp.GradScaler(),
    lambda t: t.cuda.amp.GradScaler(), lambda t: t.autocast("cpu", dtype=t.float64),
    lambda t: t.cpu.amp.autocast(),
])
def test_warnings_as_in_torch(make: Callable[[Any], Any]) -> None:
    if torch.cuda.is_available():
        pytest.skip("the reference has a GPU")
    told = []
    for t in (torch, graphc):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            made = make(t)
        told.append((
            sorted((w.category.__name__, str(w.message)) for w in caught), made._enabled
        ))
    assert told[0] == told[1]


def test_wrong_devices() -> None:
    with pytest.raises(RuntimeError, match="device type at start of device string: foo"):
        graphc.autocast("foo")
    with pytest.raises(ValueError, match="device_type"):
        graphc.autocast(3)  # type: ignore[arg-type]


def _train(t: Any, compiled: bool, kind: str) -> list[float]:
    t.manual_seed(0)
    model = t.nn.Sequential(t.nn.Linear(8, 32), t.nn.ReLU(), t.nn.Linear(32, 3))
    optimizer = t.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    data, target = t.randn(64, 8), t.randint(0, 3, (64,))

    def step() -> Any:
        optimizer.zero_grad()
        with t.autocast("cpu", dtype=getattr(t, kind)):
            loss = t.nn.functional.cross_entropy(model(data), target)
        loss.backward()
        optimizer.step()
        return loss

    run = graphc.compile(step) if compiled else step
    return [float(run().detach()) for _ in range(20)]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_a_training_run(compiled: bool, kind: str) -> None:
    want, have = _train(torch, False, kind), _train(graphc, compiled, kind)
    assert want[-1] < want[0] * 0.9
    np.testing.assert_allclose(have, want, rtol=5e-3)


def test_compiled_functions_guard_the_state() -> None:
    compiled = graphc.compile(lambda x: x @ x)
    x = graphc.ones(3, 3)
    assert compiled(x).dtype == graphc.float32
    with graphc.autocast("cpu"):
        assert compiled(x).dtype == graphc.bfloat16
    assert compiled(x).dtype == graphc.float32


def test_gradients_have_the_parameters_dtype() -> None:
    w = graphc.ones(3, 3, requires_grad=True)
    with graphc.autocast("cpu"):
        F.linear(graphc.ones(2, 3), w).sum().backward()
    assert w.grad is not None and w.grad.dtype == graphc.float32


def test_custom_functions() -> None:
    told = []
    for t in (torch, graphc):
        seen: list[Any] = []

        class Scaled(t.autograd.Function):
            @staticmethod
            @t.amp.custom_fwd(device_type="cpu", cast_inputs=t.float32)
            def forward(ctx: Any, x: Any) -> Any:
                seen.append((str(x.dtype), t.is_autocast_enabled("cpu")))  # noqa: B023
                return x * 2

            @staticmethod
            @t.amp.custom_bwd(device_type="cpu")
            def backward(ctx: Any, g: Any) -> Any:
                seen.append((str(g.dtype), t.is_autocast_enabled("cpu")))  # noqa: B023
                return g * 2

        x = t.ones(2, dtype=t.bfloat16, requires_grad=True)
        with t.autocast("cpu"):
            Scaled.apply(x).sum().backward()
        told.append((seen, str(x.grad.dtype), x.grad.float().tolist()))
    assert told[0] == told[1]


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_numbers_are_not_rounded_to_half_precision(kind: str) -> None:
    values = np.random.default_rng(1).normal(size=500).astype(np.float32)
    theirs, ours = (t.from_numpy(values).to(getattr(t, kind)) for t in (torch, graphc))
    for function in (lambda a: a * 0.1, lambda a: 0.1 * a, lambda a: a / 0.7):
        want = function(theirs).float().tolist()
        assert function(ours).float().tolist() == want
        assert graphc.compile(function)(ours).float().tolist() == want
