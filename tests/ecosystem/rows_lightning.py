"""Lightning."""

from tests.ecosystem.matrix import Row

ROWS: list[Row] = []
