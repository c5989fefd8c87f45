"""Models exported in train mode: buffers are written, and dropout draws, as in eager mode."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
import graphc.nn as nn
from graphc import config
from graphc.export import Dim, ExportError, aot, export, load
from graphc.export.graph_signature import OutputKind
from graphc.serve.model import Model


def made() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))


def rows(count: int = 6) -> Any:
    return torch.from_numpy(np.random.default_rng(count).standard_normal((count, 4), np.float32))


def test_buffers_are_written_and_numbers_drawn(tmp_path: Path) -> None:
    model = made()
    before = copy.deepcopy(model.state_dict())
    state = torch.get_rng_state()
    program = export(model, (rows(),), dynamic_shapes={"input": {0: Dim("rows")}})
    assert torch.equal(torch.get_rng_state(), state)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    program.save(tmp_path / "train.gcx")
    for each in (program, program.module(), load(tmp_path / "train.gcx")):
        mine = copy.deepcopy(model)
        for count in (6, 2, 9):
            torch.manual_seed(count)
            want = mine(rows(count)).detach()
            torch.manual_seed(count)
            found = each(rows(count))
            np.testing.assert_allclose(found.numpy(), want.numpy(), atol=1e-5)
        written = each.state_dict
        written = written() if callable(written) else written
        for name, value in mine.state_dict().items():
            np.testing.assert_allclose(written[name].numpy(), value.numpy(), atol=1e-6)
        assert int(written["1.num_batches_tracked"].item()) == 3


def test_the_signature_says_so() -> None:
    program = export(made(), (rows(),))
    signature = program.graph_signature
    assert sorted(signature.buffers_to_mutate.values()) == [
        "1.num_batches_tracked", "1.running_mean", "1.running_var", "generator",
    ]
    kinds = [spec.kind for spec in signature.output_specs]
    assert kinds.count(OutputKind.BUFFER_MUTATION) == 4
    assert kinds[-1] is OutputKind.USER_OUTPUT
    assert program.contents.generator == {"weight": "generator", "algorithm": "mt19937"}
    assert export(made().eval(), (rows(),)).contents.generator is None


def test_a_buffer_that_is_given_back_is_as_it_was_left() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x: Any) -> Any:
            self.seen += x.sum()
            return self.seen * 2, self.seen

    model = Counts()
    program = export(model, (torch.ones(3),))
    for turn in (1, 2):
        twice, seen = program(torch.ones(3))
        assert (twice.item(), seen.item()) == (6.0 * turn, 3.0 * turn)
    assert model.seen.item() == 0


def test_what_is_not_the_models_own() -> None:
    outside = torch.zeros(3)

    def model(x: Any) -> Any:
        outside.add_(x)
        return outside * 2

    with pytest.raises(ExportError, match=r"a tensor outside itself .* Cure: make it a buffer"):
        export(model, (torch.ones(3),))


def test_what_changes_with_each_call_is_not_served(tmp_path: Path) -> None:
    export(made(), (rows(),)).save(tmp_path / "train.gcx")
    with pytest.raises(ExportError, match=r"in train mode.*Cure: .*model\.eval\(\)"):
        Model.of_file(tmp_path / "train.gcx", "train", "1")
    with pytest.raises(ExportError, match=r"in train mode.*Cure: .*model\.eval\(\)"):
        aot(load(tmp_path / "train.gcx"), tmp_path)


def test_numbers_by_a_counter_are_compared() -> None:
    """What is exported is what eager mode draws, whichever way that is."""
    with config.override(random="counter"):
        model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))
        program = torch.export.export(model, (torch.rand(3, 8),))
    assert program.contents.generator == {"weight": "generator", "algorithm": "counter"}
    assert program.contents.checked == ({},)
