"""The real TensorBoard server, asked over HTTP for what a training run has written."""

import json
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request

import torch
from told import own, tell
from torch import nn
from torch.utils.tensorboard import SummaryWriter

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
x, y = torch.randn(64, 4), torch.randint(0, 2, (64,))
with SummaryWriter("logs/run") as writer:
    writer.add_graph(model, x)
    for step in range(20):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        writer.add_scalar("loss", loss, step)
        writer.add_histogram("first", model[0].weight, step)
    scores = model(x).softmax(1)[:, 1]
    writer.add_pr_curve("curve", y, scores.detach(), 20)
    writer.add_embedding(x[:9], [f"p{i}" for i in range(9)], torch.rand(9, 3, 8, 8), 1, "inputs")
    writer.add_image("image", torch.rand(3, 5, 6), 3)
    writer.add_text("note", "**bold**", 3)
    writer.add_mesh("mesh", torch.rand(1, 6, 3), faces=torch.tensor([[[0, 1, 2]]]), global_step=0)
    writer.add_audio("sound", torch.sin(torch.arange(400) / 5)[None], 0)
    writer.add_hparams({"lr": 1e-2, "kind": "adam"}, {"hparam/loss": loss.item()}, run_name="trial")
    writer.add_custom_scalars({"group": {"chart": ["Multiline", ["loss"]]}})

with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
server = subprocess.Popen(
    [sys.executable, "-m", "tensorboard.main", "--logdir", "logs", "--port", str(port), "--host", "127.0.0.1", "--load_fast=false", "--samples_per_plugin", "images=100,text=100,scalars=1000"],
    stdout=subprocess.DEVNULL, stderr=open("server.log", "w"),
)


def get(path, data=None, text=False, **query):
    url = f"http://127.0.0.1:{port}/data/{path}"
    if query:
        url += "?" + urllib.parse.urlencode(query)
    body = None if data is None else json.dumps(data).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"} if body else {})
    with urllib.request.urlopen(request, timeout=20) as answer:
        read = answer.read()
    return read if text else json.loads(read)


def wait(ready):
    for _ in range(240):
        try:
            found = ready()
            if found:
                return found
        except OSError:
            if server.poll() is not None:
                raise SystemExit(open("server.log").read()) from None
        time.sleep(0.5)
    raise SystemExit("the server shows nothing: " + open("server.log").read()[-2000:])


try:
    wait(lambda: "run" in get("plugin/scalars/tags"))
    wait(lambda: "mesh" in str(get("plugin/mesh/tags")))
    tell("plugins", [name for name, found in get("plugins_listing").items() if found["enabled"]])
    series = get("plugin/scalars/scalars", tag="loss", run="run")
    tell("loss", [value for _, _, value in series], 1e-4)
    tell("steps", [step for _, step, _ in series])
    histogram = get("plugin/histograms/histograms", tag="first", run="run")
    tell("histogram", [histogram[-1][1], [row[2] for row in histogram[-1][2]]], 2e-2)
    graphs = get("plugin/graphs/info")
    tell("graph runs", {run: found["run_graph"] for run, found in graphs.items() if found["run_graph"]})
    definition = get("plugin/graphs/graph", text=True, run="run", large_attrs_key="_too_large_attrs", limit_attr_size=1024).decode()
    tell("scopes shown", [f"Sequential/{kind}" in definition for kind in ("Linear[0]", "ReLU[1]", "BatchNorm1d[2]", "Linear[3]")])
    own("graph shown", {"nodes": definition.count("node {"), "shapes": definition.count("_output_shapes")})
    tell("run metadata", b"step_stats" in get("plugin/graphs/run_metadata", text=True, run="run", tag="step1"))
    curves = get("plugin/pr_curves/pr_curves", tag="curve", run="run")
    tell("curve", curves["run"][-1]["precision"][:20], 0.06)
    images = get("plugin/images/images", tag="image", run="run", sample=0)
    tell("image", images[0]["step"])
    tell("png and its size", get("plugin/images/individualImage?" + images[0]["query"], text=True)[:24].hex())
    tell("text", [found["text"] for found in get("plugin/text/text", tag="note/text_summary", run="run")])
    audio = get("plugin/audio/audio", tag="sound", run="run", sample=0)
    tell("audio", [audio[0]["contentType"], len(get("plugin/audio/individualAudio?" + audio[0]["query"], text=True))])
    tell("mesh", [{k: v for k, v in found.items() if k in ("content_type", "data_shape", "components", "config")} for found in get("plugin/mesh/meshes", tag="mesh", run="run")])
    tell("projector", get("plugin/projector/info", run="run")["embeddings"] if "run" in get("plugin/projector/runs") else None)
    for name in get("plugin/projector/info", run="run")["embeddings"]:
        tensor = get("plugin/projector/tensor", text=True, run="run", name=name["tensorName"])
        tell("points", [len(tensor), name["tensorShape"]])
        tell("labels", get("plugin/projector/metadata", text=True, run="run", name=name["tensorName"]).decode())
        tell("sprite", get("plugin/projector/sprite_image", text=True, run="run", name=name["tensorName"])[:8].hex())
    experiment = get("plugin/hparams/experiment", {"experimentName": ""})
    tell("hparams", sorted((found["name"], found["type"]) for found in experiment["hparamInfos"]))
    groups = get("plugin/hparams/session_groups", {
        "experimentName": "", "allowedStatuses": ["STATUS_SUCCESS", "STATUS_UNKNOWN", "STATUS_RUNNING", "STATUS_FAILURE"],
        "colParams": [{"metric": {"group": "", "tag": "hparam/loss"}}], "startIndex": 0, "sliceSize": 10,
    })
    tell("trials", [dict(sorted(found["hparams"].items())) for found in groups["sessionGroups"]])
    tell("trials' loss", [found["metricValues"][0]["value"] for found in groups["sessionGroups"]], 1e-4)
    tell("layout", [category["title"] for category in get("plugin/custom_scalars/layout")["category"]])
finally:
    server.terminate()
    server.wait(20)
