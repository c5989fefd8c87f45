"""What the Chinese PyTorch notes (shared/seeds 000 to 003) say of tensors and autograd.

Each test quotes the note's code or its claim. Elsewhere: TensorBoard and torchsummary
(test_notes_packages.py), DataParallel and scatter (tests/compat/test_parallel.py), torchvision's
models (tests/vision). Not here: what needs several GPUs, visdom's server, pandas.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

import graphc as t
import graphc as torch
from graphc.autograd import Variable


class TestTensorBasics:
    """000 "PyTorch的两个核心功能"; 001 chapter 3."""

    def test_a_trailing_underscore_changes_the_tensor_itself(self) -> None:
        x, y = torch.ones(2, 3), torch.full((2, 3), 2.0)
        x.add(y)
        assert x.tolist() == [[1.0] * 3] * 2
        assert x.add_(y) is x
        assert x.tolist() == [[3.0] * 3] * 2
        assert x.t().shape == (3, 2)
        assert x.shape == (2, 3)
        x.t_()
        assert x.shape == (3, 2)

    def test_tensor_takes_data_and_Tensor_takes_a_shape(self) -> None:
        assert t.tensor([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
        with pytest.raises(TypeError):
            t.tensor([1, 2], [3, 4])  # type: ignore[misc,arg-type]
        assert t.Tensor(20).shape == (20,)
        assert t.Tensor(20, 10).shape == (20, 10)
        assert isinstance(t.tensor(1), t.Tensor)

    def test_view_shares_memory(self) -> None:
        a = t.arange(0, 6)
        b = a.view(2, 3)
        a[1] = 100
        assert b[0, 1].item() == 100
        assert b.unsqueeze(1).shape == (2, 1, 3)
        assert b.view(1, 1, 1, 2, 3).squeeze(0).shape == (1, 1, 2, 3)
        with pytest.raises(RuntimeError, match="invalid for input of size"):
            a.view(4)

    def test_plain_indexing_shares_memory_and_advanced_indexing_does_not(self) -> None:
        a = t.arange(12.0).reshape(3, 4)
        row = a[0]
        row[:] = -1
        assert a[0].tolist() == [-1.0] * 4
        picked = a[[0, 2]]
        picked.zero_()
        assert a[0].tolist() == [-1.0] * 4
        assert a[a > 9].tolist() == [10.0, 11.0]

    def test_gather_takes_out_and_scatter_puts_back(self) -> None:
        a = t.arange(0, 16).view(4, 4)
        index = t.tensor([[0, 1, 2, 3]])
        b = a.gather(0, index)
        assert b.tolist() == [[0, 5, 10, 15]]
        c = t.zeros(4, 4, dtype=t.int64)
        c.scatter_(0, index, b)
        assert c.tolist() == np.diag([0, 5, 10, 15]).tolist()

    def test_reductions_take_dim(self) -> None:
        b = t.ones(2, 3)
        assert b.sum(dim=0).tolist() == [2.0, 2.0, 2.0]
        assert b.sum(dim=0, keepdim=True).shape == (1, 3)
        assert b.sum(dim=1).tolist() == [3.0, 3.0]

    def test_numpy_shares_memory_unless_the_dtype_differs(self) -> None:
        a = np.ones([2, 3], dtype=np.float32)
        b, c, d = t.from_numpy(a), t.Tensor(a), t.tensor(a)
        a[0, 1] = 100
        assert b[0, 1].item() == 100
        assert c[0, 1].item() == 100
        assert d[0, 1].item() == 1
        wide = np.ones([2, 3])
        other = t.Tensor(wide)
        wide[0, 1] = 100
        assert other[0, 1].item() == 1
        assert other.dtype is t.float32
        back = b.numpy()
        back[1, 2] = 7
        assert a[1, 2] == 7

    def test_broadcasting_by_hand_and_by_itself(self) -> None:
        a, b = t.ones(3, 2), t.zeros(2, 3, 1)
        assert (a + b).shape == (2, 3, 2)
        by_hand = a.unsqueeze(0).expand(2, 3, 2) + b.expand(2, 3, 2)
        assert t.equal(a + b, by_hand)
        assert t.equal(a[None].expand(2, 3, 2) + b, by_hand)
        e = a.unsqueeze(0).expand(1000, 3, 2)
        assert e.untyped_storage().nbytes() == a.untyped_storage().nbytes()
        assert a.repeat(2, 1).shape == (6, 2)
        with pytest.raises(RuntimeError, match="must match"):
            t.ones(3) + t.ones(4)

    def test_item_is_for_one_element(self) -> None:
        assert t.tensor(200).item() == 200
        b = t.tensor([200])
        assert (b[0].item(), b.item()) == (200, 200)
        c = t.tensor([20, 30])
        assert c.size(0) == c.size()[0] == 2
        with pytest.raises(RuntimeError):
            c.item()

    def test_max_gives_the_greatest_and_its_place(self) -> None:
        a = t.tensor([[1.1659, -1.5195, 0.0455], [-0.3443, 2.0483, 0.6303]])
        assert str(torch.max(a)) == "tensor(2.0483)"
        values, places = torch.max(a, 1)
        assert places.tolist() == [0, 1]
        assert torch.max(a, 0)[1].tolist() == [0, 1, 1]
        assert values.tolist() == torch.max(a, 1)[0].tolist()

    def test_cat_stack_bmm_and_contiguous(self) -> None:
        x, y = torch.ones(2, 3), torch.zeros(2, 3)
        assert torch.cat((x, y), 0).shape == (4, 3)
        assert torch.stack((x, y), 1).shape == (2, 2, 3)
        assert torch.bmm(torch.ones(4, 2, 3), torch.ones(4, 3, 5)).shape == (4, 2, 5)
        flipped = x.t()
        assert not flipped.is_contiguous()
        with pytest.raises(RuntimeError, match="view size is not compatible"):
            flipped.view(6)
        assert flipped.contiguous().view(6).shape == flipped.reshape(6).shape == (6,)


class TestAutograd:
    """000 "Autograd 自动求导", 001 chapter 3, 002 "反向传播", 003 "计算图"."""

    def test_gradients_accumulate_until_they_are_zeroed(self) -> None:
        x = t.ones(2, 2, requires_grad=True)
        for times in (1, 2):
            x.sum().backward()
            assert x.grad.tolist() == [[float(times)] * 2] * 2
        x.grad.data.zero_()
        x.sum().backward()
        assert x.grad.tolist() == [[1.0] * 2] * 2

    def test_backward_of_a_vector_takes_coefficients(self) -> None:
        x = t.arange(3.0, requires_grad=True)
        y = x**2
        with pytest.raises(RuntimeError, match="implicitly created only for scalar"):
            y.backward()
        y.backward(t.ones(y.size()))
        assert x.grad.tolist() == [0.0, 2.0, 4.0]

    def test_retain_graph(self) -> None:
        x = t.ones(3, requires_grad=True)
        y = (x * x).sum()
        y.backward(retain_graph=True)
        y.backward()
        assert x.grad.tolist() == [4.0] * 3
        with pytest.raises(RuntimeError, match="second time"):
            y.backward()

    def test_create_graph_gives_second_derivatives(self) -> None:
        x = t.tensor(3.0, requires_grad=True)
        (first,) = t.autograd.grad(x**3, x, create_graph=True)
        (second,) = t.autograd.grad(first, x)
        assert (first.item(), second.item()) == (27.0, 18.0)

    def test_grad_fn_and_next_functions(self) -> None:
        a = t.tensor(2.0, requires_grad=True)
        b = t.tensor(6.0, requires_grad=True)
        q = 3 * a**3 - b**2
        assert q.item() == -12.0
        assert type(q.grad_fn).__name__ == "SubBackward0"
        names = [f.name() for f, _ in q.grad_fn.next_functions]
        assert names == ["MulBackward0", "PowBackward0"]
        assert a.grad_fn is None
        leaf = q.grad_fn.next_functions[1][0].next_functions[0][0]
        assert type(leaf).__name__ == "AccumulateGrad"
        assert leaf.variable is b
        assert (q.is_leaf, a.is_leaf, q.requires_grad) == (False, True, True)
        assert (q.is_cuda, q.layout, q.ndim, q.output_nr) == (False, torch.strided, 0, 0)
        assert q.shape == torch.Size([])
        q.backward()
        assert (a.grad.item(), b.grad.item()) == (36.0, -12.0)
        with pytest.warns(UserWarning, match="not a leaf"):
            assert q.grad is None

    def test_a_leaf_that_requires_grad_may_not_be_written_to(self) -> None:
        x = t.ones(2, requires_grad=True)
        with pytest.raises(RuntimeError, match="leaf"):
            x.add_(1)
        with t.no_grad():
            x.add_(1)
        x.data += 1
        assert x.tolist() == [3.0, 3.0]

    def test_detach_cuts_the_graph_and_shares_memory(self) -> None:
        x = t.ones(2, requires_grad=True)
        y = x * 2
        d = y.detach()
        assert not d.requires_grad
        assert d.data_ptr() == y.data_ptr()
        with pytest.raises(RuntimeError, match="requires grad"):
            y.numpy()
        assert d.numpy().tolist() == [2.0, 2.0]
        (d * x).sum().backward()
        assert x.grad.tolist() == [2.0, 2.0]

    def test_autograd_backward_is_the_method(self) -> None:
        x = t.ones(2, requires_grad=True)
        torch.autograd.backward((x * 3).sum())
        assert x.grad.tolist() == [3.0, 3.0]

    def test_a_function_of_ones_own(self) -> None:
        class MyReLU(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):  # type: ignore[no-untyped-def]
                ctx.save_for_backward(x)
                return x.clamp(min=0)

            @staticmethod
            def backward(ctx, grad_output):  # type: ignore[no-untyped-def]
                (x,) = ctx.saved_tensors
                grad_x = grad_output.clone()
                grad_x[x < 0] = 0
                return grad_x

        def loss(x):  # type: ignore[no-untyped-def]
            return (MyReLU.apply(x) * 3).sum()

        for run in (loss, torch.compile(loss)):
            x = t.tensor([-1.0, 2.0], requires_grad=True)
            y = run(x)
            y.backward()
            assert (y.item(), x.grad.tolist()) == (6.0, [0.0, 3.0])

    def test_the_loop_of_v0_1_0(self) -> None:
        torch.manual_seed(0)
        y = Variable(torch.randn(1, 10)).view(1, 10)
        x = Variable(torch.randn(1, 10)).view(1, 10)
        W = Variable(torch.randn(1, 1), requires_grad=True)
        learning_rate = 0.001
        losses = []
        for _ in range(20):
            y_ = torch.mm(W, x)
            loss = torch.sum(torch.abs(y_ - y))
            loss.backward()
            W.data -= W.grad.data * learning_rate
            W.grad.data.zero_()
            losses.append(loss.item())
        assert losses[-1] < losses[0]

    def test_gradients_are_summed_over_shards_in_place(self) -> None:
        data = [torch.ones(2) * i for i in range(3)]
        for i in range(1, len(data)):
            data[0][:] += data[i].to(data[0].device)
        for i in range(1, len(data)):
            data[i][:] = data[0].to(data[i].device)
        assert [d.tolist() for d in data] == [[3.0, 3.0]] * 3
        new_params = [p.to(torch.device("cpu")) for p in data]
        for p in new_params:
            p.requires_grad_()
        assert all(p.requires_grad for p in new_params)


def test_a_data_iterator_of_ones_own() -> None:
    """003 "data iterator"."""

    def data_iter(batch_size, features, labels):  # type: ignore[no-untyped-def]
        num_examples = len(features)
        indices = list(range(num_examples))
        random.shuffle(indices)
        for i in range(0, num_examples, batch_size):
            batch_indices = torch.tensor(indices[i : min(i + batch_size, num_examples)])
            yield features[batch_indices], labels[batch_indices]

    features = torch.arange(20.0).reshape(10, 2)
    seen = []
    for x, y in data_iter(4, features, torch.arange(10)):
        assert x[:, 0].tolist() == (2.0 * y).tolist()
        seen += y.tolist()
    assert sorted(seen) == list(range(10))


def test_data_loader_from_a_dataset() -> None:
    """002 "数据读取"; 001 chapter 5."""
    from graphc.utils.data import DataLoader, TensorDataset

    my_dataset = TensorDataset(torch.arange(5.0), torch.arange(5))
    tensor_dataloader = DataLoader(dataset=my_dataset, batch_size=2, shuffle=True, num_workers=0)
    batches = [target.tolist() for _, target in tensor_dataloader]
    assert [len(b) for b in batches] == [2, 2, 1]
    assert sorted(target for batch in batches for target in batch) == [0, 1, 2, 3, 4]


def test_devices() -> None:
    """002 "使用gpu"; 004 "GPU计算" without a GPU."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    x = torch.tensor([1, 2, 3], device=device)
    assert x.device == torch.tensor([1, 2, 3]).to(device).device
    assert repr(torch.device("cuda:0")) == "device(type='cuda', index=0)"
    assert repr(torch.nn.Linear(3, 1).weight.device) == "device(type='cpu')"
    if not torch.cuda.is_available():
        with pytest.raises((RuntimeError, AssertionError)):
            x.cuda(0)
