"""Seeing what the compiler does: reports, pictures, dumps and checks between passes."""
