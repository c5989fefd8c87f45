"""Two networks against each other: a GAN that learns a ring of eight heaps of points.

    python examples/gan.py [--steps 2000]

Each side's update is a compiled step of its own; they share weights, and the compiled code sees
what the other one wrote.
"""

import argparse
import math

import graphc as torch
import graphc.nn as nn
import graphc.nn.functional as F

HEAPS, NOISE = 8, 4


def mlp(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(inputs, 96), nn.LeakyReLU(0.2), nn.Linear(96, 96), nn.LeakyReLU(0.2),
        nn.Linear(96, outputs),
    )


def real(count: int) -> torch.Tensor:
    """Points [count, 2] around the eight corners."""
    angle = torch.randint(0, HEAPS, (count,)) * (2 * math.pi / HEAPS)
    return torch.stack([angle.cos(), angle.sin()], dim=1) + 0.05 * torch.randn(count, 2)


def heaps_reached(points: torch.Tensor) -> int:
    """Near how many of the eight heaps at least 2% of the points lie."""
    angle = torch.arange(HEAPS) * (2 * math.pi / HEAPS)
    corners = torch.stack([angle.cos(), angle.sin()], dim=1)
    near = torch.cdist(points, corners) < 0.25
    return int((near.float().mean(0) > 0.02).sum())


def main(steps: int = 2000) -> int:
    """How many of the eight heaps the generator reaches."""
    torch.manual_seed(0)
    generator, critic = mlp(NOISE, 2), mlp(2, 1)
    to_make = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.9))
    to_judge = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.9))

    @torch.compile
    def judge(points, noise):
        to_judge.zero_grad()
        points = points.requires_grad_()
        of_real, of_made = critic(points), critic(generator(noise).detach())
        slope, = torch.autograd.grad(of_real.sum(), points, create_graph=True)
        loss = F.softplus(-of_real).mean() + F.softplus(of_made).mean()
        (loss + 0.1 * slope.square().sum(1).mean()).backward()
        to_judge.step()
        return loss.detach()

    @torch.compile
    def make(noise):
        to_make.zero_grad()
        loss = F.softplus(-critic(generator(noise))).mean()
        loss.backward()
        to_make.step()
        return loss.detach()

    for done in range(1, steps + 1):
        judged = judge(real(256), torch.randn(256, NOISE))
        made = make(torch.randn(256, NOISE))
        if done % 250 == 0:
            print(f"step {done}: critic {judged.item():.3f}, generator {made.item():.3f}")

    with torch.no_grad():
        reached = heaps_reached(generator(torch.randn(2000, NOISE)))
    print(f"{reached} of {HEAPS} heaps are reached")
    return reached


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    main(parser.parse_args().steps)
