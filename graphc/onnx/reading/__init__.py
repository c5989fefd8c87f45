"""Reading ONNX models: `graphc.onnx.load`.

files.py reads the message, tensors.py its tensors; compute/build.py makes Programs of its graphs,
whose operators are rows of compute/table.py; module.py is the Module around them.
"""

from .errors import OnnxError
from .load import load
from .module import OnnxModule
