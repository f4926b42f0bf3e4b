import json
import subprocess
import sys
from pathlib import Path

import pytest

from hostcore_builtin_plugins.extras import install_command
from hostcore_hookspecs import HostcoreError

IMPORT_PLUGINS = """
import importlib, json, sys
from pathlib import Path
here = Path("here")
for module, name, settings in [
    ("hf_datasets", "DatasetsSource", {"path": here}),
    ("delta", "DeltaSource", {"path": here}),
    ("duckdb", "DuckdbSource", {"sql": "SELECT 1", "tables": {"a": here}}),
    ("lance", "LanceSource", {"path": here}),
    ("torch_dataset", "TorchSource", {"use": "flowers:Flowers"}),
]:
    owner = getattr(importlib.import_module("hostcore_sources." + module), name)
    owner(settings=owner.Settings(**settings))
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def test_no_source_imports_the_host_or_its_library_before_it_opens() -> None:
    answer = subprocess.run([sys.executable, "-c", IMPORT_PLUGINS], capture_output=True, text=True, check=True)
    heavy = {"hostcore", "torch", "pandas", "datasets", "deltalake", "duckdb", "lance"}
    assert heavy.isdisjoint(json.loads(answer.stdout))


@pytest.mark.parametrize(
    ("name", "library"),
    [("datasets", "datasets"), ("delta", "deltalake"), ("duckdb", "duckdb"), ("lance", "lance")],
)
def test_a_missing_library_is_an_error_that_names_the_extra(
    name: str, library: str, open_source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    here = Path("here")
    with pytest.raises(HostcoreError, match=f"{library} is not installed") as caught:
        open_source(name, **({"sql": "SELECT 1", "tables": {"a": here}} if name == "duckdb" else {"path": here}))
    assert caught.value.code == "plugin.extra_missing"
    assert install_command(name) in (caught.value.hint or "")
