"""A network that obeys an equation: u'' = -u with u(0) = 0, u'(0) = 1, whose solution is sin.

    python examples/physics.py [--steps 1500]

The loss has second derivatives of the network (`create_graph=True`), which are differentiated once
more for the weights; all of it is one compiled step.
"""

import argparse

import graphc as torch
import graphc.nn as nn


def main(steps: int = 1500) -> float:
    """The largest difference from sin between 0 and 2 pi."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    def u(x):
        """u(0) = 0 and u'(0) = 1 whatever the network says."""
        return x + x * x * net(x / 3 - 1)

    @torch.compile
    def step(x):
        optimizer.zero_grad()
        x = x.requires_grad_()
        value = u(x)
        slope, = torch.autograd.grad(value.sum(), x, create_graph=True)
        bend, = torch.autograd.grad(slope.sum(), x, create_graph=True)
        loss = (bend + value).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    for done in range(1, steps + 1):
        loss = step(6.2832 * torch.rand(128, 1))
        schedule.step()
        if done % 250 == 0:
            print(f"step {done}: loss {loss.item():.2e}")
    x = torch.linspace(0, 6.2832, 200)[:, None]
    with torch.no_grad():
        worst = (u(x) - x.sin()).abs().max().item()
    print(f"at most {worst:.4f} from sin")
    return worst


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1500)
    main(parser.parse_args().steps)
