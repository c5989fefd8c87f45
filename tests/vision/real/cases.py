"""What an installed torchvision does, by name; run by PyTorch and by graphc, and compared.

    python cases.py FOLDER NAME...                    # PyTorch
    python -m graphc run cases.py FOLDER NAME...      # graphc

Each case gives numbers or tensors by name, which go to FOLDER/NAME.npz; what it raises is
FOLDER/NAME.txt.
"""

import functools
import importlib.util
import sys
import traceback
from pathlib import Path

import numpy as np
import torch


def nms(boxes, scores, limit):
    order, found = torch.sort(scores, descending=True, stable=True)[1], []
    while len(order):
        found.append(order[0])
        overlap = torchvision.ops.box_iou(boxes[order[:1]], boxes[order[1:]])[0]
        order = order[1:][~(overlap.double() > limit)]
    return torch.stack(found) if found else torch.zeros(0, dtype=torch.int64)


def without_compiled_half():
    """PyTorch's own process: what torchvision's Python has no code for, where its library does not
    fit this PyTorch. RoIAlign it has, if slowly."""
    places = importlib.util.find_spec("torchvision").submodule_search_locations
    try:
        torch.ops.load_library(str(Path(places[0], "_C.so")))
    except OSError:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.impl("nms", nms, "CPU")
        return library


if "graphc" not in torch.__version__:
    library = without_compiled_half()  # it lasts as long as the object

import torchvision
from torch import nn
from torchvision import models, ops

if "graphc" not in torch.__version__ and library is not None:
    torchvision.ops.boxes._assert_has_ops = lambda: None

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def images(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(7))


def flat(result):
    """Tensors of nested results, by name."""
    if isinstance(result, dict):
        pairs = result.items()
    elif isinstance(result, (list, tuple)):
        pairs = enumerate(result)
    else:
        return {"": result}
    return {f"{key}.{name}": x for key, value in pairs for name, x in flat(value).items()}


# --- classification ------------------------------------------------------------------------------

# the smallest images that they take, or nearly
SMALL = {
    "alexnet": 64, "convnext_tiny": 64, "densenet121": 64, "efficientnet_b0": 64, "googlenet": 64,
    "inception_v3": 299, "mnasnet0_5": 64, "mobilenet_v2": 64, "mobilenet_v3_small": 64,
    "regnet_y_400mf": 64, "resnet18": 64, "shufflenet_v2_x0_5": 64, "squeezenet1_1": 64,
    "swin_t": 64, "swin_v2_t": 64, "vgg11": 32, "vit_b_32": 224, "maxvit_t": 224,
}


def classify(name, size):
    torch.manual_seed(0)
    model = models.get_model(name, weights=None)
    x = images(4, 3, size, size)
    with torch.no_grad():
        found = {"eval": model.eval()(x)}
    # batch norms over few values make much of float32's last bits
    model.double().train()
    torch.manual_seed(1)
    result = model(x.double())
    logits = result if isinstance(result, torch.Tensor) else result[0]
    loss = nn.functional.cross_entropy(logits, torch.tensor([1, 2, 3, 4]))
    loss.backward()
    found["loss"] = loss.detach()
    found["gradient"] = torch.stack([
        p.grad.norm() for p in model.parameters() if p.grad is not None
    ]).norm()
    return found


for _name, _size in SMALL.items():
    CASES[_name] = lambda name=_name, size=_size: classify(name, size)


def counted(module):
    """The parameters of each builder of a part of torchvision, and what its weights say of them."""
    found = {}
    backbone = module in (models.detection, models.segmentation)
    linspace = torch.linspace
    torch.linspace = functools.partial(linspace, device="cpu")  # whose numbers are asked for
    blocks = models.regnet.BlockParams
    make = blocks.from_init_params

    def with_numbers(*args, **kwargs):
        with torch.device("cpu"):
            return make(*args, **kwargs)

    blocks.from_init_params = with_numbers
    for name in models.list_models(module=module):
        with torch.device("meta"):
            options = {"weights_backbone": None} if backbone else {}
            if name == "googlenet":
                options["aux_logits"] = False  # its weights are counted so
            model = models.get_model(name, weights=None, **options)
        have = sum(p.numel() for p in model.parameters())
        for weights in models.get_model_weights(name):
            if "E2E" in weights.name:  # of larger images, to which their builder adapts
                continue
            found[f"{name} {weights.name}"] = [have, weights.meta["num_params"]]
    torch.linspace, blocks.from_init_params = linspace, make
    return found


@case
def counts():
    return counted(models)


@case
def counts_of_others():
    return {
        **counted(models.detection), **counted(models.segmentation), **counted(models.video),
        **counted(models.optical_flow),
    }


# --- other models --------------------------------------------------------------------------------


@case
def segmentation():
    found = {}
    for name in models.list_models(module=models.segmentation):
        torch.manual_seed(0)
        model = models.get_model(name, weights=None, weights_backbone=None, num_classes=5).eval()
        with torch.no_grad():
            found[name] = model(images(1, 3, 64, 64))["out"]
    return found


@case
def video():
    found = {}
    for name in ("r3d_18", "mc3_18", "r2plus1d_18", "swin3d_t"):
        torch.manual_seed(0)
        model = models.get_model(name, weights=None, num_classes=4).eval()
        with torch.no_grad():
            found[name] = model(images(1, 3, 4, 32, 32))
    torch.manual_seed(0)
    with torch.no_grad():
        found["s3d"] = models.video.s3d(num_classes=4).eval()(images(1, 3, 14, 224, 224))
    return found


@case
def optical_flow():
    torch.manual_seed(0)
    model = models.optical_flow.raft_small().eval()
    with torch.no_grad():
        flows = model(images(1, 3, 128, 128), images(1, 3, 128, 128).flip(3), num_flow_updates=2)
    return {str(i): flow for i, flow in enumerate(flows)}


def boxes_of(result):
    """The best detections: of equal scores, which come first is chance."""
    return {f"{i}.{key}": value[:5] for i, each in enumerate(result) for key, value in each.items()}


def detect(name, **options):
    torch.manual_seed(0)
    model = models.get_model(
        name, weights=None, weights_backbone=None, num_classes=3, **options
    ).eval()
    with torch.no_grad():
        return boxes_of(model([images(3, 80, 96), images(3, 64, 72)]))


SIZES = {"min_size": 64, "max_size": 96}
# few proposals: PyTorch's process suppresses in Python
RCNN = {
    **SIZES, "box_score_thresh": 0.0, "rpn_pre_nms_top_n_test": 30, "rpn_post_nms_top_n_test": 10,
    "box_detections_per_img": 10,
}
DENSE = {"score_thresh": 0.0, "topk_candidates": 30, "detections_per_img": 10}
DETECTION = {
    "fasterrcnn_resnet50_fpn": RCNN, "fasterrcnn_mobilenet_v3_large_320_fpn": RCNN,
    "maskrcnn_resnet50_fpn": RCNN, "keypointrcnn_resnet50_fpn": {**RCNN, "num_keypoints": 3},
    "retinanet_resnet50_fpn": {**SIZES, **DENSE}, "fcos_resnet50_fpn": {**SIZES, **DENSE},
    "ssd300_vgg16": DENSE, "ssdlite320_mobilenet_v3_large": DENSE,
}
for _name, _options in DETECTION.items():
    CASES[_name] = lambda name=_name, options=_options: detect(name, **options)


@case
def training_step():
    """Two steps of Faster R-CNN."""
    torch.manual_seed(0)
    model = models.detection.fasterrcnn_mobilenet_v3_large_320_fpn(
        weights=None, weights_backbone=None, num_classes=3, rpn_pre_nms_top_n_train=60,
        rpn_post_nms_top_n_train=30, **SIZES
    ).train()
    targets = [
        {"boxes": torch.tensor([[5.0, 5, 40, 50], [30, 10, 70, 60]]), "labels": torch.tensor([1, 2])},
        {"boxes": torch.tensor([[10.0, 12, 50, 44]]), "labels": torch.tensor([2])},
    ]
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.001)
    found = {}
    for step in range(2):
        losses = model([images(3, 80, 96), images(3, 64, 72)], targets)
        optimizer.zero_grad()
        sum(losses.values()).backward()
        optimizer.step()
        found |= {f"{step}.{name}": loss.detach() for name, loss in losses.items()}
    return found


# --- operators -----------------------------------------------------------------------------------


@case
def box_functions():
    corners = images(2, 6, 2) * 20
    a, b = (torch.cat([c, c + 1 + images(6, 2) * 9], 1) for c in corners)
    scores = images(6)
    found = {
        "iou": ops.box_iou(a, b), "giou": ops.generalized_box_iou(a, b),
        "ciou": ops.complete_box_iou(a, b), "diou": ops.distance_box_iou(a, b),
        "area": ops.box_area(a), "nms": ops.nms(a, scores, 0.2),
        "batched": ops.batched_nms(a, scores, torch.tensor([0, 0, 1, 1, 0, 0]), 0.2),
        "clipped": ops.clip_boxes_to_image(a, (12, 14)), "large": ops.remove_small_boxes(a, 5.0),
        "cxcywh": ops.box_convert(a, "xyxy", "cxcywh"), "xywh": ops.box_convert(a, "xyxy", "xywh"),
        "masks": ops.masks_to_boxes(images(3, 9, 8) > 0.6),
    }
    for name in ("generalized", "distance", "complete"):
        leaf = a.clone().requires_grad_()
        loss = getattr(ops, f"{name}_box_iou_loss")(leaf, b, reduction="sum")
        loss.backward()
        found |= {f"{name}.loss": loss.detach(), f"{name}.gradient": leaf.grad}
    found["focal"] = ops.sigmoid_focal_loss(images(4, 3), images(4, 3).round(), reduction="mean")
    return found


@case
def pooled():
    features = {"0": images(2, 4, 20, 24), "1": images(2, 4, 10, 12)}
    boxes = [torch.tensor([[1.0, 2, 60, 50], [10, 10, 20, 24]]), torch.tensor([[0.0, 0, 96, 80]])]
    pool = ops.MultiScaleRoIAlign(["0", "1"], 3, 2)
    found = {"levels": pool(features, boxes, [(80, 96), (80, 96)])}
    for ratio in (-1, 2):
        for aligned in (False, True):
            leaf = features["0"].clone().requires_grad_()
            y = ops.roi_align(leaf, boxes, (3, 2), 0.25, ratio, aligned)
            (y * y).sum().backward()
            found |= {f"{ratio}.{aligned}": y.detach(), f"{ratio}.{aligned}.gradient": leaf.grad}
    return found


@case
def layers():
    torch.manual_seed(0)
    x = images(2, 8, 12, 12)
    stack = nn.Sequential(
        ops.Conv2dNormActivation(8, 8), ops.SqueezeExcitation(8, 2), ops.FrozenBatchNorm2d(8),
        ops.DropBlock2d(0.2, 3), ops.StochasticDepth(0.5, "row"), ops.Permute([0, 2, 3, 1]),
        ops.MLP(8, [5, 4], dropout=0.1),
    )
    levels = ops.FeaturePyramidNetwork([8, 8], 5)({"a": x, "b": x[:, :, ::2, ::2]})
    return {"stack": stack(x).detach(), **{k: v.detach() for k, v in levels.items()}}


# --- pictures ------------------------------------------------------------------------------------


@case
def pictures():
    from PIL import Image
    from torchvision import transforms as T
    from torchvision.utils import draw_bounding_boxes, draw_segmentation_masks, make_grid

    picture = (images(3, 24, 30) * 255).to(torch.uint8)
    image = Image.fromarray(picture.permute(1, 2, 0).numpy())
    found = {
        "grid": make_grid(images(5, 3, 6, 7), nrow=3, normalize=True),
        "boxes": draw_bounding_boxes(picture, torch.tensor([[2, 3, 12, 14]]), colors="red"),
        "masks": draw_segmentation_masks(picture, images(2, 24, 30) > 0.5, colors=["red", "blue"]),
    }
    kinds = {
        "jitter": T.ColorJitter(0.4, 0.4, 0.4, 0.1), "affine": T.RandomAffine(20, (0.1, 0.1)),
        "crop": T.RandomResizedCrop(16), "flip": T.RandomHorizontalFlip(1.0),
        "perspective": T.RandomPerspective(p=1.0), "rotation": T.RandomRotation(30),
        "erase": T.RandomErasing(p=1.0), "blur": T.GaussianBlur(5), "grey": T.Grayscale(3),
        "auto": T.AutoAugment(), "rand": T.RandAugment(), "trivial": T.TrivialAugmentWide(),
        "mix": T.AugMix(), "equal": T.RandomEqualize(1.0), "solar": T.RandomSolarize(128, 1.0),
        "sharp": T.RandomAdjustSharpness(2.0, 1.0), "poster": T.RandomPosterize(3, 1.0),
        "contrast": T.RandomAutocontrast(1.0), "elastic": T.ElasticTransform(20.0),
        "resize": T.Resize(17), "centre": T.CenterCrop(20), "five": T.FiveCrop(10),
    }
    for name, transform in kinds.items():
        for way, given in (("tensor", picture), ("pillow", image)):
            if name == "erase" and way == "pillow":
                continue
            torch.manual_seed(3)
            result = transform(given)
            for i, each in enumerate(result if isinstance(result, tuple) else (result,)):
                tensor = each if isinstance(each, torch.Tensor) else T.functional.pil_to_tensor(each)
                found[f"{name}.{way}.{i}"] = tensor
    preset = models.ResNet18_Weights.DEFAULT.transforms()
    found["preset"] = preset(image)
    return found


@case
def newer_transforms():
    from torchvision import tv_tensors
    from torchvision.transforms import v2

    picture = tv_tensors.Image((images(3, 24, 30) * 255).to(torch.uint8))
    boxes = tv_tensors.BoundingBoxes(
        torch.tensor([[2.0, 3, 12, 14], [5, 5, 20, 20]]), format="XYXY", canvas_size=(24, 30)
    )
    mask = tv_tensors.Mask(images(1, 24, 30) > 0.5)
    sample = {"image": picture, "boxes": boxes, "mask": mask, "label": 3}
    steps = [
        v2.RandomResizedCrop((16, 16)), v2.RandomHorizontalFlip(1.0), v2.RandomRotation(20),
        v2.ColorJitter(0.3, 0.3), v2.RandomPhotometricDistort(p=1.0), v2.RandomAffine(10),
        v2.RandomPerspective(p=1.0), v2.ElasticTransform(), v2.GaussianBlur(3),
        v2.ScaleJitter((20, 20)), v2.RandomZoomOut(p=1.0), v2.RandomIoUCrop(),
        v2.SanitizeBoundingBoxes(labels_getter=None), v2.Resize(14), v2.Pad(2),
        v2.ToDtype(torch.float32, scale=True), v2.ClampBoundingBoxes(), v2.RandomErasing(1.0),
        v2.AutoAugment(), v2.RandAugment(), v2.ConvertBoundingBoxFormat("CXCYWH"),
    ]
    found = {}
    for step in steps:
        torch.manual_seed(3)
        name = type(step).__name__
        result = step(sample) if "Augment" not in name else {"image": step(picture)}
        for key, value in result.items():
            if isinstance(value, torch.Tensor):
                assert type(value).__module__.startswith("torchvision.tv_tensors"), (name, key)
                found[f"{name}.{key}"] = value.as_subclass(torch.Tensor)
    torch.manual_seed(3)
    mixed = v2.MixUp(num_classes=4)(images(4, 3, 8, 8), torch.arange(4))
    torch.manual_seed(3)
    cut = v2.CutMix(num_classes=4)(images(4, 3, 8, 8), torch.arange(4))
    return found | flat({"mixed": mixed, "cut": cut})


@case
def data_sets():
    import gzip
    import tempfile

    from torchvision import datasets, transforms

    folder = Path(tempfile.mkdtemp())
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part in ("train", "t10k"):
        digits = (images(6, 28, 28) * 255).to(torch.uint8).numpy()
        for kind, head, data in (
            ("images-idx3", (2051, 6, 28, 28), digits), ("labels-idx1", (2049, 6), np.arange(6, dtype="u1")),
        ):
            with open(raw / f"{part}-{kind}-ubyte", "wb") as file:
                file.write(np.array(head, ">i4").tobytes() + data.tobytes())
    assert gzip
    digits = datasets.MNIST(str(folder), train=True, transform=transforms.ToTensor())
    fake = datasets.FakeData(4, (3, 8, 8), transform=transforms.ToTensor())
    loader = torch.utils.data.DataLoader(digits, batch_size=4)
    batch, labels = next(iter(loader))
    return {"digits": batch, "labels": labels, "fake": fake[2][0], "size": len(digits)}


@case
def files():
    import tempfile

    from torchvision import io, utils

    folder = Path(tempfile.mkdtemp())
    picture = (images(3, 12, 14) * 255).to(torch.uint8)
    utils.save_image(images(2, 3, 8, 8), str(folder / "grid.png"))
    assert io.read_image(str(folder / "grid.png")).shape == (3, 12, 22)
    io.write_png(picture, str(folder / "p.png"))
    again = io.read_image(str(folder / "p.png"))
    assert torch.equal(again, picture)
    io.write_jpeg(picture, str(folder / "p.jpg"), quality=95)
    assert io.decode_jpeg(io.read_file(str(folder / "p.jpg"))).shape == (3, 12, 14)
    grey = io.read_image(str(folder / "p.png"), io.ImageReadMode.GRAY)
    return {"picture": again, "grey": grey.shape}


# --- features ------------------------------------------------------------------------------------


@case
def features():
    from torchvision.models.feature_extraction import (
        create_feature_extractor,
        get_graph_node_names,
    )

    found = {}
    for name, nodes in (
        ("resnet18", {"layer1.0.relu": "early", "layer4": "late"}),
        ("mobilenet_v3_small", {"features.3": "middle", "flatten": "flat"}),
    ):
        torch.manual_seed(0)
        model = models.get_model(name, weights=None)
        train, evaluated = get_graph_node_names(model)
        found[f"{name}.names"] = np.array([" ".join(train), " ".join(evaluated)])
        extractor = create_feature_extractor(model, nodes).eval()
        with torch.no_grad():
            found |= {f"{name}.{k}": v for k, v in extractor(images(1, 3, 64, 64)).items()}
    for name in ("vit_b_32", "swin_t", "convnext_tiny", "densenet121", "inception_v3"):
        train, evaluated = get_graph_node_names(
            models.get_model(name, weights=None), suppress_diff_warning=True
        )
        found[f"{name}.names"] = np.array([" ".join(train), " ".join(evaluated)])
    return found


@case
def quantized():
    found = {}
    for name in models.list_models(module=models.quantization):
        try:
            model = models.get_model(name, weights=None, quantize=False).eval()
        except NotImplementedError as error:
            assert "graphc does not have" in str(error), error
        else:
            with torch.no_grad():
                found[name] = model(images(1, 3, 96, 96)).shape
    return found


def main(folder, names):
    for name in names:
        try:
            found = {
                key: value.detach().numpy() if isinstance(value, torch.Tensor) else np.array(value)
                for key, value in CASES[name]().items()
            }
        except Exception:
            (Path(folder) / f"{name}.txt").write_text(traceback.format_exc())
        else:
            np.savez(Path(folder) / f"{name}.npz", **found)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:] or list(CASES))
