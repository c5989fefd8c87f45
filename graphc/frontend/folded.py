"""Tape nodes that stand for many operations, and how they give way to those.

What a compiled call leaves on the tape is one node from its results to its inputs. A gradient
passes through it unseen: where one result was computed from another, nobody can hook that one's
gradient or ask for it; and the gradients have no history of their own. Where a pass needs either,
the node is unfolded: the nodes that eager mode would have made take its place (recorded_tape.py),
and all that is said of eager mode holds.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any

from .errors import located
from .nodes import Edge, Node, World


class FoldedNode(Node):
    """Many operations as one node."""

    folded = True
    # results through which gradients of its other results flow
    inner: frozenset[int] = frozenset()
    labels: tuple[str, ...]  # of the operation that made each result
    stands_for: tuple[Edge, ...] | None = None  # what made each result, once unfolded

    @property
    def used(self) -> bool:
        """Whether a pass has used up some of it."""
        return False

    def exhausted(self, given: Sequence[int], needs: Sequence[bool]) -> bool:
        """Whether a pass that brings gradients of the results `given` would miss what an earlier
        one has used up."""
        return False

    def lay_out(self) -> tuple[Edge, ...] | None:
        """Make the nodes of its operations, and forget what was saved for it. None: it cannot."""
        raise NotImplementedError

    def within(self, output: int, number: int) -> bool:
        """`leads()` while it is folded."""
        raise NotImplementedError

    def leads(self, output: int, number: int) -> bool:
        """Whether the gradient of a result becomes part of what goes to an edge."""
        return output == number if self.stands_for is not None else self.within(output, number)

    def run(self, grads: list[Any], needs: Sequence[bool], world: World) -> Sequence[Any]:
        """`gradients()` while it is folded."""
        raise NotImplementedError

    def label(self, output: int) -> str:
        return self.labels[output]

    def place(self, output: int) -> Edge:
        return (self, output) if self.stands_for is None else self.stands_for[output]

    def gradients(self, grads: list[Any], needs: Sequence[bool], world: World) -> Sequence[Any]:
        return self.run(grads, needs, world) if self.stands_for is None else list(grads)

    def unfold(self) -> None:
        """Put the nodes of its operations in its place, if that can be done."""
        if self.stands_for is not None:
            return
        made = self.lay_out()
        if made is None:
            return
        self.stands_for = self.edges = made
        for output, hooks in (self.tensor_hooks or {}).items():
            node, result = made[output]
            node.tensor_hooks = {**(node.tensor_hooks or {}), result: hooks}
        for output, tensor in (self.retained or {}).items():
            node, result = made[output]
            node.retained = {**(node.retained or {}), result: tensor}
        self.tensor_hooks = self.retained = None

    def asked(self, places: Container[Edge]) -> bool:
        """Whether a gradient that passes inside is hooked, retained, or among `places`."""
        return self.stands_for is None and any(
            output in (self.tensor_hooks or ()) or output in (self.retained or ())
            or (self, output) in places
            for output in self.inner
        )


def unfold(order: Iterable[Node], places: Container[Edge], always: bool) -> bool:
    """Unfold what a pass over `order` cannot go through as it is: what is hooked, retained or
    asked for in `places` inside of it, or `always`. Says whether anything changed."""
    changed = False
    for node in order:
        if not isinstance(node, FoldedNode) or node.stands_for is not None:
            continue
        asked = node.asked(places)
        if asked or always:
            node.unfold()
            changed |= node.stands_for is not None
        if asked and node.stands_for is None:
            raise RuntimeError(located(
                "the gradient of an inner value of a compiled function is asked for, after other "
                "values were computed from it there. Cure: retain_grad() or register_hook() right "
                "where it is computed, or call the function uncompiled"
            ))
    return changed
