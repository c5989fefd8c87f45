"""vmap: a function of one sample is traced once, and its graph run on the whole batch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from graphc.ir import batching_control as batching_control
from graphc.ir import batching_rules as batching_rules
from graphc.ir import ops
from graphc.ir.batching import Batch, BatchValue, move_dim, run_graph
from graphc.ir.graph import Node
from graphc.ir.op import OpError

from .context import callout, local
from .dispatch import constant, inplace
from .errors import TraceError, located
from .numbers import is_traced_number
from .subtrace import SubTrace
from .tensor import Tensor
from .tree import Structure, flatten, unflatten
from .worlds import TensorValue

_RANDOMNESS = ("error", "different", "same")


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """torch.vmap: `func` over a dimension of its arguments, all samples at once.

    `in_dims`: which dimension of each argument (None: not mapped), nested like the arguments;
    `out_dims` likewise for the results. `randomness`: "error", "different" or "same" draws for
    the samples. Raises ValueError for dims that do not fit the arguments.
    """
    if randomness not in _RANDOMNESS:
        raise RuntimeError(
            "Only allowed values for randomness are 'error', 'different', or 'same'. "
            f"Got {randomness}"
        )
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError(
            f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})"
        )

    @functools.wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        name = getattr(func, "__name__", repr(func))
        call = _Call(func, name, out_dims, randomness)
        leaves, structure, dims = _input_dims(name, in_dims, args)
        size = _batch_size(name, leaves, dims)
        if chunk_size is None or not isinstance(size, int) or size <= chunk_size:
            return call.run(leaves, structure, dims, size, kwargs)
        return _chunks(call, leaves, structure, dims, size, kwargs, chunk_size)

    return mapped


class _Call:
    """One function with its way of mapping."""

    def __init__(
        self, func: Callable[..., Any], name: str, out_dims: Any, randomness: str
    ) -> None:
        self.func, self.name, self.out_dims, self.randomness = func, name, out_dims, randomness

    def run(
        self, leaves: list[Any], structure: Structure, dims: list[int | None], size: Any,
        kwargs: dict[str, Any],
    ) -> Any:
        """Trace one sample, then run the graph on the batch."""
        batched = [leaf for leaf, dim in zip(leaves, dims, strict=True) if dim is not None]
        with _Samples(f"vmap({self.name})", batched) as trace:
            mapped: list[tuple[Tensor, int, Tensor]] = []
            given: list[Any] = list(leaves)
            for i, (leaf, dim) in enumerate(zip(leaves, dims, strict=True)):
                if dim is not None:
                    with trace.enclosing():
                        type_ = leaf._graphc_type
                    shape = (*type_.shape[:dim], *type_.shape[dim + 1 :])
                    given[i] = trace.own_input(type_.with_shape(shape), f"sample{i}")
                    mapped.append((leaf, dim, given[i]))
            heads = [t._graphc_traced.value for _, _, t in mapped]
            args = unflatten(given, structure)
            result = callout(self.func)(*args, **kwargs)
            results, out_structure = flatten(result)
            out_dims = self._output_dims(results, out_structure)
            outputs = [trace.read(_traced(trace, self.name, r)) for r in results]
            written = trace.writes()
            changed = [
                (leaf, dim, t._graphc_storage.root.node)
                for (leaf, dim, t), head in zip(mapped, heads, strict=True)
                if t._graphc_storage.root.node is not head
            ]
        trace.close()
        wanted = [*outputs, *(n for _, n in written), *(n for _, _, n in changed)]
        values = self._evaluate(trace, mapped, wanted, size)
        count = len(outputs)
        for (tensor, _), value in zip(written, values[count:], strict=False):
            self._write_outside(tensor, value)
        for (leaf, dim, _), value in zip(changed, values[count + len(written) :], strict=True):
            full = TensorValue(value.batch.full(value).tensor)
            inplace(leaf, move_dim(full, 0, dim).tensor)
        own = trace.own(outputs, heads)
        found = [
            self._place(value, dim, each)
            for value, dim, each in zip(values[:count], out_dims, own, strict=True)
        ]
        return unflatten(found, out_structure)

    def _evaluate(
        self, trace: SubTrace, mapped: list[tuple[Tensor, int, Tensor]], wanted: list[Node],
        size: Any,
    ) -> list[BatchValue]:
        graph = trace.graph(wanted)
        batch = Batch(size, TensorValue(constant(0.0)), self.randomness)
        own = {node: n for n, node in enumerate(graph.inputs)}
        inputs: list[Any] = [None] * len(graph.inputs)
        for (leaf, dim, _), node in zip(mapped, graph.inputs, strict=False):
            inputs[own[node]] = batch.value(move_dim(TensorValue(leaf), dim, 0), True)
        for tensor, node, _ in trace.captured:
            inputs[own[node]] = batch.value(TensorValue(tensor), False)
        like = batch.value(batch.like, False)
        try:
            return run_graph(graph, inputs, like)
        except OpError as error:
            raise error.kind(located(str(error))) from None

    def _write_outside(self, tensor: Tensor, value: BatchValue) -> None:
        if value.batched:
            raise RuntimeError(located(
                f"vmap: inplace arithmetic on a tensor of shape {list(tensor.shape)} that is not "
                "mapped over is not possible with values that are: they have more elements. "
                "Cure: use the out-of-place operator"
            ))
        inplace(tensor, value.value.tensor)

    def _place(self, value: BatchValue, dim: int | None, own: bool) -> Tensor:
        if dim is None:
            if value.batched:
                raise ValueError(
                    f"vmap({self.name}, ...): `{self.name}` can not return a BatchedTensor when "
                    "out_dim is None"
                )
            plain: Tensor = value.value.tensor
            return plain
        rank = value.type.rank + 1
        if not -rank <= dim < rank:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], "
                f"but got {dim})"
            )
        full = value.batch.full(value)
        if own and not value.batched:
            full = TensorValue(full.tensor.contiguous())
        placed: Tensor = move_dim(full, 0, dim % rank).tensor
        return placed

    def _output_dims(self, results: list[Any], structure: Structure) -> list[int | None]:
        if isinstance(self.out_dims, int) or self.out_dims is None:
            return [self.out_dims] * len(results)
        given = self.out_dims
        result = unflatten(results, structure)
        single = isinstance(result, Tensor)
        if single and isinstance(given, tuple) and len(given) == 1:
            given = given[0]
        found = _broadcast(given, result)
        if found is None:
            raise ValueError(
                f"vmap({self.name}, ..., out_dims={self.out_dims})(<inputs>): out_dims is not "
                f"compatible with the structure of the outputs (type {type(result).__name__})."
            )
        return found


class _Samples(SubTrace):
    """A trace of one sample."""

    def __init__(self, name: str, given: Sequence[Tensor]) -> None:
        super().__init__(name, given)
        self._beside: list[tuple[Node, Node]] = []

    def refuse(self, what: str, cure: str) -> NoReturn:
        """Say what the samples have no one value for, as torch does; it is a RuntimeError."""
        doing = (
            "calling .item() on a Tensor. We don't support vmap over calling .item() on a Tensor, "
            "please try to rewrite what you're doing with other operations" if what == "item()"
            else f"attempting to use a Tensor in some data-dependent control flow ({what}). We "
            "don't support that"
        )
        self.refused = TraceError(located(f"vmap: It looks like you're {doing}. Cure: {cure}"))
        raise self.refused

    def made_like_sample(self, input: Tensor, made: Tensor) -> None:
        """`made` does not depend on the values of `input`, but is like it: of each sample if
        `input` is."""
        if input._graphc_trace is self and made._graphc_trace is self:
            self._beside.append((self.read(input), self.read(made)))

    def own(self, outputs: Sequence[Node], mapped: Sequence[Node]) -> list[bool]:
        """Which outputs have memory of each sample, even if all samples are equal."""
        if not self._beside:
            return [False] * len(outputs)
        of_samples: set[Node] = set(mapped)
        # what is like a sample's may itself be what something else is like
        for input, made in self._beside:
            if _reaches(input, of_samples):
                of_samples.add(made)
        return [_reaches(output, of_samples) for output in outputs]


def _reaches(node: Node, found: set[Node]) -> bool:
    """Whether it is computed from any of these."""
    seen, ahead = {node}, [node]
    while ahead:
        each = ahead.pop()
        if each in found:
            return True
        more = [operand for operand in each.inputs if operand not in seen]
        seen.update(more)
        ahead += more
    return False


def _traced(trace: SubTrace, name: str, value: Any) -> Tensor:
    if is_traced_number(value) or not isinstance(value, Tensor):
        raise ValueError(
            f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(value)}. "
            f"Did you mean to set out_dims= to None for output?"
        )
    return value if value._graphc_trace is trace else trace.shadow(value)


def _broadcast(prefix: Any, value: Any) -> list[Any] | None:
    """A prefix of a structure spread over its leaves; None where it does not fit."""
    if prefix is None or isinstance(prefix, int):
        return [prefix] * len(flatten(value)[0])
    spread: list[Any] = []
    if isinstance(prefix, dict):
        if not isinstance(value, dict) or set(prefix) != set(value):
            return None
        pairs = [(prefix[key], part) for key, part in value.items()]
    elif isinstance(prefix, (list, tuple)):
        if not isinstance(value, (list, tuple)) or len(prefix) != len(value):
            return None
        pairs = list(zip(prefix, value, strict=True))
    else:
        return None
    for part, sub in pairs:
        inner = _broadcast(part, sub)
        if inner is None:
            return None
        spread.extend(inner)
    return spread


def _input_dims(
    name: str, in_dims: Any, args: tuple[Any, ...]
) -> tuple[list[Any], Structure, list[int | None]]:
    if not isinstance(in_dims, (int, tuple, list)):
        raise ValueError(
            f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): expected `in_dims` to be int or a "
            f"(potentially nested) tuple matching the structure of inputs, got: {type(in_dims)}."
        )
    if not args:
        raise ValueError(
            f"vmap({name})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are "
            f"trying to vmap over a function with no inputs. The latter is unsupported."
        )
    leaves, structure = flatten(args)
    spread = _broadcast(tuple(in_dims) if isinstance(in_dims, list) else in_dims, args)
    if spread is None:
        raise ValueError(
            f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): in_dims is not compatible with the "
            f"structure of inputs."
        )
    dims: list[int | None] = []
    for leaf, dim in zip(leaves, spread, strict=True):
        if dim is None:
            dims.append(None)
            continue
        if not isinstance(leaf, Tensor):
            raise ValueError(
                f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): Got in_dim={dim} for an input "
                f"but the input is of type {type(leaf)}. We cannot vmap over non-Tensor "
                f"arguments, please use None as the respective in_dim"
            )
        rank = leaf.ndim
        if not -rank <= dim < rank:
            raise ValueError(
                f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): Got in_dim={dim} for some input, "
                f"but that input is a Tensor of dimensionality {rank} so expected in_dim to "
                f"satisfy -{rank} <= in_dim < {rank}."
            )
        dims.append(dim % rank)
    return leaves, structure, dims


def _batch_size(name: str, leaves: list[Any], dims: Sequence[int | None]) -> Any:
    sizes = [
        leaf._graphc_type.shape[dim]
        for leaf, dim in zip(leaves, dims, strict=True)
        if dim is not None
    ]
    if not sizes:
        raise ValueError(
            f"vmap({name}, ...)(<inputs>): at least one input must be a Tensor that is mapped over "
            "(every in_dim is None)"
        )
    env = None if local.trace is None else local.trace.env
    for size in sizes[1:]:
        if size != sizes[0] and not (env is not None and env.equal(size, sizes[0])):
            raise ValueError(
                f"vmap: Expected all tensors to have the same size in the mapped dimension, got "
                f"sizes {sizes} for the mapped dimension"
            )
    return next((s for s in sizes if isinstance(s, int)), sizes[0])


def _chunks(
    call: _Call, leaves: list[Any], structure: Structure, dims: list[int | None], size: int,
    kwargs: dict[str, Any], chunk_size: int,
) -> Any:
    """The batch in pieces, the results joined along their out_dims."""
    pieces: list[list[Any]] = []
    out_structure: Any = None
    for start in range(0, size, chunk_size):
        stop = min(start + chunk_size, size)
        part = [
            leaf if dim is None else leaf.narrow(dim, start, stop - start)
            for leaf, dim in zip(leaves, dims, strict=True)
        ]
        result = call.run(part, structure, dims, stop - start, kwargs)
        found, out_structure = flatten(result)
        pieces.append(found)
    out_dims = call._output_dims(pieces[0], out_structure)
    joined: list[Any] = []
    for dim, column in zip(out_dims, zip(*pieces, strict=True), strict=True):
        if dim is None:
            joined.append(column[0])
            continue
        values = [TensorValue(x) for x in column]
        joined.append(ops.concat(*values, dim=dim % values[0].type.rank).tensor)
    return unflatten(joined, out_structure)
