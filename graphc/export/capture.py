"""`export(model, args)`: trace the model once; say where every value of its Graph comes from."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Collection, Mapping
from typing import Any

from graphc import backends, config
from graphc.engine import pipeline
from graphc.engine.devices import backend_at
from graphc.export import checking, containers, decisions, dynamic, ones
from graphc.export.contents import Contents, Variant
from graphc.export.dynamic import DynamicShapes, resized
from graphc.export.errors import ExportError
from graphc.export.lifted import Lifted, arguments_json, weights_of
from graphc.export.program import ExportedProgram
from graphc.export.recorded import recorded
from graphc.export.signature import Signature, follows
from graphc.export.store import Store
from graphc.frontend.captured import TensorInput, TracedGraph
from graphc.frontend.number_expr import NumberGuard
from graphc.frontend.tensor import Tensor
from graphc.frontend.tree import flatten, unflatten
from graphc.ir.dim import Dim, is_variable
from graphc.ir.graph import Graph
from graphc.ir.memory import may_share
from graphc.ir.record import replaced
from graphc.nn.modules.module import Module


def export(
    mod: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
    preserve_module_call_signature: tuple[str, ...] = (),
    prefer_deferred_runtime_asserts_over_guards: bool = False,
    check: bool = True,
) -> ExportedProgram:
    """Record `mod(*args, **kwargs)` as a program that runs without the model's code.

    `mod`: a Module or function, in the train or eval state that it is in. Sizes are those of the
    example, but for what `dynamic_shapes` frees: {"x": {0: Dim("batch", min=1, max=512)}}; size 1
    is one of them, by a second graph where the model computes something else there (ones.py).
    Parameters and buffers are copied, to the device of the example. Numbers and strings among the
    arguments become part of the program. `check`: the recorded graphs are run by the reference
    interpreter and compared with the model in eager mode, at the sizes of the example, at 1, 2, 3
    and the largest; ExportError names the first result that differs. `strict` and how guards are
    preferred are torch's; there is one way of recording. The parts in
    `preserve_module_call_signature` have to be there (AttributeError), but what a part computes is
    not kept: those of unflatten() are not called. Raises
    ExportError for what a file cannot hold, such as a model that changes its buffers, and
    TraceError naming every place of its Python that one graph cannot stand for.
    """
    if not isinstance(args, tuple):
        raise TypeError(f"args must be a tuple of the model's arguments, got {type(args).__name__}."
                        " Cure: export(model, (x,))")
    mod = getattr(type(mod), "_orig_mod", mod)  # of a compiled Module: names without it
    for name in filter(None, preserve_module_call_signature):
        operator.attrgetter(name)(mod)
    exporter = _Exporter(mod, args, dict(kwargs or {}), dynamic_shapes)
    return exporter.program(check)


class _Exporter:
    """One export: the recordings of a model, and what becomes of them."""

    def __init__(
        self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], shapes: Any
    ) -> None:
        self.model, self.kwargs = model, kwargs
        self.positional = argument_names(model, len(args), kwargs)
        if hasattr(shapes, "dynamic_shapes"):  # ShapesCollection, AdditionalInputs
            shapes = shapes.dynamic_shapes(model, args, kwargs)
        self.shapes = dynamic.read(shapes, args, kwargs, self.positional)
        self.leaves, self.structure = flatten((args, kwargs))
        containers.check_known(self.structure)
        check_apart(self.leaves)
        self.paths = leaf_paths(self.structure, self.positional)
        self.store = Store(model)
        self.place: Any = None
        self.decided: tuple[NumberGuard, ...] = ()  # in the last recording

    def program(self, check: bool) -> ExportedProgram:
        """The program, compared with eager mode if that is asked for."""
        main = self._main()
        others = ones.settle(self.shapes, main, self._at_one, _same)
        whole = self._signature(main)
        variants = [Variant(frozenset(), *_finished(main, whole))]
        for names, lifted in others.items():
            own = replaced(whole, results=lifted.results, writes=lifted.writes)
            variants.append(Variant(names, *_finished(lifted, own)))
        contents = Contents(
            tuple(variants), weights_of(self.model, self.store), generator=self._generator()
        )
        if check:
            contents = checking.checked(contents, self.shapes, checking.Eager(
                self.model, self.leaves, self.structure, self.positional
            ))
        return ExportedProgram(contents, self.place)

    def _generator(self) -> Mapping[str, str] | None:
        """The weight that is the generator's state, where the model draws numbers."""
        if self.store.generator not in self.store.arrays:
            return None
        by_counter = pipeline.by_counter(
            config.current(), backends.get(backend_at(self.place, backends.DEFAULT))
        )
        return {
            "weight": self.store.generator, "algorithm": "counter" if by_counter else "mt19937"
        }

    # --- recordings ----------------------------------------------------------------------------

    def _main(self) -> Lifted:
        """The recording for sizes of 2 and more, in which what can be free is."""
        while True:
            sizes = {name: max(2, size) for name, size in self.shapes.example.items()}
            try:
                found = self._record(resized(self.leaves, self.shapes.names, sizes), self.shapes)
            except Exception:
                # torch fixes an unnamed size of 1 by itself; here the model has the last word
                automatic = [name for name, kind in self.shapes.unnamed.items()
                             if kind == "AUTO" and self.shapes.example[name] == 1]
                if not automatic:
                    raise
                for name in automatic:
                    self.shapes.dropped(name)
                continue
            if not (
                decisions.settle(self.decided, self.shapes) or _inferred(found.graph, self.shapes)
            ):
                check_free(found.graph, self.shapes)
                return found

    def _at_one(self, names: Collection[str]) -> Lifted:
        """The recording where these sizes are 1."""
        sizes, shapes = dynamic.at_one(self.shapes, names)
        found = self._record(resized(self.leaves, self.shapes.names, sizes), shapes)
        decisions.settle(self.decided, shapes)
        check_free(found.graph, shapes)
        return found

    def _record(self, leaves: list[Any], shapes: DynamicShapes) -> Lifted:
        args, kwargs = unflatten(leaves, self.structure)
        free = {
            number: {d: size for d, size in own.items() if isinstance(size, Dim)}
            for number, own in shapes.names.items()
        }
        traced, trace = recorded(self.model, args, kwargs, self.paths, free)
        _check_effects(traced, self.store.names)
        self.decided = traced.numbers
        self.place = trace.place or None
        return Lifted(traced, trace, self.paths, self.store)

    def _signature(self, main: Lifted) -> Signature:
        arguments = arguments_json(self.structure, self.leaves, self.paths, self.shapes.names)
        return Signature(
            tuple(self.positional), tuple(self.kwargs), arguments, main.results, (),
            self.shapes.ranges, main.writes, self.shapes.narrowed,
        )


def _same(program: Lifted, one: Lifted, dims: Mapping[str, int]) -> bool:
    first, second = (
        ones.Computed(each.graph, each.inputs, each.results) for each in (program, one)
    )
    return ones.same(first, second, dims)


def _finished(lifted: Lifted, signature: Signature) -> tuple[Graph, Signature]:
    graph, inputs = lifted.finished()
    return graph, replaced(signature, inputs=inputs)


def _inferred(graph: Graph, shapes: DynamicShapes) -> bool:
    """Let unnamed sizes be what the model says: fixed, or equal to another. True where that
    changes them."""
    for guard in graph.env.guards:
        if guard.relation != "eq" or not guard.holds:
            continue
        for left, right in ((guard.left, guard.right), (guard.right, guard.left)):
            name = str(left)
            if name not in shapes.unnamed:
                continue
            if isinstance(right, int) and shapes.unnamed[name] == "AUTO":
                shapes.dropped(name)
                return True
            if isinstance(right, Dim) and is_variable(right) and str(right) != name:
                shapes.joined(name, str(right))
                return True
    return False


def argument_names(
    model: Callable[..., Any], count: int, kwargs: Mapping[str, Any]
) -> list[str]:
    """The names of the positional arguments; made up where the function does not say."""
    function = model.forward if isinstance(model, Module) else model
    names: list[str] = []
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    for parameter in parameters:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
        elif parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}_{i}" for i in range(count - len(names))]
    taken = set(names) | set(kwargs)
    while len(names) < count:
        number = len(names)
        names.append(f"arg{number}" if f"arg{number}" not in taken else f"arg{number}_")
    return names[:count]


def leaf_paths(structure: Any, positional: list[str]) -> list[str]:
    """A name for each leaf of the arguments, in order."""
    args, kwargs = structure.children
    found: list[str] = []
    for name, child in zip((*positional, *kwargs.keys), (*args.children, *kwargs.children),
                           strict=True):
        found += containers.paths(child, name)
    return found


def check_apart(leaves: list[Any]) -> None:
    """Tensors given twice would be one input of the graph, and two at a later call."""
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    for i, tensor in enumerate(tensors):
        for other in tensors[:i]:
            if may_share(tensor._graphc_array, other._graphc_array):
                raise ExportError(
                    "two example arguments share memory, which later calls need not do. Cure: "
                    "clone() one of them"
                )


def _check_effects(traced: TracedGraph, names: dict[int, str]) -> None:
    """Raise ExportError for what the model changed besides its own tensors and the generator."""
    for mutation in traced.mutations:
        source = traced.inputs[mutation.input]
        assert isinstance(source, TensorInput)
        if source.kind == "tensor" and id(source.tensor) in names:
            continue
        what, cure = f"a tensor outside itself ({source.type})", "make it a buffer of the model"
        if source.index >= 0:
            what = f"its argument number {source.index}"
            cure = "clone() the argument before it is written to"
        raise ExportError(
            f"the model writes to {what}, which an exported program cannot do. Cure: {cure}"
        )
    for kind, changed in (("`.data`", traced.rebinds), ("`.grad`", traced.grads),
                          ("`.requires_grad`", traced.flags)):
        if changed:
            tensor: Any = changed[0]
            name = names.get(id(tensor.tensor), "a tensor")
            raise ExportError(
                f"the model sets {kind} of {name}, which an exported program cannot do. Cure: "
                "export the part that only computes results"
            )
    for source in traced.inputs:
        if source.number >= 0 and getattr(source, "kind", "") == "grad":
            raise ExportError("the model reads `.grad`, which an exported program does not have")
        if getattr(source, "kind", "") == "storage" and getattr(source, "index", -1) >= 0:
            raise ExportError(
                "an example argument shares memory with a parameter. Cure: clone() the argument"
            )


def check_free(graph: Graph, shapes: DynamicShapes) -> None:
    """Raise ExportError where the model fixed a size that was to be free."""
    for guard in graph.env.guards:
        pairs = ((guard.left, guard.right), (guard.right, guard.left))
        for size, other in pairs:
            if guard.relation == "eq" and guard.holds and isinstance(other, int) and (
                isinstance(size, Dim) and follows(size)
            ):
                for name in sorted(size.variables() & set(shapes.ranges)):
                    whole = "" if str(size) == name else f", as {size} is fixed"
                    raise ExportError(
                        f"the model fixes the free size {name!r} to {other}{whole} (it used the "
                        "size as a number, or gave it a fixed partner). Cure: drop "
                        f"{name!r} from dynamic_shapes, or compute with x.shape instead of "
                        "int(x.shape[...])"
                    )
