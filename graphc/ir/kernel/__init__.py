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
    Launch,
    Leaf,
    Program,
    ProgramStep,
    Repeat,
    Routine,
    leaves,
    rebound,
    run_steps,
)
from .templates import ConvGeometry, Convolution, Product, Template
from .templates.operand import Operand

__all__ = [
    "Apply", "Branch", "BufferRef", "Carry", "Check", "ConvGeometry", "Convolution", "IndexValue",
    "Kernel", "Launch", "Leaf", "Let", "Literal", "Load", "Local", "Loop", "Operand", "Param",
    "Product", "Program", "ProgramStep", "Repeat", "Routine", "Scalar", "Stmt", "Store",
    "Template", "Var", "leaves", "rebound", "run_steps",
]
