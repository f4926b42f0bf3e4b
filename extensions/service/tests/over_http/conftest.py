"""Services whose jobs run where their directory is not seen."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkout import TESTS
from served import install


@pytest.fixture
def far_machine(make_server: Callable[..., Any], service_site: Any, tmp_path: Path) -> Callable[[str], Any]:
    """``far_machine("b")``: a service with runs of its own; all have the mirror ``tmp_path/mirror`` in common.

    Jobs of its launcher ``far`` run in the folder ``tmp_path/b-far``.
    """
    launcher = TESTS / "integration/mirror/far_launcher.py"
    install(service_site.path, "far-launcher", [launcher], {"hostcore.launchers": {"away": "far_launcher:Far"}})
    (tmp_path / "mirror").mkdir()
    http = f'checkpoint_roots = ["{tmp_path}/mirror"]\ndata_roots = ["{tmp_path}"]'

    def make(name: str) -> Any:
        far = {"HOSTCORE_TEST_FAR": str(tmp_path / f"{name}-far")}
        return make_server(folder=tmp_path / name, launchers="away = {}", http=http, **far)

    return make
