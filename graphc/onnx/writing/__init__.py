"""Writing ONNX: a recorded Graph as standard operators (github.com/onnx/onnx/blob/main/docs/IR.md).

`export.py` begins; `model.py` walks the graph; a file of rules per family says each of our
operators in ONNX's (`rules.py` has the table); `writer.py` makes nodes, constants and sizes.
"""
