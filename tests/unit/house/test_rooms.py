"""Imports point downwards and in no circle, and torch stays in its rooms.

Read from the source, so that a lazy import counts too.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import attrs
import pytest

#: From the bottom to the top; a room imports itself and what is below it.
ROOMS = (
    "interruption",
    "errors",
    "secrets",
    "notebook",
    "events",
    "probe",
    "job",
    "plugins",
    "runs",
    "checkpoints",
    "worker",
    "supervisor",
    "in_process",
    "verification",
    "cli",
)
#: ``hostcore/__init__.py`` and what starts the program: above all rooms.
FRONT = "front"
#: What everybody may take from there.
VERSION = "hostcore.__version__"
#: The former name of ``hostcore_toolkit``, for trainer authors: no room imports it.
FORMER_TOOLKIT = "hostcore.toolkit"

#: Rooms of the host's own process, which never loads what the worker does.
WITHOUT_WORKER = ("supervisor",)

_HOST = ("hostcore_hookspecs", "hostcore_builtin_plugins", "hostcore")
#: What each distribution may import of the project. The host finds the rest by entry point.
MAY_IMPORT = {
    "hostcore_hookspecs": (),
    "hostcore_toolkit": ("hostcore_hookspecs",),
    "hostcore_builtin_plugins": ("hostcore_hookspecs",),
    "hostcore": ("hostcore_hookspecs", "hostcore_toolkit", "hostcore_builtin_plugins"),
    "hostcore_chaos": _HOST,
    "hostcore_conformance": (*_HOST, "hostcore_chaos", "hostcore_toolkit"),
    "hostcore_debug": (*_HOST, "hostcore_toolkit"),
    "hostcore_engines": _HOST,
    "hostcore_environments": _HOST,
    "hostcore_inspect": _HOST,
    "hostcore_lightning": (*_HOST, "hostcore_toolkit"),
    "hostcore_service": (*_HOST, "hostcore_inspect"),
    "hostcore_sources": ("hostcore_hookspecs", "hostcore_toolkit", "hostcore_builtin_plugins"),
    "hostcore_sweeps": (*_HOST, "hostcore_inspect"),
    "hostcore_trackers": ("hostcore_hookspecs", "hostcore_builtin_plugins"),
    "hostcore_transformers": (*_HOST, "hostcore_toolkit"),
}
#: Modules of the host that the job service, which never loads what the worker does, must not import.
_SERVICE = "hostcore_service"

#: Where torch may be imported, by module prefix. The contract needs it in one method, for those who have it.
TORCH_ROOMS = (
    "hostcore.worker",
    "hostcore_toolkit",
    FORMER_TOOLKIT,
    "hostcore_conformance",
    "hostcore_debug.callback",
    "hostcore_debug.named",
    "hostcore_debug.replay_check",
    "hostcore_inspect.bits",
    "hostcore_inspect.doctor",
    "hostcore_inspect.export",
    "hostcore_lightning",
    "hostcore_sources.torch_dataset",
    "hostcore_transformers",
    "hostcore.checkpoints.encoding",
    "hostcore.checkpoints.sharded",
    "hostcore.checkpoints.state",
    "hostcore_hookspecs.context",
    "hostcore_builtin_plugins.callbacks",
)


@attrs.frozen(kw_only=True)
class Import:
    """One import statement's target."""

    importer: str
    target: str
    line: int
    typing_only: bool

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.target}"


def _is_type_checking(node: ast.If) -> bool:
    test = node.test
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", None)
    return name == "TYPE_CHECKING"


def _targets(node: ast.AST, package: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*above, *([base] if base else [])])
        yield from (f"{base}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in ("import_module", "__import__"):
            yield str(node.args[0].value)


def _walk(node: ast.AST, typing_only: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    yield node, typing_only
    for child in ast.iter_child_nodes(node):
        guarded = isinstance(node, ast.If) and _is_type_checking(node) and child in node.body
        yield from _walk(child, typing_only or guarded)


def imports(packages: Mapping[str, Path]) -> list[Import]:
    """Every import in every module of the packages, wherever in the module it stands."""
    found = []
    for name, folder in packages.items():
        for file in sorted(folder.rglob("*.py")):
            parts = [name, *file.relative_to(folder).with_suffix("").parts]
            is_package = parts[-1] == "__init__"
            module = ".".join(parts[:-1] if is_package else parts)
            package = module if is_package else module.rpartition(".")[0]
            for node, typing_only in _walk(ast.parse(file.read_text(encoding="utf-8"), str(file))):
                line = getattr(node, "lineno", 0)
                for target in _targets(node, package):
                    found.append(Import(importer=module, target=target, line=line, typing_only=typing_only))
    return found


def room(module: str) -> str | None:
    """The room of a module of the host; None for a module of anybody else."""
    first, *rest = module.split(".")
    if first != "hostcore" or module == VERSION:
        return None
    return rest[0] if rest and rest[0] in ROOMS else FRONT


def _points_upwards(source: str, target: str) -> bool:
    if source in (target, FRONT):
        return False
    if FRONT in (source, target):
        return True
    if target == "worker" and source in WITHOUT_WORKER:
        return True
    return ROOMS.index(source) < ROOMS.index(target)


def wrong_directions(found: Sequence[Import]) -> list[str]:
    """The imports that point upwards, or out of a distribution that may not know the other."""
    wrong = []
    for each in found:
        distribution, target = each.importer.split(".")[0], each.target.split(".")[0]
        source_room, target_room = room(each.importer), room(each.target)
        if target in MAY_IMPORT and target != distribution:
            bad = target not in MAY_IMPORT[distribution]
            bad |= distribution == _SERVICE and target_room == "worker"
            bad |= target == "hostcore_toolkit" and bool(source_room) and not _may_load_torch(each.importer)
        else:
            bad = bool(source_room and target_room and _points_upwards(source_room, target_room))
        if bad:
            wrong.append(str(each))
    return wrong


def circle(found: Sequence[Import]) -> list[str]:
    """Modules that import each other in a circle, if there are any; packages are left out."""
    graph: dict[str, set[str]] = {}
    for each in found:
        # The target may be a name in a module.
        targets = set() if each.typing_only else {each.target, each.target.rpartition(".")[0]}
        graph.setdefault(each.importer, set()).update(targets - {each.importer})
    modules = graph.keys() - {module.rpartition(".")[0] for module in graph}
    try:
        TopologicalSorter({module: graph[module] & modules for module in modules}).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def stray_torch(found: Sequence[Import]) -> list[str]:
    """The imports of torch outside its rooms; for type checkers alone they are free."""
    return [
        str(each)
        for each in found
        if not each.typing_only
        and (each.target.split(".")[0] == "torch" or each.target.startswith("safetensors.torch"))
        and not _may_load_torch(each.importer)
    ]


def _may_load_torch(importer: str) -> bool:
    return any(f"{importer}.".startswith(f"{allowed}.") for allowed in TORCH_ROOMS)


@pytest.fixture(scope="module")
def found(packages: dict[str, Path]) -> list[Import]:
    """Every import of the project."""
    return imports(packages)


def test_imports_point_downwards(found: list[Import]) -> None:
    assert wrong_directions(found) == []


def test_no_modules_import_each_other_in_a_circle(found: list[Import]) -> None:
    assert circle(found) == []


def test_torch_is_imported_only_where_training_happens(found: list[Import]) -> None:
    assert stray_torch(found) == []


def test_every_folder_of_the_host_is_a_room(packages: dict[str, Path]) -> None:
    folders = {path.parent.name for path in packages["hostcore"].glob("*/__init__.py")}
    assert folders <= set(ROOMS)


PLANTED = [
    ("hostcore/events/writer.py", "from hostcore.runs import lease"),
    ("hostcore/events/writer.py", "from hostcore import cli"),
    ("hostcore/events/writer.py", "from ..runs.lease import Lease"),
    ("hostcore/runs/__init__.py", "from ..checkpoints import commit"),
    ("hostcore/job/load.py", "def load():\n    import hostcore.plugins.resolve"),
    ("hostcore/job/load.py", "importlib.import_module('hostcore.plugins')"),
    ("hostcore/job/load.py", "if TYPE_CHECKING:\n    from hostcore.plugins import resolve"),
    ("hostcore/supervisor/workers/spawn.py", "import hostcore.worker.loop"),
    ("hostcore/supervisor/workers/spawn.py", "from hostcore_toolkit import seed_everything"),
    ("hostcore/supervisor/workers/spawn.py", "from hostcore.in_process import run_here"),
    ("hostcore/runs/lease.py", "from hostcore_toolkit import seed_everything"),
    ("hostcore_toolkit/seed.py", "from hostcore.errors import Errors"),
    ("hostcore/worker/entry.py", "from hostcore.toolkit import seed_everything"),
    ("hostcore_service/app.py", "from hostcore_toolkit import to_tensors"),
    ("hostcore/cli/commands/run.py", "from hostcore import entrypoint"),
    ("hostcore_hookspecs/step.py", "from hostcore.errors import Errors"),
    ("hostcore_hookspecs/step.py", "import hostcore_builtin_plugins"),
    ("hostcore_builtin_plugins/mock.py", "from hostcore.events import reader"),
    ("hostcore/cli/commands/run.py", "from hostcore_service.client import Client"),
    ("hostcore_builtin_plugins/local.py", "from hostcore_engines import slurm"),
    ("hostcore_sources/lance.py", "from hostcore.runs import lease"),
    ("hostcore_trackers/mlflow.py", "import hostcore"),
    ("hostcore_service/app.py", "from hostcore.worker import loop"),
    ("hostcore_conformance/check.py", "from hostcore_service import app"),
]

ALLOWED = [
    ("hostcore/cli/commands/run.py", "from hostcore.supervisor import plan"),
    ("hostcore/cli/commands/run.py", "from hostcore.cli.output import print_json"),
    ("hostcore/worker/entry.py", "from hostcore_toolkit import seed_everything"),
    ("hostcore/supervisor/workers/spawn.py", "from hostcore.runs import lease\nfrom hostcore_hookspecs import Event"),
    ("hostcore/supervisor/workers/spawn.py", "from hostcore import __version__"),
    ("hostcore/in_process.py", "from hostcore.supervisor import supervise\nfrom hostcore.worker import attempt"),
    ("hostcore/__init__.py", "def run():\n    from hostcore.worker import entry"),
    ("hostcore_builtin_plugins/mock.py", "from hostcore_hookspecs import Shard"),
    ("hostcore_sources/lance.py", "from hostcore_builtin_plugins import processes"),
    ("hostcore_service/app.py", "from hostcore.supervisor import plan"),
    ("hostcore_conformance/check.py", "from hostcore.worker import loop"),
]


def _plant(root: Path, file: str, source: str) -> list[Import]:
    path = root / file
    path.parent.mkdir(parents=True)
    path.write_text(source)
    name = file.split("/", maxsplit=1)[0]
    return imports({name: root / name})


@pytest.mark.parametrize(("file", "source"), PLANTED)
def test_a_planted_import_in_the_wrong_direction_is_found(tmp_path: Path, file: str, source: str) -> None:
    assert len(wrong_directions(_plant(tmp_path, file, source))) == 1


@pytest.mark.parametrize(("file", "source"), ALLOWED)
def test_an_import_that_points_downwards_is_fine(tmp_path: Path, file: str, source: str) -> None:
    assert wrong_directions(_plant(tmp_path, file, source)) == []


@pytest.mark.parametrize(
    ("back", "is_circle"),
    [
        ("from hostcore.job.spec import JobSpec", True),
        ("def late():\n    from hostcore.job import spec", True),
        ("if TYPE_CHECKING:\n    from hostcore.job.spec import JobSpec", False),
        ("from hostcore.job.names import RunId", False),
    ],
)
def test_a_planted_circle_is_found(tmp_path: Path, back: str, is_circle: bool) -> None:
    _plant(tmp_path, "hostcore/job/spec.py", "from hostcore.job.rules import check_rules")
    (tmp_path / "hostcore/job/rules.py").write_text("from hostcore.job import sections")
    (tmp_path / "hostcore/job/sections.py").write_text(back)
    assert bool(circle(imports({"hostcore": tmp_path / "hostcore"}))) is is_circle


@pytest.mark.parametrize(
    ("file", "source", "stray"),
    [
        ("hostcore/supervisor/workers/spawn.py", "def spawn():\n    import torch.distributed", 1),
        ("hostcore/checkpoints/commit.py", "from safetensors.torch import save_file", 1),
        ("hostcore_builtin_plugins/mock.py", "import torch", 1),
        ("hostcore/worker/loop.py", "import torch", 0),
        ("hostcore/checkpoints/state.py", "import torch", 0),
        ("hostcore/checkpoints/commit.py", "if TYPE_CHECKING:\n    import torch", 0),
    ],
)
def test_a_planted_import_of_torch_is_judged_by_its_room(tmp_path: Path, file: str, source: str, stray: int) -> None:
    assert len(stray_torch(_plant(tmp_path, file, source))) == stray
