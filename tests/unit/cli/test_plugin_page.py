"""The page about all installed plugins, which ``hostcore plugins directory`` prints."""

from pathlib import Path
from typing import Any

import pytest

from hostcore.cli.plugin_page import PluginEntry, entries, page, settings_of, takes
from hostcore.plugins.describe import describe
from hostcore.plugins.installed import discover
from hostcore.plugins.listing import shipped_reports

OVEN = '''
import attrs
from typing import Annotated
from annotated_types import Gt, Le

class Oven:
    """Bakes a batch | of <b>bread</b>, as ``a|b`` says.

    In detail.
    """

    @attrs.frozen(kw_only=True)
    class Settings:
        heat: Annotated[float, Gt(0), Le(300)] = attrs.field(default=180.0, metadata={"help": "In degrees Celsius."})
        url: str

    def open(self, ctx): pass
    def report_event(self, event): pass
    def close(self): pass
'''


@pytest.fixture
def listed(site_here: Any, monkeypatch: pytest.MonkeyPatch) -> list[PluginEntry]:
    """The entries of what ships with hostcore, and of two packages of others, of which one cannot be imported."""
    info = site_here.install(
        "oven-reporter",
        modules={"oven.py": OVEN},
        entry_points={"hostcore.reporters": {"oven": "oven:Oven"}},
        requires=("hostcore-hookspecs>=1,<2", "attrs", "yeast>=2", "gas; extra == 'gas'"),
    )
    metadata = info / "METADATA"
    metadata.write_text(
        metadata.read_text() + "Requires-Python: >=3.11\nClassifier: Operating System :: POSIX :: Linux\n"
    )
    site_here.install(
        "cold-reporter", modules={"cold.py": "import ice"}, entry_points={"hostcore.reporters": {"cold": "cold:Cold"}}
    )
    # Of another distribution than the trainer of that name for which there is an extra.
    site_here.install(
        "other-hf", modules={"other_hf.py": "class T: pass"}, entry_points={"hostcore.trainers": {"hf": "other_hf:T"}}
    )
    monkeypatch.setenv("PYTHONPATH", site_here.environment["PYTHONPATH"])
    found = discover()
    wanted = {"oven-reporter/oven", "cold-reporter/cold", "other-hf/hf", "hostcore-trackers/mlflow"}
    wanted |= {f"hostcore-builtin-plugins/{name}" for name in ("terminal", "allow-list")}
    refs = [ref for ref in found.refs if f"{ref.dist}/{ref.name}" in wanted]
    return entries(describe(refs, job_dir=Path.cwd()), found, shipped_reports(refs, found))


def section(lines: list[str], heading: str) -> list[str]:
    """What is under a heading."""
    behind = lines[lines.index(heading) + 1 :]
    end = next((number for number, line in enumerate(behind) if line.startswith("#")), len(behind))
    return [line for line in behind[:end] if line]


def test_the_page_says_what_a_plugin_is_what_it_needs_and_what_it_takes(listed: list[PluginEntry]) -> None:
    lines = list(page(listed))
    assert [line for line in lines if line.startswith("## ")] == ["## Trainers", "## Reporters", "## Policies"]
    row = r"| `oven` | Bakes a batch \| of \<b\>bread\</b\>, as `a\|b` says. | `oven-reporter` 1.0 |"
    assert row in section(lines, "## Reporters")
    assert section(lines, "### Reporter `oven`") == [
        r"Bakes a batch \| of \<b\>bread\</b\>, as `a\|b` says.",
        "- from: `oven-reporter` 1.0, `oven:Oven`",
        "- install: `pip install oven-reporter`",
        "- needs: `yeast>=2`",
        "- Python: `>=3.11`",
        "- system: POSIX :: Linux",
        "- conformance: the package ships no report",
        "| settings | takes | default | |",
        "|---|---|---|---|",
        r"| `heat` | number, \> 0, ≤ 300 | `180.0` | In degrees Celsius. |",
        "| `url` | string | required |  |",
    ]


def test_a_plugin_that_cannot_be_imported_is_on_the_page_with_the_reason(listed: list[PluginEntry]) -> None:
    (error,) = [line for line in section(list(page(listed)), "### Reporter `cold`") if "cannot be used" in line]
    assert "ModuleNotFoundError" in error
    assert "ice" in error


def test_what_has_an_extra_of_hostcore_is_installed_with_it_and_needs_what_that_brings(
    listed: list[PluginEntry],
) -> None:
    by_name = {(one.ref.kind, one.ref.name): one for one in listed}
    mlflow = by_name["reporter", "mlflow"]
    assert mlflow.install == "pip install './extensions/trackers[mlflow]'"
    assert [need.partition(">")[0] for need in mlflow.requires] == ["mlflow-skinny"]
    terminal = by_name["reporter", "terminal"]
    assert (terminal.install, list(terminal.requires)) == (None, [])
    assert by_name["trainer", "hf"].install == "pip install other-hf"


def test_as_data_an_entry_has_all_that_is_shown_of_a_plugin_and_how_it_is_installed(listed: list[PluginEntry]) -> None:
    (oven,) = [one.as_dict() for one in listed if one.ref.name == "oven"]
    assert oven["ref"]["dist"] == "oven-reporter"
    assert {"heat", "url"} == set(oven["settings_schema"]["properties"])
    assert (oven["install"], oven["requires"]) == ("pip install oven-reporter", ["yeast>=2"])
    assert (oven["python"], oven["systems"], oven["conformance"]) == (">=3.11", ["POSIX :: Linux"], None)


def test_settings_inside_of_objects_come_behind_them_and_have_an_end() -> None:
    tree = {"properties": {"next": {"$ref": "#/$defs/Tree"}}}
    assert len(list(settings_of({**tree, "$defs": {"Tree": tree}}))) == 4
    rank = {"type": "integer", "exclusiveMinimum": 0, "default": 8}
    schema = {
        "properties": {
            "lora": {"anyOf": [{"$ref": "#/$defs/Lora"}, {"type": "null"}]},
            "uses": {"type": "array", "items": {"$ref": "#/$defs/Use"}, "default": []},
        },
        "$defs": {
            "Lora": {"properties": {"rank": rank}},
            "Use": {"properties": {"use": {"type": "string"}}, "required": ["use"]},
        },
    }
    assert list(settings_of(schema)) == [
        ("lora", "object or null", None, ""),
        ("lora.rank", "integer, > 0", "8", ""),
        ("uses", "list of object", "[]", ""),
        ("uses[].use", "string", "required", ""),
    ]


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "integer", "minimum": 0, "maximum": 256}, "integer, ≥ 0, ≤ 256"),
        ({"enum": ["ddp", "fsdp2"]}, '"ddp" or "fsdp2"'),
        ({"properties": {"$secret": {"type": "string"}}}, "secret"),
        ({"type": "string", "format": "python-import-path"}, "import path"),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "object of string"),
        ({"type": "object", "additionalProperties": {}}, "object"),
        ({"type": "array", "items": {"type": "number", "minimum": 1}}, "list of number, ≥ 1"),
        ({"type": "array", "prefixItems": [{"type": "number"}], "items": False}, "list"),
        ({"anyOf": [{"type": "integer"}, {"type": "integer"}, {"type": "null"}]}, "integer or null"),
        ({}, "any"),
    ],
)
def test_what_a_setting_takes_is_said_in_a_word_or_two(schema: dict[str, Any], words: str) -> None:
    assert takes(schema) == words
