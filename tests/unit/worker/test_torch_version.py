"""What is known of torch without importing it."""

import sys
from collections.abc import Callable, Iterator
from importlib.machinery import PathFinder
from pathlib import Path

import pytest
import torch

from hostcore.worker.devices import is_for_cpu_alone, torch_version


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str | None], None]]:
    """``installed(text)``: a torch whose ``version.py`` has this text is installed; with None, one that has none."""
    torch_version.cache_clear()

    def make(text: str | None) -> None:
        package = tmp_path / "torch"
        package.mkdir()
        (package / "__init__.py").write_text("raise AssertionError('imported')")
        if text is not None:
            (package / "version.py").write_text(text)
        monkeypatch.setattr("importlib.util.find_spec", lambda name: PathFinder.find_spec(name, [str(tmp_path)]))
        monkeypatch.setattr(sys, "platform", "linux")

    yield make
    torch_version.cache_clear()


def test_its_version_is_what_torch_says() -> None:
    found = torch_version()
    assert found is not None
    assert (found.__version__, found.cuda) == (torch.__version__, torch.version.cuda)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cuda = None\nhip = None\nxpu = None", True),
        ("cuda = '13.0'\nhip = None\nxpu = None", False),
        ("cuda = None\nhip = '7.0'\nxpu = None", False),
        ("cuda = None\nhip = None", False),
        ("import nothing_like_it", False),
        (None, False),
    ],
)
def test_it_is_for_the_cpu_alone_only_if_it_says_so(
    installed: Callable[[str | None], None], text: str | None, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(text)
    assert is_for_cpu_alone() is expected
    monkeypatch.setattr(sys, "platform", "darwin")  # where each build may have a GPU
    assert not is_for_cpu_alone()
