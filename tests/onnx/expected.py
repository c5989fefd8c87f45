"""Cases of onnx's backend tests that do not pass, by name, with the reason."""

from __future__ import annotations

import functools
import re

# reason -> regular expressions on whole names
EXPECTED: dict[str, str] = {
    "strings are no tensors here": """
        test_strnorm.* test_regex_full_match.* test_string_.* test_strnormalizer.*
        test_equal_string.* test_tfidfvectorizer.*
    """,
    "ai.onnx.ml is refused by name": "test_ai_onnx_ml.*",
    "the operators of training are refused by name": """
        test_adagrad.* test_adam.* test_momentum.* test_nesterov.* test_gradient_.*
    """,
    "it decodes pictures": "test_image_decoder.*",
    "the numbers drawn are not NumPy's": """
        test_bernoulli.* test_training_dropout(_default)?(_mask)?
    """,
    "the largest sample of a bin is not computed": "test_roialign_mode_max",
    "Scan-8 has a batch of its own; Scan-9 is there": "test_scan_sum",
    "what is expected are the rounding errors of float16, and of a transform's zeros": """
        test_attention_4d_causal_fp16_expanded test_dft_inverse test_dft_inverse_opset19
    """,
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
