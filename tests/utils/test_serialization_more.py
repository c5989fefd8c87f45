"""Legacy files, names declared safe, and whole modules that PyTorch saved."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.unpickle import UnpicklingError

torch = pytest.importorskip("torch")


def legacy(value: Any, path: Path) -> Path:
    """A file in the format before 1.6."""
    torch.save(value, path, _use_new_zipfile_serialization=False)
    return path


def test_legacy_files(tmp_path: Path) -> None:
    base = torch.arange(12.0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    saved = {
        "view": base[2:8].reshape(2, 3).t(), "base": base, "half": torch.ones(3).bfloat16(),
        "bool": torch.tensor([True, False]), "int": torch.arange(3), "none": None,
        "text": "x", "model": model.state_dict(), "optimizer": optimizer.state_dict(),
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }
    path = legacy(saved, tmp_path / "old.pt")
    for safely in (True, False):
        found = graphc.load(path, weights_only=safely)
        assert found["view"].tolist() == saved["view"].tolist()
        assert tuple(found["view"].stride()) == tuple(saved["view"].stride())
        found["base"][2] = 99.0
        assert found["view"][0, 0].item() == 99.0  # they share memory
        assert found["half"].dtype == graphc.bfloat16 and found["bool"].tolist() == [True, False]
        assert found["parameter"].requires_grad
        ours = graphc.nn.Sequential(graphc.nn.Linear(3, 4), graphc.nn.BatchNorm1d(4))
        ours.load_state_dict(found["model"])
        steps = graphc.optim.Adam(ours.parameters())
        steps.load_state_dict(found["optimizer"])
        np.testing.assert_array_equal(
            ours[0].weight.detach().numpy(), model[0].weight.detach().numpy()
        )


@pytest.mark.parametrize("safely", [True, False])
def test_torch_reads_legacy_files(tmp_path: Path, safely: bool) -> None:
    base = graphc.arange(12.0)
    saved = {
        "view": base[2:8].reshape(2, 3).t(), "base": base, "half": graphc.ones(3).bfloat16(),
        "bool": graphc.tensor([True, False]), "none": None, "size": graphc.Size([1, 2]),
        "parameter": graphc.nn.Parameter(graphc.ones(2)), "empty": graphc.empty(0, 3),
    }
    path = tmp_path / "old.pt"
    graphc.save(saved, path, _use_new_zipfile_serialization=False)
    buffer = io.BytesIO()
    graphc.save(saved, buffer, _use_new_zipfile_serialization=False)
    assert buffer.getvalue() == path.read_bytes()
    found = torch.load(path, weights_only=safely)
    found["base"][2] = 99.0
    assert found["view"][0, 0].item() == 99.0 and tuple(found["view"].stride()) == (1, 3)
    for name in ("half", "bool", "parameter", "empty"):
        assert found[name].tolist() == saved[name].tolist()
        assert str(found[name].dtype) == str(saved[name].dtype)
    assert isinstance(found["parameter"], torch.nn.Parameter) and found["size"] == (1, 2)
    assert graphc.load(path, weights_only=safely)["view"].tolist() == saved["view"].tolist()


def test_damaged_legacy_files(tmp_path: Path) -> None:
    data = legacy({"a": torch.arange(100.0)}, tmp_path / "old.pt").read_bytes()
    for length in (0, 5, 20, 60, 150, len(data) // 2, len(data) - 1):
        with pytest.raises((RuntimeError, UnpicklingError, EOFError)):
            graphc.load(io.BytesIO(data[:length]))


class Record:
    """Something of the user's."""

    def __init__(self, value: int) -> None:
        self.value = value


def test_names_declared_safe(tmp_path: Path) -> None:
    path = tmp_path / "file.pt"
    graphc.save({"record": Record(5), "kind": Record, "x": graphc.ones(2)}, path)
    name = f"{Record.__module__}.Record"
    with pytest.raises(UnpicklingError, match="Record"):
        graphc.load(path)
    assert name in graphc.serialization.get_unsafe_globals_in_checkpoint(path)
    with graphc.serialization.safe_globals([Record]):
        found = graphc.load(path)
        assert found["record"].value == 5 and found["kind"] is Record
        assert graphc.serialization.get_unsafe_globals_in_checkpoint(path) == []
    with pytest.raises(UnpicklingError):
        graphc.load(path)
    graphc.serialization.add_safe_globals([(Record, name)])
    try:
        assert graphc.load(path)["record"].value == 5
        assert graphc.serialization.get_safe_globals() == [Record]
    finally:
        graphc.serialization.clear_safe_globals()
    assert graphc.load(path, weights_only=False)["record"].value == 5


def test_whole_modules_of_pytorch(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    for zipped in (True, False):
        path = tmp_path / f"model{zipped}.pt"
        torch.save(model, path, _use_new_zipfile_serialization=zipped)
        ours = graphc.load(path, weights_only=False)
        x = np.ones((2, 3), np.float32)
        np.testing.assert_allclose(
            ours(graphc.from_numpy(x)).detach().numpy(),
            model(torch.from_numpy(x)).detach().numpy(), rtol=1e-6,
        )
        with pytest.raises(UnpicklingError):
            graphc.load(path, weights_only=True)


def test_generator_states_in_checkpoints(tmp_path: Path) -> None:
    graphc.manual_seed(3)
    graphc.save({"rng": graphc.get_rng_state()}, tmp_path / "rng.pt")
    torch.set_rng_state(torch.load(tmp_path / "rng.pt")["rng"])
    assert torch.rand(3).tolist() == graphc.rand(3).tolist()


def test_pickle_module_is_not_for_safe_loading(tmp_path: Path) -> None:
    import pickle

    graphc.save([1], tmp_path / "a.pt")
    assert graphc.load(tmp_path / "a.pt", pickle_module=pickle) == [1]
    with pytest.raises(RuntimeError, match="pickle_module"):
        graphc.load(tmp_path / "a.pt", pickle_module=pickle, weights_only=True)


def test_a_file_of_a_whole_module_names_only_its_classes(tmp_path: Any) -> None:
    model = graphc.nn.Sequential(graphc.nn.Linear(3, 2), graphc.nn.BatchNorm1d(2))
    graphc.save(model, tmp_path / "model.pt")
    kinds = [type(module) for module in model.modules()]
    with graphc.serialization.safe_globals(kinds):
        loaded = graphc.load(tmp_path / "model.pt")
    assert loaded.state_dict().keys() == model.state_dict().keys()
    # writes are still counted, so that compiled functions notice them
    assert type(loaded[0]._parameters) is type(model[0]._parameters)


class _AsUnderRun(pickle.Unpickler):
    """What `import torch` finds under `python -m graphc run`."""

    def find_class(self, module: str, name: str) -> Any:
        return super().find_class(module.replace("torch", "graphc", 1), name)


def test_a_plain_pickle_of_torchs_tensors() -> None:
    theirs = {"t": torch.arange(6.0).reshape(2, 3).t(), "p": torch.nn.Parameter(torch.ones(2))}
    mine = _AsUnderRun(io.BytesIO(pickle.dumps(theirs))).load()
    assert mine["t"].stride() == theirs["t"].stride()
    np.testing.assert_array_equal(mine["t"].numpy(), theirs["t"].numpy())
    assert type(mine["p"]) is graphc.nn.Parameter
    assert mine["p"].requires_grad
