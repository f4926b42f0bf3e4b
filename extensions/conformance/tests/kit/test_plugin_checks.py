"""What importing a plugin does is seen, told apart, and blamed on the module that did it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostcore_conformance.example import Example
from hostcore_conformance.result import CheckResult
from hostcore_conformance.session import Session
from hostcore_hookspecs.plan import PluginRef

RESOLVER = """
class Resolver:
    "Knows no reference."

    def resolve_ref(self, ref):
        "Leave it to others."
"""


def check(folder: Path, monkeypatch: pytest.MonkeyPatch, only: str, **modules: str) -> list[CheckResult]:
    """The results of some checks of the resolver in ``modules["own"]``, a package of its own name in a folder."""
    package = f"of_{folder.name.replace('-', '_')}"  # of its own for every test: modules are imported once a process
    for name, text in modules.items():
        file = folder / (f"{package}/__init__.py" if name == "own" else f"{name}.py")
        file.parent.mkdir(exist_ok=True)
        file.write_text(text + (RESOLVER if name == "own" else ""))
    monkeypatch.syspath_prepend(str(folder))
    ref = PluginRef(kind="resolver", name="tried", value=f"{package}:Resolver", dist=None, version=None)
    with Session(ref, Example(folder=folder)) as session:
        return list(session.run([only]))


def failed(results: list[CheckResult]) -> dict[str, str]:
    return {one.id: one.message for one in results if one.status == "failed"}


def once(name: str, statement: str) -> str:
    """A module that does something in the process of the kit alone, and leaves that of the tests as it is."""
    return f"import sys, {name}\nif 'pytest' not in sys.modules:\n    {statement}\n"


@pytest.fixture
def server() -> Iterator[int]:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listening:
        yield listening.getsockname()[1]


def test_an_effect_fails_its_own_variant_alone_and_names_module_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = once("pathlib", "pathlib.Path('traces').write_text('')")
    results = failed(check(tmp_path, monkeypatch, "plugin.import*", own=own))
    assert set(results) == {"plugin.import_quiet[files]"}
    assert f"of_{tmp_path.name}, line 3, opened traces for writing" in results["plugin.import_quiet[files]"]


def test_what_a_library_does_while_it_is_imported_is_not_the_plugins_doing_unless_it_connects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: int
) -> None:
    library = once("os, random, socket, threading", "os.environ['OF_THE_LIBRARY'] = random.choice('ab')")
    library += "    thread = threading.Thread(target=print); thread.start(); thread.join()\n"
    library += f"    socket.create_connection(('127.0.0.1', {server})).close()\n"
    results = failed(
        check(
            tmp_path, monkeypatch, "plugin.import*", own="import a_library_of_somebodys", a_library_of_somebodys=library
        )
    )
    assert set(results) == {"plugin.import_quiet[network]"}
    assert "a_library_of_somebodys, line 5, socket.connect" in results["plugin.import_quiet[network]"]


def test_what_is_put_back_before_the_import_ends_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = "import os, random, warnings\nstate = random.getstate()\nos.environ['FOR_A_MOMENT'] = '1'\n"
    own += "with warnings.catch_warnings():\n    warnings.simplefilter('ignore')\n    random.seed(1)\n"
    own += "    import a_second_library\nrandom.setstate(state)\ndel os.environ['FOR_A_MOMENT']\n"
    results = check(tmp_path, monkeypatch, "plugin.import*", own=own, a_second_library="")
    assert failed(results) == {}


def test_a_plugin_that_ends_the_process_when_it_is_imported_is_found_and_blocks_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = check(tmp_path, monkeypatch, "plugin.import*", own=once("os", "os._exit(7)"))
    assert "it ended with 7" in failed(results)["plugin.imports_alone"]
    assert {one.status for one in results if one.id != "plugin.imports_alone"} == {"blocked"}


def test_a_plugin_of_no_distribution_is_not_asked_about_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for family in ("registered", "name_unique", "contract_required"):
        (result,) = check(tmp_path, monkeypatch, f"plugin.{family}", own="")
        assert result.status == "skipped"
        assert result.certifies
