"""An exported model: its graphs, its weights, and what it takes and gives."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, BinaryIO

import numpy as np

from graphc import config
from graphc.backends import DEFAULT
from graphc.engine import pipeline
from graphc.engine.built import Engine, Engines
from graphc.engine.devices import backend_at
from graphc.export import archive, containers, decompositions, limits
from graphc.export.contents import Contents, Variant
from graphc.export.dynamic_shapes import Range
from graphc.export.graph_signature import ExportGraphSignature, described
from graphc.export.limits import DEFAULT as DEFAULT_LIMITS
from graphc.export.limits import Limits
from graphc.export.module import ExportedModule
from graphc.export.signature import Signature, Weights, outside_graphs, refuse
from graphc.frontend.grad_mode import no_grad
from graphc.frontend.placement import Place, one_place
from graphc.frontend.random_state import generator_at
from graphc.frontend.tensor import Tensor, from_array
from graphc.ir import dim, forks
from graphc.ir.graph import Graph
from graphc.ir.late import late
from graphc.ir.memory import on_host
from graphc.ir.record import replaced
from graphc.ir.verify import verify

_specialise = late("graphc.ir.passes.specialise")  # a pass, which most programs run without
_graph_module = late("graphc.export.graph_module")  # to be looked at
_making = late("graphc.export.native.making")


class ExportedProgram:
    """A recorded model. Calls run compiled code, made at the first one; there is no autograd.

    `graph` takes the weights and the arguments, in the order of `signature.inputs`; it is for free
    sizes of 2 and more. `variants` are all graphs, with those for sizes of 1 at which the model
    computes something else. `state_dict` holds parameters and buffers by the model's names,
    `constants` the other tensors that the model read. All of them lie on `place` (None: on the
    CPU, as those of a file do).
    """

    _report: Any  # of draft_export(), which alone sets it

    def __init__(
        self, contents: Contents, place: Place | None = None, bounds: Limits = DEFAULT_LIMITS
    ) -> None:
        weights = contents.weights
        self.contents = contents
        self.variants = contents.variants
        self.graph: Graph = contents.main.graph
        self.signature: Signature = contents.main.signature
        self.tied = weights.tied
        tensors = {
            name: from_array(array if place is None else place.put(array))
            for name, array in weights.arrays.items()
        }
        self._weights = tensors
        self.state_dict: OrderedDict[str, Tensor] = OrderedDict(
            (name, tensors[weights.tied.get(name, name)]) for name in weights.state
        )
        self.constants = {k: v for k, v in tensors.items() if k not in self.state_dict}
        self._place, self._bounds = place, bounds
        self._allowed = limits.Allowed(bounds)
        self._versions = {name: tensor._graphc_storage.version for name, tensor in tensors.items()}
        self._by_ones = {variant.ones: variant for variant in contents.variants}
        # by backend and the free dims of size 1
        self._engines: dict[tuple[str, frozenset[str]], Engines] = {}
        self._lock = forks.lock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The model's results. Raises TypeError or ValueError for arguments unlike the example."""
        return self.live(self._weights, args, kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> ExportedProgram:
        """One with a state of its own."""
        graphs = [variant.graph for variant in self.variants]
        return ExportedProgram(self._contents(graphs), self._place, self._bounds)

    def __repr__(self) -> str:
        return f"ExportedProgram({', '.join(self.signature.leaf_paths())}):\n{self.graph}"

    # --- torch's names -------------------------------------------------------------------------

    @property
    def graph_signature(self) -> ExportGraphSignature:
        """What each input and output of the graph is to the model, in torch.export's words."""
        return described(self.contents.main, self.contents.weights)

    @property
    def graph_module(self) -> Any:
        """The main graph as a torch.fx GraphModule, whose functions are the IR's operators."""
        found: Any = _graph_module.graph_module(self.contents.main, self.contents.weights)
        return found

    @property
    def range_constraints(self) -> dict[str, Range]:
        """The sizes that each free dim may have."""
        return dict(self.signature.ranges)

    @property
    def example_inputs(self) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """(args, kwargs) of the recorded call; None where it was too large to be kept."""
        if not self.contents.goldens:
            return None
        arrays = self.contents.goldens[0].inputs
        numbered = iter(range(len(self.signature.specs())))

        def leaf(spec: Any) -> Any:
            number = next(numbered)
            return spec["value"] if "value" in spec else from_array(arrays[number].copy())

        args, kwargs = containers.build(self.signature.arguments, leaf)
        return args, kwargs

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """(name, parameter) of those that the model had."""
        for name in self.contents.weights.parameters:
            yield name, self.state_dict[name]

    def parameters(self) -> Iterator[Tensor]:
        """The parameters."""
        for _, tensor in self.named_parameters():
            yield tensor

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """(name, buffer) of those that the model had, as far as the file keeps them."""
        weights = self.contents.weights
        for name in weights.state:
            if name not in weights.parameters and name not in weights.tied:
                yield name, self.state_dict[name]
        for name in weights.buffers:
            yield name, self.constants[name]

    def buffers(self) -> Iterator[Tensor]:
        """The buffers."""
        for _, tensor in self.named_buffers():
            yield tensor

    def module(self, check_guards: bool = True) -> ExportedModule:
        """A Module with this state and this forward; load_state_dict changes what it computes.
        Guards are checked whatever `check_guards` says."""
        return ExportedModule(self)

    def run_decompositions(self, decomp_table: Mapping[str, Any] | None = None) -> ExportedProgram:
        """The program with composite operators in primitives: all of them, or those that
        `decomp_table` names, which is default_decompositions() with entries left out."""
        graphs = [decompositions.run(v.graph, decomp_table) for v in self.variants]
        return ExportedProgram(self._contents(graphs), self._place, self._bounds)

    def validate(self) -> None:
        """Raise VerifyError unless the graphs are well formed."""
        for variant in self.variants:
            verify(variant.graph)

    def save(
        self, path: str | PathLike[str] | BinaryIO, *, native: bool = False,
        targets: Sequence[str] = (), sizes: Mapping[str, int | tuple[int, int]] | None = None,
        freeze: bool = True, extra_files: Mapping[str, str] | None = None,
    ) -> dict[str, str]:
        """Write a .gcx file, whole or not at all (one that is open: as far as it goes).

        `native`: with machine code, which load(path, native=True, trust=...) runs without a
        compiler: for this machine, or for the kinds of CPU that `targets` names, as aot() has them;
        `sizes` and `freeze` are aot's, too. Weights are in it a second time. `extra_files` are
        texts by name, which load(path, extra_files=...) gives back. Returns the SHA-256 of the code
        for each kind of machine ("x86_64-linux"): what `trust` has to be. Raises what aot() raises;
        then nothing is written.
        """
        contents = self._contents([variant.graph for variant in self.variants])
        if extra_files is not None:
            contents = replaced(contents, extra=dict(extra_files))
        if native or targets:
            code = _making.native_code(self, targets or ("native",), sizes, freeze)
            contents = replaced(contents, native=code)
        archive.write(path, contents)
        return {each.target: each.sha256 for each in contents.native}

    def _contents(self, graphs: Sequence[Graph]) -> Contents:
        """What a file holds of the program as it is now."""
        old = self.contents
        arrays = {
            name: np.array(on_host(t._graphc_array), order="C") for name, t in self._weights.items()
        }
        # recorded calls are those of the state that was recorded
        changed = any(
            t._graphc_storage.version != self._versions[n] for n, t in self._weights.items()
        )
        was = old.weights
        weights = Weights(arrays, was.state, was.tied, was.parameters, was.buffers, was.kinds)
        variants = tuple(
            Variant(variant.ones, graph, variant.signature)
            for variant, graph in zip(old.variants, graphs, strict=True)
        )
        return Contents(
            variants, weights, () if changed else old.goldens, old.checked, old.kind, old.numbers,
            old.generator, (), old.writer, old.step, old.extra,
        )

    # --- code ----------------------------------------------------------------------------------

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """The pipeline's Built, compiled now if it is not yet; the arguments do not matter."""
        return self._engine(self._place, self.graph.env.hints).built

    def variant_at(self, dims: Mapping[str, int]) -> Variant:
        """The graph that stands for these sizes."""
        ones = frozenset(each for each, size in dims.items() if size == 1)
        return self._by_ones.get(ones, self.contents.main)

    def _engine(self, place: Place | None, dims: Mapping[str, int]) -> Engine:
        """Code for these sizes: for all but 1, and of its own for each set of dims that are 1."""
        name, settings = backend_at(place, DEFAULT), config.current()
        if self.contents.generator is not None:
            drawn = self.contents.generator["algorithm"]
            settings = settings._replace(random="counter" if drawn == "counter" else "torch")
        ones = frozenset(each for each, size in dims.items() if size == 1)
        with self._lock:
            engines = self._engines.get((name, ones))
            if engines is None:
                variant = self.variant_at(dims)
                graph = variant.graph
                if ones - variant.ones:
                    graph = _specialise.at_sizes(graph, dict.fromkeys(ones, 1))
                engines = self._engines[name, ones] = Engines(graph, lambda graph: Engine.of(
                    pipeline.build(graph, config=settings, name=graph.name, backend=name)
                ))
            return engines.at(dims)

    # --- a call --------------------------------------------------------------------------------

    def live(
        self, weights: Mapping[str, Tensor], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """A call with these weights; it draws from the process's own stream, as in eager mode."""
        generator = self.contents.generator
        if generator is None:
            return self._run(weights, args, kwargs)
        owner = generator_at(self._place)
        with owner.turn:
            return self._run({**weights, generator["weight"]: owner.state}, args, kwargs)

    @outside_graphs
    def _run(
        self, weights: Mapping[str, Tensor], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        leaves = self.signature.leaves(args, kwargs)
        refuse(leaves)
        dims = self.signature.bind(leaves)
        variant = self.variant_at(dims)
        if dims:
            self._allowed.check(variant, dims)
        signature = variant.signature
        tensors = list(self._inputs(signature, weights, leaves))
        engine = self._engine(one_place(tensors), dims)
        _, outputs = engine.call([tensor._graphc_array for tensor in tensors], dims)
        results = [from_array(array) for array in outputs]
        if signature.writes:
            self._write(signature, results, weights, leaves)
        return self._results(signature, results, leaves, weights, dims)

    def of_arrays(self, leaves: Sequence[Any], dims: Mapping[str, int]) -> list[Any]:
        """The leaves of the results for those of the arguments, as arrays: a call without what
        Tensors and containers cost, where types and sizes are known to be the signature's. Not for
        a program that draws or writes."""
        variant = self.variant_at(dims)
        if dims:
            self._allowed.check(variant, dims)
        weights, signature = self._weights, variant.signature
        arrays = [
            leaves[which] if kind == "argument" else weights[which]._graphc_array
            for kind, which in signature.flat_inputs
        ]
        _, outputs = self._engine(self._place, dims).call(arrays, dims)
        found: list[Any] = []
        for kind, which in signature.flat_results:
            if kind == "output":
                found.append(outputs[which])
            elif kind == "argument":
                found.append(leaves[which])
            elif kind == "weight":
                found.append(weights[which]._graphc_array)
            else:
                found.append(dim.evaluate(dim.parse(which), dims) if kind == "size" else which)
        return found

    def _inputs(
        self, signature: Signature, weights: Mapping[str, Tensor], leaves: Sequence[Any]
    ) -> Iterator[Tensor]:
        for source in signature.inputs:
            ((kind, value),) = source.items()
            yield leaves[value] if kind == "argument" else weights[value]

    def _write(
        self, signature: Signature, results: Sequence[Tensor], weights: Mapping[str, Tensor],
        leaves: Sequence[Any],
    ) -> None:
        with no_grad():
            for write in signature.writes:
                target = weights[write["weight"]] if "weight" in write else (
                    leaves[write["argument"]]
                )
                target.copy_(results[write["output"]])

    def _results(
        self, signature: Signature, outputs: Sequence[Tensor], leaves: Sequence[Any],
        weights: Mapping[str, Tensor], dims: Mapping[str, int],
    ) -> Any:
        def leaf(spec: Any) -> Any:
            ((kind, value),) = spec.items()
            if kind == "output":
                return outputs[value]
            if kind == "argument":
                return leaves[value]
            if kind == "weight":
                return weights[value]
            return dim.evaluate(dim.parse(value), dims) if kind == "size" else value

        return containers.build(signature.results, leaf)
