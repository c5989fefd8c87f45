"""torch.jit.save and load: archives of what was traced."""

import io

import numpy as np
import pytest

import graphc
from graphc import jit, nn
from graphc.export.errors import ExportError


def network():
    graphc.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(8, 5),
    )


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.dropout = nn.Linear(4, 4), nn.Dropout(0.5)

    def forward(self, x, mask=None, scale=2.0):
        y = self.dropout(self.linear(x)) * scale
        return {"y": y, "sums": (y.sum(1), x.shape[0])} if mask is None else y * mask


def close(found, wanted):
    np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), atol=1e-6)


def test_a_traced_model_is_saved_with_free_sizes(tmp_path):
    model, path = network().eval(), tmp_path / "model.pt"
    traced = jit.trace(model, graphc.randn(2, 3, 16, 16))
    traced.save(path)
    loaded = jit.load(str(path), map_location="cpu")
    assert isinstance(loaded, jit.ScriptModule) and not hasattr(network(), "save")
    assert list(loaded.state_dict()) == list(model.state_dict())
    loaded.eval()
    for shape in ((2, 3, 16, 16), (5, 3, 20, 12), (1, 3, 8, 8)):
        x = graphc.randn(*shape)
        close(loaded(x), model(x))


def test_a_model_in_training_keeps_its_statistics_moving(tmp_path):
    model, x = network().train(), graphc.randn(4, 3, 8, 8)
    jit.save(jit.trace(model, x), tmp_path / "model.pt")
    loaded = jit.load(tmp_path / "model.pt")
    before = loaded.state_dict()["1.running_mean"].clone()
    close(before, model[1].running_mean)
    close(loaded(x), model(x))
    close(loaded.state_dict()["1.running_mean"], model[1].running_mean)
    assert not before.equal(model[1].running_mean)


def test_what_was_loaded_is_saved_with_its_new_weights(tmp_path):
    model, ones = Masked().eval(), graphc.ones(2, 4)
    jit.trace(model, example_kwarg_inputs={"x": ones, "mask": ones}).save(tmp_path / "one")
    loaded = jit.load(tmp_path / "one")
    close(loaded(x=graphc.ones(3, 4), mask=graphc.ones(3, 4)), model(graphc.ones(3, 4))["y"])
    with graphc.no_grad():
        loaded.linear.weight.zero_()
    loaded.save(tmp_path / "two")
    found = jit.load(tmp_path / "two")(x=ones, mask=ones)
    close(found, 2 * model.linear.bias.expand(2, 4))


def test_functions_containers_and_texts_beside_the_graph():
    def function(x, pair):
        return pair[0] * x.sin(), [x.shape[0] + pair[1]]

    x, ones = graphc.randn(3), graphc.ones(3)
    traced, file = jit.trace(function, (x, (ones, ones))), io.BytesIO()
    traced.save(file, _extra_files={"labels.json": "[1]", "more": b"two"})
    file.seek(0)
    texts = {"labels.json": "", "absent": "kept"}
    loaded = jit.load(file, _extra_files=texts)
    assert texts == {"labels.json": b"[1]", "absent": "kept"}
    x, ones = graphc.randn(6), graphc.ones(6)
    (one, [two]), (right_one, [right_two]) = loaded(x, (ones, ones)), function(x, (ones, ones))
    close(one, right_one)
    close(two, right_two)


def test_a_compiled_model_is_saved(tmp_path):
    model, x = network().eval(), graphc.randn(2, 3, 8, 8)
    jit.save(jit.trace(graphc.compile(model), x), tmp_path / "model.pt")
    loaded = jit.load(tmp_path / "model.pt")
    assert list(loaded.state_dict()) == list(model.state_dict())
    close(loaded(x), model(x))


def test_refusals_say_what_to_do(tmp_path):
    model = nn.Linear(2, 2)
    with pytest.raises(NotImplementedError, match=r"calling Linear with(.|\n)*Cure: m = "):
        jit.save(jit.script(model), tmp_path / "m")
    with pytest.raises(AttributeError, match=r"Cure: .*torch\.jit\.trace\(model, args\)"):
        model.save("m")
    jit.trace(model, graphc.ones(1, 2), _store_inputs=False)
    assert not hasattr(model, "save")
    with pytest.raises(ValueError, match="nowhere does not exist"):
        jit.load(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="is a directory"):
        jit.load(tmp_path)
    (tmp_path / "junk").write_bytes(b"junk")
    with pytest.raises(ExportError, match="junk cannot be loaded"):
        jit.load(tmp_path / "junk")
    jit.trace(model, graphc.ones(1, 2))
    with pytest.raises(ValueError, match="no UTF-8 text"):
        model.save(tmp_path / "m", _extra_files={"a": b"\xff"})
    assert not (tmp_path / "m").exists()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torchscript_files_are_refused_by_name(tmp_path):
    torch = pytest.importorskip("torch")
    torch.jit.trace(torch.nn.Linear(2, 2), torch.ones(1, 2)).save(tmp_path / "theirs.pt")
    with pytest.raises(NotImplementedError, match=r"TorchScript's files(.|\n)*Cure: load"):
        jit.load(tmp_path / "theirs.pt")
    with open(tmp_path / "theirs.pt", "rb") as file, pytest.raises(NotImplementedError):
        jit.load(file)
