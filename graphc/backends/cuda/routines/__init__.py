"""Operators that a library of routines runs whole on the GPU: CuPy, where it is installed."""

from graphc.backends.cuda.routines.run import Routines as Routines
