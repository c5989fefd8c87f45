"""torch.utils.benchmark: Timer, Measurement and Compare, beside PyTorch's on the same times."""

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

import graphc
from graphc.utils import benchmark

torch = pytest.importorskip("torch")
theirs: Any = importlib.import_module("torch.utils.benchmark")

TIMES = {
    ("sum", 1, "[16]"): [1.5e-3, 1.6e-3, 1.5e-3, 1.7e-3], ("sum", 1, "[256]"): [2.4e-3] * 5,
    ("mean", 1, "[16]"): [3.4e-3, 3.5e-3], ("mean", 1, "[256]"): [0.0149, 0.0151, 0.015, 0.03],
    ("sum", 2, "[16]"): [1.2e-3] * 4, ("mean", 2, "[16]"): [0.9e-3, 1.1e-3, 1.3e-3, 2e-3],
}


def measurements(lib: Any) -> Iterator[Any]:
    specs = {}
    for (description, threads, row), times in TIMES.items():
        spec = specs.setdefault((description, threads, row), (
            lib.TaskSpec if lib is benchmark else importlib.import_module(
                "torch.utils.benchmark.utils.common"
            ).TaskSpec
        )(stmt="x", setup="pass", label="red", sub_label=row, description=description,
          num_threads=threads))
        yield lib.Measurement(1000, times, spec)


def test_figures_of_a_measurement() -> None:
    for ours, other in zip(measurements(benchmark), measurements(theirs), strict=True):
        for name in ("median", "mean", "iqr", "times"):
            assert getattr(ours, name) == pytest.approx(getattr(other, name), rel=1e-5)
        for name in ("significant_figures", "has_warnings", "title", "as_row_name", "label"):
            assert getattr(ours, name) == getattr(other, name), name


def test_a_table_is_laid_out_as_torchs() -> None:
    def table(lib: Any) -> str:
        lines = str(lib.Compare([*measurements(lib)])).splitlines()
        return "\n".join(line.rstrip() for line in lines)

    assert table(benchmark).strip() == table(theirs).strip()


def test_digits_that_count_and_warnings() -> None:
    table = benchmark.Compare(measurements(benchmark))
    table.trim_significant_figures()
    table.highlight_warnings()
    text = str(table)
    assert "(! " in text
    assert "high variance" in text
    table.colorize()
    assert "\033[92m" in str(table)


def test_a_timer_knows_torch_its_globals_and_its_setup() -> None:
    seen: list[Any] = []
    timed = benchmark.Timer(
        """
            seen.append(torch.ones(2) + y)
        """, "y = 1", globals={"seen": seen}, label="sums", sub_label="small", description="d",
    )
    found = timed.timeit(5)
    assert (found.number_per_run, len(found.raw_times), len(seen)) == (5, 1, 7)
    assert seen[0].tolist() == [2.0, 2.0]
    assert found.median > 0
    text = repr(found).splitlines()
    assert text[1:4] == ["sums: small", "d", "setup: y = 1"]
    assert text[-1] == "  1 measurement, 5 runs , 1 thread"


def test_a_timer_runs_until_the_time_is_over_with_its_threads() -> None:
    threads: list[int] = []
    calls: list[tuple[int, float]] = []
    before = graphc.get_num_threads()
    timed = benchmark.Timer(
        "threads.append(torch.get_num_threads())", globals={"threads": threads}, num_threads=2
    )
    found = timed.blocked_autorange(lambda *call: calls.append(call), min_run_time=0.01)
    assert set(threads) == {2}
    assert graphc.get_num_threads() == before
    assert [time for _, time in calls] == found.raw_times
    assert sum(found.raw_times) >= 0.01
    bounded = timed.adaptive_autorange(threshold=0.0, min_run_time=0.001, max_run_time=0.02)
    assert sum(bounded.raw_times) < 2.0


def test_units() -> None:
    for seconds in (1e-5, 3.0, 0.05, 5000.0, 1e-3, 9.99e-4):
        assert benchmark.select_unit(seconds) == theirs.select_unit(seconds), seconds
    assert benchmark.trim_sigfig(12345.0, 2) == 12000.0


def test_wrong_arguments_are_told() -> None:
    with pytest.raises(ValueError, match="Currently only a `str` stmt"):
        benchmark.Timer(lambda: 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Invalid language"):
        benchmark.Timer("x", language="foo")
    with pytest.raises(NotImplementedError, match="C\\+\\+ statements"):
        benchmark.Timer("x", language="cpp")
    with pytest.raises(ValueError, match="Expected an instance of `Measurement`"):
        benchmark.Compare([3])  # type: ignore[list-item]
    with pytest.raises(ZeroDivisionError):
        benchmark.Timer("1 / 0").timeit(1)
