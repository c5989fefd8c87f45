"""Statements of kernels as CUDA C, for loops and for what templates compute on their sums alike:
scalars (`expressions.py`), indices, and several neighbours at a time (`pieces.py`)."""
