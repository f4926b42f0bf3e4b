"""The generated references leave nothing out."""

import builtins
import importlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import click
import pytest
from checkout import ROOT

from hostcore.cli import cli
from hostcore.job.sections import DatasetSpec, ResourcesSpec
from hostcore.job.spec import JobSpec
from hostcore.plugins.installed import discover
from hostcore_conformance.check import table
from hostcore_hookspecs import KINDS, Kind, SampleRequest, errors
from hostcore_hookspecs.events import PAYLOADS

DOCS = ROOT / "docs"

Extension = Callable[[str], Any]
Render = Callable[[str], str]


@pytest.fixture
def extension(monkeypatch: pytest.MonkeyPatch) -> Iterator[Extension]:
    """The module of an extension of the documentation."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))
    yield importlib.import_module
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None)
        if file and Path(file).is_relative_to(DOCS):
            del sys.modules[name]


@pytest.fixture
def rendered(extension: Extension) -> Render:
    """The reStructuredText that an extension generates."""
    return lambda name: "\n".join(extension(name).render())


def test_the_hook_reference_has_every_hook_with_its_arguments(rendered: Render) -> None:
    text = rendered("hookspecs")
    for kind in KINDS.values():
        module = text.partition(f".. py:currentmodule:: {kind.specification.__name__}\n")[2]
        for hook in kind.hooks:
            heading = module.partition(f".. py:function:: {hook}(")[2].partition("\n")[0]
            assert heading, f"{kind.name}.{hook}"
            assert all(argument in heading for argument in kind.arguments(hook))


def test_the_hook_reference_says_which_hooks_are_required(rendered: Render) -> None:
    text = rendered("hookspecs")
    for kind in KINDS.values():
        assert f":Entry-point group: ``{kind.group}``" in text
        for word, hooks in (("required", set(kind.required)), ("optional", set(kind.hooks) - set(kind.required))):
            assert text.count(f"*{kind.label}, {word}, called in the {kind.room}*") == len(hooks)


def test_the_hook_reference_quotes_the_docstrings(rendered: Render) -> None:
    assert "Called once per step: forward, backward, one optimizer update." in rendered("hookspecs")
    assert ":param prepared_batch:" in rendered("hookspecs")


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_hook_says_what_the_host_does_with_what_it_raises(kind: Kind) -> None:
    for hook in kind.hooks:
        docstring = getattr(kind.specification, hook).__doc__
        raised = re.findall(r"^ +:raises (\w+): [A-Z]", docstring, re.MULTILINE)
        assert "Exception" in raised, f"{kind.name}.{hook} says nothing of exceptions of any other class"
        for name in raised:
            assert hasattr(errors, name) or hasattr(builtins, name), f"{kind.name}.{hook} raises {name}"


@pytest.mark.parametrize("cls", [JobSpec, DatasetSpec, ResourcesSpec, SampleRequest])
def test_the_job_reference_has_every_key(rendered: Render, cls: type[attrs.AttrsInstance]) -> None:
    text = rendered("jobspec")
    for field in attrs.fields(cls):
        if field.metadata.get("key") is not False and not field.metadata.get("rest"):
            assert f"\n``{field.name}``\n" in text, field.name


def test_the_job_reference_says_what_a_key_takes(rendered: Render) -> None:
    lines = rendered("jobspec").splitlines()
    place = lines.index("``metric_every``")
    assert lines[place + 1].strip() == "*an integer of at least 0* · default ``10``"
    assert lines[place + 3].strip() == "Record metrics every so many steps; 0: never."


def test_the_events_reference_has_every_event_with_its_fields(rendered: Render) -> None:
    text = rendered("events")
    for name, payload in PAYLOADS.items():
        section = text.partition(f".. _event-{name}:\n")[2].partition("\n.. _event-")[0]
        assert section, name
        assert all(f"- ``{field.name}``: " in section for field in attrs.fields(payload)), name


def test_the_command_reference_has_every_command_with_its_options(rendered: Render) -> None:
    text = rendered("commands")
    context = click.Context(cli, info_name="hostcore", **cli.context_settings)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        assert f"\nhostcore {name}\n" in text
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden and "--help" not in parameter.opts:
                assert f".. option:: {parameter.opts[0]}" in text, f"{name} {parameter.opts[0]}"


def test_the_check_reference_has_a_heading_for_every_check(rendered: Render) -> None:
    lines = rendered("checks").splitlines()
    for check in table().values():
        assert f".. _check-{check.family}:" in lines, check.id
        place = lines.index(check.family)
        assert lines[place + 1] == "~" * len(check.family)
        assert check.level.upper() in lines[place + 3]
        assert check.title.split()[0] in " ".join(lines[place + 4 : place + 7])


def test_the_plugin_directory_has_every_plugin_of_the_repository_with_its_settings(extension: Extension) -> None:
    directory = extension("plugins")
    lines = directory.render()
    own = [ref for ref in discover().refs if ref.dist in directory.distributions()]
    assert {ref.dist for ref in own} >= {"hostcore-builtin-plugins", "hostcore-engines", "hostcore-digits"}
    headings = [f"### {KINDS[ref.kind].label.capitalize()} `{ref.name}`" for ref in own]
    assert [line for line in lines if line.startswith("### ")] == headings
    assert [line for line in lines if "cannot be used here" in line] == []
    for setting in ("uri", "experiment", "token"):
        assert any(line.startswith(f"| `{setting}` | ") for line in lines[lines.index("### Reporter `mlflow`") :]), (
            setting
        )


def test_a_notebook_is_a_page_with_its_text_its_code_and_its_outputs(extension: Extension) -> None:
    notebooks = extension("notebooks")
    printed = {"output_type": "stream", "name": "stdout", "text": ["\x1b[1mRUN\x1b[0m ```\r\n", "first\n"]}
    table = {"output_type": "execute_result", "data": {"text/plain": ["RunResult()"], "text/html": ["<table></table>"]}}
    plot = {"output_type": "display_data", "data": {"text/plain": ["<Figure>"], "image/png": "QUJD\n"}}
    failed = {"output_type": "error", "traceback": ["\x1b[31mno such key\x1b[0m"]}
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "text"]},
        {"cell_type": "code", "source": ["run()"], "outputs": [printed, table, plot, failed]},
        {"cell_type": "code", "source": ["!hostcore list"], "outputs": []},
    ]
    assert list(notebooks.markdown({"cells": cells}, "first.ipynb")) == [
        "# Title\ntext",
        "This page is a notebook: {download}`first.ipynb`.",
        "```python\nrun()\n```",
        "````text\nRUN ```\nfirst\n````",
        "```{raw} html\n<table></table>\n```",
        '```{raw} html\n<img alt="Figure" src="data:image/png;base64,QUJD">\n```',
        "```text\nno such key\n```",
        "```console\n!hostcore list\n```",
    ]


def test_every_page_is_in_a_table_of_contents() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    pages = {file.relative_to(DOCS).with_suffix("").as_posix() for file in DOCS.rglob("*.md")}
    pages |= {file.relative_to(DOCS).with_suffix("").as_posix() for file in DOCS.rglob("*.rst")}
    listed = {line.strip() for line in index.splitlines()}
    assert {page for page in pages if not page.startswith("_build")} - listed == {"index"}
