"""Lines of C, and names that are not taken."""

from __future__ import annotations


class Lines:
    """What is written so far."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.indent = 1
        self._count = 0

    def emit(self, line: str) -> None:
        self.lines.append("  " * self.indent + line)

    def open(self, line: str) -> None:
        """A line that ends with a brace."""
        self.emit(line)
        self.indent += 1

    def close(self) -> None:
        self.indent -= 1
        self.emit("}")

    def text(self) -> str:
        """All of them."""
        return "\n".join(self.lines)

    def fresh(self, name: str) -> str:
        """A name that no other has: those of kernels do not end so."""
        self._count += 1
        return f"{name}_{self._count}"
