"""torch.utils.tensorboard: all that SummaryWriter writes, message by message, and files besides."""

import glob
import hashlib
import os
import sys

import matplotlib.pyplot as plt
import numpy as np
import torch
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from tensorboard.plugins.mesh.plugin_data_pb2 import MeshPluginData
from told import own, tell
from torch import nn
from torch.utils.tensorboard import FileWriter, RecordWriter, SummaryWriter
from torch.utils.tensorboard.summary import hparams, image, scalar, text

generator = torch.Generator().manual_seed(0)


def draw(*shape):
    return torch.rand(*shape, generator=generator)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5))
        self.head = nn.Linear(4, 5)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


def write_all(writer):
    net = Net()
    for step in range(3):
        writer.add_scalar("loss", draw(1), step, walltime=100.0 + step)
        writer.add_scalar("new", 0.1 * step, step, new_style=True)
        writer.add_scalar("double", 0.1 * step, step, new_style=True, double_precision=True)
        writer.add_scalars("both/of", {"a": step, "b": np.float32(step / 3)}, step)
        writer.add_histogram("weights", draw(100) - 0.3, step)
        writer.add_histogram("fewer", draw(100), step, max_bins=7)
    writer.add_histogram("auto", np.arange(50.0), 0, bins="auto")
    writer.add_histogram_raw("raw", min=0, max=3, num=6, sum=9, sum_squares=19, bucket_limits=[1, 2, 4], bucket_counts=[1, 2, 3])
    for dtype in (torch.float32, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8, torch.bool, torch.complex64, torch.float16, torch.bfloat16):
        writer.add_tensor(f"tensor/{dtype}", (draw(2, 3) * 5).to(dtype), 1)
    writer.add_image("chw", draw(3, 6, 8), 0)
    writer.add_image("hwc", draw(6, 8, 3).numpy(), 0, dataformats="HWC")
    writer.add_image("hw", (draw(6, 8) * 255).to(torch.uint8), 0, dataformats="HW")
    writer.add_images("nchw", draw(10, 1, 4, 5), 0)
    writer.add_images("nhwc", draw(3, 4, 5, 3) * 2 - 0.5, 0, dataformats="NHWC")
    writer.add_image_with_boxes("boxes", draw(3, 40, 50), torch.tensor([[3, 4, 20, 30], [10, 1, 45, 18]]), 0, labels=["cat", "dog"])
    writer.add_image_with_boxes("boxes/none", draw(3, 40, 50), torch.tensor([[3.0, 4.0, 20.0, 30.0]]), 0, rescale=2)
    figure = plt.figure(figsize=(2, 1))
    figure.gca().plot([1, 3, 2])
    writer.add_figure("figure", figure, 0, close=False)
    writer.add_figure("figures", [figure, figure], 0)
    writer.add_audio("audio", draw(1, 300) * 3 - 1.5, 0, sample_rate=8000)
    writer.add_text("text", "some *ä* text", 0)
    writer.add_pr_curve("curve", (draw(50) > 0.5).long(), draw(50), 0)
    writer.add_pr_curve("weighted", np.arange(20) % 2, np.arange(20) / 20, 0, num_thresholds=11, weights=np.arange(20) / 7)
    writer.add_pr_curve_raw("raw_curve", *[[3.0, 2.0, 1.0]] * 6, global_step=0, num_thresholds=3)
    writer.add_mesh("mesh", draw(1, 5, 3), torch.randint(0, 255, (1, 5, 3), generator=generator), torch.tensor([[[0, 1, 2], [2, 3, 4]]]), {"camera": {"cls": "PerspectiveCamera"}}, 0)
    writer.add_custom_scalars({"group": {"chart": ["Multiline", ["loss", "new"]], "band": ["Margin", ["a", "b", "c"]]}})
    writer.add_custom_scalars_multilinechart(["loss"])
    writer.add_hparams({"lr": 0.1, "n": 3, "kind": "sgd", "nest": True, "none": None, "t": torch.tensor([2.0])}, {"hparam/loss": 0.5, "hparam/n": torch.tensor(3)}, {"kind": ["sgd", "adam"], "lr": [0.1, 0.2]}, "trial", 4)
    labels = [["a", 1], ["b", 2], ["c", 3], ["d", 4], ["e", 5]]
    writer.add_embedding(draw(5, 3), labels, draw(5, 3, 4, 4), 2, "points/of", ["name", "number"])
    writer.add_embedding(draw(5, 2).numpy(), ["p", "q", "r", "s", "ü"])
    writer.add_graph(net, draw(2, 3, 8, 8))
    tell("modes after add_graph", [m.training for m in net.modules()])


def plain(event):
    """An event as text; what has its time or its machine in it is left out."""
    if event.HasField("file_version"):
        return "version"
    if event.graph_def:
        return "graph"
    if event.HasField("tagged_run_metadata"):
        return f"{event.tagged_run_metadata.tag} {event.tagged_run_metadata.run_metadata!r}"
    said = []
    for value in event.summary.value:
        content = value.metadata.plugin_data.content
        if value.metadata.plugin_data.plugin_name == "hparams":
            content = str(HParamsPluginData.FromString(content))
        elif value.metadata.plugin_data.plugin_name == "mesh":
            content = str(MeshPluginData.FromString(content))
        value.metadata.plugin_data.content = b""
        if value.HasField("image"):
            png = value.image.encoded_image_string
            value.image.encoded_image_string = hashlib.sha256(png).hexdigest().encode()
        said.append(f"{value} {content}")
    return f"{event.step} {'; '.join(said)}"


def events(folder):
    for path in sorted(glob.glob(f"{folder}/**/events.*", recursive=True)):
        for raw in RawEventFileLoader(path).Load():
            yield os.path.relpath(os.path.dirname(path), folder), Event.FromString(raw)


def graph_facts(definition):
    nodes = {node.name: node for node in definition.node}
    broken = [x for node in nodes.values() for x in node.input if x.lstrip("^").partition(":")[0] not in nodes]
    scopes = sorted({part for name in nodes for part in name.split("/") if "[" in part})
    return {"unique": len(nodes) == len(definition.node), "broken": broken, "scopes": scopes,
            "versions": definition.versions.producer}


with SummaryWriter("runs/one", max_queue=3, flush_secs=1, filename_suffix=".mine") as writer:
    tell("logdir", [writer.get_logdir(), writer.log_dir])
    write_all(writer)
writer.add_scalar("after close", 1.0, 9)
writer.close()
found = list(events("runs/one"))
for folder, event in found:
    what = plain(event)
    if what not in ("version", "graph"):
        tags = ",".join(v.tag for v in event.summary.value) or "metadata"
        tell(f"{folder} {tags}", what)
(definition,) = [GraphDef.FromString(event.graph_def) for _, event in found if event.graph_def]
facts = graph_facts(definition)
own("scopes", facts["scopes"])
# torch has scopes of the Modules that it traced, and no others
own("edges to no node", len(facts["broken"]))  # torch has some
tell("graph", {k: v for k, v in facts.items() if k not in ("scopes", "broken")})
tell("scopes", [s for s in facts["scopes"] if s in ("Sequential[body]", "Conv2d[0]", "BatchNorm2d[1]", "ReLU[2]", "Linear[head]")])
own("graph's nodes", len(definition.node))
for path in sorted(glob.glob("runs/one/**/*.tsv", recursive=True)) + ["runs/one/projector_config.pbtxt"]:
    with open(path, encoding="utf-8") as file:
        tell(path, file.read())
for path in sorted(glob.glob("runs/one/**/*.png", recursive=True)):
    from PIL import Image

    tell(path, np.asarray(Image.open(path)).sum().item())
tell("suffixes", all(p.endswith(".mine") for p in glob.glob("runs/one/events.*")))

for name, wrong in (
    ("scalar of two", lambda w: w.add_scalar("x", torch.ones(2))),
    ("list of lists", lambda w: w.add_histogram("x", [[1]])),
    ("empty", lambda w: w.add_histogram("x", torch.ones(0))),
    ("limits", lambda w: w.add_histogram_raw("x", 0, 1, 1, 1, 1, [1], [1, 2])),
    ("hparams", lambda w: w.add_hparams([], {})),
    ("hparam", lambda w: w.add_hparams({"x": [1]}, {})),
    ("format", lambda w: w.add_image("x", torch.ones(3, 4, 5), dataformats="HW")),
    ("twice", lambda w: w.add_image("x", torch.ones(3, 4), dataformats="HH")),
    ("labels", lambda w: w.add_embedding(torch.ones(2, 2), ["a"])),
    ("dims", lambda w: w.add_embedding(torch.ones(2, 2, 2))),
    ("margin", lambda w: w.add_custom_scalars_marginchart(["a"])),
    ("object", lambda w: w.add_scalar("x", object())),
):
    with SummaryWriter("runs/wrong") as writer:
        try:
            wrong(writer)
        except Exception as error:
            tell(f"error: {name}", type(error).__name__)
        else:
            tell(f"error: {name}", "none")

file = FileWriter("runs/file")
file.add_summary(scalar("x", 1.0), 3, walltime=5.0)
file.flush()
tell("flushed", [event.wall_time for _, event in events("runs/file") if event.step == 3])
file.close()
tell("summaries", [str(scalar("s", 2)), str(text("t", "x")), len(hparams({"a": 1}, {"b": 2})), image("i", np.zeros((1, 3, 2, 2))).value[0].image.width])
tell("names", [SummaryWriter.__name__, RecordWriter.__name__])
default = SummaryWriter(comment="_mine")
tell("default folder", [default.log_dir.startswith("runs/"), default.log_dir.endswith("_mine")])
default.close()

# tensorboardX, too, draws its graphs by torch.utils.tensorboard
import tensorboardX  # noqa: E402

with tensorboardX.SummaryWriter("runs/x") as other:
    other.add_scalar("x", torch.tensor(0.5), 1)
    other.add_histogram("h", draw(20), 1)
    other.add_graph(Net(), draw(2, 3, 8, 8))
    other.add_embedding(draw(3, 2), ["a", "b", "c"], label_img=draw(3, 3, 4, 4))
    other.add_pr_curve("p", torch.tensor([0, 1]), torch.tensor([0.1, 0.8]), 0)
kinds = {}
for _, event in events("runs/x"):
    for value in event.summary.value:
        kinds[value.tag] = value.simple_value
tell("tensorboardX", kinds)
tell("tensorboardX graph", {k: v for k, v in graph_facts(*[GraphDef.FromString(e.graph_def) for _, e in events("runs/x") if e.graph_def]).items() if k not in ("scopes", "broken")})
sys.stdout.flush()
