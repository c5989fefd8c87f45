"""MONAI: MetaTensors, transforms and their inverses, networks, losses, metrics, a U-Net trained."""

import copy
import pickle
import warnings

import numpy as np
import torch
from told import tell

warnings.filterwarnings("ignore")

from monai.data import CacheDataset, DataLoader, Dataset, MetaTensor, decollate_batch  # noqa: E402
from monai.inferers import sliding_window_inference  # noqa: E402
from monai.losses import DiceCELoss, DiceFocalLoss, DiceLoss, FocalLoss, TverskyLoss  # noqa: E402
from monai.metrics import ConfusionMatrixMetric, DiceMetric, HausdorffDistanceMetric, MeanIoU, SurfaceDistanceMetric  # noqa: E402
from monai.networks.blocks import Convolution, ResidualUnit  # noqa: E402
from monai.networks.nets import BasicUNet, DenseNet121, SegResNet, UNet, ViT, VNet  # noqa: E402
from monai.transforms import (  # noqa: E402
    Activations, AsDiscrete, CenterSpatialCrop, Compose, CropForegroundd, EnsureChannelFirst, EnsureChannelFirstd, EnsureTyped, Flip, GaussianSmooth, KeepLargestConnectedComponent,
    NormalizeIntensity, Orientation, RandAffine, RandCropByPosNegLabeld, RandFlip, RandFlipd, RandGaussianNoise, RandRotate90, RandRotated, RandSpatialCrop, Resize, Rotate, ScaleIntensity, ScaleIntensityd, Spacing, SpatialPad, ThresholdIntensity, Zoom,
)
from monai.utils import set_determinism  # noqa: E402


def plain(value):
    if isinstance(value, torch.Tensor):
        sums = value.as_subclass(torch.Tensor).double()
        return [type(value).__name__, list(value.shape), sums.sum().item(), sums.abs().max().item()]
    return [plain(v) for v in value] if isinstance(value, (tuple, list)) else str(value)


m = MetaTensor(torch.arange(24.0).reshape(1, 4, 6), affine=torch.eye(4) * 2, meta={"name": "a"})
tell("made", [plain(m), m.affine.tolist(), len(m.applied_operations)])
for name, call in {
    "add": lambda: m + m, "exp": lambda: m.clone().div(10).exp(), "item": lambda: m[0], "max": lambda: list(m.max(dim=1)), "clone": lambda: m.clone(), "deepcopy": lambda: copy.deepcopy(m),
    "pickle": lambda: pickle.loads(pickle.dumps(m)), "stack": lambda: torch.stack([m, m]), "to": lambda: m.to(torch.float64), "as tensor": lambda: m.as_tensor(),
    "out": lambda: torch.add(m, 1, out=torch.zeros(1, 4, 6)), "rows": lambda: list(m[0])[:2], "layer": lambda: torch.nn.Conv2d(1, 2, 3)(m[None]) * 0,
}.items():
    tell(f"MetaTensor, {name}", plain(call()), 1e-6)
tell("as NumPy", [float(np.sum(np.asarray(m))), type(np.sin(m)).__name__, float(m.array.sum()), repr(m)[:20]])

# --- transforms ------------------------------------------------------------------------------

picture = MetaTensor(torch.rand(1, 20, 24, generator=torch.Generator().manual_seed(1)), affine=torch.eye(4))
for transform in (
    ScaleIntensity(), RandFlip(1.0, 0), Resize((10, 12)), RandRotate90(1.0), SpatialPad((26, 26)), CenterSpatialCrop((8, 8)), Flip(1), Rotate(0.3), Zoom(1.2), NormalizeIntensity(),
    Spacing((2.0, 2.0)), RandAffine(1.0, rotate_range=0.5, scale_range=0.2, padding_mode="zeros"), RandGaussianNoise(1.0), RandSpatialCrop((8, 8), random_size=False), GaussianSmooth(1.0), ThresholdIntensity(0.5), Orientation("LPS"),
):
    if hasattr(transform, "set_random_state"):
        transform.set_random_state(0)
    found = transform(picture)
    tell(f"transform {type(transform).__name__}", [plain(found), len(found.applied_operations)], 1e-4)
    if hasattr(transform, "inverse") and found.applied_operations:
        tell(f"inverse {type(transform).__name__}", plain(transform.inverse(found)), 1e-4)
tell("activations", plain([Activations(softmax=True)(torch.randn(3, 4, 4)), AsDiscrete(argmax=True, to_onehot=3)(picture.repeat(3, 1, 1))])[1])
tell("largest", plain(KeepLargestConnectedComponent()((picture > 0.6).float())), 1e-6)

# --- networks, losses, metrics ---------------------------------------------------------------

NETWORKS = {
    "UNet": lambda: UNet(2, 1, 2, (4, 8, 16), (2, 2), num_res_units=1), "BasicUNet": lambda: BasicUNet(2, 1, 2, (4, 4, 8, 8, 16, 4)), "SegResNet": lambda: SegResNet(2, 8, 1, 2),
    "VNet": lambda: VNet(2, 1, 2), "DenseNet121": lambda: DenseNet121(2, 1, 3, init_features=8, growth_rate=4, block_config=(2, 2)), "ViT": lambda: ViT(1, (32, 32), (8, 8), 24, 48, 2, 3, classification=True, num_classes=2, spatial_dims=2),
    "Convolution": lambda: Convolution(2, 1, 4, act="PRELU", norm="INSTANCE"), "ResidualUnit": lambda: ResidualUnit(2, 1, 4, subunits=2),
}
x = torch.randn(2, 1, 32, 32, generator=torch.Generator().manual_seed(2))
for name, make in NETWORKS.items():
    torch.manual_seed(0)
    net = make().eval()
    found = net(x)
    found = found[0] if isinstance(found, tuple) else found
    found.square().mean().backward()
    tell(name, [found.flatten()[:20], sum(p.numel() for p in net.parameters()), sum(p.grad.abs().sum() for p in net.parameters() if p.grad is not None)], 1e-3)
torch.manual_seed(3)
logits, target = torch.randn(2, 3, 12, 12), torch.randint(0, 3, (2, 1, 12, 12))
for loss in (DiceLoss(softmax=True, to_onehot_y=True), DiceCELoss(softmax=True, to_onehot_y=True), DiceFocalLoss(softmax=True, to_onehot_y=True), FocalLoss(to_onehot_y=True), TverskyLoss(softmax=True, to_onehot_y=True)):
    tell(f"loss {type(loss).__name__}", loss(logits, target), 1e-5)
one_hot = torch.nn.functional.one_hot(target[:, 0], 3).permute(0, 3, 1, 2)
guess = torch.nn.functional.one_hot(logits.argmax(1), 3).permute(0, 3, 1, 2)
for metric in (DiceMetric(), MeanIoU(), ConfusionMatrixMetric(metric_name=["f1 score", "precision"]), HausdorffDistanceMetric(percentile=95), SurfaceDistanceMetric()):
    metric(y_pred=guess, y=one_hot)
    tell(type(metric).__name__, metric.aggregate(), 1e-4)

# --- trained ---------------------------------------------------------------------------------

set_determinism(0)
rng = np.random.RandomState(0)
items = []
for _ in range(8):
    image, label = rng.rand(32, 32).astype(np.float32) * 0.3, np.zeros((32, 32), np.float32)
    top, left = rng.randint(4, 20, 2)
    image[top:top + 8, left:left + 8] += 0.7
    label[top:top + 8, left:left + 8] = 1
    items.append({"image": image, "label": label})
steps = Compose([
    EnsureChannelFirstd(["image", "label"], channel_dim="no_channel"), ScaleIntensityd("image"), EnsureTyped(["image", "label"]), CropForegroundd(["image", "label"], "image", allow_smaller=True),
    RandCropByPosNegLabeld(["image", "label"], "label", (24, 24), num_samples=2), RandFlipd(["image", "label"], 0.5, 0), RandRotated(["image", "label"], 0.3, prob=0.5, mode=["bilinear", "nearest"]),
])
for compiled in (False, True):
    set_determinism(1)
    steps.set_random_state(1)
    torch.manual_seed(1)
    net = UNet(2, 1, 1, (8, 16), (2,), num_res_units=1)
    run = torch.compile(net) if compiled else net
    optimizer, criterion = torch.optim.Adam(net.parameters(), 0.01), DiceLoss(sigmoid=True)
    losses = []
    for _ in range(2):
        for batch in DataLoader(CacheDataset(items, steps, progress=False), batch_size=2, shuffle=True, num_workers=0):
            loss = criterion(run(batch["image"].as_tensor() if compiled else batch["image"]), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    tell(f"losses, {'compiled' if compiled else 'eager'}", losses, 1e-3)
net.eval()
with torch.no_grad():
    whole = EnsureChannelFirst(channel_dim="no_channel")(items[0]["image"])[None]
    tell("windows", plain(sliding_window_inference(whole, (16, 16), 2, net, overlap=0.25, mode="gaussian")), 2e-3)
batch = next(iter(DataLoader(Dataset([m, m], None), batch_size=2)))
tell("batch", [plain(batch), batch.is_batch, plain(batch[0]), [plain(part) for part in decollate_batch(batch)]])
