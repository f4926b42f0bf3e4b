"""Docstrings that can be skimmed, and class names with one meaning, in the rooms that are done."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.checkout import EXTENSIONS, ROOT

#: Folders of the checkout, each with all modules below it. A room is added when it is done.
ROOMS = (
    *(
        f"extensions/{name}/hostcore_{name}"
        for name in (
            "chaos",
            "conformance",
            "engines",
            "environments",
            "inspect",
            "lightning",
            "service",
            "sources",
            "sweeps",
            "trackers",
            "transformers",
        )
    ),
    "builtin_plugins/hostcore_builtin_plugins",
    "hookspecs/hostcore_hookspecs",
    "hostcore/checkpoints",
    "hostcore/cli",
    "hostcore/events",
    "hostcore/job",
    "hostcore/plugins",
    "hostcore/runs",
    "hostcore/secrets",
    "hostcore/supervisor/delivery",
    "hostcore/supervisor/remote",
    "hostcore/supervisor/workers",
    "hostcore/verification",
    "hostcore/worker",
    "toolkit/hostcore_toolkit",
)
#: Folders of the product: a class of a room is called like no other class in them.
PRODUCT = (
    "hookspecs/hostcore_hookspecs",
    "toolkit/hostcore_toolkit",
    "builtin_plugins/hostcore_builtin_plugins",
    "hostcore",
    *sorted(str(path.relative_to(ROOT)) for path in EXTENSIONS.glob("*/hostcore_*")),
)
#: Names that the contract gives to classes of plugins.
NAMES_OF_PLUGINS = frozenset({"Settings", "Hyperparams"})
#: Names of schemas in the OpenAPI document, which clients know; elsewhere they have a class of another purpose.
SCHEMAS = frozenset({"CancelRequest", "Job", "Plan", "PluginUse", "Sweep", "Trial"})
#: Names that have a second meaning yet, in a room that is not done.
SHARED = frozenset({"Cursor", "Entry", "Outage"})
QUESTION = re.compile(r"(What|Whether|How|Where|Who|Whose|Why|When)\b")
#: Code reports, records and returns; names of parameters are not looked at.
SPEECH = re.compile(r"(?<!:param )\b(tells?|told|says?|said|hears?|heard)\b", re.IGNORECASE)
#: Rooms with such words yet.
SPEAKING = frozenset(
    {
        "hostcore/cli",
    }
)

Trees = Mapping[Path, ast.Module]


@pytest.fixture(scope="module")
def trees() -> Trees:
    """All modules of the product, parsed, by path from the root of the checkout."""
    files = [file for folder in PRODUCT for file in (ROOT / folder).rglob("*.py")]
    return {file.relative_to(ROOT): ast.parse(file.read_bytes()) for file in files}


@pytest.fixture(scope="module")
def classes(trees: Trees) -> Mapping[str, list[str]]:
    """The places of each class name, without the underscore of private ones."""
    places = defaultdict(list)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name not in NAMES_OF_PLUGINS:
                places[node.name.lstrip("_")].append(f"{path}:{node.lineno}")
    return places


@pytest.mark.parametrize("room", ROOMS)
def test_docstrings_begin_with_the_thing_and_class_names_have_one_meaning(
    room: str, trees: Trees, classes: Mapping[str, list[str]]
) -> None:
    own = {path: tree for path, tree in trees.items() if path.is_relative_to(room)}
    assert own, f"{room} has no modules"
    wrong = [place for path, tree in own.items() for place in questions(path, tree)]
    if room not in SPEAKING:
        wrong += [place for path, tree in own.items() for place in speech(path, tree)]
    for name, places in classes.items():
        if name not in SHARED | SCHEMAS and len(places) > 1 and any(place.startswith(f"{room}/") for place in places):
            wrong.append(f"several classes are called {name}: {', '.join(places)}")
    assert not wrong, "\n".join(wrong)


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            doc = ast.get_docstring(node)
            if doc:
                yield getattr(node, "lineno", 1), doc


def questions(path: Path, tree: ast.Module) -> Iterator[str]:
    for line, doc in docstrings(tree):
        if QUESTION.match(doc):
            yield f"{path}:{line}: a docstring begins with a verb or a noun, not with {doc.split()[0]!r}"


def speech(path: Path, tree: ast.Module) -> Iterator[str]:
    for line, doc in docstrings(tree):
        if found := SPEECH.search(doc):
            yield f"{path}:{line}: code does not speak: {found[0]!r}"


def test_a_name_that_is_no_longer_shared_is_taken_off_the_list(classes: Mapping[str, list[str]]) -> None:
    assert [name for name in SHARED | SCHEMAS if len(classes[name]) < 2] == []
