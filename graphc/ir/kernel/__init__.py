"""The kernel IR: loop nests and templates (nest), programs of kernels (program), their text,
verifier and interpreter."""

from .nest import (
    Apply,
    Carry,
    Check,
    IndexValue,
    Kernel,
    Let,
    Literal,
    Load,
    Local,
    Loop,
    Param,
    Scalar,
    Stmt,
    Store,
    Var,
)
from .program import BufferRef, Callback, Launch, Program
from .templates import ConvGeometry, Convolution, Product, Template
from .templates.operand import Operand

__all__ = [
    "Apply", "BufferRef", "Callback", "Carry", "Check", "ConvGeometry", "Convolution",
    "IndexValue", "Kernel", "Launch", "Let", "Literal", "Load", "Local", "Loop", "Operand",
    "Param", "Product", "Program", "Scalar", "Stmt", "Store", "Template", "Var",
]
