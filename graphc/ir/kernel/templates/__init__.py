"""Templates: kernels that are no loop nest, a file each: fields, text, verifier, meaning, work, and
the term that is summed, from which loops are made where a backend has no code for the template.

A template says what is summed for every (b, m, n); its `epilogue`, Lets and Stores over the
variables b, m, n and Var("acc", acc_dtype), says what becomes of the sum. n is the direction of
vectors. How a template is tiled is a Blocking (`plan_contraction`), planned for a Machine.
"""

from __future__ import annotations

from typing import TypeAlias

from .convolution import ConvGeometry, Convolution
from .product import Product

Template: TypeAlias = Product | Convolution

# The word that a template's text begins with, and who reads it.
KEYWORDS: dict[str, type[Product] | type[Convolution]] = {
    word: template for template in (Product, Convolution) for word in template.keywords
}

__all__ = ["KEYWORDS", "ConvGeometry", "Convolution", "Product", "Template"]
