"""Models that libraries are made of in tests, and their example arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import graphc as torch
import graphc.nn as nn
import graphc.nn.functional as F
from graphc.export import Dim


class LeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x: Any) -> Any:
        x = F.max_pool2d(self.conv1(x).relu(), 2)
        x = F.max_pool2d(self.conv2(x).relu(), 2).flatten(1)
        return self.fc3(self.fc2(self.fc1(x).relu()).relu())


class Norms(nn.Module):
    """Convolutions, a batch norm that has seen something, a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.norm.running_mean.normal_()
        self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        return (x + self.norm(self.second(x)).relu()).mean((2, 3))


class Small(nn.Module):
    """Quick to compile: no products of matrices. Several threads share its larger sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Parameter(torch.randn(16))

    def forward(self, x: Any) -> Any:
        rows = (x * self.layer).tanh().sum(-1)
        return rows - rows.amax(1, keepdim=True), x.shape[1]


class Sequence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 8)
        self.lstm = nn.LSTM(8, 12, batch_first=True)

    def forward(self, words: Any) -> Any:
        every, (last, cell) = self.lstm(self.words(words))
        return {"every": every, "last": last, "cell": cell}


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(16), nn.Linear(16, 48)
        self.out, self.up, self.down = nn.Linear(16, 16), nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x: Any) -> Any:
        b, t, c = x.shape
        heads = self.attention(self.norm(x)).view(b, t, 3, 2, 8).permute(2, 0, 3, 1, 4)
        q, k, v = heads[0], heads[1], heads[2]
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(x))), x.shape[1]


class Kinds(nn.Module):
    """Inputs of many dtypes, results that are an input, a weight, a size, and one that is twice."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(4.0))

    def forward(self, number: Any, mask: Any, half: Any, brain: Any, small: Any, x: Any) -> Any:
        total = (torch.where(mask, half.float(), brain.float()) * self.weight + number).to(
            torch.bfloat16
        )
        return total, total, x, self.weight, small + 1, x.shape[0], (x * 2).sum(), number > 1


class Case(NamedTuple):
    """How a model is exported."""

    model: Callable[[], nn.Module]
    args: Callable[[], tuple[Any, ...]]
    dynamic: Mapping[str, Any] | None = None
    others: Callable[[], list[tuple[Any, ...]]] = list  # arguments of other sizes


def _block(b: int, t: int) -> tuple[Any, ...]:
    return (torch.randn(b, t, 16),)


class Ranked(nn.Module):
    """What sorts: orders, the first of many, medians, what is drawn by a nucleus."""

    def forward(self, x: Any) -> Any:
        values, places = x.sort(-1, descending=True)
        kept = (values.softmax(-1).cumsum(-1) < 0.9).sum(-1)
        first, where = torch.topk(x[:, :, :5], 3, dim=-1)
        return values, places, kept, first, where, x.argsort(1), x.median(-1)[0]


CASES = {
    "ranked": Case(
        Ranked, lambda: (torch.randn(3, 9, 21),),
        {"x": {0: Dim("batch", max=5), 1: Dim("length", min=2, max=300)}},
        lambda: [
            (torch.randn(b, t, 21).round(decimals=1),) for b, t in ((1, 2), (2, 17), (5, 300))
        ],
    ),
    "small": Case(
        Small, lambda: (torch.randn(3, 400, 16),),
        {"x": {0: Dim("batch", max=5), 1: Dim("length", min=2, max=1000)}},
        lambda: [(torch.randn(b, t, 16),) for b, t in ((1, 7), (2, 2), (5, 1000))],
    ),
    "lenet": Case(LeNet, lambda: (torch.randn(3, 1, 28, 28),)),
    "norms": Case(
        Norms, lambda: (torch.randn(2, 3, 9, 9),), {"x": {0: Dim("batch", max=6)}},
        lambda: [(torch.randn(n, 3, 9, 9),) for n in (1, 6)],
    ),
    "sequence": Case(
        Sequence, lambda: (torch.randint(0, 11, (2, 5)),), {"words": {0: Dim("batch", max=4)}},
        lambda: [(torch.randint(0, 11, (n, 5)),) for n in (1, 4)],
    ),
    "block": Case(
        Block, lambda: _block(3, 7),
        {"x": {0: Dim("batch", max=5), 1: Dim("length", max=24)}},
        lambda: [_block(1, 7), _block(1, 1), _block(2, 1), _block(5, 24)],
    ),
    "kinds": Case(Kinds, lambda: (
        torch.tensor(2.5), torch.tensor([True, False, True, True]),
        torch.randn(3, 4).half(), torch.randn(3, 4).bfloat16(),
        torch.tensor([[127, -5]], dtype=torch.int8), torch.randn(5, 2, dtype=torch.float64),
    ), {"x": {0: Dim("rows", max=9)}}),
}
