"""Models for the server's tests, exported once, and a server without a socket."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import graphc as torch
import graphc.nn as nn
from graphc.export import export

if any(importlib.util.find_spec(name) is None
       for name in ("starlette", "uvicorn", "httptools", "prometheus_client")):
    collect_ignore_glob = ["test_*.py"]  # the extra `serve`, which `dev` has


class Lookup(nn.Module):
    """Fails for an id that its table lacks."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 3)

    def forward(self, ids: Any) -> Any:
        return self.table(ids).sum(1)


class Several(nn.Module):
    """Inputs and results of several dtypes and forms."""

    def forward(self, x: Any, flags: Any, *, scale: Any) -> Any:
        y = torch.where(flags, x, -x)
        return {"y": y * scale, "n": y.shape[0], "parts": (y > 0, (x * 10).to(torch.int32))}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """mlp (rows independent), centred (not), lookup (fails for bad ids), several, halves, fixed."""
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    mlp = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    batch = {0: "batch"}
    x = torch.randn(2, 4)
    export(mlp, (x,), dynamic_shapes=(batch,)).save(folder / "mlp.gcx")
    export(lambda x: x - x.mean(0), (x,), dynamic_shapes=(batch,)).save(folder / "centred.gcx")
    export(Lookup(), (torch.randint(0, 10, (2, 3)),), dynamic_shapes=(batch,)).save(
        folder / "lookup.gcx"
    )
    flags = torch.tensor([[True, False], [False, True]])
    export(
        Several(), (torch.randn(2, 2), flags), {"scale": torch.ones(2, 1, dtype=torch.float64)},
        dynamic_shapes={"x": batch, "flags": batch, "scale": batch},
    ).save(folder / "several.gcx")
    export(lambda x: x + x, (torch.ones(2, 3, dtype=torch.bfloat16),),
           dynamic_shapes=(batch,)).save(folder / "halves.gcx")
    export(lambda x: x * 2, (torch.ones(2, 2, dtype=torch.float16),)).save(folder / "fixed.gcx")
    return folder


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Any]:
    """A client of a server that has all of them."""
    from graphc.serve.settings import Settings
    from tests.serve.client import Client

    names = ("mlp", "centred", "lookup", "several", "halves", "fixed")
    with Client(Settings(max_body=1 << 20, max_json=1 << 19, max_batch=8), {
        name: folder / f"{name}.gcx" for name in names
    }) as made:
        yield made
