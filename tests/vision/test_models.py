"""vision.models: parameter counts as published, and the same numbers as the same code on torch."""

import importlib
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.vision import models

torch = pytest.importorskip("torch")

# pytorch.org/vision/stable/models.html
PARAMETERS = {
    "alexnet": 61_100_840, "vgg11": 132_863_336, "vgg13_bn": 133_053_736, "vgg16": 138_357_544,
    "vgg19": 143_667_240, "resnet18": 11_689_512, "resnet34": 21_797_672,
    "resnet50": 25_557_032, "resnet101": 44_549_160, "resnet152": 60_192_808,
    "resnext50_32x4d": 25_028_904, "resnext101_32x8d": 88_791_336,
    "wide_resnet50_2": 68_883_240, "wide_resnet101_2": 126_886_696,
    "squeezenet1_0": 1_248_424, "squeezenet1_1": 1_235_496, "mobilenet_v2": 3_504_872,
    "densenet121": 7_978_856, "densenet161": 28_681_000, "densenet169": 14_149_480,
    "densenet201": 20_013_928, "inception_v3": 27_161_264,
}
SMALL = {"alexnet", "resnet18", "squeezenet1_1", "mobilenet_v2", "densenet121"}
SIZE = {"inception_v3": 75, "densenet121": 32, "alexnet": 64, "squeezenet1_1": 33}


@pytest.fixture(autouse=True)
def no_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Normal draws of 100 million weights take minutes; zeros count as well."""
    for name in ("normal_", "kaiming_normal_", "kaiming_uniform_", "trunc_normal_"):
        monkeypatch.setattr(graphc.nn.init, name, lambda tensor, *args, **kwargs: tensor)


@pytest.mark.parametrize(
    "name", [n if n in SMALL else pytest.param(n, marks=pytest.mark.slow) for n in PARAMETERS]
)
def test_parameter_counts(name: str) -> None:
    model = models.get_model(name)
    assert sum(p.numel() for p in model.parameters()) == PARAMETERS[name]


def on_torch(module: Any, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """The file of a model family, run with torch in graphc's place."""
    source = Path(module.__file__).read_text()
    source = source.replace("from graphc", "from torch").replace("from .weights", "from _weights")
    weights = types.ModuleType("_weights")
    weights.builder = lambda name, family, make, finish=None: make  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "_weights", weights)
    made = types.ModuleType("torch_twin")
    exec(compile(source, module.__file__, "exec"), made.__dict__)
    return made


FAMILIES = {
    "alexnet": "alexnet", "resnet18": "resnet", "squeezenet1_1": "squeezenet",
    "mobilenet_v2": "mobilenetv2", "densenet121": "densenet", "inception_v3": "inception",
}


@pytest.mark.parametrize(
    "name", [n if n in SMALL else pytest.param(n, marks=pytest.mark.slow) for n in FAMILIES]
)
def test_same_numbers_as_torch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    family = importlib.import_module(f"graphc.vision.models.{FAMILIES[name]}")
    theirs = on_torch(family, monkeypatch).BUILDERS[name](num_classes=7)
    ours = models.get_model(name, num_classes=7)
    generator = np.random.default_rng(0)
    state = {
        key: generator.normal(0, 0.05, tuple(value.shape)).astype(np.float32)
        if value.is_floating_point() else value.numpy()
        for key, value in theirs.state_dict().items()
    }
    state = {k: np.abs(v) + 0.5 if k.endswith("running_var") else v for k, v in state.items()}
    assert list(ours.state_dict()) == list(state)
    ours.load_state_dict({k: graphc.from_numpy(v.copy()) for k, v in state.items()})
    theirs.load_state_dict({k: torch.from_numpy(v.copy()) for k, v in state.items()})
    size = SIZE.get(name, 32)
    x = generator.normal(size=(2, 3, size, size)).astype(np.float32)
    with graphc.no_grad(), torch.no_grad():
        have = ours.eval()(graphc.from_numpy(x)).numpy()
        want = theirs.eval()(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(have, want, rtol=2e-4, atol=1e-5 * max(1, np.abs(want).max()))


def test_inception_gives_both_heads_while_training() -> None:
    outputs = models.InceptionOutputs(1, 2)
    assert (outputs.logits, outputs.aux_logits) == (1, 2)


def test_trained_weights_are_named_as_in_torchvision() -> None:
    weights = models.ResNet18_Weights
    assert weights.DEFAULT is weights.IMAGENET1K_V1
    assert weights.DEFAULT.url == "https://download.pytorch.org/models/resnet18-f37072fd.pth"
    assert models.ResNet50_Weights.DEFAULT.name == "IMAGENET1K_V2"
    assert weights.DEFAULT.transforms().crop_size == [224]
    with pytest.raises(ValueError, match="num_classes is 10"):
        models.resnet18(weights="DEFAULT", num_classes=10)
    with pytest.raises(ValueError, match="Unknown model"):
        models.get_model("resnet19")


def test_old_densenet_names_are_understood() -> None:
    from graphc.vision.models.densenet import _modern

    old = {"features.denseblock1.denselayer1.norm.1.weight": 1, "classifier.weight": 2}
    assert list(_modern(old)) == [
        "features.denseblock1.denselayer1.norm1.weight", "classifier.weight",
    ]
