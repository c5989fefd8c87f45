"""What the Chinese PyTorch notes (shared/seeds 000, 001, 004) say of Modules, state and files."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest

import graphc as torch
from graphc import nn
from graphc.nn import init
from tests.seeds.notes_models import MLP, TheModelClass

# mypy does not check tests: the classes are the notes' own, without annotations


class MyDictDense(nn.Module):
    def __init__(self):  # type: ignore[no-untyped-def]
        super(MyDictDense, self).__init__()  # noqa: UP008
        self.params = nn.ParameterDict({
            "linear1": nn.Parameter(torch.randn(4, 4)),
            "linear2": nn.Parameter(torch.randn(4, 1)),
        })
        self.params.update({"linear3": nn.Parameter(torch.randn(4, 2))})

    def forward(self, x, choice="linear1"):  # type: ignore[no-untyped-def]
        return torch.mm(x, self.params[choice])


class MyListDense(nn.Module):
    def __init__(self):  # type: ignore[no-untyped-def]
        super(MyListDense, self).__init__()  # noqa: UP008
        self.params = nn.ParameterList([nn.Parameter(torch.randn(4, 4)) for i in range(3)])
        self.params.append(nn.Parameter(torch.randn(4, 1)))

    def forward(self, x):  # type: ignore[no-untyped-def]
        for i in range(len(self.params)):
            x = torch.mm(x, self.params[i])
        return x


class TestBuilding:
    """004 "模型构造"."""

    def test_an_mlp_prints_and_runs(self) -> None:
        net = MLP()
        assert repr(net) == (
            "MLP(\n"
            "  (hidden): Linear(in_features=784, out_features=256, bias=True)\n"
            "  (act): ReLU()\n"
            "  (output): Linear(in_features=256, out_features=10, bias=True)\n"
            ")"
        )
        y = net(torch.rand(2, 784))
        assert y.shape == (2, 10)
        assert "grad_fn=<AddmmBackward0>" in repr(y)

    def test_the_convolutional_class(self) -> None:
        net = TheModelClass()
        for run in (net, torch.compile(net)):
            assert run(torch.rand(2, 3, 32, 32)).shape == (2, 10)

    def test_a_sequential_of_ones_own(self) -> None:
        class MySequential1(nn.Module):
            def __init__(self, *args):  # type: ignore[no-untyped-def]
                super().__init__()
                if len(args) == 1 and isinstance(args[0], OrderedDict):
                    for key, module in args[0].items():
                        self.add_module(key, module)
                else:
                    for idx, module in enumerate(args):
                        self.add_module(str(idx), module)

            def forward(self, x):  # type: ignore[no-untyped-def]
                for module in self._modules.values():
                    x = module(x)
                return x

        net = MySequential1(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2))
        assert repr(net) == (
            "MySequential1(\n"
            "  (0): Linear(in_features=8, out_features=4, bias=True)\n"
            "  (1): ReLU()\n"
            "  (2): Linear(in_features=4, out_features=2, bias=True)\n"
            ")"
        )
        x = torch.rand(3, 8)
        assert torch.allclose(torch.compile(net)(x), net(x), atol=1e-6)
        named = MySequential1(OrderedDict(a=nn.Linear(8, 4), b=nn.ReLU()))
        assert [n for n, _ in named.named_children()] == ["a", "b"]

    def test_modules_may_key_the_module_dict(self) -> None:
        class MySequential2(nn.Sequential):
            def add_module(self, block):  # type: ignore[no-untyped-def,override]
                self._modules[block] = block

            def forward(self, x):  # type: ignore[no-untyped-def]
                for block in self._modules.values():
                    x = block(x)
                return x

        net = MySequential2()
        net.add_module(nn.Linear(8, 4))
        net.add_module(nn.ReLU())
        assert net(torch.rand(3, 8)).shape == (3, 4)

    def test_module_list(self) -> None:
        net = nn.ModuleList([nn.Linear(784, 256), nn.ReLU()])
        net.append(nn.Linear(256, 10))
        assert repr(net[-1]) == "Linear(in_features=256, out_features=10, bias=True)"
        assert repr(net) == (
            "ModuleList(\n"
            "  (0): Linear(in_features=784, out_features=256, bias=True)\n"
            "  (1): ReLU()\n"
            "  (2): Linear(in_features=256, out_features=10, bias=True)\n"
            ")"
        )
        with pytest.raises(NotImplementedError):
            net(torch.rand(2, 784))

        class Plain(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.linears = [nn.Linear(10, 10)]

        assert list(Plain().parameters()) == []
        assert [p.size() for p in nn.ModuleList([nn.Linear(10, 10)]).parameters()] == [
            torch.Size([10, 10]), torch.Size([10]),
        ]

    def test_module_list_in_forward(self) -> None:
        class MyModule(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.linears = nn.ModuleList([nn.Linear(10, 10) for _ in range(10)])

            def forward(self, x: Any) -> Any:
                for i, l in enumerate(self.linears):  # noqa: E741
                    x = self.linears[i // 2](x) + l(x)
                return x

        net, x = MyModule(), torch.rand(2, 10)
        assert torch.allclose(torch.compile(net)(x), net(x), atol=1e-5)

    def test_module_dict(self) -> None:
        net = nn.ModuleDict({"linear": nn.Linear(784, 256), "act": nn.ReLU()})
        net["output"] = nn.Linear(256, 10)
        assert repr(net["linear"]) == "Linear(in_features=784, out_features=256, bias=True)"
        assert net.output is net["output"]
        assert repr(net).startswith("ModuleDict(\n  (linear): Linear(")
        with pytest.raises(NotImplementedError):
            net(torch.rand(2, 784))

    def test_control_flow_by_values_runs_eager_and_in_segments(self) -> None:
        class FancyMLP(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.rand_weight = torch.rand((20, 20), requires_grad=False)
                self.linear = nn.Linear(20, 20)

            def forward(self, x: Any) -> Any:
                x = self.linear(x)
                x = nn.functional.relu(torch.mm(x, self.rand_weight.data) + 1)
                x = self.linear(x)
                while x.norm().item() > 1:
                    x /= 2
                if x.norm().item() < 0.8:
                    x *= 10
                return x.sum()

        torch.manual_seed(0)
        net = FancyMLP()
        y = net(torch.rand(2, 20))
        assert "grad_fn=<SumBackward0>" in repr(y)
        y.backward()
        assert net.linear.weight.grad is not None
        assert len(list(net.parameters())) == 2
        x = torch.rand(2, 20)
        assert torch.allclose(torch.compile(net)(x), net(x))
        with pytest.raises(RuntimeError, match=r"2 places in it are open\n  item\(\) at"):
            torch.compile(net, fullgraph=True)(x)
        nested = nn.Sequential(nn.Linear(40, 20))
        nested.add_module("FancyMLP", net)
        assert nested(torch.rand(2, 40)).shape == ()


class TestParameters:
    """004 "模型参数的访问、初始化和共享"."""

    def net(self) -> Any:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1))

    def test_access(self) -> None:
        net = self.net()
        assert type(net.parameters()).__name__ == "generator"
        assert [tuple(p.size()) for p in net.parameters()] == [(3, 4), (3,), (1, 3), (1,)]
        assert [n for n, _ in net.named_parameters()] == [
            "0.weight", "0.bias", "2.weight", "2.bias",
        ]
        assert [n for n, _ in net[0].named_parameters()] == ["weight", "bias"]
        assert [n for n, _ in net[:3].named_parameters()] == [
            "0.weight", "0.bias", "2.weight", "2.bias",
        ]
        assert all(type(p) is nn.Parameter for p in net.parameters())
        y = net(torch.rand(2, 4)).sum()
        assert "grad_fn=<SumBackward0>" in repr(y)
        weight_0 = next(net.parameters())
        assert weight_0.grad is None
        y.backward()
        assert weight_0.grad.shape == (3, 4)

    def test_only_parameters_are_listed(self) -> None:
        class MyModel(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.weight1 = nn.Parameter(torch.rand(2, 2))
                self.weight2 = torch.rand(2, 2)

        assert [n for n, _ in MyModel().named_parameters()] == ["weight1"]

    def test_initialisation(self) -> None:
        def init_weight_(tensor: Any) -> None:
            with torch.no_grad():
                tensor.uniform_(-10, 10)
                tensor *= (tensor.abs() >= 5).float()

        net = self.net()
        for name, param in net.named_parameters():
            if "weight" in name:
                init.normal_(param, mean=0, std=0.01)
                assert param.abs().max().item() < 0.1
                init_weight_(param)
                assert all(v == 0 or abs(v) >= 5 for v in param.flatten().tolist())
            else:
                init.constant_(param, val=0)
                param.data += 1
                assert param.tolist() == [1.0] * len(param)
            assert param.requires_grad
            assert param.is_leaf

    def test_a_layer_used_twice_is_one_object_and_sums_its_gradient(self) -> None:
        linear = nn.Linear(1, 1, bias=False)
        net = nn.Sequential(linear, linear)
        assert repr(net) == (
            "Sequential(\n"
            "  (0): Linear(in_features=1, out_features=1, bias=False)\n"
            "  (1): Linear(in_features=1, out_features=1, bias=False)\n"
            ")"
        )
        for name, param in net.named_parameters():
            assert name == "0.weight"
            init.constant_(param, val=3)
        assert id(net[0].weight) == id(net[1].weight)
        for run in (net, torch.compile(net)):
            net.zero_grad()
            y = run(torch.ones(1, 1)).sum()
            y.backward()
            assert y.item() == 9.0
            # the note says 12 where it runs backward() twice; 2 w x = 6 is one pass
            assert net[0].weight.grad.tolist() == [[6.0]]


class TestLayersOfOnesOwn:
    """004 "自定义层"; 000 and 002 the same without parameters."""

    def test_without_parameters(self) -> None:
        class CenteredLayer(nn.Module):
            def forward(self, x: Any) -> Any:
                return x - x.mean()

        layer = CenteredLayer()
        x = torch.tensor([1, 2, 3, 4, 5], dtype=torch.float)
        assert repr(layer(x)) == "tensor([-2., -1.,  0.,  1.,  2.])"
        net = nn.Sequential(nn.Linear(8, 128), CenteredLayer())
        assert abs(net(torch.rand(4, 8)).mean().item()) < 1e-6

    def test_parameter_list(self) -> None:
        net = MyListDense()
        # the note prints torch.FloatTensor; PyTorch 2.13 prints torch.float32
        assert repr(net) == (
            "MyListDense(\n"
            "  (params): ParameterList(\n"
            "      (0): Parameter containing: [torch.float32 of size 4x4]\n"
            "      (1): Parameter containing: [torch.float32 of size 4x4]\n"
            "      (2): Parameter containing: [torch.float32 of size 4x4]\n"
            "      (3): Parameter containing: [torch.float32 of size 4x1]\n"
            "  )\n"
            ")"
        )
        assert torch.compile(net)(torch.ones(1, 4)).shape == (1, 1)

    def test_parameter_dict_chooses_by_key(self) -> None:
        net = MyDictDense()
        assert "(linear3): Parameter containing: [torch.FloatTensor of size 4x2]" in repr(
            net
        ) or "(linear3): Parameter containing: [torch.float32 of size 4x2]" in repr(net)
        x = torch.ones(1, 4)
        compiled = torch.compile(net)
        for choice in ("linear1", "linear2", "linear3"):
            y = net(x, choice)
            assert "grad_fn=<MmBackward0>" in repr(y)
            assert torch.allclose(compiled(x, choice), y)
        assert list(net.params.keys()) == ["linear1", "linear2", "linear3"]
        both = nn.Sequential(MyDictDense(), MyListDense())
        assert both(x).shape == (1, 1)

    def test_parameters_of_a_linear_model(self) -> None:
        class LinearModel(nn.Module):
            def __init__(self, ndim: int) -> None:
                super(LinearModel, self).__init__()
                self.ndim = ndim
                self.weight = nn.Parameter(torch.randn(ndim, 1))
                self.bias = nn.Parameter(torch.randn(1))

            def forward(self, x: Any) -> Any:
                return x.mm(self.weight) + self.bias

        lm, x = LinearModel(5), torch.randn(4, 5)
        assert [n for n, _ in lm.named_parameters()] == ["weight", "bias"]
        assert lm(x).shape == (4, 1)
        for name in ("_parameters", "_buffers", "_modules", "_forward_hooks", "_backward_hooks"):
            assert hasattr(lm, name)


class TestTraining:
    """001 chapters 4 and 6."""

    def test_losses(self) -> None:
        score = torch.randn(3, 2)
        label = torch.Tensor([1, 0, 1]).long()
        assert nn.CrossEntropyLoss()(score, label).shape == ()
        linear = nn.Linear(3, 2)
        criterion = nn.MSELoss()
        optimizer = torch.optim.SGD(linear.parameters(), lr=0.01)
        x, y = torch.randn(10, 3), torch.randn(10, 2)
        loss = criterion(linear(x), y)
        loss.backward()
        optimizer.step()
        assert criterion(linear(x), y).item() < loss.item()

    def test_learning_rates_by_group(self) -> None:
        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.features = nn.Linear(4, 4)
                self.classifier = nn.Linear(4, 2)

        net = Net()
        optimizer = torch.optim.SGD(
            [
                {"params": net.features.parameters()},
                {"params": net.classifier.parameters(), "lr": 1e-2},
            ],
            lr=1e-5,
        )
        assert [g["lr"] for g in optimizer.param_groups] == [1e-5, 1e-2]

    def test_lstm_shapes(self) -> None:
        lstm = nn.LSTM(input_size=4, hidden_size=3, num_layers=2, bidirectional=True)
        h0, c0 = torch.zeros(4, 5, 3), torch.zeros(4, 5, 3)
        out, (hn, cn) = lstm(torch.randn(7, 5, 4), (h0, c0))
        assert (out.shape, hn.shape, cn.shape) == ((7, 5, 6), (4, 5, 3), (4, 5, 3))

    def test_embedding_shape(self) -> None:
        assert nn.Embedding(4, 5)(torch.arange(0, 6).view(3, 2) % 4).shape == (3, 2, 5)

    def test_a_hook_sees_a_layers_output(self) -> None:
        net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1))
        features = torch.zeros(2, 3)

        def hook(module: Any, input: Any, output: Any) -> None:
            features.copy_(output.data)

        x = torch.rand(2, 4)
        for run in (net, torch.compile(net)):
            features.zero_()
            handle = net[0].register_forward_hook(hook)
            run(x)
            handle.remove()
            assert torch.allclose(features, net[0](x), atol=1e-6)
            features.zero_()
            run(x)
            assert features.sum().item() == 0

    def test_train_and_eval(self) -> None:
        net = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5))
        x = torch.randn(8, 3)
        net.train(mode=True)
        net(x)
        assert net[0].num_batches_tracked.item() == 1
        net.eval()
        assert torch.equal(net(x), net(x))
        assert net[0].num_batches_tracked.item() == 1

    def test_training_initialises_weights_by_apply(self) -> None:
        def init_weights(m: Any) -> None:
            if type(m) in [nn.Linear, nn.Conv2d]:
                nn.init.normal_(m.weight, std=0.01)

        net = TheModelClass()
        net.apply(init_weights)
        assert net.fc1.weight.abs().max().item() < 0.1
