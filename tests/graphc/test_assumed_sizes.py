"""What compiling assumes of symbolic sizes, which the recording's graph does not say."""

from typing import Any

import numpy as np
import pytest

import graphc
from graphc.config import Config
from graphc.engine import pipeline
from graphc.engine.built import Engine, Engines
from graphc.ir import dtypes, ops
from graphc.ir.dim import Guard
from graphc.ir.graph import Builder, Expr, Graph
from graphc.ir.types import TensorType

QUIET = Config()._replace(debug=0, check=1, dump=None, cache_dir=None, threads=2)


def sliced(x: Any) -> Any:
    """Two slices that a rewrite makes one, which relies on another fact."""
    return x[2:][3:] * 2


def test_passes_leave_the_final_graph_alone_and_their_facts_are_guards() -> None:
    function = graphc.compile(sliced, dynamic=True)
    function(graphc.arange(9).float())
    version = function.newest
    assert [g.text() for g in version.graph.env.guards] == ["3 <= (s0 + -2)", "0 <= (s0 + -5)"]
    assert [g.text() for g in version.engine.built.assumed] == ["5 <= s0"]
    texts = graphc.explain(function, graphc.arange(9).float()).guards
    assert any("5 <= s0" in text for text in texts), texts
    for size in (7, 5, 4, 2, 12):
        x = graphc.arange(size).float()
        assert function(x).tolist() == sliced(x).tolist()


def test_a_final_graph_refuses_further_facts() -> None:
    function = graphc.compile(sliced, dynamic=True)
    function(graphc.arange(9).float())
    env = function.newest.graph.env
    (name,) = env.hints
    with pytest.raises(AssertionError, match="is decided of a graph that is final"):
        env.divides(2, function.newest.graph.inputs[0].shape[0])
    copy = env.copy()
    assert not copy.divides(2, function.newest.graph.inputs[0].shape[0])
    assert len(copy.guards) == len(env.guards) + 1 and copy.hints == {name: 9}


def test_code_that_waits_for_its_first_run_fits_the_sizes_of_each_run() -> None:
    """What is compiled late may assume what the guards of the version do not say."""
    builder = Builder()
    n = builder.env.new("n", 4)
    x = Expr(builder, builder.input(TensorType(dtypes.f32, (n, 3)), "x"))
    graph = builder.build([ops.exp(x).node], "late")
    hints = []

    def make(given: Graph) -> Engine:
        hints.append(given.env.hints["n"])
        built = pipeline.build(given, config=QUIET)
        built.assumed = (Guard("divides", 2, n, given.env.hints["n"] % 2 == 0),)
        return Engine.of(built)

    engines = Engines(graph, make)
    for size in (6, 4, 7, 9, 8):
        given = np.linspace(-1, 1, size * 3, dtype=np.float32).reshape(size, 3)
        _, (result,) = engines.at({"n": size}).call([given], {"n": size})
        np.testing.assert_allclose(result, np.exp(given), rtol=1e-5)
    assert hints == [4, 7]  # for the recording's sizes first; then for those that these do not fit
    assert graph.env.hints == {"n": 4} and not graph.env.guards
