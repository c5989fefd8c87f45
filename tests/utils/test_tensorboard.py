"""SummaryWriter and add_graph: what is written, read back as TensorBoard reads it.

tests/ecosystem has the whole of it against PyTorch's writer and the real server.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn
from graphc.utils.tensorboard import FileWriter, SummaryWriter, packages, summary
from graphc.utils.tensorboard._pytorch_graph import RunMetadata, graph


def events(folder: Path) -> Iterator[Any]:
    """Every Event in the files of a folder."""
    for file in sorted(folder.glob("events.*")):
        data, place = file.read_bytes(), 0
        while place < len(data):  # length, its checksum, the record, its checksum
            length = int.from_bytes(data[place : place + 8], "little")
            yield packages.Event.FromString(data[place + 12 : place + 12 + length])
            place += 12 + length + 4


def values(folder: Path) -> dict[tuple[str, int], Any]:
    return {(v.tag, e.step): v for e in events(folder) for v in e.summary.value}


def test_each_kind_of_value(tmp_path: Path) -> None:
    pixels = graphc.arange(48, dtype=graphc.uint8).reshape(3, 4, 4)
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("loss", graphc.tensor(0.5, requires_grad=True), 3, walltime=7.0)
        writer.add_scalar("new", 1.5, 3, new_style=True, double_precision=True)
        writer.add_scalar("half", graphc.tensor([70000.0], dtype=graphc.bfloat16), np.int64(3))
        writer.add_tensor("t", graphc.tensor([[1 + 2j]]), 3)
        writer.add_image("pixels", pixels, 3)
        writer.add_image_with_boxes("boxes", pixels, graphc.tensor([[0, 0, 2, 2]]), 3, labels="a")
        writer.add_images("grid", pixels[None].expand(3, 3, 4, 4), 3)
        writer.add_audio("sound", graphc.tensor([[0.0, 0.5, -1.0]]), 3, sample_rate=8000)
        writer.add_text("words", "ä **b**", 3)
        writer.add_custom_scalars_marginchart(["a", "b", "c"], "group", "chart")
        writer.add_scalars("main/tag", {"x": 1, "y": 2}, 3)
    found = values(tmp_path)
    assert found["loss", 3].simple_value == 0.5
    assert found["new", 3].tensor.double_val == [1.5] and not found["new", 3].simple_value
    assert found["half", 3].simple_value == graphc.tensor(70000.0).bfloat16().item()
    assert found["t", 3].tensor.scomplex_val == [1.0, 2.0]
    assert [d.size for d in found["t", 3].tensor.tensor_shape.dim] == [1, 1]
    for tag, width in (("pixels", 4), ("boxes", 4), ("grid", 12)):
        assert (found[tag, 3].image.height, found[tag, 3].image.width) == (4, width)
        assert found[tag, 3].image.encoded_image_string.startswith(b"\x89PNG")
    sound = found["sound", 3].audio
    assert sound.length_frames == 3 and sound.encoded_audio_string.endswith(
        np.array([0, 16383, -32767], "<i2").tobytes()
    )
    assert found["words/text_summary", 3].tensor.string_val == ["ä **b**".encode()]
    layout = packages.part("layout").Layout.FromString(
        found["custom_scalars__config__", 0].tensor.string_val[0]
    )
    (series,) = layout.category[0].chart[0].margin.series
    assert (series.value, series.lower, series.upper) == ("a", "b", "c")
    assert values(tmp_path / "main_tag_y")["main/tag", 3].simple_value == 2
    assert next(e.wall_time for e in events(tmp_path) if e.step == 3) == 7.0


def test_pictures_hold_their_pixels(tmp_path: Path) -> None:
    import io

    image = pytest.importorskip("PIL.Image")
    picture = np.random.default_rng(0).random((5, 7))
    made = summary.image("x", picture, dataformats="HW").value[0].image
    read = np.asarray(image.open(io.BytesIO(made.encoded_image_string)))
    want = (picture * 255).astype(np.uint8)
    np.testing.assert_array_equal(read, np.repeat(want[..., None], 3, 2))
    turned = summary.image("x", graphc.zeros(7, 1, 5) + 2, dataformats="WCH").value[0].image
    assert (turned.height, turned.width, turned.colorspace) == (5, 7, 3)
    with pytest.raises(AssertionError, match="different"):
        summary.image("x", picture, dataformats="CHW")


def test_histograms() -> None:
    made = summary.make_histogram(np.array([0.5, 1.5, 1.5, 3.5]), bins=[0, 1, 2, 3, 4, 5])
    assert list(made.bucket_limit) == [0, 1, 2, 3, 4] and list(made.bucket) == [0, 1, 2, 0, 1]
    assert (made.min, made.max, made.num, made.sum, made.sum_squares) == (0.5, 3.5, 4, 7, 17)
    fewer = summary.make_histogram(np.arange(10.0), bins=range(11), max_bins=3)
    assert list(fewer.bucket_limit) == [0, 3, 6, 9, 10] and list(fewer.bucket) == [0, 3, 3, 3, 1]
    for given, bins in ((np.zeros(0), [0, 1]), (np.array([5.0]), [0, 1])):
        with pytest.raises(ValueError, match=r"no element|empty"):
            summary.make_histogram(given, bins)


def test_hyperparameters(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_hparams(
            {"lr": 0.1, "kind": "sgd", "left": None, "tensor": graphc.tensor(3.0)},
            {"accuracy": 0.5}, {"kind": ["sgd", "adam"]}, run_name="one",
        )
        with pytest.raises(ValueError, match="'x' is a list"):
            writer.add_hparams({"x": [1]}, {})
        with pytest.raises(TypeError, match="list of same type"):
            writer.add_hparams({"x": 1}, {}, {"x": ["a"]})
    found = values(tmp_path / "one")
    data = packages.part("hparams").HParamsPluginData
    start = data.FromString(
        found["_hparams_/session_start_info", 0].metadata.plugin_data.content
    ).session_start_info.hparams
    assert start["lr"].number_value == 0.1 and start["kind"].string_value == "sgd"
    assert start["tensor"].number_value == 3.0 and len(start) == 3
    experiment = data.FromString(
        found["_hparams_/experiment", 0].metadata.plugin_data.content
    ).experiment
    assert [v.string_value for v in experiment.hparam_infos[1].domain_discrete.values] == [
        "sgd", "adam"
    ]
    assert found["accuracy", 0].simple_value == 0.5


def test_curves_and_meshes(tmp_path: Path) -> None:
    labels, scores = np.array([0, 1, 1, 0]), np.array([0.1, 0.9, 0.4, 0.6])
    tp, fp, tn, fn, precision, recall = summary.compute_curve(labels, scores, 3)
    assert tp.tolist() == [2, 1, 0] and fp.tolist() == [2, 1, 0]
    assert tn.tolist() == [0, 1, 2] and fn.tolist() == [0, 1, 2]
    np.testing.assert_allclose(precision, [0.5, 0.5, 0], atol=1e-6)
    np.testing.assert_allclose(recall, [1, 0.5, 0], atol=1e-6)
    points = graphc.tensor([[[1, 2, 3], [4, 5, 6]]])
    with SummaryWriter(tmp_path) as writer:
        given = graphc.tensor(labels), graphc.tensor(scores)
        writer.add_pr_curve("curve", *given, num_thresholds=200)
        writer.add_mesh("mesh", points, faces=points)
        with pytest.raises(ValueError, match="BxNx3"):
            writer.add_mesh("mesh", points[0])
    found = values(tmp_path)
    assert [d.size for d in found["curve", 0].tensor.tensor_shape.dim] == [6, 127]
    vertices = found["mesh_VERTEX", 0]
    assert vertices.tensor.float_val == [1, 2, 3, 4, 5, 6] and ("mesh_COLOR", 0) not in found
    # field 7: there are vertices (bit 1) and faces (bit 2)
    assert vertices.metadata.plugin_data.content.endswith(bytes([7 << 3, 0b110]))


def test_the_projectors_files(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        for step in (0, 1):
            writer.add_embedding(
                graphc.tensor([[1.0, 2.5], [3.0, 4.0]]), [["a", 1], ["b", 2]],
                graphc.ones(2, 3, 8, 5), step, tag='t/"', metadata_header=["name", "number"],
            )
        with pytest.raises(AssertionError, match="#labels"):
            writer.add_embedding(graphc.ones(2, 2), ["a"])
    folder = tmp_path / "00001" / 't%2f"'
    assert (folder / "tensors.tsv").read_text() == "1.0\t2.5\n3.0\t4.0\n"
    assert (folder / "metadata.tsv").read_text() == "name\tnumber\na\t1\nb\t2\n"
    assert (folder / "sprite.png").read_bytes().startswith(b"\x89PNG")
    config = (tmp_path / "projector_config.pbtxt").read_text()
    assert config.count("embeddings {") == 2 and "single_image_dim: 5\n" in config
    assert json.loads(config.split("tensor_path: ")[2].split("\n")[0]) == '00001/t%2f"/tensors.tsv'


def test_files_that_are_closed_and_opened_again(tmp_path: Path) -> None:
    writer = FileWriter(tmp_path, filename_suffix=".mine")
    writer.add_summary(summary.scalar("a", 1), 1)
    writer.close()
    writer.reopen()
    writer.add_summary(summary.scalar("a", 2), 2)
    writer.close()
    assert [v.simple_value for v in values(tmp_path).values()] == [1, 2]
    assert all(file.name.endswith(".mine") for file in tmp_path.glob("events.*"))
    for _ in range(2):
        with SummaryWriter(tmp_path / "b", purge_step=5) as again:
            again.add_scalar("a", 1, 5)
        again.close()
    assert sum(e.HasField("session_log") for e in events(tmp_path / "b")) == 2


def test_neither_package(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = type(importlib)("tensorboard")  # of logs: a package without a version

    def found(name: str) -> Any:
        if name == "tensorboard":
            return folder
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(importlib, "import_module", found)
    with pytest.raises(ModuleNotFoundError, match="pip install tensorboard") as error:
        packages._installed()
    assert error.value.name == "tensorboard"


# --- add_graph -------------------------------------------------------------------------------


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))
        self.head = nn.Linear(3, 2)
        self.count = 0

    def forward(self, x: Any, scale: Any) -> Any:
        self.count += 1
        h = self.body(x) * scale
        if h.sum() > 1e9 or h.numpy().max() > 1e9:  # asks for values
            h = -h
        return self.head(h), h.topk(2).indices


def test_the_graph_of_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = Net()
    model.body[1].eval()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    given = graphc.randn(5, 4), graphc.tensor(2.0)
    with SummaryWriter(tmp_path) as writer:
        writer.add_graph(model, given, verbose=True)
    assert "dot_general" in capsys.readouterr().out
    written = [e for e in events(tmp_path) if e.graph_def or e.HasField("tagged_run_metadata")]
    definition = packages.GraphDef.FromString(written[0].graph_def)
    assert written[1].tagged_run_metadata.run_metadata == RunMetadata().SerializeToString()
    nodes = {node.name: node for node in definition.node}
    assert len(nodes) == len(definition.node)
    for node in definition.node:  # each edge leads to a node
        assert all(each.partition(":")[0] in nodes for each in node.input), node
    first = "Net/Sequential[body]/Linear[0]"
    assert nodes[f"{first}/weight"].op == "Parameter" and nodes["input/x"].op == "IO Node"
    product = nodes[f"{first}/dot_general"]
    assert "input/x" in product.input
    assert product.attr["line"].s.startswith(b"test_tensorboard.py:")
    (shape,) = product.attr["_output_shapes"].list.shape
    assert [d.size for d in shape.dim] == [5, 3] and product.attr["dtype"].s == b"float32"
    assert any(name.startswith("Net/Linear[head]/") for name in nodes)
    assert not any("Dropout" in name for name in nodes)  # in evaluation mode it is nothing
    assert nodes["Net/topk"].attr["dtype"].s == b"float32, int64"
    assert nodes["output/output.2"].input == ["Net/topk:1"]
    # the model is as it was, and so is each mode
    assert model.training and not model.body[1].training and model.body[2].training
    assert model.count == 0
    assert all(bool((value == state[name]).all()) for name, value in model.state_dict().items())


def test_graphs_of_other_things() -> None:
    definition, _ = graph(lambda x: {"a": x.exp(), "b": x}, graphc.ones(2))
    assert [node.op for node in definition.node] == ["IO Node", "exp", "IO Node"]
    recurrent, _ = graph(nn.LSTM(3, 4), [graphc.ones(2, 1, 3)])
    assert "LSTM/weight_ih_l0" in {node.name for node in recurrent.node}
    with pytest.raises(RuntimeError):
        graph(nn.Linear(3, 4), graphc.ones(2))


def test_run_metadata_is_what_tensorflow_says() -> None:
    """RunMetadata { step_stats { dev_stats { device } } }: field 1 in field 1 in field 1."""
    device = b"/device:CPU:0"
    inner = b"\n" + bytes([len(device)]) + device
    middle = b"\n" + bytes([len(inner)]) + inner
    assert RunMetadata().SerializeToString() == b"\n" + bytes([len(middle)]) + middle
