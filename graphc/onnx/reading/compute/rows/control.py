"""If, Loop and Scan.

Where a condition or a count is known when the graph is recorded, they are Python's own; where it
is a tensor's value, they are the control flow of torch.cond and torch.while_loop, as far as shapes
allow, and else end the recording as a user's `while t:` does.
"""

from __future__ import annotations

from typing import Any

from .....frontend import functions as T
from .....frontend.context import local
from .....frontend.control import cond, while_loop
from .....frontend.control import scan as scanned
from .....frontend.errors import ControlError
from .....frontend.numbers import is_traced_number
from .....frontend.tensor import Tensor
from .....ir.op import OpError
from ..numbers import Numbers
from ..table import Node, operator


def _tensor(value: Any) -> Any:
    return value.tensor() if type(value) is Numbers else value


def _truth(value: Any) -> bool:
    return bool(value.items[0]) if type(value) is Numbers else bool(value)


@operator("If", 1, raw=True)
def branch(node: Node, chosen: Any) -> Any:
    then, otherwise = node.get("then_branch"), node.get("else_branch")
    if type(chosen) is Numbers or local.trace is None:
        return tuple((then if _truth(chosen) else otherwise)())
    try:
        return tuple(cond(
            chosen.reshape(()), lambda: _all_tensors(then()), lambda: _all_tensors(otherwise())
        ))
    except (ControlError, OpError):
        # branches of different shapes: the value decides, as in Python
        return tuple((then if bool(chosen) else otherwise)())


def _all_tensors(values: list[Any]) -> tuple[Tensor, ...]:
    found = tuple(_tensor(value) for value in values)
    if not all(isinstance(value, Tensor) for value in found):
        raise ControlError("a branch gives a sequence")
    return found


class _Loop:
    """A Loop's state between its iterations."""

    def __init__(self, node: Node, carried: list[Any]) -> None:
        self.body = node.get("body")
        self.carried = carried
        self.count = len(carried)
        self.columns: list[list[Any]] = [
            [] for _ in self.body.program.outputs[self.count + 1:]
        ]

    def step(self, number: int, going: Any) -> Any:
        """One iteration; the next condition."""
        outputs = self.body(Numbers([number], (), _INT), going, *self.carried)
        self.carried = outputs[1 : self.count + 1]
        for column, value in zip(self.columns, outputs[self.count + 1:], strict=True):
            column.append(_tensor(value))
        return outputs[0]

    def results(self, node: Node) -> tuple[Any, ...]:
        """What the Loop gives."""
        if any(not column for column in self.columns):
            if any(node.wants(self.count + i) for i in range(len(self.columns))):
                node.refuse(
                    "it makes no iteration, and so nobody knows the shapes of what it stacks",
                    "give it an iteration",
                )
            return tuple(self.carried)
        return (*self.carried, *[T.stack(column) for column in self.columns])


_INT = T.int64.numpy
_BOOL = T.bool.numpy
MOST_UNROLLED = 4096  # iterations that a recording writes out
MOST_ITERATIONS = 100_000  # of one Loop in eager mode: a file must not run for ever


@operator("Loop", 1, raw=True)
def loop(node: Node, most: Any = None, going: Any = None, *carried: Any) -> Any:
    going = Numbers([True], (), _BOOL) if going is None else going
    state = _Loop(node, list(carried))
    value_decides = local.trace is not None and not (
        type(going) is Numbers and _constant_condition(node)
        and (most is None or type(most) is Numbers)
    )
    if value_decides and not state.columns and carried:
        found = _looped(node, most, going, [_tensor(value) for value in carried])
        if found is not None:
            return found
    limit = None if most is None else _trips(most)
    number, most_here = 0, MOST_ITERATIONS if local.trace is None else MOST_UNROLLED
    while (limit is None or number < limit) and _truth(going):
        if number >= most_here:
            node.refuse(f"it makes more than {most_here} iterations", "end it by a condition")
        going = state.step(number, going)
        number += 1
    return state.results(node)


def _trips(most: Any) -> int:
    return int(most.items[0]) if type(most) is Numbers else int(most)


def _constant_condition(node: Node) -> bool:
    """Whether the body hands on the condition that it is given, or a constant."""
    program = node.get("body").program
    found = program.outputs[0]
    identity = {
        step.outputs[0]: step.inputs[0] for step in program.steps if step.node.op == "Identity"
    }
    while found in identity:
        found = identity[found]
    inner = program.arriving[len(program.outside) + 1]
    return found == inner or found in program.constants


def _looped(node: Node, most: Any, going: Any, carried: list[Tensor]) -> Any:
    """As one while_loop; None where the body changes shapes or gives sequences."""
    body = node.get("body")
    if not all(isinstance(value, Tensor) for value in carried):
        return None
    limit = T.tensor(2**62) if most is None else _tensor(most).reshape(()).to(T.int64)

    def more(number: Tensor, going: Tensor, *rest: Tensor) -> Tensor:
        return going & (number < limit)

    def step(number: Tensor, going: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        outputs = _all_tensors(body(number, going, *rest))
        return (number + 1, outputs[0].reshape(()).to(T.bool), *outputs[1:])

    begin = (T.tensor(0), _tensor(going).reshape(()).to(T.bool), *carried)
    try:
        return tuple(while_loop(more, step, begin)[2:])
    except (ControlError, OpError, RuntimeError) as error:
        if isinstance(error, ControlError) or "types" in str(error):
            return None
        raise


@operator("Scan", 9, raw=True)
def scan(node: Node, *given: Any) -> Any:
    """The body for each slice of its last inputs."""
    body, count = node.get("body"), node.get("num_scan_inputs", 0)
    tensors = [_tensor(value) for value in given]
    states, rows = tensors[: len(given) - count], tensors[len(given) - count:]
    if not count or len(rows) != count:
        node.refuse(f"it scans {count} of {len(given)} inputs", "the file is damaged")
    outputs = len(body.program.outputs) - len(states)
    axes = node.get("scan_input_axes") or [0] * count
    ways = node.get("scan_input_directions") or [0] * count
    rows = [
        (x.flip(axis % x.dim()) if back else x).movedim(axis, 0)
        for x, axis, back in zip(rows, axes, ways, strict=True)
    ]
    if local.trace is not None and states and is_traced_number(rows[0].shape[0]):
        ends, columns = _as_scan(body, states, rows)
    else:
        ends = states
        lists: list[list[Tensor]] = [[] for _ in range(outputs)]
        for i in range(int(rows[0].shape[0])):
            made = [_tensor(value) for value in body(*ends, *[x[i] for x in rows])]
            ends = made[: len(states)]
            for column, value in zip(lists, made[len(states):], strict=True):
                column.append(value)
        if any(not column for column in lists):
            node.refuse("it scans no slices", "give it one")
        columns = [T.stack(column) for column in lists]
    axes = node.get("scan_output_axes") or [0] * outputs
    ways = node.get("scan_output_directions") or [0] * outputs
    columns = [
        (x.flip(0) if back else x).movedim(0, axis)
        for x, axis, back in zip(columns, axes, ways, strict=True)
    ]
    return (*ends, *columns)


def _as_scan(body: Any, states: list[Tensor], rows: list[Tensor]) -> tuple[Any, Any]:
    def step(carry: list[Tensor], row: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        made = [_tensor(value) for value in body(*carry, *row)]
        return made[: len(states)], made[len(states):]

    ends, columns = scanned(step, states, rows)
    return list(ends), list(columns)
