"""Exported training steps: compared with eager mode, and verified."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc.export import Dim, ExportedStep, ExportError, checking, export_step, load
from graphc.export.portable import portable
from graphc.export.steps import build, program
from graphc.ir.text import parse_graph, print_graph
from tests.graphc.exported_steps import (
    STEPS,
    Trainer,
    batches,
    bits,
    made,
    plain,
    state_of,
    tampered,
    trained,
    verified,
)


def wrongly(old: str, new: str) -> Callable[..., Any]:
    """What makes a graph for a file of a recorded one, with another operator in it."""
    def wrong(graph: Any, labels: Any) -> Any:
        text = print_graph(graph)
        assert old in text
        return portable(parse_graph(text.replace(old, new)), labels)

    return wrong


def test_a_step_that_differs_from_eager_mode_is_not_exported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In its results, or in what it leaves behind; and nothing has changed."""
    pair = batches(1)[0]
    for optimizer, old, new, text in (
        ("adamw", "= rsqrt", "= sqrt", "the result is off in 1 of 1|which the step writes"),
        ("momentum", "= relu", "= abs", "the exported graph differs from the step in eager mode"),
    ):
        net, opt = made(optimizer)
        step = plain(net, opt)
        before = state_of(net, opt)
        generator = bits(torch.get_rng_state())
        with monkeypatch.context() as patch:
            patch.setattr(build, "portable", wrongly(old, new))
            with pytest.raises(ExportError, match=text):
                export_step(step, pair)
            export_step(step, pair, check=False)
        assert state_of(net, opt) == before and bits(torch.get_rng_state()) == generator


@pytest.mark.parametrize("name", ["plain", "clipped", "accumulating"])
def test_verify_runs_the_recorded_call_of_a_step(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the state that it found, also where calls have changed that since."""
    net, opt = made("adamw")
    data = batches(3)
    path = tmp_path / "step.gcx"
    export_step(STEPS[name](net, opt), data[0]).save(path)
    code, said = verified(path, capsys)
    assert code == 0 and said.count("ok ") == 2 and "compared with eager mode" in said
    loaded = load(path)
    trained(loaded, data)
    loaded.save(path)
    again = load(path)
    assert again.contents.goldens[0].state["head.bias"].tobytes() == bits(net.head.bias)
    assert {k: bits(v) for k, v in again.state_dict().items()} == {
        k: bits(v) for k, v in loaded.state_dict().items()
    }
    trained(again, data)
    again.save(path)
    code, said = verified(path, capsys)
    assert code == 0 and said.count("ok ") == 2


def test_verify_finds_another_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A weight, a moment, a number: what a call makes of them is not what was recorded."""
    net, opt = made("adamw")
    exported = export_step(plain(net, opt), batches(1)[0])
    for name, change in (
        ("head.weight", lambda a: a + 0.1), ("optimizer.state.head.weight.exp_avg", lambda a: a + 1)
    ):
        arrays = dict(exported.contents.weights.arrays)
        arrays[name] = change(arrays[name]).astype(arrays[name].dtype)
        contents = exported.snapshot()
        weights = dataclasses.replace(contents.weights, arrays=arrays)
        ExportedStep(dataclasses.replace(contents, weights=weights)).save(tmp_path / "step.gcx")
        code, said = verified(tmp_path / "step.gcx", capsys)
        assert code == 1 and said.count("FAIL") == 2


def test_recorded_calls_of_numbers_and_free_sizes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = Trainer()
    mine.steps = 3
    exported = export_step(mine.step, (torch.ones(3, 4),), dynamic_shapes=({0: Dim("n", max=40)},))
    assert exported.contents.checked == ({"n": 3}, {"n": 1}, {"n": 2}, {"n": 40})
    golden = exported.contents.goldens[0]
    assert golden.numbers["steps"] == 3 and golden.written["steps"] == 4
    assert golden.outputs[1].dtype == np.int64 and "average" in golden.written
    exported(torch.ones(5, 4))
    exported.save(tmp_path / "step.gcx")
    assert verified(tmp_path / "step.gcx", capsys)[0] == 0
    path = tampered(tmp_path / "step.gcx", tmp_path / "other.gcx",
                    lambda m: m["goldens"][0]["numbers"].update(steps=4))
    code, said = verified(path, capsys)
    assert code == 1 and said.count("FAIL") == 2 and "result 0 is off in 1 of 1" in said


def test_large_states_keep_what_is_small_of_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checking, "GOLDEN", 4_000)
    monkeypatch.setattr(program, "GOLDEN", 4_000)
    net, opt = made("adamw")
    pair = batches(1)[0]
    exported = export_step(plain(net, opt), pair)
    golden = exported.contents.goldens[0]
    assert {"conv.bias", "norm.running_var"} <= golden.written.keys()
    assert "head.weight" not in golden.written
    exported.save(tmp_path / "step.gcx")
    assert verified(tmp_path / "step.gcx", capsys)[0] == 0
    exported(*pair)
    exported.save(tmp_path / "step.gcx")
    assert load(tmp_path / "step.gcx").contents.goldens == ()
