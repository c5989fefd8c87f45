"""Classify digits by the library alone: no graphc, no NumPy; the standard library's ctypes.

    python client.py ../out/libdigits.so ../out/golden [x86-64-v3]
"""

import ctypes
import math
import struct
import sys
from ctypes import POINTER, Structure, byref, c_char_p, c_int32, c_int64, c_void_p
from pathlib import Path

# name, and struct's letter for an element, in the order of digits.h; the two halves are shown as
# their bits
DTYPES = [("bool", "?"), ("u8", "B"), ("i8", "b"), ("i16", "h"), ("i32", "i"), ("i64", "q"),
          ("f16", "H"), ("bf16", "H"), ("f32", "f"), ("f64", "d")]
ABI, COMPUTED = 1, -(1 << 63)


class Size(Structure):
    _fields_ = [("name", c_char_p), ("least", c_int64), ("most", c_int64)]


class Entry(Structure):
    _fields_ = [("name", c_char_p), ("dtype", c_int32), ("rank", c_int32),
                ("shape", POINTER(c_int64))]


class Tensor(Structure):
    _fields_ = [("data", c_void_p), ("bytes", c_int64), ("dtype", c_int32), ("rank", c_int32),
                ("shape", POINTER(c_int64))]


class Options(Structure):
    _fields_ = [("abi", c_int32), ("threads", c_int32), ("sizes", POINTER(c_int64)),
                ("weights_path", c_char_p), ("weights", c_void_p), ("weights_bytes", c_int64),
                ("memory", c_void_p), ("memory_bytes", c_int64), ("cpu", c_char_p),
                ("message", c_char_p), ("message_bytes", c_int64)]


class Model:
    """A library of graphc's: `name` is what its functions begin with."""

    CALL = "run"

    def __init__(self, path, name, cpu=None, threads=1):
        self.library, self.name, self.context = ctypes.CDLL(str(path)), name, c_void_p()
        if self._function("abi", c_int32)() != ABI:
            raise RuntimeError(f"{path} is of another ABI")
        self.inputs = self._entries("input")
        self.outputs = self._entries("output")
        count = self._function("sizes", c_int32)()
        self.sizes = [self._function("size", POINTER(Size))(at).contents for at in range(count)]
        message = ctypes.create_string_buffer(256)
        options = Options(
            abi=ABI, threads=threads, cpu=cpu.encode() if cpu else None,
            message=ctypes.cast(message, c_char_p), message_bytes=len(message),
        )
        code = self._function("create", c_int32)(byref(options), byref(self.context))
        if code:
            raise RuntimeError(f"{self._text(code)}: {message.value.decode()}")

    def run(self, inputs):
        """(dtype's number, shape, bytes) of each input to the same of each output."""
        given, kept = (Tensor * len(self.inputs))(), []
        for tensor, (dtype, shape, data) in zip(given, inputs, strict=True):
            memory = ctypes.create_string_buffer(data, max(len(data), 1))
            sizes = (c_int64 * max(len(shape), 1))(*shape)
            kept += [memory, sizes]
            tensor.data, tensor.bytes = ctypes.addressof(memory), len(data)
            tensor.dtype, tensor.rank = dtype, len(shape)
            tensor.shape = ctypes.cast(sizes, POINTER(c_int64))
        made = (Tensor * len(self.outputs))()
        for tensor, entry in zip(made, self.outputs, strict=True):
            sizes = (c_int64 * max(entry.rank, 1))()
            kept.append(sizes)
            tensor.shape = ctypes.cast(sizes, POINTER(c_int64))
        self._call("shapes", given, made)
        memories = [ctypes.create_string_buffer(max(tensor.bytes, 1)) for tensor in made]
        for tensor, memory in zip(made, memories, strict=True):
            tensor.data = ctypes.addressof(memory)
        self._call(self.CALL, given, made)
        return [
            (tensor.dtype, tuple(tensor.shape[:tensor.rank]), memory.raw[:tensor.bytes])
            for tensor, memory in zip(made, memories, strict=True)
        ]

    def close(self):
        self._function("destroy", None)(self.context)
        self.context = c_void_p()

    @property
    def cpu(self):
        """The level whose code runs."""
        return self._function("cpu", c_char_p)(self.context).decode()

    def shape(self, entry):
        """What is known of an entry's sizes, as texts."""
        return [
            "?" if size == COMPUTED else self.sizes[-1 - size].name.decode() if size < 0
            else str(size) for size in entry.shape[:entry.rank]
        ]

    def _entries(self, kind):
        count = self._function(f"{kind}s", c_int32)()
        return [self._function(kind, POINTER(Entry))(at).contents for at in range(count)]

    def _function(self, name, result):
        function = getattr(self.library, f"{self.name}_{name}")
        function.restype = result
        return function

    def _call(self, name, given, made):
        code = self._function(name, c_int32)(self.context, given, made)
        if code:
            said = self._function("message", c_char_p)(self.context).decode()
            raise RuntimeError(f"{self._text(code)}: {said}")

    def _text(self, code):
        return self._function("text", c_char_p)(code).decode()


def read_tensor(path):
    """A file is a line, "f32 4 10", and the elements of a float32 [4, 10]."""
    with open(path, "rb") as file:
        dtype, *shape = file.readline().decode().split()
        number = [name for name, _ in DTYPES].index(dtype)
        return number, tuple(map(int, shape)), file.read()


def difference(found, recorded):
    """0 where the bits are equal; else the largest difference of floats, relative to 1 and more."""
    if found == recorded:
        return 0.0
    letter = DTYPES[found[0]][1]
    if found[:2] != recorded[:2] or letter not in "fd":
        return math.inf
    width = struct.calcsize(letter)
    ours, theirs = (struct.unpack(f"<{len(data) // width}{letter}", data)
                    for _, _, data in (found, recorded))
    return max(abs(a - b) / max(1.0, abs(b)) for a, b in zip(ours, theirs, strict=True))


def main(path, folder, cpu=None):
    model = Model(path, "digits", cpu)
    for size in model.sizes:
        print(f"size {size.name.decode()}: {size.least} to {size.most}")
    for kind, entries in (("input", model.inputs), ("output", model.outputs)):
        for entry in entries:
            dtype = DTYPES[entry.dtype][0]
            print(f"{kind} {entry.name.decode()}: {dtype} [{', '.join(model.shape(entry))}]")
    print(f"code for {model.cpu}")
    folder = Path(folder)
    found = model.run([read_tensor(folder / f"input{at}.tensor")
                       for at in range(len(model.inputs))])
    wrong = False
    for at, (entry, made) in enumerate(zip(model.outputs, found, strict=True)):
        apart = difference(made, read_tensor(folder / f"output{at}.tensor"))
        print(f"{entry.name.decode()}: {f'{apart:g} apart' if apart else 'equal to the bit'}")
        wrong |= not apart <= 1e-4
    model.close()
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
