"""VectorMath: every elementary function, as vector code of our own, with its stated accuracy."""

from graphc.backends.llvm.vmath_special import Special

# Largest error in units of the last place (f32, f64); tests/backends/llvm/test_vmath.py checks it.
# lgamma is libm's; lgamma and digamma: away from their zeros.
ULP_BOUNDS: dict[str, tuple[float, float]] = {
    "exp": (1.0, 1.0),
    "exp2": (1.0, 1.0),
    "expm1": (1.5, 1.0),
    "log": (1.0, 1.0),
    "log2": (2.0, 1.0),
    "log10": (2.0, 1.0),
    "log1p": (2.0, 1.0),
    "sinh": (2.5, 2.0),
    "cosh": (1.5, 1.5),
    "tanh": (2.5, 3.0),
    "sigmoid": (2.5, 2.5),
    "asinh": (2.0, 2.0),
    "acosh": (2.0, 2.0),
    "atanh": (2.5, 2.0),
    "sin": (1.5, 1.0),
    "cos": (1.5, 1.0),
    "tan": (3.0, 2.5),
    "asin": (2.5, 2.5),
    "acos": (1.5, 1.5),
    "atan": (2.0, 1.5),
    "atan2": (3.0, 3.0),
    "pow": (1.0, 1.0),
    "fmod": (0.0, 0.0),
    "erf": (1.0, 1.0),
    "erfc": (1.0, 4.0),
    "erfinv": (2.5, 3.0),
    "lgamma": (2.5, 4.0),
    "digamma": (1.0, 16.0),
}


class VectorMath(Special):
    """Elementary functions on `width` lanes of float ("f32") or double ("f64").

    Methods take and return SSA names of type .vtype, with NaN, infinities, signed zeros and
    subnormals as in libm. The fourth and later uses of a function in a module become calls.
    """
