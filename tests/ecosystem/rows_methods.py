"""Methods and fields built on torch: graphs, games, metrics to learn."""

from __future__ import annotations

from tests.ecosystem.matrix import Row

# PyTorch's side compares numbers alone, and goes without a C++ compiler
AS_WRITTEN = {"TORCH_COMPILE_DISABLE": "1"}

ROWS = [
    Row(
        "graph_networks", ("torch-geometric==2.8.1",), "torch_geometric's Python: 25 layers, "
        "pooling, batches, tools, kinds of nodes, sparse adjacency; a GCN trained, compiled",
        environment=AS_WRITTEN, lacks="Index and EdgeIndex, which are made by __torch_dispatch__",
    ),
    Row(
        "play_and_learn", ("stable-baselines3==2.9.2", "gymnasium==1.4.0"), "PPO, A2C, DQN, SAC, "
        "TD3, DDPG on gymnasium: learned, saved, loaded, evaluated; pictures, dicts, several games",
    ),
    Row(
        "ignite_engines", ("pytorch-ignite==0.5.5", "tqdm==4.70.1"), "ignite: engines, 16 metrics, "
        "handlers, schedules, checkpoints, resumed", environment=AS_WRITTEN,
    ),
    Row(
        "metric_learning", ("pytorch-metric-learning==2.9.0",), "31 losses, miners, distances, "
        "reducers; a model trained, compiled", "deep_metrics.py", environment=AS_WRITTEN,
    ),
    Row(
        "vision_tensors", ("torchvision==0.28.0",), "torchvision's tv_tensors: 46 transforms v2 of "
        "pictures, boxes, masks and videos together",
    ),
]
