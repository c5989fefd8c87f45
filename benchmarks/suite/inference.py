"""Models that answer: no gradients, evaluation mode."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax_twins
import large
import models
import numpy as np
import zoo
from workloads import BATCHES, Arrays, Work, Workload, numbers


def answer(
    name: str,
    model: Callable[[SimpleNamespace], Any],
    inputs: Callable[[int], Arrays],
    jax: Callable[..., Any] | None = None,
    **facts: Any,
) -> Workload:
    def make(space: SimpleNamespace) -> Work:
        space.torch.manual_seed(0)
        net = model(space).eval()
        return Work(net, net)

    twin = None if jax is None else jax_twins.inference(jax)
    return Workload(f"{name} inference", "inference", make, inputs, jax=twin, exports=True, **facts)


def mlp(batch: int, widths: list[int], **facts: Any) -> Workload:
    return answer(
        f"mlp {batch}: {'-'.join(map(str, widths))}", lambda s: zoo.mlp(s, widths),
        numbers((batch, widths[0])), jax_twins.mlp,
        flops=2.0 * batch * sum(a * b for a, b in itertools.pairwise(widths)), **facts,
    )


def _model(kind: str) -> Callable[[SimpleNamespace], Any]:
    return lambda space: getattr(models.load(space.torch.__name__), kind)()


def _large(kind: str) -> Callable[[SimpleNamespace], Any]:
    return lambda space: getattr(large.load(space.torch.__name__), kind)()


class _Logits:
    """ResNet-50 of ../large.py, which gives a loss, as a classifier."""

    def __call__(self, space: SimpleNamespace) -> Any:
        net = _large("ResNet50")(space)

        class Classifier(space.nn.Module):  # type: ignore[name-defined, misc]
            def __init__(self) -> None:
                super().__init__()
                self.net = net

            def forward(self, x: Any) -> Any:
                n = self.net
                x = n.pool(space.F.relu(n.bn(n.conv(x))))
                return n.fc(n.blocks(x).mean((2, 3)))

        return Classifier()


def tokens(batch: int, length: int, words: int) -> Callable[[int], Arrays]:
    return lambda call: (
        np.random.default_rng(call % BATCHES).integers(0, words, (batch, length)),
    )


def _decoding(call: int) -> Arrays:
    rng = np.random.default_rng(call % BATCHES)
    past = rng.standard_normal((6, 2, 1, 8, 255, 64), np.float32)
    return rng.integers(0, 8000, (1, 1)), past


ROWS = [
    answer("mlp b1", _model("MLP"), numbers((1, 784)), jax_twins.mlp, flops=2.0 * 203264),
    answer("mlp b256", _model("MLP"), numbers((256, 784)), jax_twins.mlp, flops=512.0 * 203264),
    answer("lenet b1", _model("LeNet"), numbers((1, 3, 32, 32)), jax_twins.lenet, convolves=True),
    answer("lenet b64", _model("LeNet"), numbers((64, 3, 32, 32)), jax_twins.lenet,
           convolves=True),
    answer("resnet18 b1", zoo.resnet18, numbers((1, 3, 224, 224)), flops=3.628e9, convolves=True),
    answer("resnet18 b8", zoo.resnet18, numbers((8, 3, 224, 224)), flops=29.02e9,
           convolves=True),
    answer("resnet50 b1", _Logits(), numbers((1, 3, 224, 224)), flops=8.18e9, convolves=True),
    answer("mobilenet_v2 b1", zoo.mobilenet_v2, numbers((1, 3, 224, 224)), flops=0.60e9,
           convolves=True),
    answer("encoder b1", lambda s: zoo.encoder(s, 512, 8, 6), numbers((1, 128, 512)),
           flops=2.0 * 6 * 128 * (12 * 512 * 512 + 2 * 128 * 512)),
    answer("bert b8", _large("Bert"), tokens(8, 128, 30522),
           flops=2.0 * 12 * 8 * 128 * (12 * 768 * 768 + 2 * 128 * 768)),
    answer("gpt b4", lambda s: models.load(s.torch.__name__).GPT(
        vocab=8000, context=256, dim=512, heads=8, layers=6), tokens(4, 256, 8000),
        jax_twins.gpt),
    answer("decoding one token", lambda s: zoo.decoder_step(s, 512, 8, 6, 8000), _decoding),
    answer("lstm", lambda s: zoo.lstm(s, 64, 128, 10), numbers((32, 50, 64)), jax_twins.lstm),
]
