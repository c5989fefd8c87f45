"""Denoising diffusion (Ho, Jain and Abbeel, 2020) of points on two moons.

    python examples/diffusion.py [--steps 1500]

The model learns to tell the noise from the points; drawing new ones walks from noise to the moons.
The walk is one compiled function: its loop over the times is recorded, and rolled up again.
"""

import argparse
import math

import graphc as torch
import graphc.nn as nn
import graphc.nn.functional as F

TIMES = 50


class Denoiser(nn.Module):
    """Points [N, 2] and times int64 [N] to the noise in them."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.times = nn.Embedding(TIMES, width)
        self.enter = nn.Linear(2, width)
        self.layers = nn.Sequential(
            nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(),
            nn.Linear(width, 2),
        )

    def forward(self, x, t):
        return self.layers(self.enter(x) + self.times(t))


def moons(count: int) -> torch.Tensor:
    """Points [count, 2] on two half circles."""
    angle, lower = math.pi * torch.rand(count), torch.randint(0, 2, (count,)).float()
    x = angle.cos() * (1 - 2 * lower) + lower
    y = angle.sin() * (1 - 2 * lower) + 0.5 * lower
    return torch.stack([x, y], dim=1) + 0.04 * torch.randn(count, 2)


def off(points: torch.Tensor) -> float:
    """The mean distance from the nearer half circle."""
    x, y = points.unbind(1)
    upper = torch.where(y > 0, (x.hypot(y) - 1).abs(), torch.hypot(x.abs() - 1, y))
    across, down = x - 1, 0.5 - y
    lower = torch.where(down > 0, (across.hypot(down) - 1).abs(),
                        torch.hypot(across.abs() - 1, down))
    return torch.minimum(upper, lower).mean().item()


def main(steps: int = 1500) -> float:
    """The mean distance of new points from the moons."""
    torch.manual_seed(0)
    spread = torch.linspace(1e-4, 0.15, TIMES)  # the variance that each time adds
    kept = (1 - spread).cumprod(0)
    model = Denoiser()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    @torch.compile
    def step(points):
        optimizer.zero_grad()
        t, noise = torch.randint(0, TIMES, (len(points),)), torch.randn_like(points)
        share = kept[t][:, None]
        loss = F.mse_loss(model(share.sqrt() * points + (1 - share).sqrt() * noise, t), noise)
        loss.backward()
        optimizer.step()
        return loss

    @torch.compile
    @torch.no_grad()
    def draw(x):
        for t in range(TIMES - 1, -1, -1):
            noise = model(x, torch.full((len(x),), t))
            x = (x - spread[t] / (1 - kept[t]).sqrt() * noise) / (1 - spread[t]).sqrt()
            if t:
                x = x + spread[t].sqrt() * torch.randn_like(x)
        return x

    for done in range(1, steps + 1):
        loss = step(moons(256))
        if done % 250 == 0:
            print(f"step {done}: loss {loss.item():.4f}")
    noise = torch.randn(1000, 2)
    distance = off(draw(noise))
    print(f"new points lie {distance:.3f} from the moons on average; noise {off(noise):.3f}")
    return distance


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1500)
    main(parser.parse_args().steps)
