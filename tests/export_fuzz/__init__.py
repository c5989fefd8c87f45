"""Damaged, mutated and hostile .gcx files: each is refused by a clear error, or runs in bounds."""
