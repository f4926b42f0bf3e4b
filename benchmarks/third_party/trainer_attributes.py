"""Attributes of Lightning's Trainer that modules and callbacks of 30 packages touch: ``trainer_attributes.md``.

Their wheels are downloaded and parsed; nothing is installed or imported. Needs a network.
"""

import argparse
import ast
import subprocess
import sys
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel

from hostcore_hookspecs import ImportPath, Job, RunState, StepContext
from hostcore_lightning.settings import Hyperparams, TrainerInternal
from hostcore_lightning.trainer_view import TrainerView

TABLE: Final = Path(__file__).parent / "trainer_attributes.md"
#: Packages that train with Lightning, the most downloaded first; then those of the folders beside this file.
PACKAGES: Final = (
    *("mlflow", "pyannote-audio", "gluonts", "nemo-toolkit", "optuna-integration", "vocos", "pytorch-forecasting"),
    *("neuralforecast", "unbabel-comet", "autogluon-timeseries", "lightly", "u8darts", "deepchem", "torchgeo"),
    *("scvi-tools", "nequip", "terratorch", "anomalib", "asteroid", "chemprop", "deeptab", "disent", "kraken"),
    *("lightning-uq-box", "matgl", "careamics", "pytorch-tabular", "replay-rec", "rl4co", "litgpt"),
)
#: Parts of a Trainer whose own attributes are counted as well.
PARTS: Final = ("strategy", "fit_loop", "state", "precision_plugin")
HEAD: Final = "| `trainer.` | packages that touch it | here |\n|---|---|---|\n"


def main() -> None:
    """Download what is not there yet, and write the table."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--wheels", type=Path, help="folder that keeps the wheels, for the next time")
    given = ask.parse_args()
    with tempfile.TemporaryDirectory(prefix="wheels-") as folder:
        wheels: Path = given.wheels or Path(folder)
        wheels.mkdir(parents=True, exist_ok=True)
        users: dict[str, set[str]] = defaultdict(set)
        for package in PACKAGES:
            for name in touched(wheel_of(package, wheels)):
                users[name].add(package)
    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    rows = sorted((-len(packages), name) for name, packages in users.items() if _is_lightnings(trainer, name))
    view = _view()
    text = "".join(f"| `{name}` | {-count} | {_here(view, name)} |\n" for count, name in rows)
    about = f"<!-- Written by `benchmarks/third_party/trainer_attributes.py` from {len(PACKAGES)} packages. -->\n\n"
    TABLE.write_text(about + HEAD + text)


def wheel_of(package: str, folder: Path) -> Path:
    """Return the newest wheel of a package, downloaded once."""
    pattern = package.replace("-", "_") + "-*.whl"
    if not (found := sorted(folder.glob(pattern))):
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        subprocess.run([*pip, "--dest", folder, package], check=True)
        found = sorted(folder.glob(pattern))
    return found[-1]


def touched(wheel: Path) -> set[str]:
    """Return the names of attributes that the code in a wheel reads, sets or calls where it is given a Trainer."""
    found: set[str] = set()
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(".py") and "/tests/" not in name and b"trainer" in (text := archive.read(name)):
                try:
                    tree = ast.parse(text)
                except SyntaxError:
                    continue
                found.update(one for cls in ast.walk(tree) if isinstance(cls, ast.ClassDef) for one in _of_class(cls))
    return found


def _of_class(cls: ast.ClassDef) -> Iterator[str]:
    """Yield attributes of ``self.trainer``, unless the class makes one, and of the argument ``trainer`` of hooks."""
    stored = (node for node in ast.walk(cls) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store))
    has_own = any(_is_of_self(node) for node in stored)
    for method in cls.body:
        if not isinstance(method, ast.FunctionDef):
            continue
        names = [one.arg for one in method.args.args]
        is_hook = "trainer" in names and len(names) > 2  # self, trainer, pl_module
        for node in ast.walk(method):
            if not isinstance(node, ast.Attribute):
                continue
            of, path = node.value, node.attr
            if isinstance(of, ast.Attribute) and of.attr in PARTS:
                of, path = of.value, f"{of.attr}.{path}"
            if (is_hook and isinstance(of, ast.Name) and of.id == "trainer") or (_is_of_self(of) and not has_own):
                yield path


def _is_of_self(node: ast.expr) -> bool:
    of = node.value if isinstance(node, ast.Attribute) and node.attr == "trainer" else None
    return isinstance(of, ast.Name) and of.id in ("self", "pl_module", "module")


def _view() -> TrainerView:
    hyperparams = Hyperparams(module=ImportPath("lightning.pytorch.demos.boring_classes:BoringModel"))
    ctx = StepContext(job=Job(max_steps=3), hyperparams=hyperparams, run_state=RunState(total_steps=3))
    return TrainerView(ctx, BoringModel(), None, [], hyperparams)


def _here(view: TrainerView, path: str) -> str:
    found: object = view
    try:
        for name in path.split("."):
            found = getattr(found, name)
    except TrainerInternal as refused:
        return f"refused: {str(refused.hint).partition(': use what')[0]}"
    return "given"


def _is_lightnings(trainer: Trainer, path: str) -> bool:
    """Return whether Lightning's own Trainer has an attribute; packages have Trainers with more."""
    found: object = trainer
    for name in path.split("."):
        if not hasattr(found, name):
            return False
        found = getattr(found, name)
    return True


if __name__ == "__main__":
    main()
