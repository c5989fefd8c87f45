"""A variational autoencoder of handwritten digits (Kingma and Welling, 2013).

    python examples/vae.py [--steps 600] [--out digits.png]

The random draws of the latent numbers are part of the compiled step, from PyTorch's own stream.
With `--out` (and Pillow), a picture of 64 digits that nobody wrote.
"""

import argparse
from pathlib import Path

import graphc as torch
import graphc.nn as nn
import graphc.nn.functional as F
from graphc.vision.datasets import MNIST
from graphc.vision.utils import save_image


class VAE(nn.Module):
    """Images [N, 784] in [0, 1] to logits of their copies, and the latent mean and log-variance."""

    def __init__(self, hidden: int = 256, latent: int = 8) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(784, hidden), nn.ReLU())
        self.mean, self.log_variance = nn.Linear(hidden, latent), nn.Linear(hidden, latent)
        self.decoder = nn.Sequential(
            nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, 784)
        )

    def forward(self, x):
        hidden = self.encoder(x)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        latent = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        return self.decoder(latent), mean, log_variance


def bound(logits, x, mean, log_variance):
    """The negative evidence lower bound, in nats per image."""
    copied = F.binary_cross_entropy_with_logits(logits, x, reduction="sum")
    divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()
    return (copied + divergence) / len(x)


def main(steps: int = 600, out: Path | None = None) -> float:
    """The bound on the held-out digits, in nats."""
    torch.manual_seed(0)
    images = MNIST(train=True).data.flatten(1).float() / 255
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    @torch.compile
    def step(x):
        optimizer.zero_grad()
        loss = bound(*model_and(x))
        loss.backward()
        optimizer.step()
        return loss

    def model_and(x):
        logits, mean, log_variance = model(x)
        return logits, x, mean, log_variance

    for done in range(1, steps + 1):
        loss = step(images[torch.randint(0, len(images), (128,))])
        if done % 100 == 0:
            print(f"step {done}: {loss.item():.1f} nats")

    with torch.no_grad():
        held = bound(*model_and(MNIST(train=False).data.flatten(1).float() / 255)).item()
        if out is not None:
            drawn = model.decoder(torch.randn(64, 8)).sigmoid()
            save_image(drawn.view(64, 1, 28, 28), out, nrow=8)
    print(f"held-out digits: {held:.1f} nats")
    return held


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    main(args.steps, args.out)
