"""torch.nn.utils against PyTorch: norms of weights, parametrizations, pruning, fusion, lazy."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import graphc
from graphc import nn
from tests.nn.both import SPACES, close

Change = Callable[[Any, Any], Any]


def old_weight_norm(s: Any, layer: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return s.torch.nn.utils.weight_norm(layer)


def ln_then_l1(s: Any, layer: Any) -> Any:
    prune = s.torch.nn.utils.prune
    prune.ln_structured(layer, "weight", 0.3, 2, 0)
    prune.l1_unstructured(layer, "weight", 0.2)
    return layer


CHANGES: dict[str, Change] = {
    "weight_norm": old_weight_norm,
    "spectral_norm": lambda s, m: s.torch.nn.utils.spectral_norm(m),
    "parametrized weight_norm": lambda s, m: s.torch.nn.utils.parametrizations.weight_norm(m),
    "parametrized spectral_norm":
        lambda s, m: s.torch.nn.utils.parametrizations.spectral_norm(m),
    "l1": lambda s, m: s.torch.nn.utils.prune.l1_unstructured(m, "weight", 0.4),
    "random": lambda s, m: s.torch.nn.utils.prune.random_unstructured(m, "weight", 5),
    "random channels": lambda s, m: s.torch.nn.utils.prune.random_structured(m, "weight", 2, 1),
    "twice": ln_then_l1,
}


@pytest.mark.parametrize("kind", ["Linear", "Conv2d", "ConvTranspose1d"])
@pytest.mark.parametrize("name", CHANGES)
def test_changed_weights(name: str, kind: str) -> None:
    found = []
    for s in SPACES:
        for package in (s.torch,):
            __import__(f"{package.__name__}.nn.utils.parametrizations")
            __import__(f"{package.__name__}.nn.utils.prune")
        s.torch.manual_seed(0)
        layer = getattr(s.nn, kind)(*((4, 5) if kind == "Linear" else (4, 5, 3)))
        layer = CHANGES[name](s, layer)
        shape = {"Linear": (3, 4), "Conv2d": (2, 4, 5, 5), "ConvTranspose1d": (2, 4, 5)}[kind]
        x = s.torch.randn(*shape)
        outputs = []
        for _ in range(2):
            output = layer(x)
            output.square().sum().backward()
            outputs.append(output)
        grads = {key: p.grad for key, p in layer.named_parameters()}
        found.append((outputs, layer.state_dict(), grads))
    (want, state, grads), (have, our_state, our_grads) = found
    close(have, want, 1e-5)
    assert list(our_state) == list(state)
    for key, value in state.items():
        close(our_state[key], value, 1e-5, key)
    for key, value in grads.items():
        close(our_grads[key], value, 1e-4, key)


def orthogonal(s: Any, shape: tuple[int, ...], **options: Any) -> Any:
    __import__(f"{s.torch.__name__}.nn.utils.parametrizations")
    s.torch.manual_seed(0)
    layer = s.nn.Bilinear(shape[1], shape[2], shape[0], bias=False) if len(shape) == 3 else (
        s.nn.Linear(shape[1], shape[0], bias=False))
    layer = layer.double()
    return s.torch.nn.utils.parametrizations.orthogonal(layer, **options)


@pytest.mark.parametrize("shape", [(4, 4), (6, 3), (3, 6), (2, 5, 3)])
@pytest.mark.parametrize("options", [
    {}, {"orthogonal_map": "cayley"}, {"orthogonal_map": "matrix_exp"},
    {"orthogonal_map": "householder"},
    {"orthogonal_map": "householder", "use_trivialization": False},
])
def test_orthogonal_weights(shape: tuple[int, ...], options: dict[str, Any]) -> None:
    found = []
    for s in SPACES:
        layer = orthogonal(s, shape, **options)
        start, free = layer.weight, layer.parametrizations.weight.original
        after = s.torch.rand(2)  # what it drew
        optimizer = s.torch.optim.SGD([free], lr=0.1, momentum=0.5)
        factor = s.torch.arange(start.numel()).reshape(shape) * 0.1
        for _ in range(3):
            optimizer.zero_grad()
            (layer.weight * factor).sum().backward()
            optimizer.step()
        layer.weight = start.detach() * -1.0
        state = layer.state_dict()
        found.append((start, after, layer.weight, free.grad, list(state), *state.values()))
        assert repr(layer.parametrizations.weight[0]) == "_Orthogonal()"
    want, have = found
    assert have[4] == want[4]
    for index, (h, w) in enumerate(zip(have, want, strict=True)):
        if index != 4:
            close(h, w, 1e-10, str(index))


def test_parametrizations_come_and_go() -> None:
    tools = nn.utils.parametrize

    class Symmetric(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.triu() + x.triu(1).transpose(-1, -2)

        def right_inverse(self, x: Any) -> Any:
            return x.triu()

    layer = nn.Linear(3, 3)
    tools.register_parametrization(layer, "weight", Symmetric())
    assert tools.is_parametrized(layer, "weight") and not tools.is_parametrized(layer, "bias")
    assert type(layer).__name__ == "ParametrizedLinear"
    assert [name for name, _ in layer.named_parameters()] == [
        "bias", "parametrizations.weight.original"]
    assert bool((layer.weight == layer.weight.T).all())
    layer.weight = graphc.eye(3)
    np.testing.assert_array_equal(layer.weight.detach().numpy(), np.eye(3, dtype=np.float32))
    with tools.cached():
        assert layer.weight is layer.weight
    twin = copy.deepcopy(layer)
    assert tools.is_parametrized(twin)
    tools.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear and isinstance(layer.weight, nn.Parameter)
    assert tools.is_parametrized(twin)


def inverses(s: Any) -> list[Any]:
    """What becomes of originals as parametrizations are put on top of others, and assigned to."""
    torch = s.torch
    tools = torch.nn.utils.parametrize

    class Half(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x / 2

        def right_inverse(self, x: Any) -> Any:
            return x * 2

    class Same(Half):
        def right_inverse(self, x: Any) -> Any:
            return x

    class Missing(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x + 1

    class Refused(Missing):
        def right_inverse(self, x: Any) -> Any:
            raise NotImplementedError

    found: list[Any] = []
    for kinds in ((Half, Half), (Missing, Half), (Half, Missing), (Half, Refused), (Same,)):
        layer = torch.nn.Linear(2, 2, bias=False)
        layer.weight.data = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        for kind in kinds:
            tools.register_parametrization(layer, "weight", kind())
        original = layer.parametrizations.weight.original
        found += [layer.weight.tolist(), original.tolist()]
        new = torch.tensor([[4.0, 8.0], [8.0, 12.0]])
        for value in (new, new.double()):
            try:
                layer.weight = value
            except (RuntimeError, ValueError, NotImplementedError) as error:
                found.append(str(error))
        new += 1
        found += [layer.weight.tolist(), layer.parametrizations.weight.original is original]
    return found


def test_parametrizations_on_top_of_others_leave_originals_as_they_are() -> None:
    """They were given values by which the attribute stayed what it was."""
    want, have = (inverses(s) for s in SPACES)
    assert have == want


def test_removals() -> None:
    layer = old_weight_norm(SPACES[1], nn.Linear(3, 2))
    before = layer.weight.detach().numpy().copy()
    nn.utils.remove_weight_norm(layer)
    np.testing.assert_allclose(layer.weight.detach().numpy(), before, rtol=1e-6)
    nn.utils.prune.l1_unstructured(layer, "weight", 2)
    assert nn.utils.prune.is_pruned(layer)
    nn.utils.prune.remove(layer, "weight")
    assert int((layer.weight == 0).sum()) == 2 and not nn.utils.prune.is_pruned(layer)
    with pytest.raises(ValueError, match="not found"):
        nn.utils.remove_spectral_norm(layer)


def test_fusion_with_batch_norm() -> None:
    graphc.manual_seed(0)
    conv, bn = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
    bn(conv(graphc.randn(5, 3, 6, 6)))
    conv.eval()
    bn.eval()
    x = graphc.randn(2, 3, 6, 6)
    fused = nn.utils.fuse_conv_bn_eval(conv, bn)
    np.testing.assert_allclose(
        fused(x).detach().numpy(), bn(conv(x)).detach().numpy(), rtol=1e-4, atol=1e-5
    )


def test_skip_init_draws_nothing() -> None:
    graphc.manual_seed(0)
    want = graphc.rand(3)
    graphc.manual_seed(0)
    layer = nn.utils.skip_init(nn.Linear, 3, 4)
    assert layer.weight.shape == (4, 3)
    np.testing.assert_array_equal(graphc.rand(3).numpy(), want.numpy())


def test_lazy_layers_take_shapes_from_inputs_and_files() -> None:
    graphc.manual_seed(0)
    layer = nn.LazyLinear(3)
    assert layer.has_uninitialized_params()
    with pytest.raises(ValueError, match="uninitialized parameter"):
        layer.weight + 1
    layer(graphc.ones(2, 5))
    assert type(layer) is nn.Linear and layer.weight.shape == (3, 5)
    other = nn.LazyLinear(3)
    other.load_state_dict(layer.state_dict())
    np.testing.assert_array_equal(other.weight.detach().numpy(), layer.weight.detach().numpy())


def test_buffers_and_hooks_of_all_modules() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kept = nn.Buffer(graphc.ones(2))
            self.dropped = nn.Buffer(graphc.ones(2), persistent=False)

        def forward(self, x: Any) -> Any:
            return x * self.kept

    net = Net()
    assert [name for name, _ in net.named_buffers()] == ["kept", "dropped"]
    assert list(net.state_dict()) == ["kept"]
    seen: list[str] = []
    handle = nn.modules.module.register_module_forward_hook(
        lambda module, args, output: seen.append(type(module).__name__)
    )
    net(graphc.ones(2))
    handle.remove()
    net(graphc.ones(2))
    assert seen == ["Net"]


def test_module_compile() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    x = graphc.randn(2, 3)
    want = net(x).detach().numpy()
    net.compile()
    np.testing.assert_allclose(net(x).detach().numpy(), want, rtol=1e-6, atol=1e-7)
    assert copy.deepcopy(net)._compiled_call_impl is None
    net.set_submodule("1", nn.Tanh())
    assert isinstance(net.get_submodule("1"), nn.Tanh)


def test_lazy_linear_knows_its_size_after_loading() -> None:
    for s in SPACES:
        layer = s.nn.LazyLinear(3)
        layer.load_state_dict(s.nn.Linear(4, 3).state_dict())
        layer(s.torch.ones(2, 4))
        assert (type(layer).__name__, layer.in_features) == ("Linear", 4)


def test_embeddings_tell_their_options() -> None:
    told = [
        repr(s.nn.Embedding(3, 2, 0, 1.0, 1.0, scale_grad_by_freq=True, sparse=True))
        for s in SPACES
    ]
    assert told[0] == told[1]
