"""A trainer with methods: augmentation, a loss of its own, a log, a schedule that looks at it."""

import torch
from torch import nn


class Meter:
    def __init__(self):
        self.sum = self.count = 0

    def update(self, value, count=1):
        self.sum += value * count
        self.count += count

    @property
    def average(self):
        return self.sum / max(self.count, 1)


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        self.plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(self.optimizer, patience=1)
        self.history, self.steps, self.meter = [], 0, Meter()

    def augment(self, x):
        return x + 0.01 * torch.randn_like(x) * (torch.rand(x.size(0), 1) > 0.5)

    def loss(self, x, y):
        squares = (self.model(self.augment(x)) - y).pow(2) * torch.linspace(0.5, 1.5, 3)
        return squares.mean() + 1e-3 * sum(p.abs().sum() for p in self.model.parameters())

    def step(self, x, y):
        self.steps += 1
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        loss.backward()
        self.optimizer.step()
        self.history.append(loss.item())
        return loss


torch.manual_seed(10)
trainer = Trainer(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)))
weights = torch.randn(4, 3)
for epoch in range(10):
    for batch in range(8):
        x = torch.randn(12 if batch < 7 else 5, 4)
        loss = trainer.step(x, x @ weights)
        trainer.meter.update(loss.item(), x.size(0))
    trainer.plateau.step(trainer.meter.average)
    rate = trainer.optimizer.param_groups[0]["lr"]
    print(epoch, trainer.steps, f"{trainer.meter.average:.4f} {trainer.history[-1]:.4f} {rate:.5f}")
