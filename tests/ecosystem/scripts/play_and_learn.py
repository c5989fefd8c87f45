"""stable-baselines3 on gymnasium: PPO, A2C, DQN, SAC, TD3, saved, loaded, evaluated."""

import os

import gymnasium
import numpy as np
import torch
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.callbacks import BaseCallback, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.utils import set_random_seed
from stable_baselines3.common.vec_env import VecNormalize
from told import tell

torch.set_num_threads(1)


class Watch(BaseCallback):
    def __init__(self):
        super().__init__()
        self.seen = []

    def _on_step(self):
        self.seen.append(float(np.mean(self.locals["rewards"])))
        return True


def weights(model):
    return {name: value.sum() for name, value in model.policy.state_dict().items()}


for kind, game, options, steps in (
    (PPO, "CartPole-v1", {"n_steps": 64, "batch_size": 32, "n_epochs": 3}, 192),
    (A2C, "CartPole-v1", {"n_steps": 8}, 160),
    (DQN, "CartPole-v1", {"learning_starts": 50, "batch_size": 16, "train_freq": 4, "target_update_interval": 50}, 240),
    (SAC, "Pendulum-v1", {"learning_starts": 40, "batch_size": 16}, 80),
    (TD3, "Pendulum-v1", {"learning_starts": 40, "batch_size": 16}, 80),
    (DDPG, "Pendulum-v1", {"learning_starts": 40, "batch_size": 16}, 70),
    (PPO, "Pendulum-v1", {"n_steps": 64, "batch_size": 32, "use_sde": True}, 128),
):
    name = f"{kind.__name__} {game}{', gSDE' if 'use_sde' in options else ''}"
    set_random_seed(0)
    model = kind("MlpPolicy", game, seed=0, policy_kwargs={"net_arch": [32, 32]}, **options)
    watch = Watch()
    model.learn(steps, callback=watch)
    tell(f"{name}: weights", weights(model), 2e-3)
    tell(f"{name}: rewards", [np.sum(watch.seen), len(watch.seen)], 1e-3)
    logged = {k: float(v) for k, v in model.logger.name_to_value.items() if "time" not in k and "fps" not in k}
    tell(f"{name}: losses", {k: v for k, v in sorted(logged.items()) if "loss" in k}, 5e-3)
    seen = model.get_env().observation_space
    probe = np.linspace(-0.1, 0.1, 5 * seen.shape[0], dtype=np.float32).reshape(5, -1)
    acts = model.predict(probe, deterministic=True)[0]
    tell(f"{name}: acts", acts, 1e-3)
    model.save(f"{kind.__name__}.zip")
    again = kind.load(f"{kind.__name__}.zip", device="cpu")
    tell(f"{name}: again", bool(np.allclose(again.predict(probe, deterministic=True)[0], acts)))

tell("files", sorted(name for name in os.listdir(".") if name.endswith(".zip")))
set_random_seed(1)
games = VecNormalize(make_vec_env("CartPole-v1", n_envs=3, seed=1))
model = PPO("MlpPolicy", games, n_steps=32, batch_size=24, n_epochs=2, seed=1, learning_rate=lambda left: 3e-4 * left)
model.learn(96, callback=EvalCallback(VecNormalize(make_vec_env("CartPole-v1", seed=2), training=False), n_eval_episodes=2, eval_freq=16, verbose=0, warn=False))
tell("three at once: weights", weights(model), 2e-3)
tell("evaluated", evaluate_policy(model, make_vec_env("CartPole-v1", seed=3), n_eval_episodes=3)[0] > 0)


class Pictures(gymnasium.Env):
    """A square that is to be on the side that pays."""

    observation_space = gymnasium.spaces.Box(0, 255, (36, 36, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.step_number, self.side = 0, int(self.np_random.integers(2))
        return self.look(), {}

    def look(self):
        shown = np.zeros((36, 36, 3), np.uint8)
        shown[:, self.side * 18:(self.side + 1) * 18] = 200
        return shown

    def step(self, action):
        reward = float(action == self.side)
        self.step_number, self.side = self.step_number + 1, int(self.np_random.integers(2))
        return self.look(), reward, self.step_number >= 10, False, {}


set_random_seed(2)
model = PPO("CnnPolicy", Pictures(), n_steps=32, batch_size=16, n_epochs=2, seed=2)
model.learn(64)
tell("pictures: weights", weights(model), 2e-3)
dicts = gymnasium.spaces.Dict({"a": gymnasium.spaces.Box(-1, 1, (3,)), "b": gymnasium.spaces.Discrete(4)})


class Dicts(gymnasium.Env):
    observation_space = dicts
    action_space = gymnasium.spaces.MultiDiscrete([2, 3])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.look(), {}

    def look(self):
        return {"a": self.np_random.uniform(-1, 1, 3).astype(np.float32), "b": int(self.np_random.integers(4))}

    def step(self, action):
        self.count += 1
        return self.look(), float(action[0]), self.count >= 9, False, {}


set_random_seed(3)
model = PPO("MultiInputPolicy", Dicts(), n_steps=32, batch_size=16, n_epochs=2, seed=3)
model.learn(64)
tell("dicts: weights", weights(model), 2e-3)
