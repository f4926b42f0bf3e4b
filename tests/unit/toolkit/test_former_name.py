"""The toolkit's former name, ``hostcore.toolkit``."""

import importlib
import sys

import pytest

import hostcore_toolkit


def test_the_former_name_has_everything_and_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "hostcore.toolkit", raising=False)
    with pytest.warns(DeprecationWarning, match="hostcore_toolkit, of the distribution hostcore-toolkit"):
        former = importlib.import_module("hostcore.toolkit")
    assert set(former.__all__) == set(hostcore_toolkit.__all__)
    assert all(getattr(former, name) is getattr(hostcore_toolkit, name) for name in former.__all__)
