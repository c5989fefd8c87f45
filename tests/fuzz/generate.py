"""From a seed to a Case: traits, operators, outputs, gradients, written-back inputs; or a loop, as
recording leaves it, step by step."""

from __future__ import annotations

import random

from graphc.doubt.case import Case, Style
from graphc.ir.autodiff import joint_graph
from graphc.ir.dim import Dim
from graphc.ir.graph import Graph
from graphc.ir.op import REGISTRY, OpError
from tests.fuzz import (  # noqa: F401  (they fill RECIPES)
    recipes_boxes,
    recipes_model,
    recipes_routine,
    recipes_sparse,
)
from tests.fuzz.maker import Maker, Refused, Traits
from tests.fuzz.recipes import RECIPES
from tests.ir.unrolled_graphs import Unrolled

MOST_NODES = 30
_UNROLLED = 0.02  # of the cases; they are long
MOST_DIFFERENTIATED = 14  # the joint graph is two to five times as large
_HELPERS = ("full", "iota", "const", "where", "lt", "index", "rng_uniform")  # among gradients

# operators that may raise at run time
_FALLIBLE = (
    "index", "index_put", "gather", "scatter", "cross_entropy", "nll_loss", "max_pool_grad",
    "sparse_product", "sparse_sampled",
    *(op.name for op in REGISTRY.values() if op.divides),
)

_FAMILIES: dict[str, list[str]] = {}
for _name in RECIPES:
    _FAMILIES.setdefault(REGISTRY[_name].family, []).append(_name)


def is_unrolled(seed: int) -> bool:
    """Whether the case of a seed is the steps of a loop, more nodes than any other."""
    return random.Random(f"{seed} unrolled").random() < _UNROLLED


def generate(seed: int) -> Case:
    """The case of a seed: the same in every process."""
    if is_unrolled(seed):
        graph = Unrolled(seed, (32, 40)).graph()
        return Case(seed, graph, {node: Style(low=-1.0, high=1.0) for node in graph.inputs})
    for attempt in range(50):
        try:
            return _generate(seed, random.Random(f"{seed} {attempt}"))
        except Refused:
            continue
    raise AssertionError(f"seed {seed} gives no graph")


def traits_of(rng: random.Random) -> Traits:
    """What kind of graph comes next."""
    gradient = rng.random() < 0.3
    return Traits(
        symbolic=rng.random() < 0.25,
        gradient=gradient,
        special=not gradient and rng.random() < 0.15,
        failing=not gradient and rng.random() < 0.12,
        big=rng.random() < 0.12,
        empty=rng.random() < 0.04,
    )


def _generate(seed: int, rng: random.Random) -> Case:
    traits = traits_of(rng)
    maker = Maker(seed, traits)
    most = MOST_DIFFERENTIATED if traits.gradient else MOST_NODES
    _grow(maker, rng, rng.choice((rng.randint(1, 6), rng.randint(2, most), rng.randint(2, most))))
    if not traits.gradient and maker.chance(0.15):
        maker.update()
    outputs = maker.outputs()
    while _size(graph := _graph(maker, outputs)) > most and len(outputs) > 1:
        outputs.pop()
    if _size(graph) > most:
        raise Refused
    forward = None
    if traits.gradient:
        forward = graph
        graph = _differentiate(maker, graph)
    case = Case(seed, graph, dict(maker.styles), maker.write_back(graph), forward)
    return case


def _size(graph: Graph) -> int:
    return sum(n.op.name not in ("input", "get") for n in graph.nodes)


def _graph(maker: Maker, outputs: list) -> Graph:
    """A graph of what the outputs need, and its inputs numbered from 0."""
    return renumbered(Graph("fuzz", tuple(maker.builder.inputs), tuple(outputs), maker.builder.env),
                      maker.styles)


def renumbered(graph: Graph, styles: dict) -> Graph:
    """The graph without the inputs that nothing reads (some are kept: users pass such too)."""
    from graphc.doubt.rebuild import rebuild

    read = {x for n in graph.nodes for x in n.inputs} | set(graph.outputs)
    keep = [n for i, n in enumerate(graph.inputs) if n in read or i == 0]
    for name in graph.env.hints:  # a named dim is the size of some input, read or not
        source = next(n for n in graph.inputs if Dim.var(name) in n.shape)
        if source not in keep:
            keep.append(source)
    new, table = rebuild(graph, keep)
    for old in keep:
        styles[table[old]] = styles[old]
    return new


def _differentiate(maker: Maker, graph: Graph) -> Graph:
    try:
        joint = joint_graph(graph)
    except OpError as error:
        if "not differentiable" not in str(error) and "nll_loss_forward" not in str(error):
            raise
        raise Refused from None
    for node in joint.inputs[len(graph.inputs):]:
        maker.styles[node] = Style()
    return joint


def _grow(maker: Maker, rng: random.Random, count: int) -> None:
    made, tries = 0, 0
    while made < count and tries < 8 * count + 20:
        tries += 1
        try:
            value = RECIPES[_choose(maker, rng)](maker)
        except (Refused, OpError):
            continue
        made += maker.add(value)


def _choose(maker: Maker, rng: random.Random) -> str:
    """An operator, half of the time after its family, so that few unary ones do not drown all."""
    while True:
        if maker.traits.failing and rng.random() < 0.4:
            name = rng.choice(_FALLIBLE)
        elif rng.random() < 0.5:
            name = rng.choice(list(RECIPES))
        else:
            name = rng.choice(_FAMILIES[rng.choice(list(_FAMILIES))])
        if not maker.traits.gradient or REGISTRY[name].vjp is not None or name in _HELPERS:
            return name
