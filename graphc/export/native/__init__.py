"""Libraries that aot() has made, called from here: no compiler is needed. model.py is the call."""
