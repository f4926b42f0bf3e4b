"""The digits, prepared."""

from pathlib import Path

import pytest
from digits.prepare_data import prepare


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the prepared digits."""
    folder = tmp_path_factory.mktemp("prepared")
    prepare(folder)
    return folder
