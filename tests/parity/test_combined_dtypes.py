"""lerp, addcmul and sums with alpha over all pairs of dtypes: what comes out, or is said."""

import itertools

import pytest

import graphc

torch = pytest.importorskip("torch")

NAMES = "int64 bool float32 float16 float64 complex64 uint8".split()
ALPHAS = (0.5, 2, True, 2j)


def told(call) -> object:
    """(dtype, values), or the error's type and first words."""
    try:
        found = call()
    except (RuntimeError, NotImplementedError) as error:
        return type(error).__name__, str(error).splitlines()[0][:60]
    return str(found.dtype).split(".")[-1], found.tolist()


def operands(lib, *names):
    return [lib.tensor([1, 2]).to(getattr(lib, name)) for name in names]


@pytest.mark.parametrize("name", NAMES)
def test_sums_with_alpha(name: str) -> None:
    for other, alpha, function in itertools.product(NAMES, ALPHAS, ("add", "sub")):
        def call(lib, other=other, alpha=alpha, function=function):
            a, b = operands(lib, name, other)
            return getattr(lib, function)(a, b, alpha=alpha)

        assert told(lambda: call(graphc)) == told(lambda: call(torch)), (other, alpha, function)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("name", NAMES)
def test_lerp(name: str) -> None:
    for end, weight in itertools.product(NAMES, (*NAMES, 0.5)):
        for single in (False, True):
            def call(lib, end=end, weight=weight, single=single):
                a, b, *w = operands(lib, name, end, *([] if weight == 0.5 else [weight]))
                return lib.lerp(a, b, (w[0][0] if single else w[0]) if w else weight)

            ours, theirs = told(lambda: call(graphc)), told(lambda: call(torch))
            if "ComplexHalf" not in str(theirs):
                assert ours == theirs, (end, weight, single)


@pytest.mark.parametrize("name", NAMES)
def test_addcmul(name: str) -> None:
    for other, value in itertools.product(NAMES, (1, 2, 2.5)):
        def call(lib, other=other, value=value):
            a, b = operands(lib, name, other)
            return lib.addcmul(a, b, b, value=value)

        assert told(lambda: call(graphc)) == told(lambda: call(torch)), (other, value)


def test_a_number_that_varies_is_checked_too() -> None:
    @graphc.compile
    def scaled(x, y, factor):
        return graphc.add(x, y, alpha=factor)

    x = graphc.tensor([1.0, 2.0])
    for factor in (0.5, 0.25, 3.0):
        assert scaled(x, x, factor).tolist() == [1 + factor, 2 + 2 * factor]
    with pytest.raises(RuntimeError, match="argument alpha must not be a floating"):
        scaled(graphc.tensor([1, 2]), graphc.tensor([1, 2]), 0.75)
