"""Visdom with its real server: windows are made, appended to, read back."""

import json
import os
import socket
import subprocess
import sys
import time

import numpy as np
import torch
import visdom
from told import tell

torch.manual_seed(0)
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
# `start_server` would fetch scripts for the browser, which nobody opens here
log = open("server.log", "w")
server = subprocess.Popen(
    [sys.executable, "-c", "from visdom.server.run_server import main; main()", "-port", str(port), "-bind_local", "-env_path", os.path.abspath("envs"), "-logging_level", "WARN"],
    stdout=log, stderr=log,
)
try:
    for _ in range(120):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            if server.poll() is not None:
                raise SystemExit(open("server.log").read()) from None
            time.sleep(0.5)
    vis = visdom.Visdom(server="http://127.0.0.1", port=port, env="main", raise_exceptions=True, use_incoming_socket=False)
    tell("connected", vis.check_connection())

    def window(name):
        return json.loads(vis.get_window_data(name))

    def data(name):
        return [{k: v for k, v in part.items() if k in ("x", "y", "z", "type", "values", "labels")} for part in window(name)["content"]["data"]]

    model = torch.nn.Linear(4, 1)
    x, y = torch.randn(32, 4), torch.randn(32, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(10):
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        vis.line(Y=loss.detach().reshape(1), X=torch.tensor([step]), win="loss", update="append" if step else None, opts={"title": "loss"})
    tell("losses", [part["y"] for part in data("loss")], 1e-4)
    vis.line(Y=torch.arange(90.0).reshape(45, 2), X=torch.arange(45.0), win="lines", opts={"legend": ["a", "b"]})
    vis.line(Y=torch.ones(3), X=torch.arange(3.0), win="lines", update="append", name="a")
    tell("lines", data("lines"))
    vis.scatter(X=torch.rand(20, 2), Y=torch.randint(1, 3, (20,)), win="scatter")
    tell("scatter", data("scatter"), 1e-6)
    vis.scatter(X=torch.rand(10, 3), win="scatter3")
    vis.bar(X=torch.tensor([1.0, 3.0, 2.0]), win="bar", opts={"rownames": ["a", "b", "c"]})
    vis.histogram(X=torch.randn(100), win="histogram", opts={"numbins": 7})
    vis.heatmap(X=torch.rand(4, 5), win="heatmap")
    vis.boxplot(X=torch.rand(10, 3), win="boxplot")
    vis.surf(X=torch.rand(4, 4), win="surf")
    vis.contour(X=torch.rand(4, 4), win="contour")
    vis.quiver(X=torch.rand(3, 3), Y=torch.rand(3, 3), win="quiver")
    vis.stem(X=torch.rand(5), win="stem")
    vis.pie(X=torch.tensor([1, 2, 3]), win="pie", opts={"legend": ["a", "b", "c"]})
    vis.mesh(X=torch.rand(6, 3), win="mesh")
    for name in ("bar", "histogram", "heatmap", "boxplot", "surf", "contour", "pie"):
        tell(name, data(name), 1e-5)
    vis.image(torch.rand(3, 8, 9), win="image", opts={"caption": "c"})
    vis.images(torch.rand(4, 3, 8, 9), win="images", nrow=2)
    vis.image((torch.rand(8, 9) * 255).byte(), win="gray")
    tell("images", [window(name)["type"] for name in ("image", "images", "gray")])
    tell("image", window("image")["content"]["src"][:22])
    vis.text("hello <b>there</b>", win="text")
    vis.text(" again", win="text", append=True)
    tell("text", window("text")["content"])
    vis.matplot  # noqa: B018 (there, and needs a figure)
    vis.audio(tensor=torch.zeros(50).numpy(), win="audio", opts={"sample_frequency": 100})
    vis.properties([{"type": "text", "name": "n", "value": "v"}], win="properties")
    tell("exists", [vis.win_exists("loss"), vis.win_exists("nothing")])
    vis.close("bar")
    tell("closed", vis.win_exists("bar"))
    vis.save(["main"])
    tell("saved", sorted(os.listdir("envs")))
    tell("environments", vis.get_env_list())
    offline = visdom.Visdom(offline=True, log_to_filename="visdom.log")
    offline.line(Y=torch.arange(3.0), win="w")
    tell("log", len(open("visdom.log").read().splitlines()))
    for wrong in (lambda: vis.line(Y=torch.ones(2, 2, 2)), lambda: vis.image(torch.ones(2, 3, 4, 5, 6)), lambda: vis.bar(X=torch.ones(2, 2, 2))):
        try:
            wrong()
            tell("refused", "no")
        except Exception as error:
            tell("refused", type(error).__name__)
    print(np.__version__)
finally:
    server.terminate()
    server.wait(20)
