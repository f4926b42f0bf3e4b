"""All that ships with hostcore can be certified, and the example plugins. The example trainers ask themselves."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from fork_server import forked_children

from hostcore.plugins.installed import discover
from hostcore_conformance import report_on
from hostcore_conformance.asking import open_session

Example = Callable[[Path], dict[str, Any]]

HERE = Path(__file__).resolve().parent
#: Asked with each of its programs, in example_trainers/linear.
WITH_PROGRAMS = {("trainer", "process")}
#: It opens nothing itself: the sources of its parts are asked.
WITHOUT_DATA = {("data_source", "mix")}
#: Plugins that start a process for each of many checks: its module, and what it imports for seconds.
FORKED = {("launcher", "torchrun"): ("hostcore_engines.keeper", "torch.distributed.run")}


def _module(file: Path) -> ModuleType:
    name = f"builtin_examples_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _examples() -> Mapping[tuple[str, str], Example]:
    """What each plugin is checked with, by kind and name."""
    modules = {file.stem: _module(file) for file in sorted(HERE.glob("builtins/*.py"))}
    return {
        (getattr(module, "KIND", stem), name): make
        for stem, module in modules.items()
        for name, make in module.EXAMPLES.items()
    }


EXAMPLES = _examples()


@pytest.mark.parametrize(("kind", "name"), EXAMPLES, ids=[f"{kind}:{name}" for kind, name in EXAMPLES])
def test_it_can_be_certified(kind: str, name: str, tmp_path: Path) -> None:
    forks = FORKED.get((kind, name))
    with (
        forked_children(*forks) if forks else nullcontext(),
        open_session(name, kind=kind, start=tmp_path, **EXAMPLES[kind, name](tmp_path)) as session,
    ):
        results = list(session.run())
    assert [f"{one.id}: {one.status}, {one.message}" for one in results if not one.certifies] == []
    assert report_on(session.ref, results).certified


def test_every_builtin_is_asked() -> None:
    registered = {(ref.kind, ref.name) for ref in discover().refs if ref.dist == "hostcore-builtin-plugins"}
    assert registered - set(EXAMPLES) == WITH_PROGRAMS | WITHOUT_DATA
