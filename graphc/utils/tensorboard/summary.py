"""torch.utils.tensorboard.summary: values as TensorBoard's Summary messages."""

from __future__ import annotations

import io
import json
import logging
import os
import struct
import tempfile
import wave
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...frontend.functions.complex_numbers import view_as_real
from ...frontend.tensor import Tensor
from ._convert_np import make_np
from ._utils import _prepare_video, convert_to_HWC
from .packages import HistogramProto, Summary, SummaryMetadata, TensorProto, part, shape_proto

__all__ = [
    "audio", "compute_curve", "custom_scalars", "draw_boxes", "half_to_int", "histogram",
    "histogram_raw", "hparams", "image", "image_boxes", "int_to_half", "make_histogram",
    "make_image", "make_video", "mesh", "pr_curve", "pr_curve_raw", "scalar", "tensor_proto",
    "text", "video",
]

logger = logging.getLogger(__name__)
Array = np.ndarray[Any, Any]
_THRESHOLDS = 127  # of a curve, at most: TensorBoard's own bound
_LARGEST = 1 << 31  # bytes in one message


def _summary(tag: str, plugin: str = "", content: bytes = b"", **value: Any) -> Any:
    """A Summary of one value. `plugin`: which part of TensorBoard shows it, if not its default."""
    if plugin:
        data = SummaryMetadata.PluginData(plugin_name=plugin, content=content)
        value["metadata"] = SummaryMetadata(plugin_data=data)
    return Summary(value=[Summary.Value(tag=tag, **value)])


# --- numbers ---------------------------------------------------------------------------------


def scalar(
    name: str, tensor: Any, collections: Any = None, new_style: bool = False,
    double_precision: bool = False,
) -> Any:
    """One number; `new_style` stores it as a tensor, as TensorFlow 2 does, of double precision if
    asked for. Raises AssertionError for several numbers."""
    array = make_np(tensor).squeeze()
    if array.ndim != 0:
        raise AssertionError(
            f"Tensor should contain one element (0 dimensions). Was given size: {array.size} and "
            f"{array.ndim} dimensions."
        )
    number = float(array)
    if not new_style:
        return _summary(name, simple_value=number)
    if double_precision:
        return _summary(name, "scalars", tensor=TensorProto(double_val=[number], dtype="DT_DOUBLE"))
    return _summary(name, "scalars", tensor=TensorProto(float_val=[number], dtype="DT_FLOAT"))


def half_to_int(f: float) -> int:
    """The bits of a float32, as the integer that a message has for a half."""
    found: int = struct.unpack("i", struct.pack("f", f))[0]
    return found


def int_to_half(i: int) -> float:
    """What half_to_int made an integer of."""
    found: float = struct.unpack("f", struct.pack("i", i))[0]
    return found


# by the dtype's name: TensorBoard's name, and the message's field
_FIELDS = {
    "float16": ("DT_HALF", "half_val"), "bfloat16": ("DT_BFLOAT16", "half_val"),
    "float32": ("DT_FLOAT", "float_val"), "float64": ("DT_DOUBLE", "double_val"),
    "int8": ("DT_INT8", "int_val"), "uint8": ("DT_UINT8", "int_val"),
    "int16": ("DT_INT16", "int_val"), "int32": ("DT_INT32", "int_val"),
    "int64": ("DT_INT64", "int64_val"), "bool": ("DT_BOOL", "bool_val"),
    "complex64": ("DT_COMPLEX64", "scomplex_val"),
    "complex128": ("DT_COMPLEX128", "dcomplex_val"),
}


def tensor_proto(tag: str, tensor: Tensor) -> Any:
    """A whole Tensor. Raises ValueError for 2 GiB or more, and for a dtype that has no name."""
    if tensor.numel() * tensor.itemsize >= _LARGEST:
        raise ValueError("tensor is bigger than protocol buffer's hard limit of 2GB in size")
    name = tensor.dtype.torch_name
    if name not in _FIELDS:
        raise ValueError(f"{tag} has unsupported tensor dtype {tensor.dtype}")
    dtype, field = _FIELDS[name]
    values = (view_as_real(tensor) if tensor.dtype.is_complex else tensor).flatten().tolist()
    if field == "half_val":
        values = [half_to_int(value) for value in values]
    proto = TensorProto(dtype=dtype, tensor_shape=shape_proto(tensor.shape), **{field: values})
    return _summary(tag, "tensor", tensor=proto)


def histogram_raw(
    name: str, min: float, max: float, num: int, sum: float, sum_squares: float,
    bucket_limits: Any, bucket_counts: Any,
) -> Any:
    """A histogram whose upper limits and counts are known."""
    return _summary(name, histo=HistogramProto(
        min=min, max=max, num=num, sum=sum, sum_squares=sum_squares,
        bucket_limit=bucket_limits, bucket=bucket_counts,
    ))


def histogram(name: str, values: Any, bins: Any, max_bins: int | None = None) -> Any:
    """A histogram of values of any shape; `bins` as numpy.histogram takes them."""
    return _summary(name, histo=make_histogram(make_np(values).astype(float), bins, max_bins))


def make_histogram(values: Array, bins: Any, max_bins: int | None = None) -> Any:
    """The message; neighbours share a bin where there are more than `max_bins`. Bins before the
    first and after the last value are left out, but for an empty one whose upper limit is where
    the first begins: a message has upper limits alone. Raises ValueError for no values."""
    if values.size == 0:
        raise ValueError("The input has no element.")
    values = values.reshape(-1)
    counts, limits = np.histogram(values, bins=bins)
    if max_bins is not None and len(counts) > max_bins:
        together = len(counts) // max_bins
        left = -len(counts) % together
        counts = np.pad(counts, (0, left)).reshape(-1, together).sum(axis=1)
        limits = np.append(limits[:-1:together], limits[-1])
    taken = np.flatnonzero(counts)
    if taken.size == 0:
        raise ValueError("The histogram is empty: no value lies in a bin.")
    start, end = int(taken[0]), int(taken[-1]) + 1
    return HistogramProto(
        min=values.min(), max=values.max(), num=len(values), sum=values.sum(),
        sum_squares=values.dot(values), bucket_limit=limits[start : end + 1].tolist(),
        bucket=np.concatenate([[0], counts[start:end]]).tolist(),
    )


def custom_scalars(layout: Mapping[str, Mapping[str, Any]]) -> Any:
    """Which scalars share a chart: {category: {title: ["Multiline" or "Margin", tags]}}."""
    messages = part("layout")
    categories = []
    for category, titles in layout.items():
        charts = []
        for title, (kind, tags) in ((title, chart[:2]) for title, chart in titles.items()):
            if kind == "Margin":
                if len(tags) != 3:
                    raise AssertionError(f"a margin chart has 3 tags, got {len(tags)}")
                series = messages.MarginChartContent.Series(
                    value=tags[0], lower=tags[1], upper=tags[2]
                )
                content = {"margin": messages.MarginChartContent(series=[series])}
            else:
                content = {"multiline": messages.MultilineChartContent(tag=tags)}
            charts.append(messages.Chart(title=title, **content))
        categories.append(messages.Category(title=category, chart=charts))
    text = messages.Layout(category=categories).SerializeToString()
    tensor = TensorProto(dtype="DT_STRING", string_val=[text], tensor_shape=shape_proto(()))
    return _summary("custom_scalars__config__", "custom_scalars", tensor=tensor)


# --- hyperparameters -------------------------------------------------------------------------


def hparams(
    hparam_dict: Any = None, metric_dict: Any = None, hparam_domain_discrete: Any = None
) -> tuple[Any, Any, Any]:
    """The three Summaries that say a run's hyperparameters: the experiment, its start, its end.

    Values are numbers (True is one), strings or Tensors; None is left out. Raises TypeError for
    what is no dict, or a domain of other types, and ValueError for other values.
    """
    api, messages = part("hparams_api"), part("hparams")
    domains = hparam_domain_discrete or {}
    for name, given in (("hparam_dict", hparam_dict), ("metric_dict", metric_dict),
                        ("hparam_domain_discrete", domains)):
        if not isinstance(given, dict):
            logger.warning("parameter: %s should be a dictionary, nothing logged.", name)
            raise TypeError(f"parameter: {name} should be a dictionary, nothing logged.")
    for name, domain in domains.items():
        if name not in hparam_dict or not isinstance(domain, list) or not all(
            isinstance(value, type(hparam_dict[name])) for value in domain
        ):
            raise TypeError(
                f"parameter: hparam_domain_discrete[{name}] should be a list of same type as "
                f"hparam_dict[{name}]."
            )
    start, infos = messages.SessionStartInfo(), []
    for name, value in hparam_dict.items():
        if value is None:
            continue
        field, dtype, value = _hparam(name, value)
        setattr(start.hparams[name], field, value)
        info = api.HParamInfo(name=name, type=api.DataType.Value(dtype))
        for each in domains.get(name, ()):
            setattr(info.domain_discrete.values.add(), field, each)
        infos.append(info)
    metrics = [api.MetricInfo(name=api.MetricName(tag=tag)) for tag in metric_dict]
    experiment = api.Experiment(hparam_infos=infos, metric_infos=metrics)
    end = messages.SessionEndInfo(status=api.Status.Value("STATUS_SUCCESS"))

    def summary(field: str, content: Any) -> Any:
        data = messages.HParamsPluginData(version=0, **{field: content})
        return _summary(f"_hparams_/{field}", "hparams", data.SerializeToString())

    return (
        summary("experiment", experiment), summary("session_start_info", start),
        summary("session_end_info", end),
    )


def _hparam(name: str, value: Any) -> tuple[str, str, Any]:
    """The field of google.protobuf.Value, TensorBoard's type, and the value itself."""
    if isinstance(value, (int, float)):
        return "number_value", "DATA_TYPE_FLOAT64", value
    if isinstance(value, str):
        return "string_value", "DATA_TYPE_STRING", value
    if isinstance(value, Tensor):
        return "number_value", "DATA_TYPE_FLOAT64", float(make_np(value).reshape(-1)[0])
    raise ValueError(
        "value should be one of int, float, str, bool, or torch.Tensor, "
        f"but {name!r} is a {type(value).__name__}"
    )


# --- pictures and sound ----------------------------------------------------------------------


def _bytes(picture: Array) -> Array:
    """Values from 0 to 1 (bytes: from 0 to 255) as bytes; what is outside is clipped."""
    scale = 1 if picture.dtype == np.uint8 else 255
    scaled: Array = (picture.astype(np.float32) * scale).clip(0, 255).astype(np.uint8)
    return scaled


def image(tag: str, tensor: Any, rescale: float = 1, dataformats: str = "NCHW") -> Any:
    """A picture, or several in a grid; `dataformats` names the dims."""
    pixels = _bytes(convert_to_HWC(make_np(tensor), dataformats))
    return _summary(tag, image=make_image(pixels, rescale))


def image_boxes(
    tag: str, tensor_image: Any, tensor_boxes: Any, rescale: float = 1, dataformats: str = "CHW",
    labels: Sequence[str] | None = None,
) -> Any:
    """A picture with boxes [N, 4] on it: left, top, right, bottom."""
    pixels = _bytes(convert_to_HWC(make_np(tensor_image), dataformats))
    return _summary(tag, image=make_image(pixels, rescale, make_np(tensor_boxes), labels))


def make_image(
    tensor: Array, rescale: float = 1, rois: Array | None = None,
    labels: Sequence[str] | None = None,
) -> Any:
    """The message of bytes [H, W, 1, 3 or 4], as a PNG file."""
    from PIL import Image

    height, width, channels = tensor.shape
    picture = Image.fromarray(tensor)
    if rois is not None:
        picture = draw_boxes(picture, rois, labels)
    size = int(width * rescale), int(height * rescale)
    file = io.BytesIO()
    picture.resize(size, Image.Resampling.LANCZOS).save(file, format="PNG")
    return Summary.Image(
        height=height, width=width, colorspace=channels, encoded_image_string=file.getvalue()
    )


def draw_boxes(disp_image: Any, boxes: Array, labels: Sequence[str] | None = None) -> Any:
    """Red frames on one of PIL's images, each with its label at its lower left."""
    from PIL import ImageDraw, ImageFont

    font, draw = ImageFont.load_default(), ImageDraw.Draw(disp_image)
    for number, (left, top, right, bottom) in enumerate(np.asarray(boxes).tolist()):
        corners = [(left, top), (left, bottom), (right, bottom), (right, top), (left, top)]
        draw.line(corners, width=2, fill="Red")
        if labels is not None and labels[number]:
            x0, y0, x1, y1 = font.getbbox(labels[number])
            width, height = x1 - x0, y1 - y0
            margin = int(np.ceil(0.05 * height))
            box = [(left, bottom - height - 2 * margin), (left + width, bottom)]
            draw.rectangle(box, fill="Red")
            place = (left + margin, bottom - height - margin)
            draw.text(place, labels[number], fill="black", font=font)
    return disp_image


def video(tag: str, tensor: Any, fps: float = 4) -> Any:
    """Clips [N, T, C, H, W] side by side, as a GIF file; needs the moviepy package."""
    return _summary(tag, image=make_video(_bytes(_prepare_video(make_np(tensor))), fps))


def make_video(tensor: Array, fps: float) -> Any:
    """The message of frames [T, H, W, C]; None, and a line that says so, without moviepy."""
    try:
        from moviepy import ImageSequenceClip
    except ImportError:
        print("add_video needs package moviepy")
        return None
    _, height, width, channels = tensor.shape
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "video.gif")
        ImageSequenceClip(list(tensor), fps=fps).write_gif(path, logger=None)
        with open(path, "rb") as file:
            data = file.read()
    return Summary.Image(
        height=height, width=width, colorspace=channels, encoded_image_string=data
    )


def audio(tag: str, tensor: Any, sample_rate: int = 44100) -> Any:
    """A sound [L] or [1, L] of values from -1 to 1, as a WAV file of 16 bits."""
    samples = make_np(tensor).squeeze()
    if np.abs(samples).max() > 1:
        print("warning: audio amplitude out of range, auto clipped.")
        samples = samples.clip(-1, 1)
    if samples.ndim != 1:
        raise AssertionError("input tensor should be 1 dimensional.")
    data = (samples * np.iinfo(np.int16).max).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(sample_rate)
        writer.writeframes(data.tobytes())
    return _summary(tag, audio=Summary.Audio(
        sample_rate=sample_rate, num_channels=1, length_frames=len(data),
        encoded_audio_string=file.getvalue(), content_type="audio/wav",
    ))


# --- what plugins show -----------------------------------------------------------------------


def text(tag: str, text: str) -> Any:
    """A text, which TensorBoard shows as Markdown."""
    content = part("text").TextPluginData(version=0).SerializeToString()
    tensor = TensorProto(
        dtype="DT_STRING", string_val=[text.encode()], tensor_shape=shape_proto((1,))
    )
    return _summary(f"{tag}/text_summary", "text", content, tensor=tensor)


def pr_curve(
    tag: str, labels: Array, predictions: Array, num_thresholds: int = 127, weights: Any = None
) -> Any:
    """Precision and recall of predictions from 0 to 1, at each threshold."""
    thresholds = min(num_thresholds, _THRESHOLDS)
    tp, fp, tn, fn, precision, recall = compute_curve(labels, predictions, thresholds, weights)
    return pr_curve_raw(tag, tp, fp, tn, fn, precision, recall, thresholds)


def pr_curve_raw(
    tag: str, tp: Any, fp: Any, tn: Any, fn: Any, precision: Any, recall: Any,
    num_thresholds: int = 127, weights: Any = None,
) -> Any:
    """A curve that is known: true and false positives and negatives, precision, recall."""
    thresholds = min(num_thresholds, _THRESHOLDS)
    rows = (tp, fp, tn, fn, precision, recall)
    data = np.stack([make_np(row) if isinstance(row, Tensor) else np.asarray(row) for row in rows])
    tensor = TensorProto(
        dtype="DT_FLOAT", float_val=data.reshape(-1).tolist(), tensor_shape=shape_proto(data.shape)
    )
    content = part("pr_curve").PrCurvePluginData(version=0, num_thresholds=thresholds)
    return _summary(tag, "pr_curves", content.SerializeToString(), tensor=tensor)


def compute_curve(
    labels: Array, predictions: Array, num_thresholds: int, weights: Any = None
) -> Array:
    """[6, thresholds]: true positives, false ones, true negatives, false ones, precision, recall
    where what is at least i / (thresholds - 1) is predicted to be true."""
    steps = num_thresholds - 1
    weighted = 1.0 if weights is None else weights
    buckets = np.floor(predictions * steps).astype(np.int32)
    true = labels.astype(np.float64)

    def above(counted: Array) -> Array:
        inside, _ = np.histogram(buckets, bins=num_thresholds, range=(0, steps), weights=counted)
        return np.cumsum(inside[::-1])[::-1]

    tp, fp = above(true * weighted), above((1.0 - true) * weighted)
    tn, fn = fp[0] - fp, tp[0] - tp
    least = 1e-7
    return np.stack((
        tp, fp, tn, fn, tp / np.maximum(least, tp + fp), tp / np.maximum(least, tp + fn)
    ))


def mesh(
    tag: str, vertices: Any, colors: Any, faces: Any, config_dict: Any, display_name: Any = None,
    description: Any = None,
) -> Any:
    """Points [B, N, 3], with colours and triangles of the same form, for three.js."""
    messages = part("mesh")
    kinds = messages.MeshPluginData.ContentType
    given = [
        (name, np.asarray(value) if isinstance(value, (list, tuple)) else make_np(value))
        for name, value in (("VERTEX", vertices), ("FACE", faces), ("COLOR", colors))
        if value is not None
    ]
    components = sum(1 << kinds.Value(name) for name, _ in given)
    config = "{}" if config_dict is None else json.dumps(config_dict, sort_keys=True)
    values = []
    for name, array in given:
        if array.ndim != 3:
            raise ValueError(f"Tensor shape should be of shape BxNx3, but got {array.shape}.")
        data = messages.MeshPluginData(
            version=0, name=tag, content_type=kinds.Value(name), shape=array.shape,
            json_config=config,
        )
        # field 7, which tensorboardX's message lacks: which of the three there are
        content = data.SerializeToString() + bytes([7 << 3, components])
        metadata = SummaryMetadata(
            display_name=display_name, summary_description=description,
            plugin_data=SummaryMetadata.PluginData(plugin_name="mesh", content=content),
        )
        tensor = TensorProto(
            dtype="DT_FLOAT", float_val=array.reshape(-1).tolist(),
            tensor_shape=shape_proto(array.shape),
        )
        values.append(Summary.Value(tag=f"{tag}_{name}", tensor=tensor, metadata=metadata))
    return Summary(value=values)
