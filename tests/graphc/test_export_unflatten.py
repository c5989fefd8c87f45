"""torch.export.unflatten: names, state and calls, against torch's."""

import importlib
from typing import Any

import numpy as np
import pytest

import graphc

pytest.importorskip("torch")

# torch 2.13 warns about itself in its unflatten()
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.* is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node:UserWarning"),
]


def models(m: Any) -> dict[str, Any]:
    """By name: a class of Modules, arguments and keyword arguments."""
    nn, x = m.nn, m.linspace(-1, 1, 6).reshape(2, 3)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.norm, self.unused = nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(2, 2)
            self.register_buffer("shift", m.ones(3), persistent=False)

        def forward(self, x: Any, k: Any = None) -> Any:
            y = self.norm(self.fc(x)) + self.shift
            return y if k is None else {"y": y * k["a"], "rest": [k["a"]]}

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Block()
            self.blocks = nn.ModuleList([nn.Linear(3, 3), nn.ReLU()])
            self.tied = self.blocks[0]

        def forward(self, x: Any, k: Any = None) -> Any:
            return self.block(self.tied(self.blocks[1](self.blocks[0](x))), k=k)

    class Constants(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.c = nn.Linear(3, 3), m.full((3,), 2.0)

        def forward(self, x: Any) -> Any:
            return self.layer(x) * self.c + m.tensor([1.0, 2.0, 3.0]), x.shape[0]

    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(m.ones(3) * 0.5)
            self.table = nn.ParameterDict({"a": nn.Parameter(m.ones(3))})

        def forward(self, pair: Any) -> Any:
            return (pair[0] * self.scale + pair[1]["b"] * self.table["a"],)

    class Bare(nn.Module):
        def forward(self, x: Any) -> Any:
            return x + 1

    keyed = {"k": {"a": m.full((3,), 3.0)}}
    return {
        "block": (Block, (x,), {}), "trained": (Block, (x,), {}), "keyed": (Tied, (x,), keyed),
        "tied": (Tied, (x,), {}), "constants": (Constants, (x,), {}),
        "plain": (Plain, ((x, {"b": x + 1}),), {}), "bare": (Bare, (x,), {}),
        "linear": (lambda: nn.Linear(3, 2), (x,), {}),
        "sequence": (lambda: nn.Sequential(nn.Linear(3, 2), nn.Sequential(nn.GELU())), (x,), {}),
        "attention": (lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True),
                      (m.linspace(-1, 1, 24).reshape(2, 3, 4),), {}),
    }


def seeded(m: Any, model: Any) -> dict[str, Any]:
    """A state for it, the same with both packages."""
    found = {}
    for number, (name, tensor) in enumerate(model.state_dict().items()):
        array = np.random.default_rng(number).random((*tensor.shape,)) + 0.1
        kind = str(tensor.dtype).rpartition(".")[2]
        found[name] = m.from_numpy(np.asarray(array).astype(kind))
    return found


def made(package: str, name: str) -> tuple[Any, Any, Any, Any]:
    m = importlib.import_module(package)
    make, args, kwargs = models(m)[name]
    model = make().train(name == "trained")
    model.load_state_dict(seeded(m, model))
    program = m.export.export(model, args, kwargs)
    return m, m.export.unflatten(program), (args, kwargs), model


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [list(value), *(each for v in value.values() for each in leaves(v))]
    if isinstance(value, list | tuple):
        return [type(value), *(each for v in value for each in leaves(v))]
    return [np.asarray(value.detach()) if hasattr(value, "detach") else value]


def close(found: Any, wanted: Any) -> None:
    mine, theirs = leaves(found), leaves(wanted)
    assert len(mine) == len(theirs)
    for a, b in zip(mine, theirs, strict=True):
        if isinstance(a, np.ndarray):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        else:
            assert a == b


@pytest.mark.parametrize("name", models(graphc))
def test_names_and_values_as_in_torch(name: str) -> None:
    _, mine, (args, kwargs), model = made("graphc", name)
    _, other, (theirs, by_name), _ = made("torch", name)
    assert list(mine.state_dict()) == list(other.state_dict()) == list(model.state_dict())
    for each in ("named_parameters", "named_buffers"):
        assert [n for n, _ in getattr(mine, each)()] == [n for n, _ in getattr(other, each)()]
    holding = {n.rpartition(".")[0] for n, _ in (
        *other.named_parameters(remove_duplicate=False), *other.named_buffers()
    )}
    assert holding <= {n for n, _ in mine.named_modules(remove_duplicate=False)}
    assert type(mine).__name__ == type(other).__name__ and mine.training == other.training
    for _ in range(2):  # the second finds what the first wrote
        close(mine(*args, **kwargs), other(*theirs, **by_name))
    close(dict(mine.state_dict()), dict(other.state_dict()))


def test_a_state_that_is_loaded_and_shared() -> None:
    _, mine, (args, kwargs), model = made("graphc", "keyed")
    assert mine.tied.weight is getattr(mine.blocks, "0").weight
    state = {name: tensor * 2 for name, tensor in model.state_dict().items()}
    mine.load_state_dict(state)
    before = model(*args, **kwargs)["y"]
    model.load_state_dict(state)
    assert not graphc.allclose(before, mine(*args, **kwargs)["y"])
    assert graphc.allclose(model(*args, **kwargs)["y"], mine(*args, **kwargs)["y"], atol=1e-5)
    with pytest.raises(RuntimeError, match=r"Error\(s\) in loading state_dict for "
                                           r"UnflattenedModule:\n\tMissing key\(s\)"):
        mine.load_state_dict({})


def test_what_is_refused() -> None:
    _, mine, (args, _), model = made("graphc", "tied")
    with pytest.raises(NotImplementedError, match=r"does not keep what its part 'block\.fc' comp"):
        mine.block.fc(*args)
    for wrong in ((*args, *args), ([args[0]],), ()):
        with pytest.raises(TypeError):
            mine(*wrong)
    with pytest.raises(TypeError, match="takes an ExportedProgram, got Tied"):
        graphc.export.unflatten(model)
    program = graphc.export.export(model, args)
    with pytest.raises(NotImplementedError, match="takes no flat_args_adapter"):
        graphc.export.unflatten(program, lambda *each: each)


@pytest.mark.parametrize("package", ["graphc", "torch"])
def test_signatures_to_preserve(package: str) -> None:
    m, _, (args, _), model = made(package, "block")
    program = m.export.export(model, args, preserve_module_call_signature=("norm", "fc"))
    close(m.export.unflatten(program)(*args), model(*args))
    with pytest.raises(AttributeError, match="'Block' object has no attribute 'other'"):
        m.export.export(model, args, preserve_module_call_signature=("other",))
