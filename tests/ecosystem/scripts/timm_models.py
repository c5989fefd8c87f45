"""timm: models of many kinds, outputs, losses of a few steps; its optimizers, schedules and mixing."""

import sys
import types

import torch
from told import on_graphc, own, tell

if not on_graphc():  # torchvision's wheel is built for another PyTorch than the CPU's: no operators
    sys.modules["torchvision._meta_registrations"] = types.ModuleType("without_operators")

import timm.data
import timm.loss
import timm.optim
import timm.scheduler
import timm.utils

assert sys.argv[1] == "run"

MODELS = {
    "test_resnet": {}, "test_vit": {"img_size": 64, "drop_path_rate": 0.1}, "test_vit2": {"img_size": 64},
    "test_convnext": {"drop_path_rate": 0.1}, "test_efficientnet": {"drop_path_rate": 0.1},
    "test_byobnet": {}, "test_nfnet": {}, "mobilenetv3_small_050": {}, "regnetx_002": {},
    "swin_tiny_patch4_window7_224": {"img_size": 56, "depths": (1, 1, 1, 1), "embed_dim": 24, "num_heads": (1, 2, 3, 4)},
    "mixer_s32_224": {"img_size": 64}, "deit_tiny_distilled_patch16_224": {"img_size": 64},
    "xcit_nano_12_p16_224": {"img_size": 64},
}


def batch(seed):
    draws = torch.Generator().manual_seed(seed)
    return torch.randn(4, 3, 64, 64, generator=draws), torch.arange(4)


def spread(model):
    """Layers that begin as zeros or near it, where a network's result says nothing."""
    with torch.no_grad():
        for p in model.parameters():
            if not p.any():
                p.add_(0.02)


def result(value):
    return value[0] if isinstance(value, tuple) else value


def forward(x, size):
    return torch.nn.functional.interpolate(x, size=size) if size != 64 else x


for name, options in MODELS.items():
    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False, num_classes=10, **options)
    spread(model)
    x, y = batch(1)
    x = forward(x, options.get("img_size", 64))
    with torch.no_grad():
        tell(f"{name}: result", result(model.eval()(x)), 1e-4)
        tell(f"{name}: features", [f.norm() for f in [result(model.forward_features(x))]], 1e-4)
    model.train()
    optimizer = timm.optim.create_optimizer_v2(model, opt="adamw", lr=1e-4, weight_decay=0.05)
    torch.manual_seed(2)
    losses = []
    for _ in range(2):
        loss = timm.loss.LabelSmoothingCrossEntropy(0.1)(result(model(x)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    tell(f"{name}: losses", losses, 2e-4)
    compiled = torch.compile(model.eval()) if on_graphc() else model.eval()
    with torch.no_grad():
        tell(f"{name}: compiled", result(compiled(x)), 5e-3)
    if on_graphc():
        function = compiled._compiled_function
        own(f"{name}: versions", function.compile_count)
        if function.segments is not None:
            own(f"{name}: segments", [f"{e.reason} at {e.loc}" for e in function.segments.ends])

torch.manual_seed(0)
pyramid = timm.create_model("test_resnet", pretrained=False, features_only=True)
tell("pyramid", [list(f.shape) for f in pyramid(batch(1)[0])])
tell("channels", [pyramid.feature_info.channels(), pyramid.feature_info.reduction()])
for optimizer_name in ("sgd", "adamw", "nadamw", "lamb", "lion", "adan", "adopt", "rmsproptf", "madgradw", "lookahead_adam"):
    torch.manual_seed(0)
    model = timm.create_model("test_vit", pretrained=False, num_classes=10, img_size=64)
    optimizer = timm.optim.create_optimizer_v2(model, opt=optimizer_name, lr=1e-3, layer_decay=0.8)
    losses = []
    for seed in range(3):
        x, y = batch(seed)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    tell(f"{optimizer_name}: losses", losses, 2e-4)
schedule, epochs = timm.scheduler.create_scheduler_v2(
    torch.optim.SGD(model.parameters(), lr=0.1), sched="cosine", num_epochs=6, warmup_epochs=2, warmup_lr=1e-3, min_lr=1e-4,
)
rates = []
for number in range(epochs):
    schedule.step(number)
    rates.append(schedule.optimizer.param_groups[0]["lr"])
tell("rates", rates, 1e-12)
import random

import numpy as np

random.seed(0)
np.random.seed(0)
mixed, soft = timm.data.Mixup(0.8, 1.0, num_classes=10)(*batch(4))
tell("mixed", [mixed.norm(), soft], 1e-6)
average = timm.utils.ModelEmaV3(model, decay=0.9)
average.update(model)
tell("averaged", [p.norm() for p in average.module.parameters()][:4], 1e-5)
tell("accuracy", timm.utils.accuracy(torch.eye(4, 10), torch.arange(4), topk=(1, 3)))
tell("clipped", timm.utils.agc.adaptive_clip_grad(model.parameters()) is None)
torch.manual_seed(1)
tell("erased", timm.data.random_erasing.RandomErasing(1.0, mode="pixel", device="cpu")(torch.ones(2, 3, 16, 16)).sum(), 1e-5)
