"""torch's databases of modules and optimizers on the emulated GPU, as tests/backends/apart asks."""

import pytest

from ...apart.test_databases import *  # noqa: F403
from .test_suites import numbers_as_on_the_cpu  # noqa: F401

pytestmark = pytest.mark.slow
