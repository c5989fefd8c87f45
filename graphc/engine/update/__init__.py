"""The step of an optimizer, outside of any trace, as one native call."""
