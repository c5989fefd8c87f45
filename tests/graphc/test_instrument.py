"""Rewritten copies of code objects do what the originals do, and the interpreter survives them."""

import dis
import importlib.util
import inspect
import pkgutil
import sys
import traceback
import types
from collections import Counter

import pytest

from graphc.engine.capture import opcodes
from graphc.engine.capture.assembly import handlers_of, instructions_of, locations_of
from graphc.engine.capture.instrument import Uninstrumentable, instrumented
from graphc.engine.capture.site import Site
from graphc.engine.capture.sites import transparent
from graphc.engine.capture.stack_states import stack_states
from tests.graphc import instrument_corpus as corpus
from tests.graphc import instrument_scopes

ENGINE = opcodes.__file__.rsplit("/", 1)[0]
STDLIB = """
textwrap json.decoder json.encoder json.scanner statistics fractions difflib heapq dataclasses
argparse string collections functools inspect ast copy configparser csv _pydecimal _strptime
contextlib tokenize typing enum random pathlib shutil threading graphlib calendar pprint ipaddress
""".split()


class Calls(Site):
    """Rewrites the Python functions that are called, and those that they call."""

    __slots__ = ("known",)

    def __init__(self, known):
        self.known = known

    def __getitem__(self, operand):
        function, args, kwargs = operand
        if type(function) is types.MethodType and type(function.__func__) is types.FunctionType:
            copied = rewritten(function.__func__, self.known)
            return types.MethodType(copied, function.__self__), args, kwargs
        if type(function) is types.FunctionType:
            return rewritten(function, self.known), args, kwargs
        return operand


def rewritten(function, known=None):
    """A copy of a function that runs transparent sites, and whose calls do so too."""
    known = {} if known is None else known
    copied = known.get((function.__code__, id(function.__globals__)))
    if copied is None:
        calls = Calls(known)

        def make(kind, detail, where):
            if kind == "call":
                return calls
            return transparent(kind, detail, where, function.__globals__)

        try:
            copied = instrumented(function.__code__, make)
        except Uninstrumentable:
            copied = function.__code__
        known[function.__code__, id(function.__globals__)] = copied
    result = types.FunctionType(
        copied, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    result.__kwdefaults__ = function.__kwdefaults__
    result.__dict__.update(function.__dict__)
    result.__qualname__ = function.__qualname__
    result.__module__ = function.__module__
    return result


def outcome(function, *args):
    """What a call gives, or the error with the user's lines that it went through."""
    try:
        return function(*args)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [(f.name, f.lineno) for f in frames if not f.filename.startswith(ENGINE)]
        return type(error), str(error), repr(error.__cause__), lines[1:]


def lines_of(function):
    """The lines of the corpus that a call goes through, and what returns."""
    seen = []

    def trace(frame, event, arg):
        if frame.f_code.co_filename not in (corpus.__file__, instrument_scopes.__file__):
            return None
        if event in ("call", "line", "return"):
            seen.append((event, frame.f_code.co_name, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        outcome(function)
    finally:
        sys.settrace(before)
    return seen


def check(code):
    """No NULL is taken for a value, and the stack is large enough."""
    instructions = instructions_of(code, locations_of(code))
    states = stack_states(code, instructions, handlers_of(code, instructions))
    for instruction, state in zip(instructions, states, strict=True):
        if state is None:
            continue
        depth, nulls = state
        name = dis.opname[instruction.op]
        pops, pushes = opcodes.EFFECTS[instruction.op]
        pops = pops if isinstance(pops, int) else pops(instruction.arg)
        pushes = pushes if isinstance(pushes, int) else pushes(instruction.arg)
        assert depth - pops + pushes <= code.co_stacksize, (code, instruction)
        null = 0
        if name == "CALL_FUNCTION_EX":
            null = 1 << (depth - pops + (0 if opcodes.table.NULL_BELOW else 1))
            assert nulls & null, (code, instruction)
        elif name in ("CALL", "CALL_KW"):
            continue
        popped = nulls >> (depth - pops) << (depth - pops)
        assert popped == null, (code, instruction)


def all_code(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from all_code(constant)


def functions_of(module):
    """Every code object of a module's source that belongs to a function."""
    source = inspect.getsource(module)
    for code in all_code(compile(source, module.__file__, "exec", dont_inherit=True)):
        if code.co_flags & inspect.CO_OPTIMIZED:
            yield code


def rewrite(code):
    return instrumented(code, lambda *event: transparent(*event, {}))


@pytest.mark.parametrize("function", corpus.FUNCTIONS, ids=lambda function: function.__name__)
def test_a_copy_does_what_the_original_does(function):
    assert outcome(rewritten(function)) == outcome(function)


@pytest.mark.parametrize("function", corpus.FUNCTIONS, ids=lambda function: function.__name__)
def test_a_tracer_sees_the_same_lines(function):
    assert lines_of(rewritten(function)) == lines_of(function)


@pytest.mark.parametrize("kind", ["call", "attribute", "super_attribute", "global", "truth", None])
def test_an_event_may_be_declined(kind):
    """Each alone, and all of them: None leaves the instruction, with its stack."""
    for function in corpus.FUNCTIONS:

        def make(event, detail, where, known=function.__globals__):
            return None if kind in (event, None) else transparent(event, detail, where, known)

        for code in all_code(function.__code__):
            check(instrumented(code, make)) if code.co_flags & inspect.CO_OPTIMIZED else None
        copied = types.FunctionType(
            instrumented(function.__code__, make), function.__globals__, function.__name__
        )
        assert outcome(copied) == outcome(function)


def test_a_site_chooses_what_is_called():
    """Another callable, other arguments, keywords where none were and none where some were."""

    class Redirect(Site):
        def __getitem__(self, operand):
            function, args, kwargs = operand
            if function is len:
                return dict, args[:0], {"n": args}
            return (function, args, kwargs) if function is print else (str, args[:1], None)

    def work(x):
        return len(x), sorted([x], key=len, reverse=True), sorted(*([x],), key=len)

    def make(kind, detail, where):
        return Redirect() if kind == "call" else None

    copied = types.FunctionType(instrumented(work.__code__, make), globals())
    assert copied("ab") == ({"n": ("ab",)}, "['ab']", "['ab']")


def test_the_copy_keeps_its_names_and_places():
    code = corpus.raises_deep.__code__
    copied = rewrite(code)
    for name in ("co_name", "co_qualname", "co_filename", "co_flags", "co_firstlineno"):
        assert getattr(copied, name) == getattr(code, name)
    assert set(copied.co_positions()) == set(code.co_positions())
    nested = [c for c in copied.co_consts if isinstance(c, types.CodeType)]
    assert nested == [c for c in code.co_consts if isinstance(c, types.CodeType)]


def test_where_is_the_original_instruction():
    seen = []
    code = corpus.attributes.__code__
    instrumented(code, lambda kind, detail, where: seen.append((kind, detail, where)))
    starts = {i.offset: i for i in dis.get_instructions(code)}
    for kind, detail, where in seen:
        assert where.code is code
        if kind in ("attribute", "store_attribute", "delete_attribute", "global"):
            assert starts[where.offset].argval == detail
        if kind == "binary":
            assert starts[where.offset].argrepr == detail
        assert where.line == next(
            line for start, end, line in code.co_lines() if start <= where.offset < end
        )
    assert Counter(kind for kind, _, _ in seen)["delete_attribute"] == 1


@pytest.mark.parametrize("name", STDLIB)
def test_the_standard_library_is_rewritten(name):
    for code in functions_of(importlib.import_module(name)):
        try:
            copied = rewrite(code)
        except Uninstrumentable as error:
            assert any(word in str(error) for word in ("ASYNC", "GET_A", "CALL_INTRINSIC_1"))
        else:
            check(copied)


@pytest.mark.parametrize("package", ["graphc.nn", "graphc.optim", "graphc.frontend"])
def test_graphc_is_rewritten(package):
    root = importlib.import_module(package)
    for found in pkgutil.walk_packages(root.__path__, package + "."):
        for code in functions_of(importlib.import_module(found.name)):
            check(rewrite(code))


def fractions_work():
    from fractions import Fraction

    total = sum((Fraction(1, n) for n in range(1, 30)), Fraction(0))
    return total, Fraction("3.25") ** 3, round(total, 3), Fraction.from_float(0.1), f"{total}"


def difflib_work():
    import difflib

    one, two = "one two three four".split(), "one tree four five".split()
    return (
        list(difflib.ndiff(one, two)),
        list(difflib.unified_diff(one, two)),
        (difflib.get_close_matches("appel", ["ape", "apple", "peach"])),
    )


def textwrap_work():
    import textwrap

    text = "The quick brown fox jumps over the lazy dog. " * 5
    return textwrap.wrap(text, 30), textwrap.indent(text, "> "), textwrap.shorten(text, 40)


def decimal_work():
    import _pydecimal as decimal

    context = decimal.Context(prec=30)
    values = [decimal.Decimal(2).sqrt(context), decimal.Decimal("1.1").exp(context)]
    values.append(context.divide(decimal.Decimal(1), decimal.Decimal(7)))
    return [str(value) for value in values], f"{values[0]:.5f}"


def argparse_work():
    import argparse

    parser = argparse.ArgumentParser(prog="p", description="d")
    parser.add_argument("--number", "-n", type=int, default=3, help="of things")
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("run").add_argument("files", nargs="*")
    seen = parser.parse_args(["-n", "5", "run", "a", "b"])
    return vars(seen), parser.format_help()


def dataclass_work():
    import dataclasses

    @dataclasses.dataclass(order=True, frozen=True)
    class Pair:
        first: int
        second: list = dataclasses.field(default_factory=list, compare=False)

    pair = Pair(1, [2])
    return (
        repr(pair), dataclasses.asdict(pair), Pair(0) < pair, hash(pair) == hash(Pair(1)),
        [field.name for field in dataclasses.fields(Pair)],
        dataclasses.replace(pair, first=4).first,
    )


def json_work():
    from json.decoder import JSONDecoder, py_scanstring
    from json.encoder import JSONEncoder, _make_iterencode, py_encode_basestring

    class Encoder(JSONEncoder):
        def iterencode(self, o, _one_shot=False):
            return _make_iterencode(
                {}, self.default, py_encode_basestring, "  ", float.__repr__, ": ", ", ", True,
                False, False,
            )(o, 0)

    data = {"a": [1, 2.5, None, True, {"b": "text\n"}], "c": "é"}
    return (
        "".join(Encoder().iterencode(data)),
        py_scanstring('abc\\n"', 0),
        JSONDecoder().decode('{"x": [1, {"y": 2}]}'),
    )


WORK = [
    fractions_work,
    difflib_work,
    textwrap_work,
    decimal_work,
    argparse_work,
    dataclass_work,
    json_work,
]


@pytest.mark.parametrize("work", WORK, ids=lambda work: work.__name__)
def test_real_work_gives_the_same(work):
    known = {}
    copied = rewritten(work, known)
    assert copied() == work()
    assert len(known) >= 3


def rewritten_in_place(module_name):
    """A fresh copy of a module, all of whose functions run transparent sites."""
    spec = importlib.util.find_spec(module_name)
    module = importlib.util.module_from_spec(spec)

    def deep(code):
        constants = [deep(c) if isinstance(c, types.CodeType) else c for c in code.co_consts]
        code = code.replace(co_consts=tuple(constants))
        if not code.co_flags & inspect.CO_OPTIMIZED:
            return code
        return instrumented(code, lambda *event: transparent(*event, vars(module)))

    source = spec.loader.get_source(module_name)
    exec(deep(compile(source, spec.origin, "exec", dont_inherit=True)), vars(module))
    return module


def test_special_methods_run_rewritten_too():
    """Modules whose every function is a copy: also operators, properties and constructors."""
    decimal = rewritten_in_place("_pydecimal")
    import _pydecimal as original

    def work(module):
        with module.localcontext() as context:
            context.prec = 40
            one, two = module.Decimal("1.25"), module.Decimal(3)
            values = [one + two, one * 2, two / 7, two**5, -one, abs(-two), one // 1, two.sqrt()]
            return [str(value) for value in values] + [one < two, hash(one), int(two), bool(one)]

    assert work(decimal) == work(original)
    fractions = rewritten_in_place("fractions")
    third = fractions.Fraction(1, 3)
    assert str(third + 2 * third**2 - 1) == "-4/9"
    assert str(sum([third, third, fractions.Fraction("0.5")])) == "7/6"


# dis counts a call's arguments at PRECALL, which takes none of them, and no value that a generator
# is sent at its start
UNLIKE_DIS = {"PRECALL", "CALL"} if "PRECALL" in dis.opmap else set()
UNLIKE_DIS |= {"RETURN_GENERATOR"} if sys.version_info < (3, 13) else set()


def test_the_tables_are_the_interpreters():
    for name, effect in opcodes.table.EFFECTS.items():
        op = dis.opmap[name]
        for arg in (1, 2, 3, 4) if name != "BUILD_SLICE" else (2, 3):
            if name.startswith("CALL_INTRINSIC") and arg > 1:
                continue
            pops, pushes = (side if isinstance(side, int) else side(arg) for side in effect)
            given = arg if op >= dis.HAVE_ARGUMENT or op in getattr(dis, "hasarg", ()) else None
            expected = dis.stack_effect(op, given, jump=False)
            assert pushes - pops == expected or name in UNLIKE_DIS, (name, arg)
            if op in dis.hasjrel:
                pops, pushes = opcodes.table.JUMPED.get(name, effect)
                expected = dis.stack_effect(op, given, jump=True)
                assert pushes - pops == expected or name in UNLIKE_DIS, (name, arg)


async def awaits():
    await None


def async_generator():
    async def generate():
        yield 1

    return generate


def test_what_is_not_understood_is_refused():
    with pytest.raises(Uninstrumentable, match=r"test_instrument.py:\d+: GET_AWAITABLE in awaits"):
        rewrite(awaits.__code__)
    with pytest.raises(Uninstrumentable):
        rewrite(async_generator().__code__)
    body = next(c for c in corpus.supers.__code__.co_consts if isinstance(c, types.CodeType))
    with pytest.raises(Uninstrumentable, match="LOAD_NAME"):
        rewrite(body)
