"""Random graphs on the emulator: what their kernels become means what the graph means, however
loops are shared out to threads."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from graphc.backends.cuda.emulator import Schedule
from graphc.backends.cuda.loops import mapping
from graphc.engine import pipeline
from graphc.engine.built import Built
from tests.doubt.conftest import Case
from tests.fuzz.__main__ import config
from tests.fuzz.check import Tally, run_built
from tests.fuzz.generate import generate

from .emulated import NAME, EmulatedBackend

SCHEDULES = (Schedule(watch=True), Schedule(ahead=True, direction="descending"))
# small graphs have none of these by themselves: several columns of a thread, rows of a whole block,
# few threads, tiles in shared memory
WAYS = {
    "as it is": {},
    "wide": {"_COLUMNS": 0, "_ELEMENTS": 0, "_WIDE_ELEMENTS": 1, "_KEPT": 0},
    "few": {"_THREADS": 1, "_COLUMNS": 0},
}
