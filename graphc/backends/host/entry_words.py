"""The words of what entry.py fills for native code, whose text (entry_text.py) only compiling
needs."""

from __future__ import annotations

# the words of a table, of one of its entries, and what a tensor is asked
TABLE = (
    "entries", "count", "inputs", "first", "held", "classes", "names", "places", "spans",
    "written", "array", "storage", "inference", "version", "none", "true", "counts", "arguments",
    "copies", "copied", "grads", "graded", "weak_tensor", "weak_array", "weak_storage", "slots",
    "false", "spares", "run", "releases", "made", "others", "made_count",
    "block",
)
SLOTS = ("array", "_root", "exposed", "segment", "away")  # of a storage
HINTS, AHEAD = 5, 4  # words of where a tensor was found; entries before they are of use
WORDS = 8  # of an entry: its kind, then its operands
ITEM, WORD, LOCAL, TENSOR, ARGUMENT, CLASS, SAME, GRADIENT, LIST, DICT, HELD, PRESENT, CURRENT = (
    range(13)
)
ATTRIBUTES = (
    "_graphc_array",
    "_graphc_storage",
    "_graphc_requires_grad",
    "_graphc_node",
    "_graphc_hooks",
    "_graphc_post_hooks",
    "_graphc_accumulator",
    "_base",
    "_grad",
    "_graphc_seen",
)
# bits of a tensor's entry
ASK_GRADIENT, REQUIRES, ASK_LEAF, LEAF, ASK_HOOKS, ASK_INFERENCE, INFERENCE, WRITTEN, OF_GRAD = (
    1 << i for i in range(9)
)
# of CPython's API, by name: (result, parameters)
FUNCTIONS = {
    "PyDict_GetItemWithError": ("ptr", "ptr, ptr"),
    "PyDict_DelItem": ("i32", "ptr, ptr"),
    "PyDict_SetItem": ("i32", "ptr, ptr, ptr"),
    "PyObject_GetAttr": ("ptr", "ptr, ptr"),
    "PyObject_SetAttr": ("i32", "ptr, ptr, ptr"),
    "PyTuple_GetItem": ("ptr", "ptr, i64"),
    "PyTuple_Size": ("i64", "ptr"),
    "PyLong_AsVoidPtr": ("ptr", "ptr"),
    "PyLong_FromLong": ("ptr", "i64"),
    "PyLong_AsLongLong": ("i64", "ptr"),
    "PyLong_FromLongLong": ("ptr", "i64"),
    "PyErr_Clear": ("void", ""),
    "PyEval_SaveThread": ("ptr", ""),
    "PyEval_RestoreThread": ("void", "ptr"),
    "PyErr_Occurred": ("ptr", ""),
    "PyObject_CallObject": ("ptr", "ptr, ptr"),
    "PyList_New": ("ptr", "i64"),
    "PyList_SetItem": ("i32", "ptr, i64, ptr"),
    "PyTuple_New": ("ptr", "i64"),
    "PyTuple_SetItem": ("i32", "ptr, i64, ptr"),
    "Py_IncRef": ("void", "ptr"),
    "Py_DecRef": ("void", "ptr"),
}
