"""Cases of onnx's backend tests that do not pass, by name, with the reason."""

from __future__ import annotations

import functools
import re

# reason -> regular expressions on whole names
EXPECTED: dict[str, str] = {
    "strings are no tensors here": """
        test_strnorm.* test_regex_full_match.* test_string_.* test_stringnormalizer.* test_equal_string.*
        test_cast_.*STRING.* test_tfidfvectorizer.*
    """,
    "ai.onnx.ml is refused by name": "test_ai_onnx_ml.*",
    "the operators of training are refused by name": """
        test_adagrad.* test_adam.* test_momentum.* test_nesterov.* test_gradient_.*
    """,
    "float8, float4 and integers of 2 and 4 bits, or 16 to 64 bits without a sign, are no tensors": "",
    "it decodes pictures": "test_image_decoder.*",
}


@functools.cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    return [
        (re.compile(pattern), reason)
        for reason, patterns in EXPECTED.items() for pattern in patterns.split()
    ]


def why(name: str) -> str | None:
    """The reason why a case is expected not to pass."""
    return next((reason for pattern, reason in _patterns() if pattern.fullmatch(name)), None)
