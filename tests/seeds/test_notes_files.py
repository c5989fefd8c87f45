"""What the Chinese PyTorch notes (shared/seeds 000, 001, 004) say of saving and loading."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

import graphc as torch
from graphc import nn
from tests.seeds.notes_models import MLP


class TestFiles:
    """000 "模型、张量等的保存与读取"; 001 chapter 5; 004 "读取和存储"."""

    def test_tensors_lists_and_dicts(self, tmp_path: Path) -> None:
        x, y = torch.ones(3), torch.zeros(4)
        torch.save(x, tmp_path / "x.pt")
        assert repr(torch.load(tmp_path / "x.pt")) == "tensor([1., 1., 1.])"
        torch.save([x, y], str(tmp_path / "xy.pt"))
        assert repr(torch.load(str(tmp_path / "xy.pt"))) == (
            "[tensor([1., 1., 1.]), tensor([0., 0., 0., 0.])]"
        )
        torch.save({"x": x, "y": y}, tmp_path / "xy_dict.pt")
        assert list(torch.load(tmp_path / "xy_dict.pt")) == ["x", "y"]

    def test_state_dict(self, tmp_path: Path) -> None:
        net, net2 = MLP(), MLP()
        assert list(net.state_dict()) == [
            "hidden.weight", "hidden.bias", "output.weight", "output.bias",
        ]
        x = torch.randn(2, 784)
        torch.save(net.state_dict(), tmp_path / "net.pt")
        net2.load_state_dict(torch.load(tmp_path / "net.pt", map_location=torch.device("cpu")))
        net2.eval()
        assert (net2(x) == net(x)).all().item()
        with pytest.raises((TypeError, AttributeError)):
            net2.load_state_dict(str(tmp_path / "net.pt"))

    def test_optimizer_state(self) -> None:
        net = MLP()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9)
        state = optimizer.state_dict()
        assert state["state"] == {}
        group = state["param_groups"][0]
        found = {k: group[k] for k in ("lr", "momentum", "dampening", "weight_decay", "nesterov")}
        assert found == {
            "lr": 0.001, "momentum": 0.9, "dampening": 0, "weight_decay": 0, "nesterov": False,
        }
        assert group["params"] == [0, 1, 2, 3]

    def test_warm_start_with_other_keys(self) -> None:
        a = nn.Sequential(nn.Linear(2, 2))
        b = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
        with pytest.raises(RuntimeError, match="Missing key"):
            b.load_state_dict(a.state_dict())
        result = b.load_state_dict(a.state_dict(), strict=False)
        assert result.missing_keys == ["1.weight", "1.bias"]
        assert torch.equal(a[0].weight, b[0].weight)

    def test_a_checkpoint_resumes(self) -> None:
        def make() -> Any:
            model = nn.Linear(3, 1)
            return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def train(model: Any, optimizer: Any, steps: int) -> Any:
            for _ in range(steps):
                optimizer.zero_grad()
                loss = model(torch.ones(2, 3)).square().sum()
                loss.backward()
                optimizer.step()
            return loss

        model, optimizer = make()
        loss = train(model, optimizer, 2)
        file = io.BytesIO()
        torch.save(
            {
                "epoch": 2,
                "model_state_dict": model.state_dict(),
                "optimizer_state_dict": optimizer.state_dict(),
                "loss": loss,
            },
            file,
        )
        file.seek(0)
        checkpoint = torch.load(file)
        other, other_optimizer = make()
        other.load_state_dict(checkpoint["model_state_dict"])
        other_optimizer.load_state_dict(checkpoint["optimizer_state_dict"])
        assert checkpoint["epoch"] == 2
        assert checkpoint["loss"].item() == loss.item()
        assert train(model, optimizer, 3).item() == train(other, other_optimizer, 3).item()

    def test_several_models_in_one_file(self, tmp_path: Path) -> None:
        a, b = nn.Linear(2, 2), nn.Linear(3, 3)
        names = ("modelA_state_dict", "modelB_state_dict")
        torch.save(dict(zip(names, (a.state_dict(), b.state_dict()), strict=True)), tmp_path / "m")
        found = torch.load(tmp_path / "m")
        c, d = nn.Linear(2, 2), nn.Linear(3, 3)
        c.load_state_dict(found[names[0]])
        d.load_state_dict(found[names[1]])
        assert torch.equal(b.weight, d.weight)

    def test_a_whole_model(self, tmp_path: Path) -> None:
        model = nn.Sequential(nn.Linear(4, 2), nn.ReLU())
        torch.save(model, tmp_path / "model.pth")
        found = torch.load(tmp_path / "model.pth", weights_only=False)
        x = torch.rand(2, 4)
        assert torch.equal(found(x), model(x))

    def test_torch_reads_the_files(self, tmp_path: Path) -> None:
        reference = pytest.importorskip("torch")
        torch.save({"x": torch.arange(3.0)}, tmp_path / "x.pt")
        assert reference.load(tmp_path / "x.pt")["x"].tolist() == [0.0, 1.0, 2.0]
        reference.save({"y": reference.arange(3)}, tmp_path / "y.pt")
        assert torch.load(tmp_path / "y.pt")["y"].tolist() == [0, 1, 2]
