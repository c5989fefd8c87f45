"""Models as ONNX: the benchmarks' and graphc.vision's, with free sizes, run by onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc as torch
import graphc.nn as nn
from benchmarks import models
from benchmarks.suite import zoo
from graphc.vision.models import get_model, list_models
from tests.onnx import writing

BATCHES = (1, 2, 5)


def export(model: Any, args: tuple[Any, ...], **options: Any) -> Any:
    """The program of a model in eval mode."""
    return torch.onnx.export(model.eval() if isinstance(model, nn.Module) else model, args,
                             **options)


def compare(program: Any, model: Any, *args: Any, tolerance: float = 2e-5) -> None:
    """onnxruntime's results against eager mode's."""
    with torch.no_grad():
        want = model(*args)
    want = want if isinstance(want, tuple) else (want,)
    found, who = writing.run(program, [x.numpy() for x in args])
    assert who == "onnxruntime" and len(found) == len(want)
    for ours, theirs in zip(found, want, strict=True):
        assert ours.dtype == theirs.numpy().dtype
        scale = float(np.abs(theirs.numpy()).max(initial=1e-3))
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=0, atol=tolerance * scale)


def settled(model: Any, *args: Any) -> Any:
    """With running statistics that are not the initial ones."""
    model(*args)
    return model.eval()


@pytest.mark.parametrize("name", ["mlp", "lenet"])
def test_models_of_the_benchmarks(name: str) -> None:
    torch.manual_seed(0)
    model, _ = models.make(models.load("graphc"), name)
    x = torch.tensor(models.batch(name)[0])
    program = export(model, (x[:3],), dynamic_shapes={"x": {0: "batch"}})
    for batch in BATCHES:
        compare(program, model, x[:batch])


def test_a_language_model_of_any_length() -> None:
    torch.manual_seed(0)
    model = models.load("graphc").GPT(vocab=17, context=16, dim=16, heads=2, layers=2)
    tokens = torch.randint(0, 17, (3, 8))
    length = torch.export.Dim("length", min=2, max=16)
    program = export(model, (tokens,), dynamic_shapes={"idx": {0: "batch", 1: length}})
    for batch in BATCHES:
        for length in (2, 5, 16):
            compare(program, model, torch.randint(0, 17, (batch, length)))


def test_a_residual_network() -> None:
    """Convolutions with batch norms, of which none is left as arithmetic."""
    torch.manual_seed(0)
    block = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.MaxPool2d(3, 2, 1), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(8, 5),
    )
    model = settled(block, torch.randn(4, 3, 16, 16))
    program = export(model, (torch.randn(2, 3, 16, 16),), dynamic_shapes=({0: "n"},))
    for batch in BATCHES:
        compare(program, model, torch.randn(batch, 3, 16, 16))
    kinds = [node.op_type for node in program.model_proto.graph.node]
    assert kinds.count("BatchNormalization") == 2 and "Sub" not in kinds, kinds
    assert "Add" not in kinds and kinds.count("Gemm") == 1


def test_a_recurrent_network() -> None:
    torch.manual_seed(0)
    space = models.load("graphc")
    model = zoo.lstm(space, 6, 8, 3).eval()
    program = export(model, (torch.randn(3, 7, 6),), dynamic_shapes=({0: "batch", 1: "length"},))
    for batch in BATCHES:
        for length in (2, 9):
            compare(program, model, torch.randn(batch, length, 6))


def test_an_encoder() -> None:
    torch.manual_seed(0)
    model = zoo.encoder(models.load("graphc"), 16, 2, 2).eval()
    program = export(model, (torch.randn(3, 7, 16),), dynamic_shapes=({0: "batch", 1: "length"},))
    for batch in BATCHES:
        compare(program, model, torch.randn(batch, 4, 16))


def test_a_decoder_with_what_it_kept() -> None:
    torch.manual_seed(0)
    model = zoo.decoder_step(models.load("graphc"), 16, 2, 2, 11).eval()
    token, past = torch.randint(0, 11, (2, 1)), torch.randn(2, 2, 2, 2, 5, 8)
    program = export(model, (token, past), dynamic_shapes={"token": None, "past": {4: "length"}})
    for length in (2, 5, 9):
        compare(program, model, token, torch.randn(2, 2, 2, 2, length, 8))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt", "resnet18"])
def test_large_models_of_the_benchmarks(name: str) -> None:
    torch.manual_seed(0)
    model, _ = models.make(models.load("graphc"), name)
    x = torch.tensor(models.batch(name)[0])
    if name == "resnet18":
        settled(model, x)
    program = export(model, (x[:3],), dynamic_shapes=({0: "batch"},))
    for batch in BATCHES:
        compare(program, model, x[:batch], tolerance=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2"])
def test_the_zoo(name: str) -> None:
    torch.manual_seed(0)
    model = settled(getattr(zoo, name)(models.load("graphc")), torch.randn(2, 3, 224, 224))
    program = export(model, (torch.randn(2, 3, 224, 224),), dynamic_shapes=({0: "batch"},))
    for batch in BATCHES:
        compare(program, model, torch.randn(batch, 3, 224, 224), tolerance=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", list_models())
def test_models_of_vision(name: str) -> None:
    torch.manual_seed(0)
    size = 299 if name == "inception_v3" else 64 if name != "alexnet" else 128
    model: Any = get_model(name)
    model.eval()
    x = torch.randn(2, 3, size, size)
    program = export(model, (x,), dynamic_shapes=({0: "batch"},))
    for batch in BATCHES:
        compare(program, model, torch.randn(batch, 3, size, size), tolerance=2e-4)


IMAGES, ROWS = (2, 4, 9, 9), (3, 5, 8)
LAYERS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "ConvTranspose2d": (
        lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1), IMAGES
    ),
    "AvgPool2d": (lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False), IMAGES),
    "AdaptiveAvgPool2d": (lambda: nn.AdaptiveAvgPool2d(3), IMAGES),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), IMAGES),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(4), IMAGES),
    "bilinear": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), IMAGES),
    "nearest": (lambda: nn.Upsample(scale_factor=2), IMAGES),
    "PixelShuffle": (lambda: nn.PixelShuffle(2), IMAGES),
    "LocalResponseNorm": (lambda: nn.LocalResponseNorm(3), IMAGES),
    "ReflectionPad2d": (lambda: nn.ReflectionPad2d(2), IMAGES),
    "PReLU": (lambda: nn.PReLU(4), IMAGES),
    "LayerNorm": (lambda: nn.LayerNorm(8), ROWS),
    "RMSNorm": (lambda: nn.RMSNorm(8), ROWS),
    "GRU": (lambda: nn.GRU(8, 6, batch_first=True), ROWS),
    "SELU": (nn.SELU, ROWS), "Mish": (nn.Mish, ROWS), "Softplus": (nn.Softplus, ROWS),
    "Hardswish": (nn.Hardswish, ROWS), "GLU": (nn.GLU, ROWS), "LogSigmoid": (nn.LogSigmoid, ROWS),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str) -> None:
    torch.manual_seed(0)
    make, shape = LAYERS[name]
    model = make().eval()
    compare(export(model, (torch.randn(shape),), dynamic_shapes=({0: "batch"},)), model,
            torch.randn(5, *shape[1:]))


def test_what_is_written_can_be_read(tmp_path: Any) -> None:
    """Sizes stay free, weights keep their names, and what was read can be written."""
    torch.manual_seed(0)
    model = zoo.encoder(models.load("graphc"), 16, 2, 1).eval()
    first = torch.randn(3, 7, 16)
    export(model, (first,), f=tmp_path / "m.onnx", dynamic_shapes=({0: "batch", 1: "length"},))
    read = torch.onnx.load(tmp_path / "m.onnx").eval()
    again = export(read, (first,), dynamic_shapes=({0: "batch", 1: "length"},))
    for shape in ((2, 4, 16), (5, 7, 16)):
        x = torch.randn(shape)
        found = read(x)
        found = found if isinstance(found, torch.Tensor) else found[0]
        np.testing.assert_allclose(found.detach(), model(x).detach(), atol=1e-5)
        compare(again, model, x)
    assert any("linear1.weight" in name for name, _ in read.named_parameters())
