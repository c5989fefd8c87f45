"""torch.profiler's ways of asking: groups, columns, schedules, traces and stacks."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import graphc as torch
from graphc.autograd import profiler as older
from graphc.frontend.nodes import OpNode
from graphc.profiler import (
    ProfilerAction,
    ProfilerActivity,
    profile,
    record_function,
    schedule,
    tensorboard_trace_handler,
)

CPU = [ProfilerActivity.CPU]
X = torch.ones(4, 10)
W = torch.ones(10, 20)


def work() -> Any:
    return (X @ W).relu() @ torch.ones(20, 3)


def recorded(**options: Any) -> profile:
    with profile(activities=CPU, **options) as found, record_function("outer"):
        work()
    return found


def test_shapes_are_a_group_and_a_column() -> None:
    found = recorded(record_shapes=True)
    products = [e for e in found.key_averages(group_by_input_shape=True)
                if e.key == "aten::mm"]
    again = found.events().key_averages(group_by_input_shapes=True)  # the name there
    assert len(again) == len(found.key_averages(group_by_input_shape=True))
    assert sorted((e.input_shapes, e.count) for e in products) == [
        ("[[4, 10], [10, 20]]", 1), ("[[4, 20], [20, 3]]", 1)]
    (product,) = (e for e in found.key_averages() if e.key == "aten::mm")
    assert product.count == 2
    table = found.key_averages(group_by_input_shape=True).table()
    assert "Input Shapes" in table and "[[4, 20], [20, 3]]" in table
    assert "Input Shapes" not in recorded().key_averages().table()


def test_stacks_are_the_users_lines(tmp_path: Path) -> None:
    found = recorded(with_stack=True)
    product = next(e for e in found.events() if e.key == "aten::mm")
    assert product.stack[0].endswith(": work") and "test_profiler.py(" in product.stack[0]
    assert product.stack[1].endswith(": recorded")
    assert not any("/graphc/frontend/" in frame for frame in product.stack)
    table = found.key_averages(group_by_stack_n=2).table()
    assert "Source Location" in table and ": work" in table and ": recorded" in table
    path = tmp_path / "stacks.txt"
    for event in found._recorder.events:
        event.self_total += 1e-3
    found.export_stacks(str(path))
    lines = path.read_text().splitlines()
    assert len(lines) == len(found.events())
    for line in lines:
        frames, spent = line.rsplit(" ", 1)
        assert int(spent) >= 1000 and " " not in frames
    assert any(line.rsplit(" ", 1)[0].endswith(":_work") for line in lines)
    with pytest.raises(ValueError, match="metric should be one of"):
        found.export_stacks(str(path), "cpu_time")


def test_compiled_kernels_name_the_recorded_line() -> None:
    run = torch.compile(lambda x: x * 2 + 1)
    run(X)
    with profile(with_stack=True) as found:
        run(X)
    (kernel,) = (e for e in found.events() if e.key.startswith("graphc::"))
    assert "test_profiler.py" in kernel.stack[0] and len(kernel.stack) > 1


def test_memory_is_that_of_results() -> None:
    with profile(profile_memory=True) as found, record_function("outer"):
        a = X @ W  # 320 bytes
        a.reshape(20, 4).t()  # views
    rows = {e.key: e for e in found.key_averages()}
    assert rows["aten::mm"].self_cpu_memory_usage == 320
    assert rows["outer"].cpu_memory_usage == 320 and rows["outer"].self_cpu_memory_usage == 0
    table = found.key_averages().table(sort_by="self_cpu_memory_usage")
    assert "Self CPU Mem" in table and "320 B" in table
    assert "CPU Mem" not in recorded().key_averages().table()


@pytest.mark.parametrize("key", [
    "cpu_time_total", "self_cpu_time_total", "cpu_time", "cuda_time_total", "count",
    "self_cuda_time_total", "self_cuda_memory_usage", "cuda_memory_usage", "device_time_total",
])
def test_the_orders_that_scripts_ask_for(key: str) -> None:
    assert "aten::relu" in recorded().key_averages().table(sort_by=key, row_limit=10)


def test_the_largest_come_first_and_unknown_orders_are_errors() -> None:
    averages = recorded().key_averages()
    first = averages.table(sort_by="cpu_time_total", header="Mine").splitlines()
    assert first[1] == "Mine" and first[5].split()[0] == "outer"
    with pytest.raises(AttributeError, match="bogus"):
        averages.table(sort_by="bogus")


def test_events_know_what_they_lie_in() -> None:
    found = recorded()
    (outer,) = (e for e in found.events() if e.key == "outer")
    inner = [e for e in found.events() if e is not outer]
    assert outer.cpu_parent is None and outer.is_user_annotation
    assert outer.cpu_children == inner and all(e.cpu_parent is outer for e in inner)
    table = found.events().table(top_level_events_only=True)
    assert "outer" in table and "aten::" not in table


def test_blocks_that_end_in_another_order() -> None:
    with profile() as found:
        first, second = record_function("first"), record_function("second")
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        second.__exit__(None, None, None)
        work()
    keys = [e.key for e in found.events()]
    assert keys.count("first") == 1 and "aten::relu" in keys
    assert all(e.cpu_parent is None for e in found.events() if e.key == "aten::relu")


def test_each_cycle_of_a_schedule_is_a_trace_of_its_own(tmp_path: Path) -> None:
    seen: list[list[str]] = []

    def ready(found: profile) -> None:
        seen.append([e.key for e in found.events() if e.key.startswith("ProfilerStep")])
        assert any(e.key == "ProfilerStep*" and e.count == 2 for e in found.key_averages())

    times = schedule(wait=1, warmup=1, active=2, repeat=2, skip_first=1)
    with profile(activities=CPU, schedule=times, on_trace_ready=ready) as found:
        for _ in range(12):
            work()
            found.step()
    assert seen == [["ProfilerStep#3", "ProfilerStep#4"], ["ProfilerStep#7", "ProfilerStep#8"]]


def test_schedules_that_make_no_sense() -> None:
    for wrong in ({"wait": -1, "active": 1}, {"wait": 0, "active": 0}):
        with pytest.raises(AssertionError, match="Invalid profiler schedule arguments"):
            schedule(warmup=1, **wrong)
    with pytest.warns(UserWarning, match="won't be using warmup"):
        schedule(wait=1, warmup=0, active=1)
    early = schedule(wait=3, warmup=1, active=1, skip_first=2, skip_first_wait=1)
    assert [early(step).name for step in range(5)] == [
        "NONE", "NONE", "WARMUP", "RECORD_AND_SAVE", "NONE"]


@pytest.mark.parametrize("zipped", [False, True])
def test_traces_for_tensorboard(zipped: bool, tmp_path: Path) -> None:
    times = schedule(wait=1, warmup=1, active=2, repeat=1)
    handler = tensorboard_trace_handler(str(tmp_path / "log"), "me", use_gzip=zipped)
    with profile(schedule=times, on_trace_ready=handler, record_shapes=True, with_stack=True) as p:
        p.add_metadata("said", "text")
        p.add_metadata_json("given", '{"batch": 4}')
        for _ in range(6):
            work()
            p.step()
    (path,) = (tmp_path / "log").iterdir()
    assert path.name.startswith("me.") and path.name.endswith(".gz" if zipped else ".pt.trace.json")
    opened = gzip.open if zipped else open
    with opened(path, "rt") as file:
        trace = json.load(file)
    assert trace["schemaVersion"] == 1 and trace["said"] == "text"
    assert trace["given"] == {"batch": 4} and trace["record_shapes"] == 1
    rows = [row for row in trace["traceEvents"] if row["ph"] == "X"]
    products = [row for row in rows if row["name"] == "aten::mm"]
    assert len(products) == 4 and products[0]["args"]["Input Dims"] == [[4, 10], [10, 20]]
    assert ":_work" not in products[0]["args"]["Call stack"]
    assert {row["cat"] for row in rows} == {"cpu_op", "user_annotation"}


def test_a_pause_leaves_out_what_runs_meanwhile() -> None:
    with profile(activities=CPU) as found:
        X.exp()
        found.toggle_collection_dynamic(False, CPU)
        X.sin()
        found.toggle_collection_dynamic(True, CPU)
        X.cos()
    assert [e.key for e in found.events()] == ["aten::exp", "aten::cos"]


def test_the_older_profiler_takes_the_same_options() -> None:
    with older.profile(record_shapes=True, use_kineto=True, with_stack=True) as found:
        work()
    assert "Input Shapes" in str(found) and "Source Location" in str(found)
    with older.profile(enabled=False) as found:
        work()
    assert len(found.function_events) == 0


def test_backward_passes_and_batches_are_blocks() -> None:
    weight = torch.ones(10, 20, requires_grad=True)
    rows = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X), batch_size=2)
    methods = OpNode.gradients, type(iter(rows)).__next__
    with profile() as found:
        for (x,) in rows:
            (x @ weight).relu().sum().backward()
    assert (OpNode.gradients, type(iter(rows)).__next__) == methods, "nothing is watched now"
    parents = {e.key: e.cpu_parent.key for e in found.events() if e.cpu_parent is not None}
    assert parents["aten::mm"] == "autograd::engine::evaluate_function: MmBackward0"
    counts = {e.key: e.count for e in found.key_averages()}
    assert counts["aten::mm"] == 4 and counts["autograd::engine::evaluate_function: "
                                               "ReluBackward0"] == 2
    # and the one that finds no more
    assert counts["enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"] == 3


def test_what_is_recorded_of_a_backward_pass_is_no_block() -> None:
    weight = torch.ones(10, 20, requires_grad=True)

    @torch.compile
    def run() -> None:
        weight.grad = None
        (X @ weight).relu().sum().backward()

    with profile() as found:
        run()
    assert not [e.key for e in found.events() if e.key.startswith("autograd")]


def test_operations_of_eager_operators() -> None:
    found = recorded(with_flops=True)
    flops = {e.key: e.flops for e in found.key_averages()}
    assert flops["aten::mm"] == 2 * 4 * 10 * 20 + 2 * 4 * 20 * 3 and flops["aten::relu"] == 0
    assert "Total FLOPs" in found.key_averages().table()
    assert "Total FLOPs" not in recorded().key_averages().table()


def test_what_scripts_ask_of_events_besides() -> None:
    found = recorded()
    (outer,) = (e for e in found.profiler.function_events if e.key == "outer")
    assert not (outer.is_async or outer.is_remote or outer.is_legacy or outer.kernels)
    assert (outer.node_id, outer.sequence_nr, outer.use_device) == (0, -1, None)
    assert outer.id != outer.cpu_children[0].id
    assert "outer" in found.key_averages().table(sort_by="self_xpu_time_total")


def test_ranges_for_other_profilers() -> None:
    from graphc.profiler import itt

    assert not itt.is_available()
    itt.range_push("a")
    itt.mark("b")
    with itt.range("c"), older.emit_itt(enabled=False):
        itt.range_pop()


def test_a_schedule_that_counts_is_asked_once_a_step() -> None:
    """Lightning's keeps the steps itself, whatever number it is given."""
    asked = []

    def counting(step: int) -> ProfilerAction:
        asked.append(step)
        return plan(len(asked) - 1)

    plan = schedule(wait=1, warmup=1, active=1, repeat=1)
    done = []
    with profile(activities=CPU, schedule=counting, on_trace_ready=done.append) as found:
        for _ in range(4):
            work()
            found.step()
    assert asked == [0, 1, 2, 3, 4] and done == [found]
    assert sum(event.key == "aten::mm" for event in found.events()) == 2  # of one step


def test_a_profiler_that_is_left_open_is_closed() -> None:
    assert not torch.autograd._profiler_enabled()
    found = profile(activities=CPU)
    assert isinstance(found.events(), older.EventList)
    found.start()
    work()
    assert torch.autograd._profiler_enabled()
    torch.autograd._disable_profiler()
    work()
    assert not torch.autograd._profiler_enabled()
    assert sum(event.key == "aten::mm" for event in found.events()) == 2
    found.stop()
