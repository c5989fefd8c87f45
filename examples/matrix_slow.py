"""The first lessons of MatrixSlow, the framework of a book that builds one in Python and NumPy:
a linear neuron, a factorization machine, a recurrent network, a filter that is learnt.

    python examples/matrix_slow.py [--steps 300]

There, nodes of a graph are put together by hand, and optimizers walk it. Here, the same four
models are functions, and each training step is compiled.
"""

import argparse
import math

import graphc as torch
import graphc.nn as nn
import graphc.nn.functional as F


def trained(model, loss_of, batch, steps, lr):
    """The loss of the last of so many compiled steps."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)

    @torch.compile
    def step(*arrays):
        optimizer.zero_grad()
        loss = loss_of(*arrays)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(steps):
        loss = step(*batch())
    return loss.item()


def adaline(steps: int) -> float:
    """A linear neuron tells people's sexes (-1, 1) by height, weight and fat; the share it gets."""
    def people(count=64):
        sex = torch.randint(0, 2, (count,)) * 2.0 - 1
        height = 165 + 6 * sex + 5 * torch.randn(count)
        weight = 60 + 10 * sex + 8 * torch.randn(count)
        fat = 22 - 5 * sex + 3 * torch.randn(count)
        x = torch.stack([height, weight, fat], dim=1)
        return (x - torch.tensor([165.0, 60.0, 22.0])) / torch.tensor([8.0, 13.0, 6.0]), sex

    neuron = nn.Linear(3, 1)

    def perceptron_loss(x, sex):
        return F.relu(0.5 - sex * neuron(x)[:, 0]).mean()

    trained(neuron, perceptron_loss, people, steps, 0.05)
    x, sex = people(1000)
    return ((neuron(x)[:, 0] * sex) > 0).float().mean().item()


class FactorizationMachine(nn.Module):
    """w.x + the sum over pairs of (v_i.v_j) x_i x_j + b (Rendle, 2010)."""

    def __init__(self, inputs: int, rank: int = 4) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, 1)
        self.factors = nn.Parameter(0.1 * torch.randn(inputs, rank))

    def forward(self, x):
        pairs = (x @ self.factors).square() - x.square() @ self.factors.square()
        return self.linear(x)[:, 0] + 0.5 * pairs.sum(1)


def factorization_machine(steps: int) -> float:
    """What a linear model can't say: whether a product is positive; the share it gets."""
    def points(count=128):
        x = torch.rand(count, 2) * 2 - 1
        return x, (x[:, 0] * x[:, 1] > 0).float()

    machine = FactorizationMachine(2)

    def loss_of(x, positive):
        return F.binary_cross_entropy_with_logits(machine(x), positive)

    trained(machine, loss_of, points, steps, 0.1)
    x, positive = points(1000)
    return ((machine(x) > 0).float() == positive).float().mean().item()


class Waves(nn.Module):
    """Rows [batch, time] to the logits of two kinds of waves, by a recurrent network."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.RNN(1, 12, batch_first=True)
        self.head = nn.Linear(12, 2)

    def forward(self, x):
        states, _ = self.recurrent(x[:, :, None])
        return self.head(states.mean(1))


def recurrent(steps: int) -> float:
    """Sines or square waves, with noise; the share that is told apart."""
    def waves(count=64):
        kind = torch.randint(0, 2, (count,))
        start = 2 * math.pi * torch.rand(count, 1)
        sine = (start + torch.linspace(0, 4 * math.pi, 48)).sin()
        rows = torch.where(kind[:, None] == 1, sine.sign(), sine)
        return rows + 0.1 * torch.randn(count, 48), kind

    model = Waves()

    def loss_of(rows, kind):
        return F.cross_entropy(model(rows), kind)

    trained(model, loss_of, waves, steps, 0.01)
    rows, kind = waves(500)
    with torch.no_grad():
        return (model(rows).argmax(1) == kind).float().mean().item()


def learnt_filter(steps: int) -> float:
    """A 3x3 convolution that is shown pictures and their Sobel edges; how far its filter is off."""
    sobel = torch.tensor([[[[1.0, 0, -1], [2, 0, -2], [1, 0, -1]]]])
    layer = nn.Conv2d(1, 1, 3, padding=1, bias=False)

    def pictures():
        x = torch.rand(8, 1, 32, 32)
        return x, F.conv2d(x, sobel, padding=1)

    def loss_of(x, edges):
        return F.mse_loss(layer(x), edges)

    trained(layer, loss_of, pictures, steps, 0.05)
    return (layer.weight - sobel).abs().max().item()


def main(steps: int = 300) -> tuple[float, float, float, float]:
    """Three shares that are right, and how far the learnt filter is from Sobel's."""
    torch.manual_seed(0)
    found = adaline(steps), factorization_machine(steps), recurrent(steps), learnt_filter(steps)
    print("linear neuron {:.3f}, factorization machine {:.3f}, recurrent network {:.3f} right; "
          "the filter is {:.4f} off".format(*found))
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    main(parser.parse_args().steps)
