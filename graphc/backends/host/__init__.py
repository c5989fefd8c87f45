"""The host, as every backend on it has it: its numbers, its memory."""
