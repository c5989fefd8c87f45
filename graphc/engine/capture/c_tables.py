"""Names of C functions, by what is known of them. c_functions.py says what follows."""

from __future__ import annotations

import math


def _of(module: str, names: str) -> set[str]:
    return {f"{module}.{name}" for name in names.split()}


# what follows from the arguments alone
PURE = frozenset(
    _of("builtins", """
        abs ascii bin chr divmod hex oct ord pow round sum any all
        globals locals
    """)
    | {f"math.{name}" for name in dir(math) if callable(getattr(math, name))}
    | _of("cmath", "sqrt exp log phase polar rect isnan isinf isfinite isclose")
    | _of("_operator", "index length_hint indexOf countOf concat iconcat truth")
    | _of("itertools", "tee")
    | _of("_bisect", "bisect_left bisect_right")
    | _of("_struct", "pack unpack calcsize unpack_from")
    | _of("binascii", "crc32 hexlify unhexlify")
    | _of("zlib", "crc32 adler32")
    | _of("sys", "intern getsizeof")
    | _of("_abc", "_abc_instancecheck _abc_subclasscheck")
    | _of("_stat", "S_ISDIR S_ISREG") | _of("posix", "fspath")
    | _of("_json", "encode_basestring encode_basestring_ascii scanstring")
    | _of("_typing", "_idfunc") | _of("_string", "formatter_parser formatter_field_name_split")
    | {"function.__get__", "object.__init__", "object.__eq__", "object.__ne__", "object.__repr__",
       "object.__str__", "object.__format__", "object.__hash__", "object.__sizeof__",
       "type.__call__", "type.__instancecheck__", "type.__subclasscheck__", "type.mro"}
)
# those that call functions among their arguments, or iterate over the others
HIGHER_ORDER = frozenset(
    _of("builtins", """
        sorted min max map filter zip enumerate list tuple set frozenset
        bytes bytearray
    """)
    | _of("_functools", "reduce cmp_to_key") | {"list.sort"}
    | _of("itertools", """
        accumulate chain combinations combinations_with_replacement compress count cycle dropwhile
        filterfalse groupby islice pairwise permutations product repeat starmap takewhile
        zip_longest batched
    """)
    | {"collections.deque", "chain.from_iterable"}
)
# of those, where a function is (as a keyword it is `key` or `func`)
FUNCTION_AT = dict.fromkeys(
    ("map", "filter", "reduce", "cmp_to_key", "dropwhile", "filterfalse", "starmap", "takewhile"), 0
) | dict.fromkeys(("accumulate", "groupby"), 1)
# and which arguments they iterate over, where it is not the first alone: from, to
ITERATED = {
    "map": (1, None), "zip": (0, None), "zip_longest": (0, None), "chain": (0, None),
    "product": (0, None), "compress": (0, 2), "repeat": (0, 0), "count": (0, 0),
    "cmp_to_key": (0, 0), **dict.fromkeys(
        ("filter", "reduce", "dropwhile", "filterfalse", "starmap", "takewhile"), (1, 2)),
}
OPERATORS = {
    f"_operator.{name}": sign for name, sign in {
        "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%",
        "pow": "**", "matmul": "@", "and_": "&", "or_": "|", "xor": "^", "lshift": "<<",
        "rshift": ">>", "iadd": "+=", "isub": "-=", "imul": "*=", "itruediv": "/=",
        "ifloordiv": "//=", "imod": "%=", "ipow": "**=", "iand": "&=", "ior": "|=", "ixor": "^=",
        "lt": "<", "le": "<=", "eq": "==", "ne": "!=", "gt": ">", "ge": ">=", "neg": "-",
        "pos": "+", "invert": "~", "not_": "not", "getitem": "[]", "setitem": "[]=",
        "contains": "in", "is_": "is", "is_not": "is not",
    }.items()
}
# methods of lists, dicts, sets and deques
READS = frozenset("""
    index count copy get keys values items __contains__ __len__ __iter__ __getitem__ __eq__ __ne__
    __reversed__ isdisjoint issubset issuperset union intersection difference
    symmetric_difference __or__ __and__ __sub__ __xor__ __repr__ __add__ __mul__
    __lt__ __le__ __gt__ __ge__ __init__ __sizeof__ __ror__
    __format__ __copy__ __rmul__ __getattribute__
    decode hex find rfind startswith endswith split strip tolist tobytes
""".split())
WRITES = frozenset("""
    append extend insert pop remove clear sort reverse update popitem setdefault add discard
    difference_update intersection_update symmetric_difference_update appendleft extendleft
    popleft rotate move_to_end __setitem__ __delitem__ __iadd__ __ior__ __iand__ __isub__ __ixor__
    __imul__ fromlist frombytes
""".split())
# what takes a text that says a run-time number as it is, and not as a constant: to say it, to
# make another text of it or to keep it
SAYING = frozenset(
    _of("builtins", "print str repr format isinstance type") | {"_warnings.warn"}
    | {"str.format"}
)
# methods of dicts and sets whose first argument is hashed: a run-time number is decided upon
KEYED = frozenset("""
    add discard remove get pop setdefault __contains__ __getitem__ __setitem__ __delitem__
""".split())
STORING = frozenset(("append",))
# values by identity whose methods are pure
METHODS_OF_VALUES = frozenset("re.Pattern re.Match types.GenericAlias".split())
# what C code makes from its arguments, beside instances, values and what is compared by identity
CLASSES = frozenset("""
    builtins.method builtins.mappingproxy collections.defaultdict functools.partial
""".split())
# functions of graphc's own, by name: those that tell a setting, and those that change one
SETTINGS = {
    "current": "graphc.config",
    **dict.fromkeys(
        "are_deterministic_algorithms_enabled get_float32_matmul_precision is_warn_always_enabled "
        "is_anomaly_enabled is_anomaly_check_nan_enabled"
        .split(), "graphc.frontend.functions.settings"),
    "initial_seed": "graphc.frontend.random_state",
}
# those whose result holds the seed of the generator that they get, or of the default one
SEEDED = dict.fromkeys(("get_state", "get_rng_state"), "graphc.frontend.random_state")
SWITCHES = {
    "set_default": "graphc.config", "set_default_dtype": "graphc.frontend.promote",
    **dict.fromkeys(
        "use_deterministic_algorithms set_float32_matmul_precision set_warn_always "
        "set_default_tensor_type set_anomaly_enabled".split(),
        "graphc.frontend.functions.settings"),
    "set_printoptions": "graphc.frontend.functions.printing",
    "set_autocast_enabled": "graphc.amp.state",  # the others read and write a threading.local
}
