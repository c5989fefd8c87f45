"""Names of ours in classes that users subclass: torch's, or such that nobody else chooses."""

import importlib
from typing import Any

import pytest

import graphc

torch = pytest.importorskip("torch")

CLASSES = """
    Tensor nn.Parameter
    nn.Module nn.Sequential nn.ModuleList nn.ModuleDict nn.ParameterList nn.Linear nn.Embedding
    nn.Dropout nn.Transformer nn.MultiheadAttention optim.Optimizer optim.SGD optim.Adam
    optim.AdamW optim.RMSprop optim.Adagrad optim.lr_scheduler.LRScheduler
    optim.lr_scheduler.StepLR optim.lr_scheduler.CosineAnnealingLR
    optim.lr_scheduler.ReduceLROnPlateau utils.data.DataLoader utils.data.Dataset
    utils.data.Sampler amp.GradScaler autograd.Function
""".split() + [f"distributions.{name}" for name in sorted(torch.distributions.__all__)
               if isinstance(getattr(torch.distributions, name), type)]

# names that torch has in a class alike
_AS_OF_OTHERS = {
    "Tensor": ["matrix_rank"], "nn.Parameter": ["matrix_rank"],  # which says what took its place
    "distributions.LowRankMultivariateNormal": ["_unbroadcasted_scale_tril"]}


def found(package: Any, path: str) -> Any:
    module, _, name = f"{package.__name__}.{path}".rpartition(".")
    return getattr(importlib.import_module(module), name)


def own(extra: set[str]) -> list[str]:
    return sorted(name for name in extra if not name.startswith(("_graphc_", "__")))


@pytest.mark.parametrize("path", CLASSES)
def test_a_class_has_torchs_names(path: str) -> None:
    extra = own(set(dir(found(graphc, path))) - set(dir(found(torch, path))))
    assert [name for name in extra if name not in _AS_OF_OTHERS.get(path, ())] == []


def objects(package: Any) -> list[Any]:
    data = importlib.import_module(f"{package.__name__}.utils.data")
    layer = package.nn.Linear(2, 2)
    sgd = package.optim.SGD(layer.parameters(), 0.1, momentum=0.9)
    return [
        layer.weight, layer(package.zeros(1, 2)), package.zeros(3)[1:],
        layer, package.nn.BatchNorm1d(2), sgd, package.optim.Adam(layer.parameters()),
        package.optim.lr_scheduler.StepLR(sgd, 1), package.amp.GradScaler("cpu"),
        data.DataLoader([1, 2]), data.TensorDataset(package.zeros(2)),
    ]


def test_objects_have_torchs_fields() -> None:
    for ours, theirs in zip(objects(graphc), objects(torch), strict=True):
        assert own(set(vars(ours)) - set(dir(theirs))) == [], type(ours)


def test_a_metric_of_its_own_names() -> None:
    class Metric(graphc.nn.Module):  # as torchmetrics has it
        def __init__(self) -> None:
            super().__init__()
            self._persistent = {"total": True}
            self._cast, self._hook, self._forget = "a", "b", "c"
            self.register_buffer("total", graphc.zeros(2))

        def forward(self, x: Any) -> Any:
            self.total += x
            return self.total

    metric = Metric()
    metric(graphc.ones(2))
    assert metric.double().state_dict()["total"].tolist() == [1.0, 1.0]
    metric.load_state_dict({"total": graphc.zeros(2)})
    assert metric.total.tolist() == [0.0, 0.0]


def test_a_tensor_of_its_own_names() -> None:
    class Own(graphc.Tensor):
        pass

    x = graphc.ones(3).as_subclass(Own)
    x._node, x._type, x._hooks, x._trace, x._array, x._chain = range(6)
    x.requires_grad_()
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0] * 3
    assert (x._node, x._type, x._hooks, x._trace, x._array, x._chain) == tuple(range(6))
    assert graphc.compile(lambda t: t + 1)(x).tolist() == [2.0] * 3


def test_an_optimizer_of_its_own_names() -> None:
    class Own(graphc.optim.SGD):
        def _update(self) -> None:
            raise AssertionError("nobody but the user calls it")

        has_state = new_state = _update

    weight = graphc.nn.Parameter(graphc.ones(2))
    optimizer = Own([weight], 0.5, momentum=0.9)
    weight.sum().backward()
    optimizer.step()
    assert weight.tolist() == [0.5, 0.5]
