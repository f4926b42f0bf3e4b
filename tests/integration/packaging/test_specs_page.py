"""The page about the five source documents: what the last column of its tables names is there, and works."""

import ast
import importlib
import json
import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checkout import ROOT
from fork_server import ran

from hostcore.cli.event_schema import event_schema
from hostcore.job.forms import json_schema
from hostcore.job.schema import job_schema
from hostcore_builtin_plugins.sources.parquet import ParquetSource
from hostcore_hookspecs.kinds import KINDS
from hostcore_service.app import make_app
from hostcore_service.settings import Settings

EXAMPLES = ROOT / "tests/integration/compat/data"
PAGE = (ROOT / "docs/reference/specs.md").read_text(encoding="utf-8")
DOCUMENTS = dict(re.findall(r"^## (\d{3}): .*?\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))


@attrs.frozen
class Row:
    """One item of a document."""

    document: str
    item: str
    proofs: tuple[str, ...]


def rows() -> list[Row]:
    """The rows of all tables with three columns."""
    found = []
    for document, text in DOCUMENTS.items():
        for line in text.splitlines():
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if len(cells) == 3 and cells[0] != "item" and set(cells[0]) != {"-"}:
                found.append(Row(document, cells[0], tuple(re.findall(r"`([^`]+)`", cells[2]))))
    return found


def proofs(kind: str) -> list[str]:
    """What follows a word in the last columns, each once, in the order of the page."""
    return list(dict.fromkeys(one.removeprefix(f"{kind} ") for row in rows() for one in row.proofs if is_a(kind, one)))


def is_a(kind: str, proof: str) -> bool:
    return proof.startswith(("tests/", "extensions/")) if kind == "tests" else proof.startswith(f"{kind} ")


KINDS_OF_PROOF = ("import", "hook", "job", "event", "hostcore", "file", "GET", "POST", "tests")


def test_every_document_has_its_items_and_its_differences() -> None:
    assert sorted(DOCUMENTS) == ["000", "001", "002", "003", "004"]
    for document, text in DOCUMENTS.items():
        assert sum(row.document == document for row in rows()) >= 10, document
        assert re.search(r"^\| difference \| reason \|$", text, re.MULTILINE), document


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.document}: {row.item[:60]}")
def test_every_item_names_what_shows_it(row: Row) -> None:
    assert row.proofs
    unknown = [proof for proof in row.proofs if not any(is_a(kind, proof) for kind in KINDS_OF_PROOF)]
    assert not unknown


@pytest.mark.parametrize("name", proofs("import"))
def test_a_name_can_be_imported(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        assert hasattr(importlib.import_module(module), attribute)


@pytest.mark.parametrize("name", proofs("hook"))
def test_a_hook_is_specified(name: str) -> None:
    assert any(name in kind.hooks for kind in KINDS.values())


def key_of(schema: Mapping[str, Any], root: Mapping[str, Any], key: str) -> Mapping[str, Any] | None:
    """The schema of a key in one of an object, through references and alternatives."""
    if "$ref" in schema:
        return key_of(root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, key)
    if key in schema.get("properties", {}):
        found: Mapping[str, Any] = schema["properties"][key]
        return found
    arms = [*schema.get("anyOf", []), *schema.get("allOf", []), *([schema["then"]] if "then" in schema else [])]
    return next((found for arm in arms if (found := key_of(arm, root, key)) is not None), None)


@pytest.mark.parametrize("pointer", proofs("job"))
def test_a_key_is_one_of_the_job_file(pointer: str) -> None:
    root = job_schema({"parquet": ("data_source", json_schema(ParquetSource.Settings))})
    schema: Mapping[str, Any] | None = root
    for key in pointer.removeprefix("/").split("/"):
        assert schema is not None
        schema = key_of(schema, root, key)
    assert schema is not None


@pytest.mark.parametrize("name", proofs("event"))
def test_an_event_has_a_schema(name: str) -> None:
    assert name in [arm["title"] for arm in event_schema()["oneOf"]]


@pytest.mark.parametrize("route", [f"{method} {path}" for method in ("GET", "POST") for path in proofs(method)])
def test_a_route_is_one_of_the_service(route: str, tmp_path: Path) -> None:
    method, path = route.split(" ")
    assert method.lower() in make_app(Settings(runs=tmp_path)).openapi()["paths"][path]


@pytest.mark.parametrize("place", proofs("tests"))
def test_a_test_is_one_of_the_suite(place: str) -> None:
    path, _, name = place.partition("::")
    assert (ROOT / path).exists()
    if name:
        functions = ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8")))
        assert name in [one.name for one in functions if isinstance(one, ast.FunctionDef)]
        assert name.startswith("test_")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the documents' examples."""
    folder = tmp_path_factory.mktemp("specs")
    skeleton = (EXAMPLES / "skeleton.py.txt").read_text()
    (folder / "skeleton.py").write_text(
        skeleton.replace("from gen_worker.trainer import", "from hostcore_hookspecs import")
    )
    columns = {name: [f"{name} {row}" for row in range(640)] for name in ("image_ref", "caption")}
    pq.write_table(pa.table(columns), folder / "train.parquet")
    job = json.loads((EXAMPLES / "trainer_job.json").read_text())
    job["trainer"] = "skeleton:MyTrainer"
    job["dataset"]["parquet_paths"] = ["train.parquet"]
    (folder / "trainer_job.json").write_text(json.dumps(job))
    del job["dataset"]
    mock = {**job, "run_id": "mock_1", "mock_batches": [{"x": 1}], "max_steps": 1, "profiles": {"prod": {"seed": 1}}}
    (folder / "mock_job.json").write_text(json.dumps(mock))
    return folder


@pytest.fixture(scope="module")
def answers(folder: Path) -> Mapping[str, "subprocess.CompletedProcess[str]"]:
    """The answers to all commands of the page, in its order."""
    environment = {**os.environ, "HOSTCORE_RUNS_DIR": str(folder / "runs")}
    return {
        command: ran(shlex.split(command), cwd=folder, env=environment, text=True) for command in proofs("hostcore")
    }


@pytest.mark.parametrize("command", proofs("hostcore"))
def test_a_command_works(command: str, answers: Mapping[str, "subprocess.CompletedProcess[str]"]) -> None:
    answer = answers[command]
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout


@pytest.mark.parametrize("path", proofs("file"))
@pytest.mark.usefixtures("answers")
def test_a_file_lies_in_the_run_directory(path: str, folder: Path) -> None:
    assert (folder / "runs/run_123" / path).is_file()
