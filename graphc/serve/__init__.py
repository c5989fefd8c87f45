"""A server for exported models: `python -m graphc serve m.gcx`. See docs/serve.md.

The command's line is read in `command.py`, which imports no server; the rest needs the extra
`serve` (Starlette, uvicorn, prometheus-client). A request goes `app.py` (its boundary) -> a
protocol (`oip.py`, `torchserve.py`) -> `model.py` (what the model takes) -> `batcher.py` (a queue
and a thread for each model) -> the compiled program, and back.
"""
