"""Makes format_1/: small .gcx files as graphc at commit 2450e0dd wrote them, and what calls gave.

Run with the code of that commit; nothing else writes format 1. It stays here to say what they are.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, namedtuple
from pathlib import Path
from typing import Any

import numpy as np

import graphc as torch
import graphc.nn as nn
import graphc.nn.functional as F
from graphc.export import Dim, export

Pair = namedtuple("Pair", ["first", "second"])


class ConvNet(nn.Module):
    """Convolution, batch norm, pooling; results in a dict, one of them a size."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, padding=1)
        self.norm = nn.BatchNorm2d(2)
        self.head = nn.Linear(2 * 2 * 2, 3)

    def forward(self, x: Any) -> Any:
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        return {"logits": self.head(x.flatten(1)), "rows": x.shape[0]}


class Tied(nn.Module):
    """An embedding whose weight is the head's, too."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: Any) -> Any:
        return self.head(self.table(ids))


def mixed(pair: Any, items: list[Any], *, options: dict[str, Any]) -> Any:
    """Containers, numbers and strings in arguments and results; a large constant."""
    a = pair.first + items[0] * options["gain"]
    large = torch.arange(600).reshape(3, 200).float()
    b = a @ (pair.second.T + large[:, :4].T)
    return OrderedDict(sum=a, both=Pair(b, (a, None)), same=items[1], note="ok", view=a.T)


def main(folder: Path) -> None:
    """Write the files."""
    torch.manual_seed(0)
    conv = ConvNet()
    conv(torch.randn(5, 1, 4, 4))
    pair = Pair(torch.randn(2, 4), torch.randn(3, 4))
    kwargs = {"options": {"gain": 2.5}}
    save(folder, "convnet", conv.eval(), (torch.randn(3, 1, 4, 4),), {}, ({0: "batch"},))
    save(folder, "tied", Tied().eval(), (torch.tensor([[1, 2], [3, 6]]),))
    save(folder, "containers", mixed, (pair, [torch.randn(2, 4), torch.ones(1)]), kwargs)
    save(folder, "two_sizes", lambda x, y: (x @ y.T, x.sum(1)),
         (torch.rand(2, 3), torch.rand(4, 3)), {},
         ({0: "n", 1: "k"}, {0: Dim("m", min=2, max=9), 1: "k"}))
    save(folder, "lstm", nn.LSTM(3, 4, batch_first=True).eval(), (torch.randn(2, 3, 3),), {},
         ({0: Dim("batch", max=64)},))
    save(folder, "dtypes", lambda x, i, b: (x.double().sum(), i.remainder(3), ~b, x.bfloat16() * 2),
         (torch.rand(4), torch.arange(5), torch.tensor([True, False])))
    save(folder, "attention", nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(),
         (torch.randn(2, 3, 8),), {}, ({0: "batch"},))
    save(folder, "guarded", lambda x: x * 2 if x.shape[0] % 2 == 0 else x, (torch.ones(4, 3),), {},
         ({0: Dim("n", max=8)},))
    save(folder, "squeezed", lambda x: x.squeeze(0) + 1, (torch.ones(3, 2),), {}, ({0: "n"},))
    save(folder, "draws_nothing", lambda x: torch.zeros_like(x) + torch.arange(x.shape[0]),
         (torch.ones(4),), {}, ({0: "n"},))


def save(
    folder: Path, name: str, model: Any, args: tuple[Any, ...], kwargs: Any = None,
    shapes: Any = None,
) -> None:
    """name.gcx and name.npz: the leaves of the results in eager mode. The arguments are stored by
    their leaves, too."""
    export(model, args, kwargs or None, dynamic_shapes=shapes).save(folder / f"{name}.gcx")
    with torch.no_grad():
        result = model(*args, **(kwargs or {}))
    inputs = {f"in.{i}": each for i, each in enumerate(leaves((args, kwargs or {})))}
    outputs = {f"out.{i}": each for i, each in enumerate(leaves(result))}
    arrays = {
        key: np.asarray(each.float().numpy() if each.dtype is torch.bfloat16 else each.numpy())
        for key, each in {**inputs, **outputs}.items() if isinstance(each, torch.Tensor)
    }
    np.savez(folder / f"{name}.npz", **arrays)


def leaves(value: Any) -> list[Any]:
    """What containers hold, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
