"""Compare: measurements as a table for each label, a column for each description."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from dataclasses import dataclass

from .measurement import Measurement, ordered_unique, select_unit, trim_sigfig, unit_to_english


class Colorize(enum.Enum):
    """Which cells are compared by colour."""

    NONE = "none"
    COLUMNWISE = "columnwise"
    ROWWISE = "rowwise"


_END = "\033[0m"
# up to so many times the best -> how it is shown
_STYLES = ((1.05, "\033[92m\033[1m"), (1.25, "\033[92m"), (2.0, "\033[34m\033[1m"))
_WORST = "\033[2m\033[91m"


@dataclass
class _Table:
    """The measurements of one label."""

    results: list[Measurement]
    trim: bool
    warn: bool
    colour: Colorize

    def __post_init__(self) -> None:
        self.rows = ordered_unique((r.num_threads, r.env, r.as_row_name) for r in self.results)
        self.columns = ordered_unique(r.description for r in self.results)
        self.cells = {
            ((r.num_threads, r.env, r.as_row_name), r.description): r for r in self.results
        }
        self.unit, self.scale = select_unit(min(r.median for r in self.results))

    def _texts(self, column: str | None) -> dict[tuple[int, str, str], str]:
        found = {row: self.cells[row, column] for row in self.rows if (row, column) in self.cells}
        decimals = 1
        if self.trim:
            decimals = min(
                max(0, r.significant_figures - math.ceil(math.log10(max(r.median / self.scale, 1))))
                for r in found.values()
            )
        texts = {}
        for row, r in found.items():
            value = r.median / self.scale
            if self.trim:
                value = trim_sigfig(value, r.significant_figures)
            texts[row] = f"{value:.{decimals}f}"
        width = max(len(text) for text in texts.values())
        marks = {
            row: f" (! {r.iqr / r.median * 100:.0f}%)" if self.warn and r.has_warnings else ""
            for row, r in found.items()
        }
        last = max(len(mark) for mark in marks.values())
        return {row: f"{texts[row]:>{width}}{marks[row]:<{last}}" for row in found}

    def _styled(self, row: tuple[int, str, str], column: str | None, text: str) -> str:
        if self.colour is Colorize.NONE or (row, column) not in self.cells:
            return text
        wise = self.colour is Colorize.ROWWISE
        best = min(
            r.median for (other, name), r in self.cells.items()
            if (other == row if wise else name == column)
        )
        share = self.cells[row, column].median / best
        return next((style for limit, style in _STYLES if share <= limit), _WORST) + text + _END

    def lines(self) -> list[str]:
        """The table's lines, the title first."""
        several = len({env for _, env, _ in self.rows}) > 1
        names = {
            row: f"      {f'({row[1]})  ' if several else ''}{row[2]}".replace("\n", " ")
            for row in self.rows
        }
        sections = {threads: f"{threads} threads: " for threads in dict.fromkeys(
            row[0] for row in self.rows
        )}
        first = max(map(len, (*names.values(), *sections.values())))
        texts = {column: self._texts(column) for column in self.columns}
        widths = {
            column: max(len(column or ""), *map(len, cells.values()))
            for column, cells in texts.items()
        }
        header = "  |  ".join(
            ["".ljust(first), *((column or "").center(widths[column]) for column in self.columns)]
        )
        title = f" {self.results[0].label} " if self.results[0].label else ""
        lines = [f"[{title.center(len(header) - 2, '-')}]", header.rstrip()]
        for threads, section in sections.items():
            lines.append(section.ljust(len(header), "-"))
            for row in self.rows:
                if row[0] == threads:
                    cells = [
                        self._styled(row, column, texts[column].get(row, "").center(widths[column]))
                        for column in self.columns
                    ]
                    lines.append("  |  ".join([names[row].ljust(first), *cells]).rstrip())
        lines += ["", f"Times are in {unit_to_english(self.unit)}s ({self.unit})."]
        if any("(!" in text for cells in texts.values() for text in cells.values()):
            lines.append(
                "(! XX%) Measurement has high variance, where XX is the IQR / median * 100."
            )
        return lines


class Compare:
    """A table of measurements for each label: a row for each sublabel (under its number of
    threads), a column for each description; medians in the unit of the shortest."""

    def __init__(self, results: Iterable[Measurement]) -> None:
        self._results: list[Measurement] = []
        self._trim, self._warn, self._colour = False, False, Colorize.NONE
        self.extend_results(results)

    def extend_results(self, results: Iterable[Measurement]) -> None:
        """Add measurements. Raises ValueError for anything else."""
        for each in results:
            if not isinstance(each, Measurement):
                raise ValueError(
                    f"Expected an instance of `Measurement`, got {type(each)} instead."
                )
            self._results.append(each)

    def trim_significant_figures(self) -> None:
        """Show as many digits as the spread of the times leaves certain."""
        self._trim = True

    def colorize(self, rowwise: bool = False) -> None:
        """Colour each cell by its distance from its column's (or row's) best."""
        self._colour = Colorize.ROWWISE if rowwise else Colorize.COLUMNWISE

    def highlight_warnings(self) -> None:
        """Mark cells whose times spread by more than a tenth of their median."""
        self._warn = True

    def __str__(self) -> str:
        labels = ordered_unique(each.label for each in self._results)
        tables = []
        for label in labels:
            merged = Measurement.merge(each for each in self._results if each.label == label)
            tables.append("\n".join(_Table(merged, self._trim, self._warn, self._colour).lines()))
        return "\n\n".join(tables)

    def print(self) -> None:
        """Print the tables."""
        print(f"{self}\n")
