"""All that tests/backends/apart asks of a device, of the emulated GPU: eager mode, programs,
compiled functions, every parity record. Every kernel is compiled as C++."""

from collections.abc import Iterator

import pytest

from graphc import config
from graphc.backends import cudnn

from ...apart.test_autocast import *  # noqa: F403
from ...apart.test_compile import *  # noqa: F403
from ...apart.test_eager import *  # noqa: F403
from ...apart.test_functions import *  # noqa: F403
from ...apart.test_programs import *  # noqa: F403

del test_what_there_is_not_of_this_device  # noqa: F821 of apart alone
del test_what_is_known_is_so_in_pytorch, test_every_name_on_the_lists_is_a_function  # noqa: F821 of no device

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def numbers_as_on_the_cpu() -> Iterator[None]:
    """Results are held against the CPU's, so numbers are drawn as there, and convolutions are
    float32's; test_draws.py and test_tf32.py have the device's own."""
    with config.override(random="torch"), cudnn.flags(enabled=True, allow_tf32=False):
        yield
