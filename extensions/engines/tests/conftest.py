"""Assertions of what all engines promise are shown with their values."""

import pytest

pytest.register_assert_rewrite("engine_contract")
