"""``hostcore plugins`` shows the conformance report that a plugin ships, and imports nothing to find it."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from hostcore_conformance.result import CheckResult, Report

BOOM = "raise RuntimeError('imported')"
GROUP = "hostcore.trainers"


def result(check: str, status: str = "passed", **about: Any) -> CheckResult:
    return CheckResult(id=check, status=status, level="must", **about)  # type: ignore[arg-type]


def report(*results: CheckResult, name: str = "mine", kind: str = "trainer", **about: Any) -> dict[str, Any]:
    """What ``hostcore check NAME --json FILE`` writes."""
    facts = {"distribution": "my-dist", "version": "1.0", "complete": False, **about}
    made = {"hostcore": "0.1.0", "api_version": "1.0.0", "python": "3.11.9", "created_ms": 1_789_000_000_000}
    return json.loads(json.dumps(Report(kind=kind, name=name, results=results, **made, **facts).as_dict()))


CERTIFIED = report(result("a"), result("b"), complete=True)
PASSED = report(result("a"), result("b"), result("c", "skipped", wants_example=True))
SHOULD = report(result("a"), CheckResult(id="b", status="failed", level="should", message="it is slow"))
PARTIAL = report(result("a"), result("b", "skipped", wants_example=True, no_example=True))
FAILED = report(result("trainer.trains"), result("trainer.resume_exact", "failed", message="step 5: 0.1 is not 0.2"))


@pytest.fixture
def shipped(site_here: Any, hostcore: Callable) -> Callable:
    """``shipped(report, "--json")``: what ``hostcore plugins`` says once a distribution ships a report."""

    def ship(document: object, *arguments: str, **install: Any) -> Any:
        text = document if isinstance(document, str) else json.dumps(document)
        modules = {"my_dist/__init__.py": BOOM, "my_dist/trainer.py": BOOM, "my_dist/conformance.json": text}
        given = {"modules": modules, "entry_points": {GROUP: {"mine": "my_dist.trainer:T"}}, **install}
        site_here.install("my-dist", **given)
        said = hostcore("plugins", *arguments)
        assert said.code == 0
        assert "my_dist" not in sys.modules
        return said

    return ship


def row(said: Any, name: str = "mine") -> str:
    """The cell of a plugin under CONFORMANCE."""
    head, *lines = said.out.splitlines()
    (line,) = (line for line in lines if f" {name} " in line)
    return line[head.index("CONFORMANCE") : head.index("VALUE")].strip()


def conformance(said: Any, name: str = "mine") -> Any:
    (found,) = (one["conformance"] for one in said.json["plugins"] if one["name"] == name)
    return found


@pytest.mark.parametrize(
    ("document", "cell"),
    [
        (CERTIFIED, "certified"),
        (PASSED, "2 passed"),
        (SHOULD, "1 passed"),
        (PARTIAL, "not fully checked"),
        (FAILED, "1 failed"),
        ({"reports": [report(result("x"), kind="callback", name="mine"), CERTIFIED]}, "certified"),
        (report(result("a"), version="0.1.0", complete=True), "certified (of 0.1.0)"),
        (report(result("a"), version="2.0"), "1 passed (of 2.0)"),
        (report(result("a"), distribution="My.Dist"), "1 passed"),
    ],
)
def test_the_table_tells_the_verdict_and_the_version_if_it_is_another(
    shipped: Callable, document: Mapping[str, Any], cell: str
) -> None:
    said = shipped(document)
    assert row(said) == cell
    assert said.err == ""


@pytest.mark.parametrize(
    "document",
    [
        report(result("a"), name="other"),
        report(result("a"), kind="callback"),
        report(result("a"), distribution="a-fork"),
        {"reports": []},
    ],
)
def test_a_report_about_something_else_is_none(shipped: Callable, document: Mapping[str, Any]) -> None:
    said = shipped(document)
    assert (row(said), said.err) == ("-", "")


def test_the_json_has_the_numbers_and_the_failures(shipped: Callable) -> None:
    assert conformance(shipped(FAILED, "--json")) == {
        "certified": False,
        "is_partial": False,
        "summary": {"passed": 1, "failed": 1, "warning": 0, "blocked": 0, "skipped": 0, "expected_failure": 0},
        "failures": [{"id": "trainer.resume_exact", "level": "must", "message": "step 5: 0.1 is not 0.2"}],
        "version": "1.0",
        "is_of_installed_version": True,
        "hostcore": "0.1.0",
        "api_version": "1.0.0",
        "python": "3.11.9",
        "created_ms": 1_789_000_000_000,
    }


def test_without_a_report_the_json_has_null(shipped: Callable) -> None:
    modules = {"my_dist/__init__.py": BOOM}
    assert conformance(shipped("", "--json", modules=modules)) is None


@pytest.mark.parametrize(
    ("modules", "value"),
    [
        # Beside a single module, a file of this name would be everybody's.
        ({"my_dist.py": BOOM, "conformance.json": json.dumps(CERTIFIED)}, "my_dist:T"),
        ({"space/my_dist/__init__.py": BOOM, "space/conformance.json": json.dumps(CERTIFIED)}, "space.my_dist:T"),
        ({"unrelated.py": ""}, "not_there.at_all:T"),
    ],
    ids=["single module", "namespace package", "missing package"],
)
def test_only_a_top_level_package_has_one(shipped: Callable, modules: Mapping[str, str], value: str) -> None:
    said = shipped("", modules=modules, entry_points={GROUP: {"mine": value}})
    assert (row(said), said.err) == ("-", "")


def test_of_an_editable_installation_it_is_found_where_the_source_is(
    site_here: Any, hostcore: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "checkout/my_dist"
    source.mkdir(parents=True)
    (source / "__init__.py").write_text(BOOM)
    (source / "conformance.json").write_text(json.dumps(CERTIFIED))
    site_here.install("my-dist", modules={}, entry_points={GROUP: {"mine": "my_dist:T"}})
    assert row(hostcore("plugins")) == "-"

    # As setuptools does it: a finder instead of a folder on the path.
    from importlib.util import spec_from_file_location

    class Finder:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> Any:
            return spec_from_file_location(name, source / "__init__.py") if name == "my_dist" else None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    assert row(hostcore("plugins")) == "certified"
    assert "my_dist" not in sys.modules


MALFORMED = {
    "no JSON": "{",
    "empty": "",
    "another type": "[]",
    "no plugin": {**PASSED, "plugin": None},
    "a name with an escape sequence": {**PASSED, "plugin": {**PASSED["plugin"], "version": "1\x1b[31m"}},
    "an unknown status": {**PASSED, "results": [attrs.asdict(result("a", "fine"))]},
    "no results": {**PASSED, "results": {}},
    "certified with a failure": {**FAILED, "certified": True},
    "an impossible time": {**PASSED, "created_ms": 10**30},
    "reports that are none": {"reports": "all fine"},
    "one bad report of two": {"reports": [CERTIFIED, 1]},
}


@pytest.mark.parametrize("document", MALFORMED.values(), ids=MALFORMED)
@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_a_malformed_report_is_one_warning_and_breaks_nothing(
    shipped: Callable, document: object, arguments: list[str]
) -> None:
    two = {GROUP: {"mine": "my_dist.trainer:T", "second": "my_dist.trainer:U"}}
    said = shipped(document, *arguments, entry_points=two)
    (line,) = said.err.splitlines()
    assert line.startswith("warning: the conformance report of my-dist 1.0 cannot be used: ")
    assert "\x1b" not in line
    if arguments:
        assert conformance(said) is None
    else:
        assert row(said) == "-"


def test_show_tells_what_failed_and_with_what_it_was_checked(
    shipped: Callable, hostcore: Callable, site_here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(site_here.path))
    trainer = "class T:\n" + "".join(
        f"    def {name}(self): pass\n"
        for name in ("setup", "configure", "prepare_batch", "train_step", "state_dict", "load_state_dict")
    )
    noisy = report(result("trainer.trains"), result("trainer.killed[x]", "failed", message="one\n\x1b[2Jtwo"))
    modules = {"my_dist/__init__.py": "", "my_dist/trainer.py": trainer, "my_dist/conformance.json": json.dumps(noisy)}
    shipped("", modules=modules, version="1.1")
    said = hostcore("plugins", "show", "mine")
    assert (said.code, said.err) == (0, "")
    lines = [line.strip() for line in said.out.splitlines()]
    place = lines.index(
        "conformance 1 failed (of 1.0): 1 passed, 1 failed;"
        " 2026-09-10 with hostcore 0.1.0, contract 1.0.0, Python 3.11.9"
    )
    assert lines[place + 1] == "trainer.killed[x] (must): one ?[2Jtwo"
    (shown,) = hostcore("plugins", "show", "mine", "--json").json["plugins"]
    assert shown["conformance"]["failures"][0]["id"] == "trainer.killed[x]"
