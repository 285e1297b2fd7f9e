"""The mark of tests that need instructions which not every processor has."""

import pytest

from turnwise.models.cores import multiplies_bytes

NO_VNNI = "the processor has no VNNI"
needs_vnni = pytest.mark.skipif(not multiplies_bytes(), reason=NO_VNNI)
