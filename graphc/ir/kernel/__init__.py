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
from .program import (
    Branch,
    BufferRef,
    Callback,
    Launch,
    Leaf,
    Program,
    ProgramStep,
    Repeat,
    leaves,
    rebound,
)
from .templates import ConvGeometry, Convolution, Product, Template
from .templates.operand import Operand

__all__ = [
    "Apply", "Branch", "BufferRef", "Callback", "Carry", "Check", "ConvGeometry", "Convolution",
    "IndexValue", "Kernel", "Launch", "Leaf", "Let", "Literal", "Load", "Local", "Loop", "Operand",
    "Param", "Product", "Program", "ProgramStep", "Repeat", "Scalar", "Stmt", "Store", "Template",
    "Var", "leaves", "rebound",
]
