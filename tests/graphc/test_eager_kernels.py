"""Eager mode on many numbers runs compiled code: what it gives is what NumPy gives on few."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as torch
from graphc.engine import eager_forms, eager_kernels, eager_mode
from graphc.frontend import eager, replayed

F = torch.nn.functional


@pytest.fixture
def low(monkeypatch):
    """Compiled code from a hundred elements on, and none known yet; gives a way back to NumPy."""
    monkeypatch.setattr(eager_forms, "LARGE", 100)
    monkeypatch.setattr(eager_mode, "LARGE", 100)

    def forget(wanted=True):
        eager._signatures.clear()
        replayed._known.clear()
        if not wanted:
            monkeypatch.setattr(eager_mode, "_wanted", lambda *_: False)

    forget()
    yield forget
    eager._signatures.clear()
    replayed._known.clear()


CASES = {
    "gelu": (F.gelu, (20, 30)), "relu": (F.relu, (4, 5, 30)), "sigmoid": (torch.sigmoid, (601,)),
    "softmax": (lambda x: F.softmax(x, 1), (5, 7, 30)),
    "rows": (lambda x: F.softmax(x, -1), (9, 30)),
    "log_softmax": (lambda x: F.log_softmax(x, 0), (20, 30)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (30,), w, b), (20, 30), (30,), (30,)),
    "batch_norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
                   (4, 6, 3, 5), (6,), (6,)),
    "cross_entropy": (lambda x: F.cross_entropy(x, torch.arange(20) % 7, label_smoothing=0.1),
                      (20, 7)),
    "ignored": (lambda x: F.cross_entropy(x, torch.arange(20) % 7, ignore_index=3), (20, 7)),
    "sum": (torch.sum, (20, 30)), "middle": (lambda x: x.sum(1), (5, 6, 7)),
    "kept": (lambda x: x.sum(-1, keepdim=True), (20, 30)), "amax": (lambda x: x.amax(0), (20, 30)),
    "mean": (lambda x: x.mean(0), (20, 30)), "var": (lambda x: x.var(1), (20, 30)),
    "max_pool": (lambda x: F.max_pool2d(x, 3, 2, 1), (2, 3, 9, 10)),
    "column": (lambda x, y: x * y, (20, 30), (20, 1)),
    "line": (lambda x, y: x + y, (20, 30), (30,)),
    "channels": (lambda x, y: x / (y.square() + 1), (4, 6, 3, 5), (1, 6, 1, 1)),
    "outer": (lambda x, y: x - y, (20, 1), (1, 30)), "number": (lambda x: 2.0 * x, (20, 30)),
    "where": (lambda x, y: torch.where(x > y, x, y), (20, 30), (20, 30)),
    "clamp": (lambda x: x.clamp(-1, 0.5), (20, 30)), "turned": (lambda x: F.gelu(x.t()), (20, 30)),
}
# each operation rounds by itself, in one order
EXACT = frozenset("relu amax max_pool column line outer number where clamp".split())


def outcome(function, shapes):
    torch.manual_seed(3)
    inputs = [torch.randn(*shape, requires_grad=True) for shape in shapes]
    y = function(*inputs)
    (y * torch.randn(*y.shape)).sum().backward()
    return [y.detach().numpy(), *(x.grad.numpy() for x in inputs)], y.stride()


@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients_are_numpys(name, low):
    function, *shapes = CASES[name]
    before = len(eager_kernels._codes)
    (*found, strides) = outcome(function, shapes)
    again = outcome(function, shapes)
    assert len(eager_kernels._codes) >= before and eager_kernels._codes
    low(wanted=False)
    wanted, wanted_strides = outcome(function, shapes)
    assert strides == wanted_strides
    for a, b, c in zip(found[0], wanted, again[0], strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_array_equal(a, c)  # the same bits each time
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)
    if name in EXACT:
        np.testing.assert_array_equal(found[0][0], wanted[0])


def test_one_code_serves_all_sizes(low):
    F.softmax(torch.randn(11, 12), 1)
    made = len(eager_kernels._codes)
    for rows, columns in ((20, 30), (7, 99), (300, 2), (2, 300)):
        x = torch.randn(rows, columns)
        np.testing.assert_allclose(F.softmax(x, 1).sum(1).numpy(), np.ones(rows), rtol=1e-5)
    assert len(eager_kernels._codes) == made


def test_special_values(low):
    special = [0.0, -0.0, np.nan, np.inf, -np.inf, 1e-45, -1e-40, 3e38]
    x = torch.tensor(special * 20)
    for function in (F.relu, torch.abs, torch.sqrt, lambda x: x.maximum(-x), lambda x: x * 0.5,
                     lambda x: x == x, lambda x: x > 0, lambda x: torch.clamp(x, -1, 1)):
        many, few = function(x).numpy(), function(x[:8]).numpy()
        np.testing.assert_array_equal(many, np.tile(few, 20))
        np.testing.assert_array_equal(np.signbit(many), np.tile(np.signbit(few), 20))
    assert torch.softmax(torch.full((3, 50), float("-inf")), 1).isnan().all()


def test_errors_and_empty_tensors(low):
    logits = torch.randn(20, 7)
    with pytest.raises(IndexError, match="Target 7 is out of bounds"):
        F.cross_entropy(logits, torch.full((20,), 7))
    with pytest.raises(RuntimeError, match="must match"):
        _ = torch.randn(20, 30) + torch.randn(20, 31)
    assert F.softmax(torch.randn(0, 300), 1).shape == (0, 300)
    assert torch.sum(torch.randn(0, 300), 0).tolist() == [0.0] * 300


def test_integers_and_halves_stay_with_numpy(low):
    before = len(eager_kernels._codes)
    _ = torch.arange(600) + torch.arange(600), torch.arange(600).sum()
    assert F.softmax(torch.randn(20, 30).half(), 1).dtype is torch.float16
    assert len(eager_kernels._codes) == before


def test_the_switch(low, monkeypatch):
    from graphc import config

    now = config.current()._replace(eager_kernels="0")
    monkeypatch.setattr(config, "current", lambda: now)
    before = len(eager_kernels._codes)
    outcome(lambda x: torch.cumsum(F.gelu(x, approximate="tanh"), 0), [(23, 41)])
    assert len(eager_kernels._codes) == before


def test_who_watches_sees_the_operators_and_the_same_bits(low):
    from graphc.profiler import profile

    x = torch.randn(20, 30)
    plain = F.gelu(x)
    with profile() as seen:
        watched = F.gelu(x)
    assert torch.equal(plain, watched)
    assert "gelu" in " ".join(event.key for event in seen.key_averages())


def test_writes_in_place_keep_the_memory(low):
    x, y = torch.randn(600), torch.randn(600)
    wanted = x.numpy() + y.numpy()
    place = x.data_ptr()
    for _ in range(2):
        z = x.clone()
        z.add_(y)
    x.add_(y)
    assert x.data_ptr() == place and x._version == 1
    np.testing.assert_array_equal(x.numpy(), wanted)
    np.testing.assert_array_equal(z.numpy(), wanted)


def test_several_python_threads(low):
    from concurrent.futures import ThreadPoolExecutor

    xs = [torch.randn(40, 30 + i) for i in range(8)]
    wanted = [F.log_softmax(x, 1) for x in xs]
    eager._signatures.clear()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda x: F.log_softmax(x, 1), xs * 4))
    assert all(torch.equal(a, b) for a, b in zip(found, wanted * 4, strict=True))
