"""The service of ``tests/integration/service``, for what takes longer."""

import importlib.util
from pathlib import Path

_FILE = Path(__file__).parents[2] / "integration" / "service" / "conftest.py"
_spec = importlib.util.spec_from_file_location("service_in_a_process", _FILE)
assert _spec is not None
assert _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)

service_site = _module.service_site
make_server = _module.make_server
server = _module.server
until = _module.until
