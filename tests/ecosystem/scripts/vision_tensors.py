"""torchvision's tv_tensors and its transforms v2: pictures, boxes and masks together."""

import sys
import types

import numpy as np
import torch
from PIL import Image as Pictures
from told import on_graphc, tell

if not on_graphc():  # torchvision's wheel is built for another PyTorch than the CPU's: no operators
    sys.modules["torchvision._meta_registrations"] = types.ModuleType("without_operators")
from torchvision import tv_tensors
from torchvision.transforms import v2

rng = np.random.RandomState(0)
image = tv_tensors.Image(rng.randint(0, 255, (3, 32, 40)).astype(np.uint8))
boxes = tv_tensors.BoundingBoxes([[1, 2, 10, 12], [5, 5, 20, 30]], format="XYXY", canvas_size=(32, 40))
mask = tv_tensors.Mask((torch.arange(32 * 40).reshape(1, 32, 40) % 7 == 0).to(torch.uint8))
video = tv_tensors.Video(rng.randint(0, 255, (4, 3, 16, 20)).astype(np.uint8))
SIDE = 3 * 32 * 40


def plain(value):
    if isinstance(value, torch.Tensor):
        inner = value.as_subclass(torch.Tensor)
        extra = [str(value.format), list(value.canvas_size)] if isinstance(value, tv_tensors.BoundingBoxes) else []
        return [type(value).__name__, list(inner.shape), str(inner.dtype), inner.double().mean().item() if inner.numel() else 0.0, *extra]
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(v) for v in value] if isinstance(value, (tuple, list)) else str(value)


tell("kinds", [type(v).__name__ for v in (image, image + 1, image.clone(), image.to(torch.float32), mask[0], boxes * 2, boxes.clone(), tv_tensors.wrap(boxes + 1, like=boxes))])
tell("text", [repr(boxes)[:20], repr(mask)[:10], str(boxes.format)])
with tv_tensors.set_return_type("TVTensor"):
    tell("kept kind", [type(image + 1).__name__, type(boxes[0]).__name__])
tell("in place", [type(image.clone().add_(1)).__name__, type(image.float().requires_grad_()).__name__])
TRANSFORMS = [
    v2.RandomHorizontalFlip(1.0), v2.RandomVerticalFlip(1.0), v2.Resize((16, 20), antialias=True), v2.Resize(12, max_size=30), v2.RandomResizedCrop(16, antialias=True), v2.ColorJitter(0.2, 0.2, 0.2, 0.1),
    v2.RandomRotation(20), v2.RandomAffine(10, translate=(0.1, 0.1), shear=5), v2.RandomPerspective(p=1.0), v2.GaussianBlur(3), v2.ToDtype(torch.float32, scale=True), v2.RandomPhotometricDistort(p=1.0),
    v2.RandomZoomOut(p=1.0), v2.RandomIoUCrop(), v2.SanitizeBoundingBoxes(labels_getter=None), v2.Pad(2), v2.CenterCrop(16), v2.RandomGrayscale(1.0), v2.ElasticTransform(), v2.ConvertBoundingBoxFormat("CXCYWH"),
    v2.RandomPosterize(4, p=1.0), v2.RandomSolarize(100, p=1.0), v2.RandomEqualize(p=1.0), v2.RandomAutocontrast(p=1.0), v2.RandomInvert(p=1.0), v2.RandomAdjustSharpness(2, p=1.0), v2.ScaleJitter((16, 16)),
    v2.RandomShortestSize(16), v2.RandomChannelPermutation(), v2.ClampBoundingBoxes(), v2.RandomCrop(20, padding=2, pad_if_needed=True), v2.Grayscale(3),
]
FLOAT = [v2.Normalize([0.5] * 3, [0.2] * 3), v2.GaussianNoise(), v2.RandomErasing(1.0), v2.LinearTransformation(torch.eye(SIDE), torch.zeros(SIDE))]
PICTURE = [v2.FiveCrop(16), v2.TenCrop(16), v2.RandAugment(), v2.TrivialAugmentWide(), v2.AutoAugment(), v2.AugMix(), v2.RandomErasing(1.0)]
for transforms, given in (
    (TRANSFORMS, {"image": image, "boxes": boxes, "mask": mask}), (FLOAT, {"image": v2.functional.to_dtype(image, torch.float32, scale=True)}), (PICTURE, {"image": image}),
    ([v2.UniformTemporalSubsample(2), v2.Resize((8, 10)), v2.RandomHorizontalFlip(1.0)], {"video": video}),
):
    for number, transform in enumerate(transforms):
        torch.manual_seed(1)
        tell(f"{number} {type(transform).__name__}", plain(transform(given)), 2e-3)
torch.manual_seed(2)
pixels, labels = torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 2, 0])
tell("mixed", [plain(v2.CutMix(num_classes=3)(pixels, labels)), plain(v2.MixUp(num_classes=3)(pixels, labels))], 1e-5)
steps = v2.Compose([v2.ToImage(), v2.RandomChoice([v2.RandomCrop(24), v2.Resize((24, 24))]), v2.RandomApply([v2.ColorJitter(0.3)], 0.9), v2.ToDtype(torch.float32, scale=True)])
torch.manual_seed(3)
tell("from a picture", plain(steps(Pictures.fromarray(rng.randint(0, 255, (32, 40, 3)).astype(np.uint8)))), 2e-3)
tell("to a picture", v2.functional.to_pil_image(image).size)


class Own(v2.Transform):
    def transform(self, inpt, params):
        return inpt * 2 if isinstance(inpt, tv_tensors.Mask) else inpt


tell("one's own", plain(Own()({"mask": mask, "image": image, "name": "x"})))
tell("boxes", [v2.functional.convert_bounding_box_format(boxes, new_format=kind) for kind in ("XYWH", "CXCYWH")], 1e-6)
turned = v2.functional.rotate(boxes, 30)
tell("turned", [plain(turned), plain(v2.functional.get_bounding_boxes(boxes) if hasattr(v2.functional, "get_bounding_boxes") else boxes)], 1e-4)
layer = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 3), torch.nn.Flatten(), torch.nn.LazyLinear(2))
torch.manual_seed(4)
tell("through a model", [type(layer(image.float()[None] / 255)).__name__])
