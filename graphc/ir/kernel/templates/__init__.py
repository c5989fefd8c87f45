"""Templates: kernels that are no loop nest, a file each: fields, text, verifier, meaning, work, and
the term that is summed, from which loops are made where a backend has no code for the template.

A product or a convolution says what is summed for every (b, m, n); its `epilogue`, Lets and Stores
over the variables b, m, n and Var("acc", acc_dtype), says what becomes of the sum. n is the
direction of vectors. A Partial among them reduces values over blocks of rows (`place`, `as_rows`).
An attention stores its results itself; where a backend has no code for it, its operator is
decomposed. How a template is tiled is a Blocking (`plan_template`), planned for a Machine.
"""

from __future__ import annotations

from typing import TypeAlias

from .attention import Attention
from .convolution import ConvGeometry, Convolution
from .product import Product

SumTemplate: TypeAlias = Product | Convolution
Template: TypeAlias = SumTemplate | Attention

# The word that a template's text begins with, and who reads it.
KEYWORDS: dict[str, type[Product] | type[Convolution] | type[Attention]] = {
    word: template for template in (Product, Convolution, Attention) for word in template.keywords
}

__all__ = [
    "KEYWORDS", "Attention", "ConvGeometry", "Convolution", "Product", "SumTemplate", "Template",
]
