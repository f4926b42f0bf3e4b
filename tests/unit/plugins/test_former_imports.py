"""Modules that import from gen-worker, and the line that replaces it."""

import importlib.util
from pathlib import Path

import pytest

import hostcore_hookspecs
import hostcore_toolkit
from hostcore.plugins.published import FORMER, NAMES, import_to_write

LINES = {
    "from gen_worker.trainer import StepContext, StepResult": (
        "write: from hostcore_hookspecs import StepContext, StepResult"
    ),
    "from gen_worker.trainer import (\n    StepContext as Ctx,\n    StepControlHints,\n)": (
        "write: from hostcore_hookspecs import StepContext as Ctx, StepControl as StepControlHints"
    ),
    "from gen_worker.trainer import StepResult\nfrom gen_worker.trainer import seed_everything": (
        "write: from hostcore_hookspecs import StepResult; from hostcore_toolkit import seed_everything"
    ),
    "from gen_worker.trainer import StepContext, TrainingReporter": (
        "write: from hostcore_hookspecs import StepContext, without TrainingReporter, which hostcore does not have"
    ),
    "from gen_worker.trainer import TrainingReporter": "without TrainingReporter, which hostcore does not have",
    "import gen_worker.trainer": "write: from hostcore_hookspecs import StepContext, StepResult",
    "import missing_module": None,
}


def failure(file: Path) -> ModuleNotFoundError:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec and spec.loader
    with pytest.raises(ModuleNotFoundError) as caught:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    return caught.value


@pytest.mark.parametrize(("source", "line"), LINES.items())
def test_one_line_replaces_all_imports_of_a_module(source: str, line: str | None, tmp_path: Path) -> None:
    file = tmp_path / "trainer.py"
    file.write_text(f"{source}\n")
    assert import_to_write(failure(file)) == line


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_one_that_can_be_imported(name: str) -> None:
    module, here = NAMES[name]
    assert here in {"hostcore_hookspecs": hostcore_hookspecs, "hostcore_toolkit": hostcore_toolkit}[module].__all__


def test_the_former_host_is_not_installed_here() -> None:
    assert importlib.util.find_spec(FORMER) is None
