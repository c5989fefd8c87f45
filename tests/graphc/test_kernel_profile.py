"""torch.profiler over compiled code on the CPU: each kernel is an event, with what it had to do."""

import json
import threading
from pathlib import Path

import pytest

import graphc as torch
from graphc.backends.host.watched import Steps
from graphc.profiler import profile, record_function


def kernels(recorded: profile) -> list:
    return [event for event in recorded.events() if event.key.startswith("graphc::")]


def test_bytes_and_operations() -> None:
    n = 100_000
    run = torch.compile(lambda a, b: a * b + 1)
    x, y = torch.randn(n), torch.randn(n)
    right = run(x, y)
    with profile() as recorded:
        found = [run(x, y) for _ in range(4)]
    assert all(torch.equal(value, right) for value in found)
    events = kernels(recorded)
    assert [(event.bytes, event.flops) for event in events] == [(3 * 4 * n, 2 * n)] * 4
    assert all(event.total > 0 and "mul add" in event.work.what for event in events)
    assert f"{Path(__file__).name}" in events[0].work.what
    (row,) = (each for each in recorded.key_averages() if each.key.startswith("graphc::"))
    assert (row.count, row.bytes) == (4, 4 * 3 * 4 * n)
    table = recorded.key_averages().table()
    assert "GB/s" in table and "% of copy" in table


def test_products_count_their_operations() -> None:
    run = torch.compile(lambda a, b: a @ b)
    a, b = torch.randn(32, 64), torch.randn(64, 48)
    run(a, b)
    with profile() as recorded:
        run(a, b)
    assert sum(event.flops for event in kernels(recorded)) == 2 * 32 * 64 * 48


def test_training_and_blocks(tmp_path: Path) -> None:
    """Forward and backward kernels lie in the blocks around them; losses go on as without."""
    def losses(watched: bool) -> tuple[list[float], list]:
        torch.manual_seed(0)
        model = torch.compile(torch.nn.Sequential(torch.nn.Linear(9, 5), torch.nn.Tanh()))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        values, events = [], []
        for step in range(6):
            optimizer.zero_grad()
            if watched and step > 2:
                with profile() as recorded:
                    with record_function("forward"):
                        loss = model(torch.ones(4, 9)).square().sum()
                    loss.backward()
                events.append(recorded)
            else:
                loss = model(torch.ones(4, 9)).square().sum()
                loss.backward()
            optimizer.step()
            values.append(loss.item())
        return values, events

    plain, _ = losses(False)
    values, recorded = losses(True)
    assert values == plain
    for each in recorded:
        events = each.events()
        (block,) = (event for event in events if event.key == "forward")
        inside = [e for e in kernels(each) if block.start <= e.start < block.start + block.total]
        assert inside and len(kernels(each)) > len(inside), "the backward's come after it"
        assert block.self_total <= block.total - sum(event.total for event in inside) + 1e-9
    path = tmp_path / "trace.json"
    recorded[0].export_chrome_trace(str(path))
    rows = json.loads(path.read_text())["traceEvents"]
    assert any(row.get("args", {}).get("flops") for row in rows)


def test_sizes_that_change() -> None:
    run = torch.compile(lambda x: (x * 2).relu(), dynamic=True)
    for n in (5, 6, 7):
        run(torch.ones(n))
    with profile() as recorded:
        for n in (10, 20, 10):
            run(torch.ones(n))
    assert [event.bytes for event in kernels(recorded)] == [80, 160, 80]


def test_what_fails_fails_as_without() -> None:
    run = torch.compile(lambda x, i: x[i] + 1)
    x, bad = torch.arange(4.0), torch.tensor([7])
    run(x, torch.tensor([1]))
    with profile() as recorded, pytest.raises(IndexError):
        run(x, bad)
    assert Steps.watch is None
    assert run(x, torch.tensor([2])).item() == 3
    assert all(event.total >= 0 for event in recorded.events())


def test_several_threads() -> None:
    run = torch.compile(lambda x: (x * 3).sum())
    run(torch.ones(3))
    found: list[float] = []
    with profile() as recorded:
        threads = [
            threading.Thread(target=lambda: found.extend(run(torch.ones(3)).item()
                                                         for _ in range(20)))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [9.0] * 60
    assert len(kernels(recorded)) == 60


def test_nothing_is_watched_afterwards() -> None:
    run = torch.compile(lambda x: x + 1)
    x = torch.ones(3)
    for _ in range(3):
        run(x)
    outer = profile()
    with outer, profile():
        run(x)
    assert Steps.watch is None
    count = len(outer.events())
    run(x)
    assert len(outer.events()) == count
