"""Modules of the Chinese PyTorch notes that several tests use."""

from __future__ import annotations

import graphc.nn.functional as F
from graphc import nn

# mypy does not check tests: the classes are the notes' own, without annotations


class MLP(nn.Module):
    def __init__(self, **kwargs):  # type: ignore[no-untyped-def]
        super(MLP, self).__init__(**kwargs)  # noqa: UP008
        self.hidden = nn.Linear(784, 256)
        self.act = nn.ReLU()
        self.output = nn.Linear(256, 10)

    def forward(self, x):  # type: ignore[no-untyped-def]
        a = self.act(self.hidden(x))
        return self.output(a)


class TheModelClass(nn.Module):
    def __init__(self):  # type: ignore[no-untyped-def]
        super(TheModelClass, self).__init__()  # noqa: UP008
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):  # type: ignore[no-untyped-def]
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = x.view(-1, 16 * 5 * 5)
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)
