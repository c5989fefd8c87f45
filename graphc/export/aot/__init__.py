"""Exported programs as libraries that need no Python: see library.py."""
