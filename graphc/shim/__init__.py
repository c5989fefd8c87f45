"""The shim: small local distributions by which `import torch` finds graphc in a venv.

`wheel.py` writes them, `place.py` says what an environment has, `command.py` is
`python -m graphc shim install | remove | check`, `requirements.py` what its last action asks.
"""
