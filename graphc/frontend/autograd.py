"""backward() and grad(): ir/autodiff's reverse walk over the tape, with hooks and accumulation.
A leaf is visited right after the last node that reads it: hooks act while others still run.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.ir import ops
from graphc.ir.autodiff import walk
from graphc.ir.memory import copied

from .anomaly import Anomaly, check
from .arriving import accumulate, accumulate_sparse, conform
from .blocks import Blocks, whole
from .context import callout, local
from .dispatch import apply, constant, inplace
from .errors import kind_name, located
from .folded import FoldedNode, unfold
from .gradient_hooks import gives_nothing, run_hooks
from .gradient_layout import for_leaf
from .history import edge, requires_grad
from .layouts import NotDense
from .nodes import TWICE, AccumulateGrad, Edge, GradientEdge, Node, OpNode, World
from .placement import place_at
from .saved_hooks import unpacking
from .straight import straight_pass
from .tape_order import Arrivals, give_way, order_of, reaching
from .tensor import Tensor, current, from_array, register_methods
from .transfer import moved
from .values import Eager
from .worlds import ArrayWorld, NodeWorld, TensorWorld

TensorOrTensors = Any


def backward(
    tensors: TensorOrTensors,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: TensorOrTensors | None = None,
) -> None:
    """torch.autograd.backward: add the gradients of `tensors` to the leaves' `.grad`.

    `inputs`: only these get a gradient. Raises RuntimeError where a tensor has no history, or
    is not a scalar and has no gradient given.
    """
    outputs = _tuple(tensors)
    grads = _tuple(grad_tensors) if grad_tensors is not None else (None,) * len(outputs)
    wanted = None
    if inputs is not None:
        wanted = tuple(inputs.values()) if type(inputs) is dict else _tuple(inputs)
        if not wanted:
            raise RuntimeError(located("`inputs` argument to `backward()` cannot be empty."))
        for tensor in wanted:
            if isinstance(tensor, Tensor) and requires_grad(current(tensor)):
                tensor.retain_grad()
    keep = create_graph if retain_graph is None else retain_graph
    trace = local.trace
    if trace is None and inputs is None and not create_graph and Eager.elsewhere is None and (
        not Anomaly.enabled and straight_pass(tensors, grad_tensors, bool(keep), _WORLD)
    ):
        return
    if not getattr(trace, "accumulates", True):
        raise RuntimeError(located(
            "backward() called inside vmap or control flow is not supported. Cure: use func.grad "
            "or autograd.grad there, or call backward() outside"
        ))
    if trace is not None and trace.crosses(_nodes(outputs), set(_nodes(wanted))):
        with trace.eager("backward() through earlier segments"):
            return backward(tensors, grad_tensors, retain_graph, create_graph, inputs)
    run = Pass(outputs, grads, keep, create_graph)
    run.execute(None if wanted is None else [_edge_of(t) for t in wanted], accumulate=True)


def grad(
    outputs: TensorOrTensors,
    inputs: TensorOrTensors,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """torch.autograd.grad: the gradients of `outputs` with regard to `inputs`, not accumulated."""
    if is_grads_batched:
        raise NotImplementedError("is_grads_batched: call grad once per row instead")
    outs, wanted = _tuple(outputs), _tuple(inputs)
    if not wanted:
        raise RuntimeError(located("`inputs` argument to `grad()` cannot be empty."))
    grads = _tuple(grad_outputs) if grad_outputs is not None else (None,) * len(outs)
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: "
            "allow_unused=False."
        )
    keep = create_graph if retain_graph is None else retain_graph
    trace = local.trace
    if trace is not None and leaves(trace, outs, wanted):
        with trace.eager("grad() through earlier segments"):
            return grad(
                outputs, inputs, grad_outputs, retain_graph, create_graph, only_inputs,
                allow_unused, is_grads_batched, materialize_grads,
            )
    run = Pass(outs, grads, keep, create_graph)
    found = run.execute([_edge_of(t) for t in wanted], accumulate=False)
    for i, (value, tensor) in enumerate(zip(found, wanted, strict=True)):
        if value is None and materialize_grads:
            found[i] = _zeros_like(tensor)
        elif value is None and not allow_unused:
            raise RuntimeError(located(
                f"The differentiated Tensor at index {i} appears to not have been used in the "
                "graph. Set allow_unused=True if this is the desired behavior."
            ))
    return tuple(found)


_WORLD = ArrayWorld()


def _tuple(value: Any) -> tuple[Any, ...]:
    single = value is None or isinstance(value, (Tensor, GradientEdge))
    return (value,) if single else tuple(value)


def leaves(trace: Any, outputs: Any, wanted: Any) -> bool:
    """Whether a pass is to be run eagerly, as it goes back through earlier segments. Raises
    TraceError where it cannot be."""
    found: bool = trace.crosses(_nodes(_tuple(outputs)), set(_nodes(_tuple(wanted))))
    return found


def _nodes(tensors: Any) -> list[Node]:
    """The nodes that made tensors; others are left to be complained about."""
    states = [current(t) for t in tensors or () if isinstance(t, Tensor)]
    given = [t.node for t in tensors or () if isinstance(t, GradientEdge)]
    return [*given, *(edge(state)[0] for state in states if requires_grad(state))]


def _zeros_like(tensor: Tensor) -> Tensor:
    type_ = tensor._graphc_type
    result: Tensor = apply(ops.full, shape=type_.shape, value=0.0, dtype=type_.dtype)
    return result


def _edge_of(tensor: Any) -> Edge:
    if isinstance(tensor, GradientEdge):
        return tensor.node, tensor.output_nr
    if not isinstance(tensor, Tensor):
        raise TypeError(f"expected a Tensor, got {type(tensor).__name__}")
    state = current(tensor)
    if not requires_grad(state):
        raise RuntimeError(located("One of the differentiated Tensors does not require grad"))
    return edge(state)


class Passing(threading.local):
    """The backward pass whose hooks are running."""

    by: Any = None


passing = Passing()


class Pass:
    """One backward pass."""

    def __init__(
        self,
        outputs: Sequence[Any],
        grads: Sequence[Any],
        retain_graph: bool,
        create_graph: bool,
    ) -> None:
        if len(grads) != len(outputs):
            raise RuntimeError(located(
                f"got {len(outputs)} tensors and {len(grads)} gradients"
            ))
        self.trace = local.trace
        self.retain_graph = retain_graph
        self.create_graph = create_graph
        self.world: World
        if create_graph:
            self.world = TensorWorld(self.trace)
        elif self.trace is not None:
            self.world = NodeWorld(self.trace)
        else:
            self.world = ArrayWorld(collects=True)
        self.seeds: list[tuple[Node, int, Any]] = []
        for i, (output, gradient) in enumerate(zip(outputs, grads, strict=True)):
            seed = self._seed(output, gradient, i)
            self.seeds.append((*edge(current(output)), self.world.from_tensor(seed)))
        # (node, result) -> places in the result of execute()
        self.captures: dict[Edge, list[int]] = {}
        self.found: list[Any] = []
        self.needed: dict[Node, bool] | None = None
        self.accumulate = True
        self.order: list[Node] = []
        self.begun = {(node, output) for node, output, _ in self.seeds}

    def _seed(self, output: Any, gradient: Any, i: int) -> Tensor:
        if not isinstance(output, Tensor) or not requires_grad(current(output)):
            raise RuntimeError(located(
                f"element {i} of tensors does not require grad and does not have a grad_fn"
            ))
        type_ = output._graphc_type
        if gradient is None:
            if type_.dtype.is_complex:
                raise RuntimeError(located(
                    "grad can be implicitly created only for real scalar outputs but got "
                    f"{type_.dtype}. Cure: give the gradient, or take .real or .abs() of it"
                ))
            if type_.elements != 1:
                raise RuntimeError(located(
                    "grad can be implicitly created only for scalar outputs, but this one has "
                    f"shape {list(type_.shape)}. Cure: reduce it (sum(), mean()) or pass gradient="
                ))
            one = constant(1.0, type_.dtype)
            if Eager.elsewhere is not None and self.trace is None:
                one = moved(one, place_at(output))
            shaped: Tensor = apply(ops.reshape, one, shape=type_.shape) if type_.shape else one
            return shaped
        if not isinstance(gradient, Tensor):
            raise TypeError(f"gradients can be either Tensors or None, but got {type(gradient)}")
        given: Tensor = gradient if type(gradient) is Tensor else gradient.to_dense()
        if given._graphc_type.shape != type_.shape:
            raise RuntimeError(located(
                f"Mismatch in shape: grad_output[{i}] has a shape of {gradient.shape} and "
                f"output[{i}] has a shape of {output.shape}."
            ))
        if given.dtype is not type_.dtype:
            cast: Tensor = apply(ops.cast, given, dtype=type_.dtype)
            return cast
        return given

    def execute(self, inputs: list[Edge] | None, accumulate: bool) -> list[Any]:
        """Run the pass. `inputs` limits it; without `accumulate` their gradients are returned."""
        self.accumulate = accumulate
        order = self._order(inputs or ())
        if inputs is not None:
            self.found = [None] * len(inputs)
            places = [node.place(output) for node, output in inputs]
            for i, place in enumerate(places):
                self.captures.setdefault(place, []).append(i)
            self.needed = reaching(order, {node for node, _ in places})
        saved_mode = local.grad
        local.grad = self.create_graph
        limited, unpacking.limited = unpacking.limited, inputs is not None
        outer_pass, passing.by, self.order = passing.by, self, order
        trace = self.trace
        outer = None if trace is None else trace.enter_backward()
        try:
            seeds, self.seeds = self.seeds, []
            walk(order, seeds, self._visit, self.world.add)
        finally:
            local.grad = saved_mode
            unpacking.limited = limited
            passing.by, self.order = outer_pass, []
            if trace is not None:
                trace.leave_backward(outer)
        return self.found

    def runs(self, node: Node, output: int) -> bool:
        """Whether a gradient arrives at a place, asked while the pass runs."""
        node, output = node.place(output)
        return self._arrives(node, output) and (
            self.needed is None or self.needed.get(node, False)
        )

    def _arrives(self, node: Node, output: int) -> bool:
        """The same, of a node as it stands in the order."""
        place = node, output
        return place in self.begun or any(
            e == place and (not isinstance(each, FoldedNode) or any(
                each.leads(result, i) and self._arrives(each, result)
                for result in range(len(each.out_types))
            ))
            for each in self.order for i, e in enumerate(each.edges)
        )

    def _order(self, inputs: Sequence[Edge]) -> list[Node]:
        roots = [node for node, _, _ in self.seeds]
        order = order_of(roots)
        always = self.create_graph or self.trace is not None
        folded = [node for node in order if isinstance(node, FoldedNode)]
        if not folded:
            return order
        if unfold(folded, inputs, always):
            order = order_of(roots)
        elif all(len(node.out_types) == 1 and not node.used for node in folded):
            return order  # a gradient goes through all of each
        arrivals = Arrivals(order, self.begun)
        wanted = {node.place(output)[0] for node, output in inputs}
        if give_way(order, arrivals, wanted):
            order = order_of(roots)
            arrivals = Arrivals(order, self.begun)
        return order_of(roots, arrivals.live) if arrivals.live else order

    def _visit(self, node: Node, slots: list[Any]) -> list[tuple[Node, int, Any]]:
        trace = self.trace
        if trace is not None:
            trace.builder.loc = node.loc
        else:
            for i, value in enumerate(slots):
                if type(value) is Blocks:
                    slots[i] = value.whole()
        needed = self.needed
        if needed is None:
            needs = [e is not None for e in node.edges]
        else:
            needs = [e is not None and needed.get(e[0], False) for e in node.edges]
        # what is asked for and passed on is given as it is before hooks, as in torch
        early = any(needs)
        if early and self.captures:
            self._captured(node, slots)
        if (node.tensor_hooks or node.retained) and not isinstance(node, AccumulateGrad):
            self._before(node, slots)
        if not early and self.captures:
            self._captured(node, slots)
        if isinstance(node, AccumulateGrad):
            if self.captures and ((node, 0) not in self.captures or not self.accumulate):
                return []
            value, slots[0] = slots[0], None
            if value is not None:
                self._accumulate(node, value)
            return []
        if not any(needs):
            if node.released and not node.edges:
                raise RuntimeError(located(TWICE))
            return []
        if node.pre_hooks:
            self._prehooks(node, slots)
        while len(slots) < len(node.out_types):
            slots.append(None)
        found = list(node.gradients(slots, needs, self.world))
        if Anomaly.enabled or node.post_hooks:
            found = list(map(whole, found))
        if Anomaly.enabled and Anomaly.check_nan:
            check(node, found)
        if node.post_hooks:
            self._after(node, found, slots)
        if not self.retain_graph:
            node.release()
        return self._deliver(node, found, needs)

    def _deliver(
        self, node: Node, found: list[Any], needs: list[bool]
    ) -> list[tuple[Node, int, Any]]:
        contributions: list[tuple[Node, int, Any]] = []
        # an operator's gradients have its inputs' types
        checked = isinstance(node, OpNode) and not node.post_hooks
        for i, (place, value) in enumerate(zip(node.edges, found, strict=True)):
            if place is None or value is None or not needs[i]:
                continue
            want = None if checked else place[0].out_types[place[1]]
            if want is not None and not (
                type(value) is np.ndarray and value.shape == want.shape
                and value.dtype == want.dtype.numpy
            ):
                value = conform(node, i, value, want, self.world)
            contributions.append((*place, value))
        return contributions

    def _before(self, node: Node, slots: list[Any]) -> None:
        """Hooks of the tensors that the node made, then retain_grad."""
        world = self.world
        for output, hooks in (node.tensor_hooks or {}).items():
            if output < len(slots) and slots[output] is not None:
                tensor = run_hooks(hooks, world.to_tensor(slots[output]))
                slots[output] = world.from_tensor(tensor)
        for output, reference in (node.retained or {}).items():
            kept = reference()
            if kept is not None and output < len(slots) and slots[output] is not None:
                old = kept._grad if self.trace is None else self.trace.get_grad(kept)
                new = world.to_tensor(slots[output])
                kept._grad = (
                    _private(new, self.create_graph) if old is None else apply(ops.add, old, new)
                )

    def _prehooks(self, node: Node, slots: list[Any]) -> None:
        world = self.world
        for hook in list((node.pre_hooks or {}).values()):
            given = tuple([None if v is None else world.to_tensor(v) for v in slots])
            changed = callout(hook)(given)
            if changed is not None:
                changed = _tuple(changed)
                slots[:] = [None if t is None else world.from_tensor(t) for t in changed]

    def _after(self, node: Node, found: list[Any], slots: list[Any]) -> None:
        world = self.world
        for hook in list((node.post_hooks or {}).values()):
            grads_in = tuple([None if v is None else world.to_tensor(v) for v in found])
            grads_out = tuple([None if v is None else world.to_tensor(v) for v in slots])
            changed = callout(hook)(grads_in, grads_out)
            if changed is not None:
                changed = _tuple(changed)
                found[:] = [None if t is None else world.from_tensor(t) for t in changed]

    def _captured(self, node: Node, slots: list[Any]) -> None:
        for output, value in enumerate(slots):
            places = self.captures.get((node, output))
            if places is not None and value is not None:
                self._capture(node, output, value, places)

    def _capture(self, node: Node, output: int, value: Any, places: list[int]) -> None:
        if self.accumulate:  # a leaf's comes with the walk, another's is retained
            return
        if isinstance(node, AccumulateGrad) and node.variable._graphc_hooks:
            value = self._leaf_hooks(node.variable, value)
        tensor = self.world.to_tensor(value)
        for place in places:
            self.found[place] = _private(tensor, self.create_graph)

    def _leaf_hooks(self, variable: Tensor, value: Any) -> Any:
        assert variable._graphc_hooks is not None
        tensor = run_hooks(variable._graphc_hooks, self.world.to_tensor(value))
        return self.world.from_tensor(tensor)

    def _accumulate(self, node: AccumulateGrad, value: Any) -> None:
        """Add to the leaf's `.grad`; a gradient that nothing else refers to is taken over."""
        variable = node.variable
        if variable._graphc_hooks:
            value = self._leaf_hooks(variable, value)
        if node.pre_hooks:
            slots = [value]
            self._prehooks(node, slots)
            value = slots.pop()
            if value is None:
                return
        arrived = self.world.to_tensor(value) if node.post_hooks else None
        if requires_grad(variable):  # it may have been frozen since the forward pass
            self._add(variable, value)
        trace = self.trace
        for hook in list((variable._graphc_post_hooks or {}).values()):
            gives_nothing(callout(hook)(variable if trace is None else trace.concrete_of(variable)))
        for after in list((node.post_hooks or {}).values()):
            callout(after)((), (arrived,))

    def _add(self, variable: Tensor, value: Any) -> None:
        trace = self.trace
        if Eager.elsewhere is not None and trace is None:
            value = self.world.from_tensor(moved(self.world.to_tensor(value), place_at(variable)))
        old = variable._grad if trace is None else trace.get_grad(variable)
        if type(value) is np.ndarray and not self.create_graph and trace is None:
            # references: the variable of the caller's caller, the caller's, the parameter, and
            # getrefcount's argument; one of accumulate()'s on the stack would be another
            alone = sys.getrefcount(value) <= 4
            accumulate(variable, value, alone)
        elif isinstance(value, Tensor):
            accumulate_sparse(variable, value)
        elif old is None:
            variable._grad = for_leaf(self.world.to_tensor(value), variable, self.create_graph)
        elif self.create_graph:
            variable._grad = apply(ops.add, old, self.world.to_tensor(value))
        else:
            inplace(old, apply(ops.add, old, self.world.to_tensor(value)))


def _private(tensor: Tensor, create_graph: bool) -> Tensor:
    """A gradient for the user: memory of its own, unless its history must be kept."""
    if create_graph:
        return tensor
    trace = tensor._graphc_trace
    if trace is not None:
        return trace.wrap(trace.read(tensor))
    try:
        return from_array(copied(tensor._graphc_array))
    except NotDense:
        return tensor._graphc_apart()  # type: ignore[no-any-return]


def _method(
    self: Tensor,
    gradient: Tensor | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: TensorOrTensors | None = None,
) -> None:
    """Add the gradients of this tensor to the leaves' `.grad`."""
    if gradient is not None and not isinstance(gradient, Tensor):
        raise TypeError(located(
            f"gradients can be either Tensors or None, but got {kind_name(gradient)}"
        ))
    backward(self, gradient, retain_graph, create_graph, inputs)


register_methods({"backward": _method})
