"""nn.parallel on one device, as torch's: DataParallel, scatter, gather, replicate."""

import pytest

pytest.importorskip("torch")

import torch

import graphc

nn = graphc.nn
parallel = graphc.nn.parallel
CPU = ["cpu", "cpu", "cpu"]


def test_data_parallel_is_the_module_under_another_name():
    results = []
    for t in (torch, graphc):
        t.manual_seed(0)
        inner = t.nn.Sequential(t.nn.Linear(3, 4), t.nn.ReLU(), t.nn.Linear(4, 2))
        model = t.nn.DataParallel(inner)
        out = model(t.ones(5, 3))
        out.sum().backward()
        assert model.module is inner
        results.append((
            out.flatten().tolist(), list(model.state_dict()), str(model),
            inner[0].weight.grad.flatten().tolist(),
        ))
    assert results[0][1:3] == results[1][1:3]
    assert results[0][0] == pytest.approx(results[1][0])
    assert results[0][3] == pytest.approx(results[1][3])


def test_scatter_cuts_and_gather_joins():
    x = graphc.arange(7.0)
    parts = parallel.scatter((x, {"a": [x * 2], "k": 5}), CPU)
    assert [p[0].tolist() for p in parts] == [[0, 1, 2], [3, 4, 5], [6]]
    assert parts[2][1]["a"][0].tolist() == [12] and parts[2][1]["k"] == 5
    assert parallel.gather([p[0] for p in parts], "cpu").tolist() == x.tolist()
    together = parallel.gather([p[1]["a"] for p in parts], "cpu")
    assert together[0].tolist() == (x * 2).tolist()
    assert parallel.gather([graphc.tensor(1.0), graphc.tensor(2.0)], "cpu").tolist() == [1, 2]
    with pytest.raises(RuntimeError, match="no device 'cuda:0'"):
        parallel.scatter(x, [0, 1])


def test_copies_share_parameters_and_their_gradients():
    graphc.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
    x = graphc.randn(6, 3)
    want = model(x)
    want.sum().backward()
    grad = model[0].weight.grad.tolist()
    model.zero_grad()
    have = parallel.data_parallel(model, x, CPU)
    have.sum().backward()
    assert graphc.allclose(have, want)
    assert graphc.allclose(model[0].weight.grad, graphc.tensor(grad))
    copies = parallel.replicate(model, CPU)
    assert len(copies) == 3 and copies[0] is not model
    assert copies[0][0].weight is model[0].weight and copies[0][0] is not model[0]
    with pytest.raises(AssertionError, match="number of modules"):
        parallel.parallel_apply(copies, [x])


def test_data_parallel_compiles():
    graphc.manual_seed(0)
    model = nn.DataParallel(nn.Linear(3, 2))
    x = graphc.randn(4, 3)
    assert graphc.allclose(graphc.compile(model)(x), model(x))
