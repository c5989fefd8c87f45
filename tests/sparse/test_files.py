"""Sparse tensors in files, buffers, pickles and processes."""

from __future__ import annotations

import copy
import io
import pickle
from pathlib import Path
from typing import Any

import pytest

import graphc
from tests.sparse.compared import coo, csr, hybrid, plain, same, torch

MAKERS = {"coo": coo, "hybrid": hybrid, "coalesced": lambda t: coo(t).coalesce(), "csr": csr,
          "csc": lambda t: csr(t).t(), "empty": lambda t: t.sparse_coo_tensor((2, 3)),
          "float64": lambda t: coo(t).double(),
          "bsr": lambda t: t.eye(4).to_sparse_bsr((2, 2))}


@pytest.mark.filterwarnings("ignore:(Sparse|torch.sparse):UserWarning")
@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("safe", [True, False])
def test_files_are_torchs(name: str, safe: bool, tmp_path: Path) -> None:
    theirs, ours = {"x": MAKERS[name](torch)}, {"x": MAKERS[name](graphc)}
    torch.save(theirs, tmp_path / "torch.pt")
    graphc.save(ours, tmp_path / "graphc.pt")
    same(plain(graphc.load(tmp_path / "torch.pt", weights_only=safe)), plain(theirs))
    same(plain(graphc.load(tmp_path / "graphc.pt", weights_only=safe)), plain(theirs))
    same(plain(torch.load(tmp_path / "graphc.pt", weights_only=safe)), plain(theirs))


def test_a_file_with_places_outside_is_refused(tmp_path: Path) -> None:
    bad = torch.sparse_coo_tensor([[9]], [1.0], (3,), check_invariants=False)
    torch.save(bad, tmp_path / "bad.pt")
    with pytest.raises(RuntimeError, match="size is inconsistent with indices"):
        graphc.load(tmp_path / "bad.pt")
    with pytest.raises(ValueError, match="unknown layout"):
        graphc.serialization._CALLS["torch.serialization._get_layout"]("torch.other")


class Heads(graphc.nn.Module):
    """As Whisper keeps its alignment heads, and a graph network its graph."""

    def __init__(self) -> None:
        super().__init__()
        mask = graphc.zeros(4, 6, dtype=graphc.bool)
        mask[2:] = True
        self.register_buffer("alignment_heads", mask.to_sparse(), persistent=False)
        self.register_buffer("graph", coo(graphc).coalesce())
        self.linear = graphc.nn.Linear(5, 2)

    def forward(self, x: Any) -> Any:
        return self.linear(x)


def test_buffers(tmp_path: Path) -> None:
    model = Heads()
    assert "alignment_heads" not in model.state_dict() and "graph" in model.state_dict()
    assert model.alignment_heads.indices().T.tolist()[0] == [2, 0]
    assert [tuple(pair) for pair in model.alignment_heads.indices().T.tolist()][-1] == (3, 5)
    moved = model.to("cpu").double()
    assert moved.graph.dtype is graphc.float64 and moved.alignment_heads.dtype is graphc.bool
    model.float()
    other = Heads()
    other.graph.zero_()
    graphc.save(model.state_dict(), tmp_path / "model.pt")
    other.load_state_dict(graphc.load(tmp_path / "model.pt"))
    assert other.graph.to_dense().tolist() == model.graph.to_dense().tolist()
    twin = copy.deepcopy(model)
    assert twin.graph is not model.graph
    twin.graph.mul_(2)
    assert twin.graph.to_dense().sum() == 2 * model.graph.to_dense().sum()
    assert pickle.loads(pickle.dumps(model)).graph.to_dense().tolist() == (
        model.graph.to_dense().tolist()
    )
    assert repr(model) == repr(Heads())


def test_whisper_sets_its_heads() -> None:
    """set_alignment_heads(): a mask of bytes, made sparse, again in the place of a buffer."""
    model = Heads()
    mask = graphc.tensor([0, 1, 1, 0, 0, 1]).bool().reshape(2, 3)
    model.register_buffer("alignment_heads", mask.to_sparse(), persistent=False)
    found = [tuple(pair.tolist()) for pair in model.alignment_heads.indices().T]
    assert found == [(0, 1), (0, 2), (1, 2)]


def test_in_memory() -> None:
    file = io.BytesIO()
    graphc.save([coo(graphc), graphc.sparse_csr], file)
    file.seek(0)
    found, kind = graphc.load(file, weights_only=False)
    assert found.to_dense().tolist() == coo(graphc).to_dense().tolist()
    assert kind is graphc.sparse_csr


def test_a_loader_hands_them_on() -> None:
    data = [(coo(graphc) * i, i) for i in range(4)]
    loader = graphc.utils.data.DataLoader(data, batch_size=2, collate_fn=lambda batch: batch)
    assert [x.to_dense().sum().item() for batch in loader for x, _ in batch] == [
        10.5 * i for i in range(4)
    ]
    with pytest.raises(RuntimeError, match="Batches of sparse tensors"):
        list(graphc.utils.data.DataLoader(data, batch_size=2))


def test_parameters() -> None:
    model = graphc.nn.Module()
    model.graph = graphc.nn.Parameter(coo(graphc).coalesce())
    assert isinstance(model.graph, graphc.nn.Parameter) and model.graph.requires_grad
    assert [name for name, _ in model.named_parameters()] == ["graph"]
    w = graphc.ones(5, 2)
    graphc.sparse.mm(model.graph, w).sum().backward()
    assert model.graph.grad.is_sparse
    twin = copy.deepcopy(model)
    assert isinstance(twin.graph, graphc.nn.Parameter) and twin.graph is not model.graph
    assert twin.double().graph.dtype is graphc.float64
    with graphc.no_grad():
        model.graph.add_(model.graph.grad, alpha=-0.5)
    other = graphc.sparse.mm(model.graph, w).sum()
    assert other.item() == graphc.sparse.mm(twin.graph.float(), w).sum().item() - 8.0
