"""Operators with sub-graphs: branches, loops, and the fused groups that passes/fuse/ makes.

A sub-graph is a closed function: what it reads comes in through its inputs. Its results are the
node's: one tensor, or several (a TupleType). Such records have `results` 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import dtypes
from ..dim import DimEnv
from ..graph import Graph
from ..late import late
from ..op import Attrs, Op, register
from ..rounding import EXACT
from ..types import TensorType, TupleType, Type
from ._types import Types, fail, same_shape
from .control_gradients import cond_vjp

if TYPE_CHECKING:
    from . import scan_gradient, while_gradient
else:
    scan_gradient = late("graphc.ir.ops.scan_gradient")
    while_gradient = late("graphc.ir.ops.while_gradient")


def _scan_vjp(*args: Any, **attrs: Any) -> Any:
    return scan_gradient.scan_vjp(*args, **attrs)


def _while_vjp(*args: Any, **attrs: Any) -> Any:
    return while_gradient.while_vjp(*args, **attrs)


def _unwind_vjp(*args: Any, **attrs: Any) -> Any:
    return while_gradient.unwind_vjp(*args, **attrs)


def _graphs(name: str, attrs: Attrs, number: int) -> tuple[Graph, ...]:
    graphs: tuple[Graph, ...] = attrs.get("graphs", ())
    if len(graphs) != number:
        fail(f"{name} takes {number} sub-graphs, got {len(graphs)}", TypeError)
    return graphs


def _bundle(types: Sequence[TensorType]) -> Type:
    return types[0] if len(types) == 1 else TupleType(tuple(types))


def _outputs(graph: Graph) -> tuple[TensorType, ...]:
    return tuple(node.tensor_type for node in graph.outputs)


def _require_same(
    what: str, have: Sequence[TensorType], want: Sequence[TensorType], env: DimEnv
) -> None:
    """Raise TypeError unless two lists of types agree."""
    if tuple(have) == tuple(want):
        return
    fits = len(have) == len(want) and all(
        h.dtype is w.dtype and same_shape(env, h.shape, w.shape)
        for h, w in zip(have, want, strict=True)
    )
    if not fits:
        fail(
            f"{what} has types ({', '.join(map(str, have))}), "
            f"expected ({', '.join(map(str, want))})",
            TypeError,
        )


def _require_inputs(what: str, graph: Graph, types: Sequence[TensorType], env: DimEnv) -> None:
    _require_same(f"{what}'s input list", [n.tensor_type for n in graph.inputs], types, env)


def _require_predicate(what: str, types: Sequence[TensorType]) -> None:
    if len(types) != 1 or types[0] != TensorType(dtypes.bool_, ()):
        fail(f"{what} must be one 0-d bool, got ({', '.join(map(str, types))})", TypeError)


def _cond_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    then, otherwise = _graphs("cond", attrs, 2)
    if not types:
        fail("cond takes a predicate", TypeError)
    _require_predicate("cond's predicate", types[:1])
    _require_inputs("cond's true branch", then, types[1:], env)
    _require_inputs("cond's false branch", otherwise, types[1:], env)
    results = _outputs(then)
    _require_same("cond's false branch's result", _outputs(otherwise), results, env)
    return _bundle(results)


def _while_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    condition, body = _graphs("while_loop", attrs, 2)
    if not types:
        fail("while_loop takes at least one carried value", TypeError)
    _require_inputs("while_loop's condition", condition, types, env)
    _require_predicate("while_loop's condition's result", _outputs(condition))
    _require_inputs("while_loop's body", body, types, env)
    _require_same("while_loop's body's result", _outputs(body), types, env)
    return _bundle(types)


def _unwind_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    condition, body, back = _graphs("unwind", attrs, 3)
    n: int = attrs["n_state"]
    if not 0 < n < len(types) or attrs["most"] < 1:
        fail(f"unwind takes {n} values to run with and some to go back with, and at least one "
             f"step, got {len(types)} inputs and {attrs['most']} steps", TypeError)
    state, slopes = types[:n], types[n:]
    _require_inputs("unwind's condition", condition, state, env)
    _require_predicate("unwind's condition's result", _outputs(condition))
    _require_inputs("unwind's body", body, state, env)
    _require_same("unwind's body's result", _outputs(body), state, env)
    _require_inputs("unwind's way back", back, [*slopes, *state], env)
    _require_same("unwind's way back's result", _outputs(back), slopes, env)
    return _bundle(slopes)


def _scan_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    (body,) = _graphs("scan", attrs, 1)
    n_carried: int = attrs["n_carried"]
    if not 0 <= n_carried < len(types):
        fail(f"scan takes {n_carried} carried values and at least one sequence, "
             f"got {len(types)} inputs", TypeError)
    carried, sequences = types[:n_carried], types[n_carried:]
    for sequence in sequences:
        if not sequence.rank:
            fail(f"scan runs along dim 0 of each sequence, got {sequence}", ValueError)
        if not env.equal(sequence.shape[0], sequences[0].shape[0]):
            fail(f"scan's sequences have lengths {sequences[0].shape[0]} and "
                 f"{sequence.shape[0]}", ValueError)
    rows = [s.with_shape(s.shape[1:]) for s in sequences]
    _require_inputs("scan's body", body, [*carried, *rows], env)
    results = _outputs(body)
    _require_same("scan's body's carried result", results[:n_carried], carried, env)
    length = sequences[0].shape[0]
    stacked = [r.with_shape((length, *r.shape)) for r in results[n_carried:]]
    return _bundle([*carried, *stacked])


# --- the work of a run, from that of the sub-graphs ------------------------------------------


def _branch_work(bodies: Sequence[Any], types: Sequence[Type], attrs: Mapping[str, Any]) -> Any:
    """No less than this, whichever branch is taken."""
    return min(bodies)


def _while_work(bodies: Sequence[Any], types: Sequence[Type], attrs: Mapping[str, Any]) -> Any:
    """As if it went round once: how often it does is known when it has run."""
    return sum(bodies)


def _scan_work(bodies: Sequence[Any], types: Sequence[Type], attrs: Mapping[str, Any]) -> Any:
    sequence = types[attrs["n_carried"]]
    assert isinstance(sequence, TensorType)
    return bodies[0] * sequence.shape[0]


def _fusion_work(bodies: Sequence[Any], types: Sequence[Type], attrs: Mapping[str, Any]) -> Any:
    return bodies[0]


def _fusion_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    (body,) = _graphs("fusion", attrs, 1)
    _require_inputs("fusion's body", body, types, env)
    return _bundle(_outputs(body))


register(
    Op(
        "cond", "control", _cond_type, cond_vjp, results=0, body_work=_branch_work,
        cost=None, rounding=EXACT, takes_complex=True,
        doc="The results of the first sub-graph where the 0-d bool is true, else of the second.",
    )
)
register(
    Op(
        "while_loop", "control", _while_type, _while_vjp, results=0, body_work=_while_work,
        cost=None, rounding=EXACT, takes_complex=True,
        doc="Runs the second sub-graph on the carried values while the first says true.",
    )
)
register(
    Op(
        "unwind", "control", _unwind_type, _unwind_vjp, results=0, attrs=("n_state", "most"),
        body_work=_while_work, cost=None, rounding=EXACT, takes_complex=True,
        doc="Runs the second sub-graph on `n_state` values while the first says true, `most` times "
        "at most, and then, from the last step to the first, the third on the other values and on "
        "what the step began with; gives these other values.",
    )
)
register(
    Op(
        "scan", "control", _scan_type, _scan_vjp, results=0, attrs=("n_carried", "reverse"),
        body_work=_scan_work, cost=None, rounding=EXACT, takes_complex=True,
        doc="Runs body(*carried, *rows) -> (*carried, *outputs) for each row of dim 0, the last "
        "one first with `reverse`; gives the last carried values, and the outputs stacked in "
        "the order of the rows.",
    )
)
register(
    Op(
        "fusion", "structure", _fusion_type, results=0, attrs=("kind",), body_work=_fusion_work,
        nondifferentiable="made after differentiation, by passes/fuse/ alone",
        cost=None, rounding=EXACT, takes_complex=True,
        doc="One kernel's worth of operators, as a sub-graph.",
    )
)
