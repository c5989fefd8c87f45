"""torch's CPU generator (mt19937) and what it makes of its words, as LLVM text.

The arithmetic is that of backends/numpy/random.py, operation by operation; there are the sources.
A state is i64[626] (there, too); words are u32, two of which are a 64-bit number, the first its
high half.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable

from graphc.backends.llvm.stream import SIGNATURES
from graphc.backends.llvm.text import Function, Module, Value
from graphc.ir import normal_numbers as constants

_WORDS = 624
_MIDDLE = 397
_LANES = 8
_POSITION = _WORDS  # where a state has the place of its next word


def stream_text(names: Iterable[str] = tuple(SIGNATURES)) -> str:
    """The module: a function for each of the names."""
    module = Module()
    define(module, names, "")
    return module.text()


def define(module: Module, names: Iterable[str], linkage: str = "internal") -> None:
    """Some of the functions in a module."""
    bodies: dict[str, Callable[[Function], None]] = {
        "words": _words, "unit32": _unit32, "unit64": _unit64,
        "between32": _between32, "below": _below,
        "modulo32": _modulo32, "modulo64": _modulo64, "permute": _permute,
        "exponential": _exponential, "normal32": _normal32, "normal64": _normal64,
    }
    for name in dict.fromkeys(names):
        if name == "words":
            _twist(module)
        f = module.function(f"void @graphc_stream_{name}({SIGNATURES[name]})", linkage)
        bodies[name](f)
        f.ret()


# --- words ---------------------------------------------------------------------------------------


def _twist(module: Module) -> None:
    """The next 624 words of a state, in place."""
    f = module.function("void @twist(ptr %state)", linkage="internal")

    def step(at: Value, lanes: int, apart: int) -> None:
        kind = kind_of("i64", lanes)
        here, after, far = (
            f.load(f.gep("%state", f.add(at, by), "i64"), kind, 8) for by in (0, 1, apart)
        )
        f.store(_mixed(f, here, after, far, lanes), kind, f.gep("%state", at, "i64"), 8)

    ahead, behind = _MIDDLE, _MIDDLE - _WORDS
    whole = (_WORDS - _MIDDLE) // _LANES * _LANES
    with f.loop(0, whole, _LANES) as at:
        step(at, _LANES, ahead)
    for place in range(whole, _WORDS - _MIDDLE):
        step(place, 1, ahead)
    first = _WORDS - _MIDDLE
    last = first + (_WORDS - 1 - first) // _LANES * _LANES
    with f.loop(first, last, _LANES) as at:
        step(at, _LANES, behind)
    for place in range(last, _WORDS - 1):
        step(place, 1, behind)
    here, after, far = (
        f.load(f.gep("%state", place, "i64"), "i64", 8) for place in (_WORDS - 1, 0, _MIDDLE - 1)
    )
    f.store(_mixed(f, here, after, far, 1), "i64", f.gep("%state", _WORDS - 1, "i64"), 8)
    f.ret()


def _mixed(f: Function, here: str, after: str, far: str, lanes: int) -> str:
    kind = kind_of("i64", lanes)

    def const(value: int) -> str:
        return _constant(f"i64 {value}", lanes)

    high = f.let(f"and {kind} {here}, {const(0x80000000)}")
    low = f.let(f"and {kind} {after}, {const(0x7FFFFFFF)}")
    both = f.let(f"or {kind} {high}, {low}")
    odd = f.let(f"and {kind} {both}, {const(1)}")
    mask = f.let(f"sub {kind} {const(0)}, {odd}")
    matrix = f.let(f"and {kind} {mask}, {const(0x9908B0DF)}")
    half = f.let(f"lshr {kind} {both}, {const(1)}")
    return f.let(f"xor {kind} {f.let(f'xor {kind} {far}, {half}')}, {matrix}")


def _words(f: Function) -> None:
    """The next `count` words of a state, which moves on."""
    place = f.gep("%state", _POSITION, "i64")
    position, done = f.alloca("i64"), f.alloca("i64")
    f.store(f.load(place, "i64", 8), "i64", position, 8)
    f.store(0, "i64", done, 8)
    test, body, end = f.label("test"), f.label("body"), f.label("end")
    f.br(test)
    f.block(test)
    written = f.load(done, "i64", 8)
    f.cond_br(f.cmp("slt", written, "%count"), body, end)
    f.block(body)
    with f.when(f.cmp("eq", f.load(position, "i64", 8), _WORDS)):
        f.call("void", "@twist", "ptr %state")
        f.store(0, "i64", position, 8)
    start = f.load(position, "i64", 8)
    some = f.smin(f.sub(_WORDS, start), f.sub("%count", written))
    source, target = f.gep("%state", start, "i64"), f.gep("%out", written, "i32")

    def temper(at: Value, lanes: int) -> None:
        kind = kind_of("i64", lanes)
        y = f.load(f.gep(source, at, "i64"), kind, 8)
        for shift, mask in (("lshr 11", 0), ("shl 7", 0x9D2C5680), ("shl 15", 0xEFC60000),
                            ("lshr 18", 0)):
            operation, by = shift.split()
            moved = f.let(f"{operation} {kind} {y}, {_constant(f'i64 {by}', lanes)}")
            if mask:
                moved = f.let(f"and {kind} {moved}, {_constant(f'i64 {mask}', lanes)}")
            y = f.let(f"xor {kind} {y}, {moved}")
        small = kind_of("i32", lanes)
        f.store(f.let(f"trunc {kind} {y} to {small}"), small, f.gep(target, at, "i32"), 4)

    each_lane(f, some, temper)
    f.store(f.add(start, some), "i64", position, 8)
    f.store(f.add(written, some), "i64", done, 8)
    f.br(test)
    f.block(end)
    f.store(f.load(position, "i64", 8), "i64", place, 8)


# --- what is made of them ------------------------------------------------------------------------


def _unit32(f: Function) -> None:
    """f32 in [0, 1): 24 bits of a word."""

    def make(at: Value, lanes: int) -> None:
        word, kind = kind_of("i32", lanes), kind_of("float", lanes)
        x = f.load(f.gep("%words", at, "i32"), word, 4)
        x = f.let(f"and {word} {x}, {_constant(f'i32 {2**24 - 1}', lanes)}")
        x = f.let(f"uitofp {word} {x} to {kind}")
        x = f.let(f"fmul {kind} {x}, {_constant(_float(2.0**-24), lanes)}")
        f.store(x, kind, f.gep("%out", at, "float"), 4)

    each_lane(f, "%count", make)


def _unit64(f: Function) -> None:
    """f64 in [0, 1): 53 bits of two words."""

    def make(at: Value, lanes: int) -> None:
        f.store(_doubles(f, at, lanes), kind_of("double", lanes), f.gep("%out", at, "double"), 8)

    each_lane(f, "%count", make)


def _between32(f: Function) -> None:
    """f32: u * width + low, computed as f64, of u as in _unit32. The numbers come as their bits."""
    width, low = (f.let(f"bitcast i64 {name} to double") for name in ("%width", "%low"))

    def make(at: Value, lanes: int) -> None:
        word, real, kind = (kind_of(scalar, lanes) for scalar in ("i32", "double", "float"))
        x = f.load(f.gep("%words", at, "i32"), word, 4)
        x = f.let(f"and {word} {x}, {_constant(f'i32 {2**24 - 1}', lanes)}")
        x = f.let(f"uitofp {word} {x} to {real}")
        x = f.let(f"fmul {real} {x}, {_constant(_double(2.0**-24), lanes)}")
        x = f.let(f"fmul {real} {x}, {_spread(f, 'double', width, lanes)}")
        x = f.let(f"fadd {real} {x}, {_spread(f, 'double', low, lanes)}")
        f.store(f.let(f"fptrunc {real} {x} to {kind}"), kind, f.gep("%out", at, "float"), 4)

    each_lane(f, "%count", make)


def _doubles(f: Function, at: Value, lanes: int) -> str:
    kind, real = kind_of("i64", lanes), kind_of("double", lanes)
    x = f.let(f"uitofp {kind} {_low53(f, at, lanes)} to {real}")
    return f.let(f"fmul {real} {x}, {_constant(_double(2.0**-53), lanes)}")


def _low53(f: Function, at: Value, lanes: int, words: str = "%words") -> str:
    kind = kind_of("i64", lanes)
    mask = _constant(f"i64 {2**53 - 1}", lanes)
    return f.let(f"and {kind} {_pair(f, at, lanes, words)}, {mask}")


def _pair(f: Function, at: Value, lanes: int, words: str = "%words") -> str:
    """Two words as one number, the first its high half."""
    kind = kind_of("i64", lanes)
    x = f.load(f.gep(words, at, "i64"), kind, 4)
    half = _constant("i64 32", lanes)
    up, down = f.let(f"shl {kind} {x}, {half}"), f.let(f"lshr {kind} {x}, {half}")
    return f.let(f"or {kind} {up}, {down}")


def _below(f: Function) -> None:
    """Bytes: 1 where the 53 bits of two words, as a whole number, are below the limit."""

    def make(at: Value, lanes: int) -> None:
        less, byte = lanes_below(f, "%words", "%limit", at, lanes), kind_of("i8", lanes)
        found = f.let(f"zext {kind_of('i1', lanes)} {less} to {byte}")
        f.store(found, byte, f.gep("%out", at, "i8"), 1)

    each_lane(f, "%count", make)


def lanes_below(f: Function, words: str, limit: str, at: Value, lanes: int) -> str:
    """Which of some numbers of 53 bits are below an i64."""
    kind = kind_of("i64", lanes)
    number = _low53(f, at, lanes, words)
    return f.let(f"icmp ult {kind} {number}, {_spread(f, 'i64', limit, lanes)}")


def _modulo32(f: Function) -> None:
    """i64: low + word % span, for 0 < span < 2^32."""
    span = f.let("trunc i64 %span to i32")
    with f.loop(0, "%count") as at:
        word = f.load(f.gep("%words", at, "i32"), "i32", 4)
        rest = f.let(f"zext i32 {f.let(f'urem i32 {word}, {span}')} to i64")
        f.store(f.let(f"add i64 {rest}, %low"), "i64", f.gep("%out", at, "i64"), 8)


def _modulo64(f: Function) -> None:
    """i64: low + number % span, for 0 < span < 2^64; span 0 stands for 2^64."""
    whole = f.cmp("eq", "%span", 0)
    with f.loop(0, "%count") as at:
        number = _pair(f, at, 1)
        divisor = f.let(f"select i1 {whole}, i64 1, i64 %span")
        rest = f.let(f"urem i64 {number}, {divisor}")
        rest = f.let(f"select i1 {whole}, i64 {number}, i64 {rest}")
        f.store(f.let(f"add i64 {rest}, %low"), "i64", f.gep("%out", at, "i64"), 8)


def _permute(f: Function) -> None:
    """Swaps place i with place i + word % (size - i), for `count` places from `first` on."""
    with f.loop(0, "%count") as number:
        at = f.add("%first", number)
        word = f.load(f.gep("%words", number, "i32"), "i32", 4)
        wide = f.let(f"zext i32 {word} to i64")
        step = f.let(f"urem i64 {wide}, {f.sub('%size', at)}")
        here, there = (f.gep("%order", place, "i64") for place in (at, f.add(at, step)))
        one, other = f.load(here, "i64", 8), f.load(there, "i64", 8)
        f.store(other, "i64", here, 8)
        f.store(one, "i64", there, 8)


def _exponential(f: Function) -> None:
    """f64: -log1p(-u) of f64 uniforms, by the C library."""
    f.module.declare("declare double @log1p(double)")
    with f.loop(0, "%count") as at:
        u = f.let(f"fneg double {_doubles(f, at, 1)}")
        found = f.let(f"fneg double {f.call('double', '@log1p', f'double {u}')}")
        f.store(found, "double", f.gep("%out", at, "double"), 8)


# --- normal numbers: blocks of 16 uniforms become 8 radii by cosines, and by sines ---------------


def _normal64(f: Function) -> None:
    """f64, in place, by the C library."""
    for name in ("log", "cos", "sin"):
        f.module.declare(f"declare double @{name}(double)")
    f.module.declare("declare double @llvm.sqrt.f64(double)")
    with f.loop(0, "%count", 16) as block, f.loop(0, 8) as lane:
        first = f.gep("%values", f.add(block, lane), "double")
        second = f.gep(first, 8, "double")
        u, v = f.load(first, "double", 8), f.load(second, "double", 8)
        log = f.call("double", "@log", f"double {f.let(f'fsub double {_bits(1.0)}, {u}')}")
        inner = f.let(f"fmul double {_bits(-2.0)}, {log}")
        radius = f.call("double", "@llvm.sqrt.f64", f"double {inner}")
        theta = f.let(f"fmul double {_bits(2.0 * constants.PI)}, {v}")
        for name, place in (("cos", first), ("sin", second)):
            value = f.call("double", f"@{name}", f"double {theta}")
            f.store(f.let(f"fmul double {radius}, {value}"), "double", place, 8)


def _normal32(f: Function) -> None:
    """f32, in place, by the Cephes polynomials and fused multiply-adds."""
    with f.loop(0, "%count", 16) as block:
        first = f.gep("%values", block, "float")
        second = f.gep(first, 8, "float")
        x = _Floats(f)
        u, v = f.load(first, x.kind, 4), f.load(second, x.kind, 4)
        radius = x.sqrt(x.mul(x.of(-2.0), _log(x, x.sub(x.of(1.0), u))))
        sine, cosine = _sincos(x, x.mul(x.of(constants.TWO_PI), v))
        f.store(x.mul(radius, cosine), x.kind, first, 4)
        f.store(x.mul(radius, sine), x.kind, second, 4)


class _Floats:
    """Arithmetic on vectors of f32."""

    kind, whole = f"<{_LANES} x float>", f"<{_LANES} x i32>"

    def __init__(self, f: Function) -> None:
        self.f = f
        f.module.declare(f"declare {self.kind} @llvm.fma.v8f32({', '.join([self.kind] * 3)})")
        f.module.declare(f"declare {self.kind} @llvm.sqrt.v8f32({self.kind})")

    def of(self, value: float) -> str:
        return _constant(_float(value), _LANES)

    def ints(self, value: int) -> str:
        return _constant(f"i32 {value}", _LANES)

    def mul(self, a: str, b: str) -> str:
        return self.f.let(f"fmul {self.kind} {a}, {b}")

    def add(self, a: str, b: str) -> str:
        return self.f.let(f"fadd {self.kind} {a}, {b}")

    def sub(self, a: str, b: str) -> str:
        return self.f.let(f"fsub {self.kind} {a}, {b}")

    def fma(self, a: str, b: str, c: str) -> str:
        return self.f.call(
            self.kind, "@llvm.fma.v8f32", *(f"{self.kind} {value}" for value in (a, b, c))
        )

    def sqrt(self, a: str) -> str:
        return self.f.call(self.kind, "@llvm.sqrt.v8f32", f"{self.kind} {a}")

    def integer(self, operation: str, a: str, b: str) -> str:
        return self.f.let(f"{operation} {self.whole} {a}, {b}")

    def choose(self, condition: str, a: str, b: str) -> str:
        return self.f.let(f"select <8 x i1> {condition}, {self.kind} {a}, {self.kind} {b}")

    def polynomial(self, coefficients: tuple[float, ...], x: str) -> str:
        y = self.of(coefficients[0])
        for coefficient in coefficients[1:]:
            y = self.fma(y, x, self.of(coefficient))
        return y


def _log(x: _Floats, value: str) -> str:
    """Of normal numbers above 0."""
    f = x.f
    bits = f.let(f"bitcast {x.kind} {value} to {x.whole}")
    exponent = x.integer("sub", x.integer("lshr", bits, x.ints(23)), x.ints(126))
    mantissa = x.integer("or", x.integer("and", bits, x.ints(0x7FFFFF)), x.ints(126 << 23))
    m = f.let(f"bitcast {x.whole} {mantissa} to {x.kind}")
    e = f.let(f"sitofp {x.whole} {exponent} to {x.kind}")
    below = f.let(f"fcmp olt {x.kind} {m}, {x.of(constants.SQRT_HALF)}")
    e = x.choose(below, x.sub(e, x.of(1.0)), e)
    less = x.sub(m, x.of(1.0))
    r = x.choose(below, x.add(less, m), less)
    z = x.mul(r, r)
    y = x.mul(x.polynomial(constants.LOG_P, r), r)
    y = x.fma(y, z, x.mul(e, x.of(constants.LOG_Q1)))
    y = x.fma(z, x.of(-0.5), y)
    return x.fma(e, x.of(constants.LOG_Q2), x.add(r, y))


def _sincos(x: _Floats, angle: str) -> tuple[str, str]:
    """Of angles of at least 0."""
    f = x.f
    octant = f.let(
        f"fptosi {x.kind} {x.mul(angle, x.of(constants.FOUR_OVER_PI))} to {x.whole}"
    )
    octant = x.integer("and", x.integer("add", octant, x.ints(1)), x.ints(-2))
    y = f.let(f"sitofp {x.whole} {octant} to {x.kind}")
    for part in constants.DP:
        angle = x.fma(y, x.of(part), angle)
    z = x.mul(angle, angle)
    c = x.mul(x.polynomial(constants.COS_P, z), z)
    c = x.add(x.fma(c, z, x.mul(z, x.of(-0.5))), x.of(1.0))
    s = x.fma(x.mul(x.polynomial(constants.SIN_P, z), z), angle, angle)

    def bit(value: str, mask: int) -> str:
        return f.let(f"icmp ne {x.whole} {x.integer('and', value, x.ints(mask))}, {x.ints(0)}")

    def signed(value: str, negative: str) -> str:
        return x.choose(negative, f.let(f"fneg {x.kind} {value}"), value)

    crossed = bit(octant, 2)
    sine, cosine = x.choose(crossed, c, s), x.choose(crossed, s, c)
    turned = x.integer("xor", x.integer("sub", octant, x.ints(2)), x.ints(-1))
    return signed(sine, bit(octant, 4)), signed(cosine, bit(turned, 4))


# --- text ----------------------------------------------------------------------------------------


def each_lane(f: Function, count: Value, make: Callable[[Value, int], None]) -> None:
    """`make(index, lanes)` for all of `count`, vectors first."""
    whole = f.sub(count, f.let(f"and i64 {count}, {_LANES - 1}"))
    with f.loop(0, whole, _LANES) as at:
        make(at, _LANES)
    with f.loop(whole, count) as at:
        make(at, 1)


def kind_of(scalar: str, lanes: int) -> str:
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


def _constant(typed: str, lanes: int) -> str:
    """A typed constant ("i64 3") in all lanes, without its type."""
    value = typed.split(" ", 1)[1]
    return value if lanes == 1 else "<" + ", ".join([typed] * lanes) + ">"


def _spread(f: Function, scalar: str, value: str, lanes: int) -> str:
    if lanes == 1:
        return value
    kind = kind_of(scalar, lanes)
    one = f.let(f"insertelement {kind} poison, {scalar} {value}, i32 0")
    return f.let(
        f"shufflevector {kind} {one}, {kind} poison, <{lanes} x i32> zeroinitializer"
    )


def _float(value: float) -> str:
    """An f32 constant as LLVM spells it: the bits of the equal f64."""
    return f"float {_bits(value)}"


def _double(value: float) -> str:
    return f"double {_bits(value)}"


def _bits(value: float) -> str:
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
