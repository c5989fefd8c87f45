"""A graph convolutional network (Kipf and Welling, 2016) on Zachary's karate club.

    python examples/graph_network.py [--steps 100]

Two members' sides are known, the instructor's and the administrator's; the network says who of the
other 32 went with whom. Messages go along the edges by index_add.
"""

import argparse

import networkx

import graphc as torch
import graphc.nn as nn
import graphc.nn.functional as F


class GraphConvolution(nn.Module):
    """x' = D^-1/2 (A + I) D^-1/2 x W: each member's mean over its neighbours, and a product."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=False)

    def forward(self, x, source, target):
        ones = torch.ones(len(source))
        degree = torch.zeros(len(x)).index_add(0, target, ones)
        weight = (degree[source] * degree[target]).rsqrt()
        messages = self.linear(x)[source] * weight[:, None]
        return torch.zeros(len(x), messages.shape[1]).index_add(0, target, messages)


class GCN(nn.Module):
    def __init__(self, members: int) -> None:
        super().__init__()
        self.first, self.second = GraphConvolution(members, 16), GraphConvolution(16, 2)

    def forward(self, x, source, target):
        return self.second(self.first(x, source, target).tanh(), source, target)


def club() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Edges as sources and targets (both ways, and each member to itself), and the sides [34]."""
    graph = networkx.karate_club_graph()
    edges = [*graph.edges, *((b, a) for a, b in graph.edges), *((n, n) for n in graph)]
    sides = [int(graph.nodes[n]["club"] == "Officer") for n in graph]
    source, target = torch.tensor(edges).unbind(1)
    return source, target, torch.tensor(sides)


def main(steps: int = 100) -> float:
    """The share of members on the right side."""
    torch.manual_seed(0)
    source, target, sides = club()
    known = torch.tensor([0, 33])
    x = torch.eye(len(sides))
    model = GCN(len(sides))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=5e-4)

    @torch.compile
    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x, source, target)[known], sides[known])
        loss.backward()
        optimizer.step()
        return loss

    for done in range(1, steps + 1):
        loss = step()
        if done % 25 == 0:
            print(f"step {done}: loss {loss.item():.4f}")
    with torch.no_grad():
        right = (model(x, source, target).argmax(1) == sides).float().mean().item()
    print(f"{100 * right:.0f}% of {len(sides)} members are on the right side")
    return right


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    main(parser.parse_args().steps)
