"""Reinforcement learning: keep a pole upright on a cart, by the policy gradient (REINFORCE).

    python examples/cart_pole.py [--episodes 250]

The physics are Barto, Sutton and Anderson's (1983), in Python. Acting runs eagerly, one state at a
time; the update over whole episodes is compiled.
"""

import argparse
import math

import graphc as torch
import graphc.nn as nn
from graphc.distributions import Categorical

LONGEST = 200


class CartPole:
    """The state is (position, speed, angle, angular speed); action 1 pushes to the right."""

    def reset(self) -> list[float]:
        self.state = torch.empty(4).uniform_(-0.05, 0.05).tolist()
        return self.state

    def step(self, action: int) -> tuple[list[float], bool]:
        """The next state, and whether the pole has fallen or the cart left its track."""
        x, speed, angle, turn = self.state
        force = 10.0 if action else -10.0
        push = (force + 0.05 * turn**2 * math.sin(angle)) / 1.1
        turning = (9.8 * math.sin(angle) - math.cos(angle) * push) / (
            0.5 * (4 / 3 - 0.1 * math.cos(angle) ** 2 / 1.1)
        )
        moving = push - 0.05 * turning * math.cos(angle) / 1.1
        self.state = [x + 0.02 * speed, speed + 0.02 * moving,
                      angle + 0.02 * turn, turn + 0.02 * turning]
        return self.state, abs(self.state[0]) > 2.4 or abs(self.state[2]) > 12 * math.pi / 180


def returns(length: int, discount: float = 0.99) -> torch.Tensor:
    """What is still to come at each step, of mean 0 and deviation 1."""
    total, found = 0.0, []
    for _ in range(length):
        total = 1.0 + discount * total
        found.append(total)
    ahead = torch.tensor(found[::-1])
    return (ahead - ahead.mean()) / (ahead.std() + 1e-6)


def main(episodes: int = 250) -> float:
    """The mean length of the last 20 episodes; 200 is the longest."""
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)

    @torch.compile
    def update(states, actions, ahead):
        optimizer.zero_grad()
        chosen = Categorical(logits=policy(states)).log_prob(actions)
        loss = -(chosen * ahead).mean()
        loss.backward()
        optimizer.step()
        return loss

    world, lengths = CartPole(), []
    for episode in range(1, episodes + 1):
        state, fallen, states, actions = world.reset(), False, [], []
        while not fallen and len(states) < LONGEST:
            with torch.no_grad():
                action = Categorical(logits=policy(torch.tensor(state))).sample().item()
            states.append(state)
            actions.append(action)
            state, fallen = world.step(action)
        lengths.append(len(states))
        if len(states) > 1:
            update(torch.tensor(states), torch.tensor(actions), returns(len(states)))
        if episode % 50 == 0:
            print(f"episode {episode}: {sum(lengths[-20:]) / 20:.0f} steps on average")
    return sum(lengths[-20:]) / len(lengths[-20:])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=250)
    main(parser.parse_args().episodes)
