import json
import subprocess
import sys

IMPORT_ALL = """
import importlib, json, pkgutil, sys
import hostcore_builtin_plugins.callbacks as package
names = [module.name for module in pkgutil.iter_modules(package.__path__)]
for name in names:
    importlib.import_module(f"{package.__name__}.{name}")
print(json.dumps([names, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


def test_no_callback_imports_the_host_or_anything_heavy_before_it_is_used() -> None:
    answer = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True, check=True)
    names, loaded = json.loads(answer.stdout)
    assert {"grad_clip", "nonfinite_guard", "oom_hint", "profiler"} <= set(names)
    assert {"hostcore", "torch", "numpy", "pyarrow", "rich", "matplotlib"}.isdisjoint(loaded)
