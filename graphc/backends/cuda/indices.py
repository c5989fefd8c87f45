"""Index expressions as C."""

from __future__ import annotations

from graphc.ir.dim import Size


def index_text(size: Size) -> str:
    """An index expression in C, with Python's rounding in divisions."""
    if isinstance(size, int):
        return f"{size}LL"
    terms: list[str] = []
    for monomial, coefficient in size.terms:
        factors = [] if coefficient == 1 and monomial else [f"{coefficient}LL"]
        for atom, power in monomial:
            if atom.kind == "var":
                text = f"(i64){atom.name}"
            else:
                a, b = (index_text(arg) for arg in atom.args)
                function = {"floordiv": "floordiv", "mod": "floormod"}.get(
                    atom.kind, f"take_{atom.kind}<i64>"
                )
                text = f"{function}({a}, {b})"
            factors += [text] * power
        terms.append(" * ".join(factors))
    return f"({' + '.join(terms)})" if terms else "0LL"
