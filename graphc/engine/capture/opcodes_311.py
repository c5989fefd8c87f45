"""Python 3.11: what each opcode that may stand in a function pops and pushes.

An opcode that is not listed here is not understood, and code that has it is not instrumented:
async code, class bodies (LOAD_NAME ...) and `from module import *`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Amount: TypeAlias = "int | Callable[[int], int]"


def _argument(arg: int) -> int:
    return arg


def _twice(arg: int) -> int:
    return 2 * arg


def _one_more(arg: int) -> int:
    return arg + 1


def _called(arg: int) -> int:
    return arg + 2  # the callable, and NULL or its first argument


# opcode: (pops, pushes), where it goes on to the next instruction
EFFECTS: dict[str, tuple[Amount, Amount]] = {
    # the frame itself
    "NOP": (0, 0),
    "RESUME": (0, 0),
    "PUSH_NULL": (0, 1),
    "POP_TOP": (1, 0),
    "SWAP": (0, 0),
    "COPY": (0, 1),
    "LOAD_CONST": (0, 1),
    "LOAD_FAST": (0, 1),
    "STORE_FAST": (1, 0),
    "DELETE_FAST": (0, 0),
    "MAKE_CELL": (0, 0),
    "COPY_FREE_VARS": (0, 0),
    "LOAD_CLOSURE": (0, 1),
    "LOAD_DEREF": (0, 1),
    "STORE_DEREF": (1, 0),
    "DELETE_DEREF": (0, 0),
    "LOAD_GLOBAL": (0, lambda arg: 1 + (arg & 1)),
    "STORE_GLOBAL": (1, 0),
    "DELETE_GLOBAL": (0, 0),
    "LOAD_ASSERTION_ERROR": (0, 1),
    "LOAD_BUILD_CLASS": (0, 1),
    # attributes, items and operators
    "LOAD_ATTR": (1, 1),
    "LOAD_METHOD": (1, 2),
    "STORE_ATTR": (2, 0),
    "DELETE_ATTR": (1, 0),
    "BINARY_SUBSCR": (2, 1),
    "STORE_SUBSCR": (3, 0),
    "DELETE_SUBSCR": (2, 0),
    "BINARY_OP": (2, 1),
    "UNARY_POSITIVE": (1, 1),
    "UNARY_NEGATIVE": (1, 1),
    "UNARY_NOT": (1, 1),
    "UNARY_INVERT": (1, 1),
    "COMPARE_OP": (2, 1),
    "IS_OP": (2, 1),
    "CONTAINS_OP": (2, 1),
    # making things
    "BUILD_TUPLE": (_argument, 1),
    "BUILD_LIST": (_argument, 1),
    "BUILD_SET": (_argument, 1),
    "BUILD_MAP": (_twice, 1),
    "BUILD_CONST_KEY_MAP": (_one_more, 1),
    "BUILD_STRING": (_argument, 1),
    "BUILD_SLICE": (_argument, 1),
    "LIST_APPEND": (1, 0),
    "SET_ADD": (1, 0),
    "MAP_ADD": (2, 0),
    "LIST_EXTEND": (1, 0),
    "SET_UPDATE": (1, 0),
    "DICT_UPDATE": (1, 0),
    "DICT_MERGE": (1, 0),
    "LIST_TO_TUPLE": (1, 1),
    "UNPACK_SEQUENCE": (1, _argument),
    "UNPACK_EX": (1, lambda arg: (arg & 255) + (arg >> 8) + 1),
    "FORMAT_VALUE": (lambda arg: 2 if arg & 4 else 1, 1),
    "MAKE_FUNCTION": (lambda arg: 1 + (arg & 15).bit_count(), 1),
    # calls
    "KW_NAMES": (0, 0),
    "PRECALL": (0, 0),
    "CALL": (_called, 1),
    "CALL_FUNCTION_EX": (lambda arg: 3 + (arg & 1), 1),
    "RETURN_VALUE": (1, 0),
    "IMPORT_NAME": (2, 1),
    "IMPORT_FROM": (0, 1),
    # iteration and generators
    "GET_ITER": (1, 1),
    "GET_YIELD_FROM_ITER": (1, 1),
    "FOR_ITER": (1, 2),
    "RETURN_GENERATOR": (0, 1),
    "YIELD_VALUE": (1, 1),
    "SEND": (2, 2),
    # jumps
    "JUMP_FORWARD": (0, 0),
    "JUMP_BACKWARD": (0, 0),
    "JUMP_BACKWARD_NO_INTERRUPT": (0, 0),
    "JUMP_IF_FALSE_OR_POP": (1, 0),
    "JUMP_IF_TRUE_OR_POP": (1, 0),
    "POP_JUMP_FORWARD_IF_FALSE": (1, 0),
    "POP_JUMP_FORWARD_IF_TRUE": (1, 0),
    "POP_JUMP_FORWARD_IF_NONE": (1, 0),
    "POP_JUMP_FORWARD_IF_NOT_NONE": (1, 0),
    "POP_JUMP_BACKWARD_IF_FALSE": (1, 0),
    "POP_JUMP_BACKWARD_IF_TRUE": (1, 0),
    "POP_JUMP_BACKWARD_IF_NONE": (1, 0),
    "POP_JUMP_BACKWARD_IF_NOT_NONE": (1, 0),
    # exceptions and `with`
    "RAISE_VARARGS": (_argument, 0),
    "RERAISE": (1, 0),
    "PUSH_EXC_INFO": (1, 2),
    "POP_EXCEPT": (1, 0),
    "CHECK_EXC_MATCH": (1, 1),
    "CHECK_EG_MATCH": (2, 2),
    "PREP_RERAISE_STAR": (2, 1),
    "BEFORE_WITH": (1, 2),
    "WITH_EXCEPT_START": (0, 1),
    # match statements
    "GET_LEN": (0, 1),
    "MATCH_MAPPING": (0, 1),
    "MATCH_SEQUENCE": (0, 1),
    "MATCH_KEYS": (0, 1),
    "MATCH_CLASS": (3, 1),
}

# the same where it jumps, if that is different
JUMPED: dict[str, tuple[int, int]] = {
    "FOR_ITER": (1, 0),
    "SEND": (2, 1),
    "JUMP_IF_FALSE_OR_POP": (0, 0),
    "JUMP_IF_TRUE_OR_POP": (0, 0),
}

INTRINSICS: dict[str, frozenset[int]] = {}  # opcode: the arguments that are understood
NULL_BELOW = True  # a call's NULL stands below the callable
METHOD_BIT = False  # LOAD_ATTR's lowest bit asks for NULL too
COMPARE_SHIFT = 0  # COMPARE_OP's operator starts at this bit
COMPARE_BOOL = 0  # this bit of COMPARE_OP asks for a bool
LOAD_CELL = "LOAD_CLOSURE"
CALL_HIDES_LINE = False  # a tracer sees a line anew at a jump target right after a call
