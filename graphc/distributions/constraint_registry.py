"""biject_to and transform_to: from unconstrained numbers to those that satisfy a constraint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import constraints, transforms

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]

Factory = Callable[[Any], transforms.Transform]


class ConstraintRegistry:
    """Factories of transforms by the class of a constraint."""

    def __init__(self) -> None:
        self._registry: dict[type, Factory] = {}

    def register(self, constraint: Any, factory: Factory | None = None) -> Any:
        """Add a factory; also a decorator."""
        if factory is None:
            return lambda made: self.register(constraint, made)
        kind = type(constraint) if isinstance(constraint, constraints.Constraint) else constraint
        if not isinstance(kind, type) or not issubclass(kind, constraints.Constraint):
            raise TypeError(
                "Expected constraint to be either a Constraint subclass or instance, but got "
                f"{kind}"
            )
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint: Any) -> transforms.Transform:
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise NotImplementedError(
                f"Cannot transform {type(constraint).__name__} constraints"
            )
        return factory(constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()


def _interval(constraint: Any) -> transforms.Transform:
    low, high = constraint.lower_bound, constraint.upper_bound
    if _is(low, 0) and _is(high, 1):
        return transforms.SigmoidTransform()
    return transforms.ComposeTransform(
        [transforms.SigmoidTransform(), transforms.AffineTransform(low, high - low)]
    )


def _is(value: Any, number: int) -> bool:
    return isinstance(value, (int, float)) and value == number


def _above(constraint: Any) -> transforms.Transform:
    if _is(constraint.lower_bound, 0):
        return transforms.ExpTransform()
    return transforms.ComposeTransform(
        [transforms.ExpTransform(), transforms.AffineTransform(constraint.lower_bound, 1)]
    )


for _registry in (biject_to, transform_to):
    _registry.register(constraints.real, lambda c: transforms.identity_transform)
    _registry.register(constraints.greater_than, _above)
    _registry.register(constraints.greater_than_eq, _above)
    _registry.register(
        constraints.less_than,
        lambda c: transforms.ComposeTransform(
            [transforms.ExpTransform(), transforms.AffineTransform(c.upper_bound, -1)]
        ),
    )
    _registry.register(constraints.interval, _interval)
    _registry.register(constraints.half_open_interval, _interval)
    _registry.register(
        constraints.corr_cholesky, lambda c: transforms.CorrCholeskyTransform()
    )


def _register_parts(registry: ConstraintRegistry) -> None:
    """What is made of other constraints is transformed by theirs."""
    registry.register(constraints.independent, lambda c: transforms.IndependentTransform(
        registry(c.base_constraint), c.reinterpreted_batch_ndims
    ))
    registry.register(constraints.cat, lambda c: transforms.CatTransform(
        [registry(each) for each in c.cseq], c.dim, c.lengths
    ))
    registry.register(constraints.stack, lambda c: transforms.StackTransform(
        [registry(each) for each in c.cseq], c.dim
    ))


_register_parts(biject_to)
_register_parts(transform_to)
biject_to.register(constraints.simplex, lambda c: transforms.StickBreakingTransform())
transform_to.register(constraints.simplex, lambda c: transforms.SoftmaxTransform())
transform_to.register(
    constraints.lower_cholesky, lambda c: transforms.LowerCholeskyTransform()
)
for _definite in (constraints.positive_definite, constraints.positive_semidefinite):
    transform_to.register(_definite, lambda c: transforms.PositiveDefiniteTransform())
