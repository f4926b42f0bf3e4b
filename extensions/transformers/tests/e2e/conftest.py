"""The folder that all tests of the trainer share."""

import pytest
from transformers_workshop import Workshop, make_workshop


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return make_workshop(tmp_path_factory.mktemp("workshop"))
