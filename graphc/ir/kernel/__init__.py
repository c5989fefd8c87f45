"""The kernel IR: loop nests and templates (nest), programs of kernels (program), their text,
verifier and interpreter."""

from .nest import (
    Apply,
    Carry,
    Check,
    Contraction,
    ConvGeometry,
    IndexValue,
    Kernel,
    Let,
    Literal,
    Load,
    Local,
    Loop,
    Operand,
    Param,
    Scalar,
    Stmt,
    Store,
    Var,
)
from .program import BufferRef, Callback, Launch, Program

__all__ = [
    "Apply", "BufferRef", "Callback", "Carry", "Check", "Contraction", "ConvGeometry",
    "IndexValue", "Kernel", "Launch", "Let", "Literal", "Load", "Local", "Loop", "Operand",
    "Param", "Program", "Scalar", "Stmt", "Store", "Var",
]  # fmt: skip
