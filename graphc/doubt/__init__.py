"""A tool for doubt: eager and compiled, compared (compare.py), and recorded again (again.py)."""
