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
from .program import BufferRef, Launch, Program, Routine
from .templates import ConvGeometry, Convolution, Product, Template
from .templates.operand import Operand

__all__ = [
    "Apply",
    "BufferRef",
    "Carry",
    "Check",
    "ConvGeometry",
    "Convolution",
    "IndexValue",
    "Kernel",
    "Launch",
    "Let",
    "Literal",
    "Load",
    "Local",
    "Loop",
    "Operand",
    "Param",
    "Product",
    "Program",
    "Routine",
    "Scalar",
    "Stmt",
    "Store",
    "Template",
    "Var",
]
