"""Compiled versions of a whole function: guards, the call, results, backward."""
