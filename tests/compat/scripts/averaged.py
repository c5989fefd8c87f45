"""A moving average of the weights, a penalty on them, early stopping; functions of the script's own."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(7)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
average = copy.deepcopy(model)
for parameter in average.parameters():
    parameter.requires_grad_(False)
optimizer = torch.optim.Adam(model.parameters(), 1e-2)


@torch.no_grad()
def update(decay):
    for kept, now in zip(average.parameters(), model.parameters()):
        kept.mul_(decay).add_(now, alpha=1 - decay)


def penalty():
    return sum(parameter.pow(2).sum() for parameter in model.parameters())


class Stopper:
    def __init__(self, patience):
        self.patience, self.best, self.count = patience, float("inf"), 0

    def step(self, value):
        self.count = 0 if value < self.best - 1e-4 else self.count + 1
        self.best = min(self.best, value)
        return self.count >= self.patience


stopper, history = Stopper(5), []
for i in range(120):
    x = torch.randn(16, 4)
    y = torch.stack([x.sum(1), x.prod(1)], 1)
    loss = F.mse_loss(model(x), y) + 1e-4 * penalty()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    update(min(0.99, (1 + i) / (10 + i)))
    if i % 10 == 9:
        with torch.no_grad():
            history.append(F.mse_loss(average(x), y).item())
        print(i, f"{loss.item():.4f} {history[-1]:.4f}")
        if stopper.step(history[-1]):
            print("stop")
            break
