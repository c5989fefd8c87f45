"""TensorBoard's protocol buffers and event files, of the package that is installed.

The tensorboard package has them, and so has tensorboardX: a program needs one of the two. Messages
are the same but for their names.
"""

from __future__ import annotations

import importlib
import itertools
import os
from typing import Any

# where each part is in tensorboard, and in tensorboardX
_PARTS = {
    "attr_value": ("compat.proto.attr_value_pb2", "proto.attr_value_pb2"),
    "event": ("compat.proto.event_pb2", "proto.event_pb2"),
    "graph": ("compat.proto.graph_pb2", "proto.graph_pb2"),
    "node_def": ("compat.proto.node_def_pb2", "proto.node_def_pb2"),
    "summary": ("compat.proto.summary_pb2", "proto.summary_pb2"),
    "tensor": ("compat.proto.tensor_pb2", "proto.tensor_pb2"),
    "tensor_shape": ("compat.proto.tensor_shape_pb2", "proto.tensor_shape_pb2"),
    "versions": ("compat.proto.versions_pb2", "proto.versions_pb2"),
    "hparams_api": ("plugins.hparams.api_pb2", "proto.api_pb2"),
    "hparams": ("plugins.hparams.plugin_data_pb2", "proto.plugin_hparams_pb2"),
    "layout": ("plugins.custom_scalar.layout_pb2", "proto.layout_pb2"),
    "mesh": ("plugins.mesh.plugin_data_pb2", "proto.plugin_mesh_pb2"),
    "pr_curve": ("plugins.pr_curve.plugin_data_pb2", "proto.plugin_pr_curve_pb2"),
    "text": ("plugins.text.plugin_data_pb2", "proto.plugin_text_pb2"),
    "event_file_writer": ("summary.writer.event_file_writer", "event_file_writer"),
    "record_writer": ("summary.writer.record_writer", "record_writer"),
}


def _installed() -> str:
    for name in ("tensorboard", "tensorboardX"):
        try:
            package = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
        else:
            if hasattr(package, "__version__"):  # no folder of logs, which may have this name
                return name
    raise ModuleNotFoundError(
        "torch.utils.tensorboard writes through tensorboard or tensorboardX, and neither is "
        "installed. Cure: pip install tensorboard", name="tensorboard",
    )


_PACKAGE = _installed()


def part(name: str) -> Any:
    """One of the modules above."""
    place = _PARTS[name][_PACKAGE == "tensorboardX"]
    return importlib.import_module(f"{_PACKAGE}.{place}")


Event, SessionLog = part("event").Event, part("event").SessionLog
TaggedRunMetadata = part("event").TaggedRunMetadata
Summary, SummaryMetadata = part("summary").Summary, part("summary").SummaryMetadata
HistogramProto = part("summary").HistogramProto
TensorProto = part("tensor").TensorProto
TensorShapeProto = part("tensor_shape").TensorShapeProto
GraphDef, VersionDef = part("graph").GraphDef, part("versions").VersionDef
NodeDef, AttrValue = part("node_def").NodeDef, part("attr_value").AttrValue
RecordWriter = part("record_writer").RecordWriter


def shape_proto(sizes: Any) -> Any:
    """The message that says a shape."""
    return TensorShapeProto(dim=[TensorShapeProto.Dim(size=int(size)) for size in sizes])


_files = itertools.count()  # of this process


def event_file(log_dir: str, max_queue: int, flush_secs: int, suffix: str) -> Any:
    """A new event file in a folder. tensorboardX names files by the second alone, and would write
    over one as old: it gets the process and a number, which tensorboard has in its names."""
    if _PACKAGE == "tensorboardX":
        suffix = f".{os.getpid()}.{next(_files)}{suffix}"
    return part("event_file_writer").EventFileWriter(log_dir, max_queue, flush_secs, suffix)
