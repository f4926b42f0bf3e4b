import json
import subprocess
import sys
from importlib.metadata import distribution
from importlib.resources import files

import pytest

MODULES = sorted(
    f"hostcore_builtin_plugins.{file.name.removesuffix('.py')}"
    for file in files("hostcore_builtin_plugins").iterdir()
    if file.name.endswith(".py")
)
KEPT_OUT = {
    "hostcore_builtin_plugins.terminal": {"rich", "pyarrow", "fsspec"},
    "hostcore_builtin_plugins.jsonl": {"rich", "pyarrow", "fsspec"},
    "hostcore_builtin_plugins.local": {"rich", "pyarrow", "fsspec"},
}


@pytest.mark.parametrize("module", MODULES)
def test_no_module_imports_the_host_or_torch(module: str) -> None:
    program = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"
    imported = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True).stdout
    packages = {name.partition(".")[0] for name in json.loads(imported)}
    assert not packages & ({"hostcore", "torch"} | KEPT_OUT.get(module, set()))


def test_every_entry_point_leads_to_a_class() -> None:
    declared = distribution("hostcore-builtin-plugins").entry_points
    assert {(entry_point.group.removeprefix("hostcore."), entry_point.name) for entry_point in declared} == {
        ("data_sources", "parquet"),
        ("data_sources", "arrow"),
        ("data_sources", "csv"),
        ("data_sources", "json"),
        ("data_sources", "shards"),
        ("data_sources", "mock"),
        ("callbacks", "best-checkpoint"),
        ("callbacks", "csv-metrics"),
        ("callbacks", "early-stopping"),
        ("callbacks", "grad-clip"),
        ("callbacks", "lr-monitor"),
        ("callbacks", "nonfinite-guard"),
        ("callbacks", "oom-hint"),
        ("callbacks", "profiler"),
        ("callbacks", "throughput"),
        ("reporters", "terminal"),
        ("reporters", "job-index"),
        ("reporters", "jsonl"),
        ("trainers", "process"),
        ("runs_code", "process"),
        ("uploaders", "fsspec"),
        ("uploaders", "http"),
        ("launchers", "local"),
        ("policies", "allow-list"),
    }
    assert all(isinstance(entry_point.load(), type) for entry_point in declared)
