"""Contractions as CUDA C: a Renderer for each class of Template, in a file of its own.

What has no Renderer, or is refused by it, becomes loops before anything is emitted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from graphc.backends.cuda.source import Source, Target
from graphc.backends.cuda.templates import attention, convolution, product
from graphc.ir.kernel import Attention, Convolution, Kernel, Product, Template


class Renderer(NamedTuple):
    """`takes`: whether there is code for a template as it stands, on every architecture; `render`:
    the code of a kernel of one. Sizes are read at run time wherever the code can: a text is for
    many shapes. `choices`: plans that render takes, the one that it takes by itself first; None is
    that, too."""

    takes: Callable[[Template], bool]
    render: Callable[[Kernel, Target, Any], Source]
    choices: Callable[[Kernel, Target], Sequence[object]]


RENDERERS: dict[type, Renderer] = {
    Product: Renderer(product.takes, product.render, product.choices),
    Convolution: Renderer(convolution.takes, convolution.render, convolution.choices),
    Attention: Renderer(attention.takes, attention.render, attention.choices),
}


def renders(template: Template) -> bool:
    """See Backend."""
    found = RENDERERS.get(type(template))
    return found is not None and found.takes(template)


def render(kernel: Kernel, target: Target, plan: object = None) -> Source:
    """A template's kernel. Raises NotImplementedError for one that is not rendered."""
    return _renderer(kernel).render(kernel, target, plan)


def choices(kernel: Kernel, target: Target) -> Sequence[object]:
    """See Renderer. Raises as `render` does."""
    return _renderer(kernel).choices(kernel, target)


def _renderer(kernel: Kernel) -> Renderer:
    found = RENDERERS.get(type(kernel.template))
    if found is None:
        raise NotImplementedError(f"the CUDA backend has no {type(kernel.template).__name__}")
    return found
