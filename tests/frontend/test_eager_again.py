"""Eager mode does what it has seen before without looking again: nothing may show of it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import graphc as torch
from graphc.frontend import recalled, replayed

F = torch.nn.functional


def twice(function, *args, **kwargs):
    """The second result, which is of what the first call has noted."""
    function(*args, **kwargs)
    return function(*args, **kwargs)


# --- views ---------------------------------------------------------------------------------------

VIEWS = {
    "int": lambda x: x[1], "last": lambda x: x[-1], "slice": lambda x: x[1:3],
    "step": lambda x: x[:, ::2], "column": lambda x: x[:, 1], "two": lambda x: x[0, 1],
    "none": lambda x: x[None, :, 0], "dots": lambda x: x[..., 0], "all": lambda x: x[...],
    "select": lambda x: x.select(1, 2), "narrow": lambda x: x.narrow(0, 1, 2),
    "transpose": lambda x: x.transpose(0, 1), "t": lambda x: x.t(),
    "permute": lambda x: x.permute(1, 0), "unsqueeze": lambda x: x.unsqueeze(1),
    "squeeze": lambda x: x[:1].squeeze(0), "view": lambda x: x.view(-1),
    "reshape": lambda x: x.reshape(2, -1), "flatten": lambda x: x.flatten(),
    "expand": lambda x: x[:1].expand(5, 6), "chunk": lambda x: x.chunk(2, 1)[1],
    "empty": lambda x: x[2:2],
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_again_is_the_view_that_the_function_makes(name):
    make = VIEWS[name]
    for source in (torch.arange(24.0).reshape(4, 6), torch.arange(96.0).reshape(4, 24)[:, ::4]):
        recalled._known.clear()
        try:
            first = make(source)
        except RuntimeError:  # not of these strides
            continue
        again = make(source)
        assert again.stride() == first.stride() and again.shape == first.shape
        assert again.storage_offset() == first.storage_offset()
        assert torch.equal(again, first) and again._base is first._base
        assert [op for op, _ in again._graphc_chain] == [op for op, _ in first._graphc_chain]
        if name != "expand":
            again += 1
            assert torch.equal(again, first)


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_again_has_the_history_of_the_first(name):
    make = VIEWS[name]
    with torch.no_grad():
        recalled._known.clear()
        make(torch.ones(4, 6))  # noted without a history
    found = []
    for _ in range(3):
        leaf = torch.arange(24.0).reshape(4, 6).requires_grad_()
        y = make(leaf)
        nodes = [type(y.grad_fn).__name__]
        (y * torch.arange(1.0, y.numel() + 1).reshape(y.shape)).sum().backward()
        found.append((nodes, leaf.grad.tolist()))
    assert found[0] == found[1] == found[2]


def test_a_view_of_other_strides_is_not_recalled():
    x = torch.arange(12.0).reshape(3, 4)
    assert twice(lambda: x.view(12)).shape == (12,)
    turned = torch.arange(12.0).reshape(4, 3).t()
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        turned.view(12)
    assert not turned.reshape(12)._is_view()


def test_arguments_of_other_types_are_read():
    x = torch.rand(2, 2)
    twice(lambda: x.transpose(0, 1))
    with pytest.raises(TypeError):
        x.transpose(0.0, 1)
    twice(lambda: x[1])
    assert x[True].shape == (1, 2, 2)
    assert x[1].shape == (2,)


def test_a_write_to_a_view_again_reaches_the_base_and_its_history():
    for _ in range(3):
        leaf = torch.ones(3, 2, requires_grad=True)
        x = leaf * 1
        x[1].mul_(5)
        x[:, 0] = 7.0
        x.sum().backward()
        assert leaf.grad.tolist() == [[0, 1], [0, 5], [0, 1]]


def test_views_of_no_grad_mode_are_told_apart():
    x = torch.rand(3, requires_grad=True)
    twice(lambda: x[0])
    with torch.no_grad():
        assert x[0].grad_fn is None
    assert x[0].grad_fn is not None
    assert x.detach()[0].grad_fn is None


# --- calls ---------------------------------------------------------------------------------------


def test_a_call_again_reads_its_own_tensors():
    a, b = torch.rand(3, 4), torch.rand(3, 4)
    for x, y in ((a, b), (b, a), (a, a)):
        assert torch.equal(torch.where(x > 0.5, x, y), torch.from_numpy(
            np.where(x.numpy() > 0.5, x.numpy(), y.numpy())
        ))
    for x, y in ((a, a), (a, b), (b, b)):
        assert torch.cat([x, y]).tolist() == x.tolist() + y.tolist()


def test_results_again_are_new_tensors():
    one, two = (torch.zeros(3) for _ in range(2))
    one.add_(1)
    assert two.tolist() == [0, 0, 0] == torch.zeros(3).tolist()
    counts = [torch.arange(3) for _ in range(3)]
    counts[1].mul_(5)
    assert torch.arange(3).tolist() == [0, 1, 2] == counts[2].tolist()
    leaves = [torch.ones(2, requires_grad=True) for _ in range(3)]
    assert all(leaf.requires_grad and leaf.is_leaf for leaf in leaves)
    assert not torch.ones(2).requires_grad


def test_what_a_call_hangs_on_is_looked_at():
    x = torch.arange(6.0).reshape(2, 3)
    assert twice(torch.sum, x, 1).tolist() == [3, 12]
    assert torch.sum(x, 0).tolist() == [3, 5, 7]
    assert torch.sum(x, (0, 1)).item() == 15
    assert torch.sum(x, 1, keepdim=True).shape == (2, 1)
    assert torch.sum(x.double(), 1).dtype is torch.float64
    assert torch.sum(x.int(), 1).dtype is torch.int64
    assert twice(torch.full, (2,), 1).dtype is torch.int64
    assert torch.full((2,), 1.0).dtype is torch.float32
    assert torch.full((2,), True).dtype is torch.bool
    assert np.signbit(torch.full((1,), -0.0).numpy()[0])
    assert not np.signbit(torch.full((1,), 0.0).numpy()[0])


def test_the_default_dtype_is_looked_at():
    assert twice(torch.zeros, 2).dtype is torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.zeros(2).dtype is torch.float64
        assert torch.where(torch.tensor([True]), 1.0, 2.0).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.zeros(2).dtype is torch.float32


def test_autocast_is_looked_at():
    linear, x = torch.nn.Linear(4, 4), torch.rand(2, 4)
    twice(linear, x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert linear(x).dtype is torch.bfloat16
        assert (x @ x.t()).dtype is torch.bfloat16
    assert linear(x).dtype is torch.float32


def test_warnings_come_every_time():
    a, b = torch.rand(2, 1), torch.rand(2, 2)
    for _ in range(3):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            F.mse_loss(a, b)
            F.softmax(b)
        assert len(seen) == 2


def test_names_of_nodes_are_those_of_the_first_call():
    names = []
    for grads in ((True, False), (False, True), (True, True), (False, True), (True, False)):
        x, w = (torch.rand(3, 3, requires_grad=g) for g in grads)
        y = F.linear(x, w)
        names.append((type(y.grad_fn).__name__, [f is None for f, _ in y.grad_fn.next_functions]))
        assert type(x.mean(0).grad_fn) is type(None) or type(x.mean(0).grad_fn).__name__ == (
            "MeanBackward1"
        )
    assert names[0] == names[4] and names[1] == names[3]


def test_hooks_and_gradients_of_calls_again():
    found = []
    for _ in range(3):
        x = torch.tensor([[1.0, 2.0], [3.0, 5.0]], requires_grad=True)
        seen: list[object] = []
        y = F.softmax(x, 1)
        y.register_hook(lambda g, seen=seen: seen.append(g.tolist()))
        F.cross_entropy(y, torch.tensor([0, 1])).backward()
        found.append((seen, x.grad.tolist()))
    assert len(found[0][0]) == 1 and found[0] == found[1] == found[2]


def test_saved_values_that_are_overwritten_are_noticed():
    for _ in range(3):
        x = torch.rand(3, requires_grad=True)
        y = x.exp()
        y.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace"):
            y.sum().backward()


def test_errors_of_a_call_again_name_the_user_line():
    table, logits = torch.nn.Embedding(4, 2), torch.rand(2, 3)
    for _ in range(3):
        table(torch.tensor([0, 3]))
        F.cross_entropy(logits, torch.tensor([0, 2]))
        with pytest.raises(IndexError, match="out of range"):
            table(torch.tensor([0, 4]))
        with pytest.raises(IndexError, match="Target 3 is out of bounds"):
            F.cross_entropy(logits, torch.tensor([0, 3]))
        with pytest.raises(IndexError, match="Target -1 is out of bounds"):
            F.cross_entropy(logits, torch.tensor([0, -1]))
        with pytest.raises(RuntimeError, match="must match"):
            _ = torch.rand(2) + torch.rand(3)


def test_who_watches_operators_sees_those_of_calls_again():
    from graphc.profiler import profile
    from graphc.utils.flop_counter import FlopCounterMode

    a, linear = torch.rand(4, 4), torch.nn.Linear(4, 4)
    twice(lambda: (linear(a), a + a, F.softmax(a, 1)))
    with FlopCounterMode(display=False) as counter:
        linear(a)
    assert counter.get_total_flops() == 2 * 4 * 4 * 4
    with profile() as seen:
        _ = a + a, F.softmax(a, 1)
    names = " ".join(event.key for event in seen.key_averages())
    assert "add" in names and "softmax" in names


def test_what_reads_values_or_order_is_not_replayed():
    replayed._known.clear()
    x = torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert twice(torch.ones_like, x).stride() == x.stride()
    assert torch.ones_like(x.contiguous()).is_contiguous()
    assert torch.relu(x).stride() == x.stride()


CALLS = {
    "max_pool2d": lambda x: F.max_pool2d(x, 2), "places": lambda x: F.max_pool2d(
        x, 2, return_indices=True
    ),
    "padded": lambda x: F.max_pool2d(x, 3, 2, 1), "max": lambda x: x.max(1), "min": lambda x: x.min(
        -1, keepdim=True
    ),
    "argmax": lambda x: x.argmax(2), "all": lambda x: x.max(), "norm": lambda x: x.norm(),
    "norm 1": lambda x: x.norm(1, 2), "std": lambda x: x.std(0), "var": lambda x: x.var(),
    "sum": lambda x: x.sum((0, 2)), "mean": lambda x: x.mean(dim=1, keepdim=True),
    "softmax": lambda x: F.softmax(x, 1), "log": lambda x: torch.log_softmax(x, 0),
    "gelu": lambda x: F.gelu(x, approximate="tanh"), "clamp": lambda x: x.clamp(-1, 1),
    "above": lambda x: x.clamp(min=0.5), "where": lambda x: torch.where(x > 0, x, 0.0),
    "cat": lambda x: torch.cat([x, x * 2], 1), "stack": lambda x: torch.stack((x, x + 1), -1),
    "matmul": lambda x: x @ (x + 1).mT, "bmm": lambda x: torch.bmm(x[0], x[1]),
    "conv": lambda x: F.conv2d(x, torch.ones(5, 3, 2, 2), torch.arange(5.0), padding=1),
    "same": lambda x: F.conv2d(x, torch.ones(3, 1, 3, 3), padding="same", groups=3),
    "one": lambda x: F.conv1d(x[0], torch.ones(2, 4, 3)), "linear": lambda x: F.linear(
        x, torch.ones(2, 4), torch.ones(2)
    ),
    "layer": lambda x: F.layer_norm(x, (4, 4)), "l1": lambda x: F.l1_loss(x, x.detach() * 2),
    "mse": lambda x: F.mse_loss(x, x.detach() + 1, reduction="sum"),
    "bce": lambda x: F.binary_cross_entropy_with_logits(x, torch.ones(2, 3, 4, 4)),
    "nll": lambda x: F.nll_loss(x[:, :, 0, 0], torch.tensor([0, 2])),
    "dense": lambda x: F.cross_entropy(x, torch.ones(2, 4, 4, dtype=torch.int64)),
    "soft": lambda x: F.cross_entropy(x[:, :, 0, 0], torch.ones(2, 3) / 3),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_again_gives_what_the_function_gives(name):
    call = CALLS[name]
    replayed._known.clear()
    found = []
    for _ in range(3):
        torch.manual_seed(2)
        x = torch.randn(2, 3, 4, 4, requires_grad=True)
        result = call(x)
        parts = result if isinstance(result, tuple) else (result,)
        history = [type(part.grad_fn).__name__ for part in parts]
        views = [part._base is None for part in parts]
        if parts[0].grad_fn is not None:
            (parts[0] * parts[0].detach()).sum().backward()
        values = [part.tolist() for part in parts]
        found.append((type(result), values, history, views, x.grad is None or x.grad.tolist()))
    assert found[0] == found[1] == found[2]
    with torch.no_grad():
        again = call(x)
        parts = again if isinstance(again, tuple) else (again,)
        assert [part.tolist() for part in parts] == values
        assert all(part.grad_fn is None for part in parts)


# --- writes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int64])
def test_writes_in_place_count_and_cast_as_before(dtype):
    x, y = torch.tensor([1, 2, 3], dtype=dtype), torch.tensor([4, 5, 6], dtype=dtype)
    place = x.data_ptr()
    for _ in range(3):
        x.add_(y)
        x.sub_(1)
        x.mul_(2)
    assert x._version == 9 and x.data_ptr() == place
    assert x.tolist() == [50, 72, 94]
    x.zero_()
    x.fill_(3)
    x.copy_(y)
    assert x._version == 12 and x.tolist() == [4, 5, 6]


def test_writes_in_place_refuse_what_they_refused():
    x = torch.rand(3)
    twice(x.add_, torch.ones(3))
    with pytest.raises(RuntimeError, match="broadcast shape"):
        x.add_(torch.rand(2, 3))
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.ones(3, dtype=torch.int64).add_(1.5)
    with pytest.raises(RuntimeError, match="leaf"):
        torch.rand(3, requires_grad=True).add_(1)
    with pytest.raises(RuntimeError, match="leaf"):
        torch.rand(3, requires_grad=True).zero_()
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.rand(1).expand(3).add_(torch.rand(3))
    with pytest.raises(RuntimeError, match="single memory location"):
        whole = torch.rand(6)
        whole[:4].add_(whole[2:])
    with pytest.raises(RuntimeError, match="without overflow"):
        x.fill_(1e300)
    frozen = np.ones(3, np.float32)
    frozen.flags.writeable = False
    with pytest.raises(RuntimeError, match="read-only"):
        torch.from_numpy(frozen).add_(1)


def test_a_write_with_a_history_is_recorded():
    w = torch.rand(3, requires_grad=True)
    for _ in range(3):
        x = torch.zeros(3)
        x.add_(w)
        assert x.requires_grad and x.grad_fn is not None
        x = torch.zeros(3)
        x.copy_(w)
        assert x.requires_grad
        with torch.no_grad():
            w.mul_(1.0)
        assert w.is_leaf


def test_numpy_says_its_own_warnings_still():
    x = torch.tensor([1.0, 0.0])
    with np.errstate(all="raise"):
        assert twice(lambda: x / 0).tolist()[0] == float("inf")
        with pytest.raises(FloatingPointError):
            np.ones(1) / np.zeros(1)
    assert np.geterr() == {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}


def test_small_draws_are_those_of_the_stream():
    """What is read of the state itself goes on where NumPy's generator does, and back."""
    torch.manual_seed(7)
    few = [torch.randn(3).tolist() for _ in range(150)]  # past the end of the state's words
    torch.manual_seed(7)
    wide = []
    for _ in range(150):
        wide.append(torch.normal(torch.zeros(3), 1.0).tolist())
    assert few == wide
