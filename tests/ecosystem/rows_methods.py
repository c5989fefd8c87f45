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
        "more_graphs", ("torch-geometric==2.8.1",), "torch_geometric: 24 more layers with their "
        "gradients, pooling, sums of segments, to_hetero() trained, HGT, HAN, adjacencies in CSR "
        "and CSC, 11 transforms", environment=AS_WRITTEN,
        lacks="TwoHop and SIGN, which use EdgeIndex; reversible layers, which free their inputs",
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
    Row(
        "medical_images", (
            "monai==1.6.1", "nibabel==5.4.2", "einops==0.8.2", "scipy==1.17.1",
            "scikit-image==0.26.0",
        ), "MONAI: MetaTensors, 17 transforms and their inverses, eight networks, five losses, "
        "five metrics, a U-Net trained, compiled, in windows", environment=AS_WRITTEN,
    ),
    Row(
        "fast_learner", ("fastai==2.8.12",), "fastai: tensor kinds, Learner with callbacks and "
        "seven optimizers, a data block of pictures with augmentation, export",
    ),
    Row(
        "reasons", ("captum==0.9.0", "pyro-ppl==1.9.2"), "captum: 15 attributions, of inputs, "
        "layers and a neuron",
    ),
    Row(
        "beliefs", ("captum==0.9.0", "pyro-ppl==1.9.2"), "Pyro: SVI by four guides, NUTS, "
        "enumeration, modules, predictions",
    ),
    Row(
        "rotations", (
            "e3nn==0.6.0", "opt_einsum==3.4.0", "jaxtyping==0.3.11", "beartype==0.23.1",
        ), "e3nn: harmonics, Wigner matrices, tensor products, gates; opt_einsum's contractions; "
        "shapes checked by jaxtyping with beartype",
        lacks="torch.backends.opt_einsum: torch.einsum contracts from left to right",
    ),
    Row(
        "small_methods", (
            "x-transformers==2.31.10", "torchsde==0.2.6", "lion-pytorch==0.2.5", "torch-ema==0.3",
            "torchensemble==0.2.0", "huggingface-hub==2.4.0", "safetensors==0.8.0",
            "albumentations==2.0.8",
        ), "x-transformers trained and generating; SDEs and their adjoint, Lion, moving averages, "
        "an ensemble, hub files, pictures by albumentations",
    ),
    Row(
        "guesses_and_privacy", ("botorch==0.18.1", "opacus==1.6.0"), "botorch: a model fitted, an "
        "acquisition function optimized from Sobol points; opacus: a private training",
    ),
    Row(
        "series_and_policies", (
            "pytorch-forecasting==1.8.0", "pytorch-lightning==2.6.6", "tianshou==2.0.1",
        ), "pytorch_forecasting's temporal fusion transformer; tianshou's batches, nets, buffers; "
        "Lightning by its older name: workers that stay, early stopping, resumed, bf16-mixed",
    ),
]
