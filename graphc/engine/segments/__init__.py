"""Functions whose Python runs at every call, compiled between its demands."""
