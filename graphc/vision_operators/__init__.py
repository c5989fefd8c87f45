"""What torchvision's compiled half is to it: torch.ops.torchvision.* and torch.ops.image.*.

The Python of an installed torchvision calls these (`compat/finder.py`); they take its arguments.
`ops_registry.py` says which is where.
"""
