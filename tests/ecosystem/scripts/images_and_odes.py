"""kornia, segmentation-models-pytorch and torchdiffeq: results and gradients."""

import warnings

import torch

try:
    import torchvision  # noqa: F401
except RuntimeError:  # the registry's has no operators for a PyTorch of another build
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

import kornia
import kornia.augmentation as K
import segmentation_models_pytorch as smp
from told import tell
from torch import nn
from torchdiffeq import odeint, odeint_adjoint, odeint_event

warnings.filterwarnings("ignore")
torch.manual_seed(0)
image = torch.rand(2, 3, 24, 32)


def attempt(name, run, within=2e-4):
    try:
        value = run()
    except Exception as error:
        tell(f"{name} stops", f"{type(error).__name__}: {error}"[:300])
    else:
        tell(name, value, within)


# --- kornia ----------------------------------------------------------------------------------

for name in ("rgb_to_grayscale", "rgb_to_hsv", "rgb_to_hls", "rgb_to_lab", "rgb_to_luv", "rgb_to_xyz", "rgb_to_ycbcr", "rgb_to_yuv", "rgb_to_bgr", "rgb_to_linear_rgb", "rgb_to_raw"):
    attempt(name, lambda: getattr(kornia.color, name)(image, *([kornia.color.CFA.BG] if name == "rgb_to_raw" else [])))
f = kornia.filters
gray = image.mean(1, keepdim=True)
for name, run in {
    "gaussian": lambda: f.gaussian_blur2d(image, (5, 3), (1.5, 1.0)), "box": lambda: f.box_blur(image, 3), "median": lambda: f.median_blur(image, 3),
    "sobel": lambda: f.sobel(image), "laplacian": lambda: f.laplacian(image, 3), "canny": lambda: f.canny(image)[0], "bilateral": lambda: f.bilateral_blur(image, 3, 0.1, (1.5, 1.5)),
    "motion": lambda: f.motion_blur(image, 5, 30.0, 0.5), "unsharp": lambda: f.unsharp_mask(image, (3, 3), (1.0, 1.0)), "gradient": lambda: f.spatial_gradient(image), "filter": lambda: f.filter2d(image, torch.ones(1, 3, 3) / 9),
    "rotate": lambda: kornia.geometry.rotate(image, torch.tensor([20.0, -35.0])), "affine": lambda: kornia.geometry.affine(image, torch.tensor([[[1, 0.1, 2], [0.0, 0.9, -1]]]).expand(2, 2, 3)),
    "perspective": lambda: kornia.geometry.warp_perspective(image, torch.eye(3).expand(2, 3, 3) + 0.001, (20, 30)), "resize": lambda: kornia.geometry.resize(image, (17, 40), antialias=True), "pyramid": lambda: kornia.geometry.build_pyramid(image, 3),
    "homography": lambda: kornia.geometry.find_homography_dlt(torch.rand(1, 6, 2, generator=torch.Generator().manual_seed(1)), torch.rand(1, 6, 2, generator=torch.Generator().manual_seed(2))),
    "crop": lambda: kornia.geometry.crop_by_boxes(image, torch.tensor([[[2.0, 3], [20, 3], [20, 15], [2, 15]]]).expand(2, 4, 2), torch.tensor([[[0.0, 0], [10, 0], [10, 8], [0, 8]]]).expand(2, 4, 2)),
    "dilation": lambda: kornia.morphology.dilation(image, torch.ones(3, 3)), "opening": lambda: kornia.morphology.opening(image, torch.ones(3, 3)), "harris": lambda: kornia.feature.harris_response(gray), "ssim": lambda: kornia.metrics.ssim(image, image.flip(0), 5),
    "focal": lambda: kornia.losses.focal_loss(image[:, :, 0], image[:, 0, 0].argmax(1, keepdim=True).expand(2, 32) % 3, 0.5, reduction="mean"), "dice": lambda: kornia.losses.dice_loss(image, (gray[:, 0] * 3).long().clamp(0, 2)),
    "total variation": lambda: kornia.losses.total_variation(image), "psnr": lambda: kornia.metrics.psnr(image, image.flip(0), 1.0), "histogram": lambda: kornia.enhance.histogram(gray.flatten(1), torch.linspace(0, 1, 5), torch.tensor(0.2)),
    "equalize": lambda: kornia.enhance.equalize_clahe(torch.rand(1, 1, 32, 32, generator=torch.Generator().manual_seed(3)), grid_size=(4, 4)), "adjust": lambda: kornia.enhance.adjust_hue(image, 0.3), "gamma": lambda: kornia.enhance.adjust_gamma(image, 0.7), "posterize": lambda: kornia.enhance.posterize(image, 3),
    "quaternion": lambda: kornia.geometry.conversions.rotation_matrix_to_quaternion(torch.eye(3)[None]), "angle": lambda: kornia.geometry.axis_angle_to_rotation_matrix(torch.tensor([[0.1, 0.2, 0.3]])), "pinhole": lambda: kornia.geometry.project_points(torch.rand(1, 3) + 1, torch.eye(3)[None]),
    "patches": lambda: kornia.contrib.extract_tensor_patches(image, 8, stride=8), "connected": lambda: kornia.contrib.connected_components((gray > 0.7).float(), 20),
}.items():
    attempt(f"kornia {name}", run, 1e-3)
given = image.clone().requires_grad_()
(kornia.losses.ssim_loss(given, image.flip(0), 5) + f.gaussian_blur2d(given, (3, 3), (1.0, 1.0)).square().mean()).backward()
tell("kornia's gradient", given.grad, 1e-3)
for name, made in {
    "flip": lambda: K.RandomHorizontalFlip(p=0.5), "rotation": lambda: K.RandomRotation(30.0, p=1.0), "jitter": lambda: K.ColorJitter(0.2, 0.2, 0.2, 0.1, p=1.0), "crop": lambda: K.RandomCrop((16, 16)), "resized": lambda: K.RandomResizedCrop((16, 16)),
    "affine": lambda: K.RandomAffine(15.0, (0.1, 0.1), (0.8, 1.2), p=1.0), "perspective": lambda: K.RandomPerspective(0.3, p=1.0), "erasing": lambda: K.RandomErasing(p=1.0), "noise": lambda: K.RandomGaussianNoise(0.0, 0.1, p=1.0), "mixup": lambda: K.RandomMixUpV2(p=1.0, data_keys=["input"]),
    "sequence": lambda: K.AugmentationSequential(K.RandomHorizontalFlip(), K.RandomAffine(10.0), data_keys=["input"]), "auto": lambda: K.auto.TrivialAugment(),
}.items():
    torch.manual_seed(4)
    attempt(f"augmentation {name}", lambda: made()(image), 1e-3)

# --- segmentation models ---------------------------------------------------------------------

for name, architecture, encoder in (("unet", smp.Unet, "resnet18"), ("fpn", smp.FPN, "mobilenet_v2"), ("deeplab", smp.DeepLabV3Plus, "resnet18"), ("linknet", smp.Linknet, "efficientnet-b0"), ("psp", smp.PSPNet, "resnet18"), ("manet", smp.MAnet, "resnet18"), ("unet++", smp.UnetPlusPlus, "timm-mobilenetv3_small_100")):

    def segment():
        torch.manual_seed(0)
        model = architecture(encoder, encoder_weights=None, in_channels=3, classes=2)
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        pictures, masks = torch.rand(2, 3, 64, 64), torch.randint(0, 2, (2, 64, 64))
        losses = []
        for _ in range(2):
            out = model(pictures)
            loss = smp.losses.DiceLoss("multiclass")(out, masks) + smp.losses.FocalLoss("multiclass")(out, masks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        with torch.no_grad():
            return {"losses": losses, "parameters": sum(p.numel() for p in model.parameters()), "out": model.eval()(pictures).mean((2, 3))}

    attempt(f"smp {name} losses", segment, 2e-3)
prediction, mask = torch.rand(2, 3, 8, 8), torch.randint(0, 3, (2, 8, 8))
for kind in (smp.losses.JaccardLoss, smp.losses.DiceLoss, smp.losses.TverskyLoss, smp.losses.LovaszLoss, smp.losses.FocalLoss):
    attempt(f"smp {kind.__name__}", lambda: kind("multiclass")(prediction, mask), 1e-4)
attempt("smp SoftCrossEntropy", lambda: smp.losses.SoftCrossEntropyLoss(smooth_factor=0.1)(prediction, mask))
stats = smp.metrics.get_stats(prediction.argmax(1), mask, mode="multiclass", num_classes=3)
tell("smp metrics", [smp.metrics.iou_score(*stats, reduction="micro"), smp.metrics.f1_score(*stats, reduction="macro")], 1e-5)

# --- torchdiffeq -----------------------------------------------------------------------------


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.calls = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2)), 0

    def forward(self, t, y):
        self.calls += 1
        return self.net(y**3) * 0.3


times = torch.linspace(0, 2, 7, dtype=torch.float64)
for method in ("dopri5", "dopri8", "bosh3", "fehlberg2", "adaptive_heun", "euler", "midpoint", "heun3", "rk4", "explicit_adams", "implicit_adams"):

    def solve(call=odeint):
        torch.manual_seed(0)
        field = Field().double()
        start = torch.tensor([[2.0, 0.5]], dtype=torch.float64, requires_grad=True)
        found = call(field, start, times, method=method, rtol=1e-6, atol=1e-8)
        found.square().sum().backward()
        return [found, start.grad, field.net[0].weight.grad]

    attempt(f"ode {method}", solve, 1e-5)
    if method in ("dopri5", "rk4"):
        attempt(f"ode {method}, adjoint", lambda: solve(odeint_adjoint), 1e-4)
attempt("ode of a pair", lambda: odeint(lambda t, state: (state[1], -state[0]), (torch.tensor([1.0]), torch.tensor([0.0])), torch.linspace(0, 3, 4)), 1e-4)
attempt("ode with an event", lambda: odeint_event(lambda t, y: -torch.ones_like(y), torch.tensor([1.0]), torch.tensor(0.0), event_fn=lambda t, y: y - 0.25, odeint_interface=odeint), 1e-4)
