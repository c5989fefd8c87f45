"""REINFORCE on a cart that has to stay in the middle: sampled actions, discounted returns."""

from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(2, 16)
        self.dropout = nn.Dropout(p=0.1)
        self.affine2 = nn.Linear(16, 2)
        self.saved_log_probs = []
        self.rewards = []

    def forward(self, x):
        x = F.relu(self.dropout(self.affine1(x)))
        return F.softmax(self.affine2(x), dim=1)


class Cart:
    def reset(self, rng):
        self.state = rng.uniform(-0.5, 0.5, size=2)
        return self.state.astype(np.float32)

    def step(self, action):
        position, speed = self.state
        speed += 0.2 if action == 1 else -0.2
        self.state = np.array([position + 0.3 * speed, 0.95 * speed])
        done = abs(self.state[0]) > 1.0
        return self.state.astype(np.float32), 1.0 - abs(self.state[0]), done


def select_action(policy, state):
    probs = policy(torch.from_numpy(state).float().unsqueeze(0))
    action = torch.multinomial(probs, 1)
    policy.saved_log_probs.append(torch.log(probs.gather(1, action)).squeeze(1))
    return action.item()


def finish_episode(policy, optimizer, gamma=0.99, eps=float(np.finfo(np.float32).eps)):
    R, policy_loss, returns = 0, [], deque()
    for r in policy.rewards[::-1]:
        R = r + gamma * R
        returns.appendleft(R)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + eps)
    for log_prob, R in zip(policy.saved_log_probs, returns):
        policy_loss.append(-log_prob * R)
    optimizer.zero_grad()
    loss = torch.cat(policy_loss).sum()
    loss.backward()
    optimizer.step()
    del policy.rewards[:]
    del policy.saved_log_probs[:]
    return loss.item()


def main():
    torch.manual_seed(543)
    rng = np.random.default_rng(0)
    env, policy = Cart(), Policy()
    optimizer = optim.Adam(policy.parameters(), lr=1e-2)
    running_reward = 10
    for i_episode in range(4):
        state, ep_reward, t = env.reset(rng), 0, 0
        for t in range(1, 20):
            state, reward, done = env.step(select_action(policy, state))
            policy.rewards.append(reward)
            ep_reward += reward
            if done:
                break
        running_reward = 0.05 * ep_reward + (1 - 0.05) * running_reward
        loss = finish_episode(policy, optimizer)
        print(f"Episode {i_episode} length {t} reward {ep_reward:.4f} "
              f"average {running_reward:.4f} loss {loss:.5f}")


if __name__ == "__main__":
    main()
