"""Reading the text of a symbolic size, which may be a stranger's: see ir/dim.py."""

from __future__ import annotations

import ast

from .dim import COMBINE, Dim, Size, floordiv, mod, unwrap

_LONGEST = 4096  # characters; a size that a recording makes has some dozens
_TERMS = 1024
_LARGEST = 1 << 62


def parse(text: str) -> Size:
    """Read back `str(dim)`. Raises ValueError, SyntaxError or KeyError for other texts, and for
    those whose expanded form is larger than any recording's."""
    if len(text) > _LONGEST:
        raise ValueError(f"a size of {len(text)} characters")
    return unwrap(_node(ast.parse(text.strip(), mode="eval").body))


def _node(node: ast.AST) -> Size:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return _bounded(node.value)
    if isinstance(node, ast.Name):
        return Dim.var(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _node(node.operand) * -1
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        left, right = node.args
        return COMBINE[node.func.id](_node(left), _node(right))
    if isinstance(node, ast.BinOp):
        return _operation(node.op, _node(node.left), _node(node.right))
    raise ValueError(f"not a size expression: {node!r}")


def _operation(op: ast.operator, left: Size, right: Size) -> Size:
    match op:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            if _terms(left) * _terms(right) > _TERMS:
                raise ValueError(f"a product of {_terms(left)} and {_terms(right)} terms")
            return _bounded(left * right)
        case ast.FloorDiv() | ast.Mod() if right == 0:
            raise ValueError("a size divided by 0")
        case ast.FloorDiv():
            return floordiv(left, right)
        case ast.Mod():
            return mod(left, right)
    raise ValueError(f"not an operation on sizes: {op!r}")


def _terms(size: Size) -> int:
    return len(size.terms) if isinstance(size, Dim) else 1


def _bounded(size: Size) -> Size:
    numbers = [factor for _, factor in size.terms] if isinstance(size, Dim) else [size]
    if any(abs(number) > _LARGEST for number in numbers):
        raise ValueError("a size with a number that no tensor has")
    return size
