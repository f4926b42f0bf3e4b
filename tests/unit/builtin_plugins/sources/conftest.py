"""Text that is cut into shards of a few bytes and rows."""

from collections.abc import Callable

import pytest

from hostcore_builtin_plugins.sources import text_scan


@pytest.fixture
def cut_finely(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``cut_finely(20, num_rows=4)``: shards of so many bytes and rows."""

    def cut(num_bytes: int, num_rows: int = 65_536) -> None:
        monkeypatch.setattr(text_scan, "STRETCH_BYTES", num_bytes)
        monkeypatch.setattr(text_scan, "STRETCH_ROWS", num_rows)

    return cut
