"""Train a network by the library alone: no graphc, no NumPy; the standard library's ctypes.

    python train.py ../out/libdigits_trainer.so ../out/training state.safetensors 0 20
    python train.py ../out/libdigits_trainer.so ../out/training state.safetensors 20 40

Each loss is compared with what graphc said when it trained the same network. The second run goes on
where the first one stopped.
"""

import ctypes
import json
import struct
import sys
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_uint64, c_void_p
from pathlib import Path

from client import Entry, Model, read_tensor

SEED = 1
F32 = 8


class Trainer(Model):
    """A library of a training step; its context has a state."""

    CALL = "step"

    def seed(self, seed):
        self._state("seed", c_uint64(seed))

    def save(self, path):
        self._state("state_save_file", c_char_p(str(path).encode()))

    def load(self, path):
        self._state("state_load_file", c_char_p(str(path).encode()))

    def number(self, name):
        """A number of the state, such as a learning rate, by its address."""
        for at in range(self._function("states", c_int32)()):
            entry = self._function("state", POINTER(Entry))(at).contents
            if entry.name.decode() == name:
                place = self._function("state_data", c_void_p)(self.context, at)
                return (ctypes.c_double if entry.dtype == 9 else c_int64).from_address(place)
        raise KeyError(name)

    def _state(self, name, given):
        code = self._function(name, c_int32)(self.context, given)
        if code:
            said = self._function("message", c_char_p)(self.context).decode()
            raise RuntimeError(f"{self._text(code)}: {said}")


def main(path, folder, state, first, last):
    first, last = int(first), int(last)
    model = Trainer(path, "digits_trainer")
    if first:
        model.load(state)
    else:
        model.seed(SEED)
    print(f"learning rate: {model.number('optimizer.param_groups.0.lr').value}")
    tensors = [read_tensor(Path(folder) / f"{name}.tensor") for name in ("image", "digit", "loss")]
    rows = model.inputs[0].shape[0]
    *given, (_, _, losses) = tensors
    wrong = False
    for step in range(first, last):
        inputs = []
        for dtype, shape, data in given:
            each = len(data) // shape[0] * rows
            inputs.append((dtype, (rows, *shape[1:]), data[step * each : (step + 1) * each]))
        ((dtype, _, loss),) = model.run(inputs)
        assert dtype == F32
        same = loss == losses[4 * step : 4 * step + 4]
        told = "equal to the bit" if same else "another"
        print(f"step {step}: loss {struct.unpack('<f', loss)[0]:.6f}, {told}")
        wrong |= not same
    model.save(state)
    with open(state, "rb") as file:  # a safetensors file, as others read it
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    print(f"the state has {len(header)} parts")
    model.close()
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
