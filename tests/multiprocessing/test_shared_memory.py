"""Memory shared between processes: flags and aliases as in torch, writes seen on both sides."""

from __future__ import annotations

import copy
import gc
import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import graphc
import graphc.multiprocessing as mp
from tests.multiprocessing import targets

METHODS = ["fork", "spawn", "forkserver"]
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fork beside threads


def open_files() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


# --- in one process ----------------------------------------------------------------------------


def _plain(t: Any) -> Any:
    x = t.ones(3)
    return x.is_shared(), x.share_memory_() is x, x.is_shared(), x.tolist(), x._version


def _views(t: Any) -> Any:
    x = t.arange(12.0)
    before = [x[2:5], x.view(3, 4).t(), x.detach(), x.data, x.untyped_storage().is_shared()]
    x.share_memory_()
    after = [*before[:4], x[1:], x.clone(), x + 1, copy.deepcopy(x)]
    x[3] = 30
    before[1][0, 1] = 40
    return [a.is_shared() for a in after], [a.tolist() for a in after], x._version, before[4]


def _storage(t: Any) -> Any:
    x = t.zeros(2, 2, dtype=t.int32)
    storage = x.untyped_storage()
    same = storage.share_memory_() is storage
    x[0, 1] = 1
    return same, storage.is_shared(), x.is_shared(), list(storage)[:8]


def _empty(t: Any) -> Any:
    return t.empty(0).share_memory_().is_shared(), t.tensor(2.5).share_memory_().item()


def _gradients(t: Any) -> Any:
    w = t.ones(3, requires_grad=True)
    loss = (w * w).sum()
    w.share_memory_()
    loss.backward()
    w.grad.share_memory_()
    with t.no_grad():
        w -= w.grad
    return w.tolist(), w.grad.tolist(), w.requires_grad, w.is_leaf, w._version


def _view_history(t: Any) -> Any:
    base = t.ones(4)
    view = base[1:]
    base.share_memory_()
    w = t.full((3,), 2.0, requires_grad=True)
    view.mul_(w)
    base.sum().backward()
    return base.tolist(), w.grad.tolist(), base.requires_grad, view.is_shared()


def _module(t: Any) -> Any:
    model = t.nn.Sequential(t.nn.Linear(2, 2), t.nn.BatchNorm1d(2))
    model[0].weight.data.fill_(1)
    model(t.ones(2, 2)).sum().backward()
    parameters = list(model.parameters())
    same = model.share_memory() is model
    return (
        same, [a is b for a, b in zip(parameters, model.parameters(), strict=True)],
        [p.is_shared() for p in model.parameters()], [b.is_shared() for b in model.buffers()],
        [p.grad.is_shared() for p in model.parameters()], model[0].weight.tolist(),
        model[1].num_batches_tracked.item(),
    )


SCRIPTS = [_plain, _views, _storage, _empty, _gradients, _view_history, _module]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_sharing_in_one_process_is_as_in_torch(script: Callable[[Any], Any]) -> None:
    assert script(graphc) == script(torch)


def test_aliases_made_through_bytes_follow() -> None:
    x = graphc.zeros(4, dtype=graphc.uint8)
    alias = x.untyped_storage().as_tensor()
    gc.freeze()
    try:
        x.share_memory_()
    finally:
        gc.unfreeze()
    x[2] = 9
    assert alias.tolist() == [0, 0, 9, 0]
    assert alias.is_shared()


def test_numpy_arrays_stay_behind() -> None:
    array = np.ones(3, np.float32)
    x = graphc.from_numpy(array).share_memory_()
    x[0] = 5
    assert array.tolist() == [1, 1, 1]
    x.numpy()[1] = 6
    assert x.tolist() == [5, 6, 1]


def test_plain_pickles_copy() -> None:
    x = graphc.ones(3).share_memory_()
    file = io.BytesIO()
    graphc.save(x, file)
    file.seek(0)
    for other in (pickle.loads(pickle.dumps(x)), graphc.load(file)):
        assert not other.is_shared()
        other[0] = 4
    assert x.tolist() == [1, 1, 1]


def test_compiled_functions_see_the_moved_memory() -> None:
    weight = graphc.ones(4)
    view = weight[1:]

    @graphc.compile
    def step(x: Any) -> Any:
        weight.add_(x)
        return weight * 2

    assert step(graphc.ones(4)).tolist() == [4] * 4
    weight.share_memory_()
    for _ in range(2):
        found = step(graphc.ones(4))
    assert found.tolist() == [8] * 4
    assert (weight.tolist(), view.tolist()) == ([4] * 4, [4] * 3)


def test_backward_of_a_compiled_function_keeps_its_values() -> None:
    w = graphc.full((3,), 3.0, requires_grad=True)
    loss = graphc.compile(lambda x: (x * x).sum())(w)
    w.share_memory_()
    loss.backward()
    assert w.grad.tolist() == [6] * 3


def test_sharing_is_refused_under_a_trace() -> None:
    def share(x: Any) -> Any:
        x.share_memory_()
        return x + 1

    with pytest.raises(RuntimeError, match="outside the compiled function"):
        graphc.compile(share, fullgraph=True)(graphc.ones(2))


def test_small_tensors_share_a_file_and_large_ones_are_freed() -> None:
    graphc.ones(1).share_memory_()
    before = open_files()
    small = [graphc.ones(100).share_memory_() for _ in range(300)]
    large = [graphc.ones(100_000).share_memory_() for _ in range(3)]
    assert open_files() <= before + 5
    assert all(x.untyped_storage().data_ptr() % 64 == 0 for x in [*small, *large])
    assert len({x.data_ptr() for x in small}) == 300
    del small, large
    assert open_files() <= before + 1


# --- between processes -------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_writes_are_seen_by_the_other_process(method: str) -> None:
    base = graphc.arange(6.0).view(2, 3)
    tensors = {
        "floats": graphc.zeros(4), "turned": base.t(), "half": graphc.ones(3).bfloat16(),
        "truth": graphc.tensor([True, False]), "scalar": graphc.tensor(1),
        "weight": graphc.nn.Parameter(graphc.ones(2)),
    }
    for tensor in tensors.values():
        tensor.share_memory_()
    process = mp.get_context(method).Process(target=targets.write, args=(tensors,))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert tensors["floats"].tolist() == [0, 7, 0, 0]
    assert base.tolist() == [[0, 1, 2], [8, 4, 5]]
    assert tensors["half"].tolist() == [3] * 3
    assert tensors["truth"].tolist() == [False, True]
    assert tensors["scalar"].item() == 5
    assert tensors["weight"].tolist() == [2, 2]


@pytest.mark.parametrize("kind", ["Queue", "SimpleQueue"])
def test_a_queue_moves_tensors_to_shared_memory(kind: str) -> None:
    context = mp.get_context("fork")
    queue, written, seen = getattr(context, kind)(), context.Event(), context.Event()
    process = context.Process(target=targets.send_and_wait, args=(queue, written, seen))
    process.start()
    both, part, alone = queue.get()
    assert both.tolist() == [0, 1, 2, 3, 4, 5]
    written.set()
    assert seen.wait(20)
    assert (both.tolist(), part.tolist()) == ([10, 11, 12, 13, 14, 15], [12, 13])
    assert alone.tolist() == [2, 0, 0]
    part[0] = 1
    assert (both[2].item(), both._version) == (1, 1)
    process.join()


def test_a_sender_that_has_ended_is_told_of() -> None:
    context = mp.get_context("fork")
    queue = context.SimpleQueue()
    process = context.Process(target=targets.send_and_end, args=(queue,))
    process.start()
    process.join()
    with pytest.raises((OSError, EOFError), match=r"has ended.*Cure: let it live"):
        queue.get()


def test_a_tensor_that_comes_back_is_the_same_memory() -> None:
    here, there = mp.Pipe()
    process = mp.get_context("fork").Process(target=targets.send_back, args=(there,))
    process.start()
    tensor = graphc.zeros(3)
    here.send(tensor)
    back = here.recv()
    here.send(None)
    process.join()
    assert back.tolist() == tensor.tolist() == [1, 1, 1]
    assert back.data_ptr() == tensor.data_ptr()
    back[0] = 2
    assert tensor._version == 1


def test_a_forked_child_does_not_write_to_its_parents_chunk() -> None:
    mine = graphc.zeros(8).share_memory_()
    context = mp.get_context("fork")
    queue, done = context.SimpleQueue(), context.Event()
    process = context.Process(target=targets.share_new, args=(queue, done))
    process.start()
    theirs = queue.get()
    other = graphc.full((8,), 4.0).share_memory_()
    done.set()
    process.join()
    assert [t.tolist() for t in (mine, theirs, other)] == [[0] * 8, [3] * 8, [4] * 8]


def test_names_and_strategies_are_torchs() -> None:
    names = [name for name in torch.multiprocessing.__all__ if not hasattr(mp, name)]
    assert not names
    assert mp.get_sharing_strategy() == torch.multiprocessing.get_sharing_strategy()
    mp.set_sharing_strategy("file_system")
    assert mp.get_sharing_strategy() == "file_system"
    mp.set_sharing_strategy("file_descriptor")


# --- programs ----------------------------------------------------------------------------------


def _accuracy(model: Any) -> float:
    x, y = targets.samples(999, 400)
    model.eval()
    found: float = (model(x).argmax(1) == y).float().mean().item()
    return found


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_hogwild(method: str) -> None:
    graphc.manual_seed(0)
    model = targets.net()
    model.share_memory()
    context = mp.get_context(method)
    processes = [
        context.Process(target=targets.hogwild, args=(rank, model)) for rank in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert _accuracy(model) > 0.85


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_compiled_steps_write_to_shared_parameters(method: str) -> None:
    weight = graphc.nn.Parameter(graphc.ones(4)).share_memory_()
    mp.start_processes(targets.compiled_steps, (weight,), nprocs=1, start_method=method)
    assert weight.tolist() == [-0.5] * 4


def test_actor_critic_with_a_shared_optimizer() -> None:
    graphc.manual_seed(0)
    model = targets.net().share_memory()
    optimizer = targets.SharedAdam(model.parameters(), lr=0.02)
    counter, lock = mp.Value("i", 0), mp.Lock()
    before = model[0].weight.clone()
    mp.start_processes(
        targets.actor_critic, (model, optimizer, counter, lock), nprocs=2, start_method="fork"
    )
    assert counter.value == 20
    steps = optimizer.state[model[0].weight]["step"]
    assert steps.is_shared()
    assert 10 <= steps.item() <= 20  # two steps at once may count as one
    assert not graphc.equal(before, model[0].weight)


def test_spawn_shares_what_it_is_given(tmp_path: Path) -> None:
    model = targets.net()  # without share_memory(): starting a process moves it, as in torch
    before = model[0].weight.clone()
    mp.spawn(targets.hogwild, args=(model,), nprocs=1)
    assert model[0].weight.is_shared()
    assert not graphc.equal(before, model[0].weight)
