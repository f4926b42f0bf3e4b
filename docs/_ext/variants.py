"""Tabs for the ways to write an example: a whole job as JSON, YAML and TOML, an installation with pip and with uv.

Pages have the first; the others are made of it while a page is read.
"""

import json
import tomllib
from collections.abc import Mapping
from typing import Any, Final

import tomlkit
import yaml
from docutils import nodes
from sphinx.application import Sphinx
from sphinx_design.shared import create_component

#: What a job has beside a trainer, where it is more than a fragment.
_LENGTHS: Final = {"epochs", "max_steps", "dataset"}
_UV: Final = {
    "$ pip install": "$ uv pip install",
    "$ python -m pip install": "$ uv pip install",
    "$ python3 -m venv": "$ uv venv",
    "--extra-index-url https://download.pytorch.org/whl/cpu": "--torch-backend cpu",
}


def _job(text: str) -> dict[str, Any] | None:
    """The job that a block of JSON is, or None."""
    try:
        job = json.loads(text)
    except ValueError:
        return None
    return job if isinstance(job, dict) and "trainer" in job and _LENGTHS & job.keys() else None


def _has_null(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_null, value.values()))
    return any(map(_has_null, value)) if isinstance(value, list) else value is None


def _toml(job: Mapping[str, Any]) -> str:
    """Plain values first: what follows a table's head belongs to the table."""
    text = tomlkit.dumps(dict(sorted(job.items(), key=lambda item: isinstance(item[1], dict | list))))
    assert tomllib.loads(text) == job, text
    return text


def _texts(block: nodes.literal_block) -> dict[str, tuple[str, str]]:
    """Label, language and text of each way to write a block; empty where there is one way."""
    text = block.astext()
    if block.get("language") == "json" and (job := _job(text)) is not None:
        lines = yaml.safe_dump(job, sort_keys=False, allow_unicode=True, width=100)
        texts = {"JSON": ("json", text), "YAML": ("yaml", lines)}
        return texts if _has_null(job) else {**texts, "TOML": ("toml", _toml(job))}
    if block.get("language") == "console" and "$ " in text:
        with_uv = text
        for ours, theirs in _UV.items():
            with_uv = with_uv.replace(ours, theirs)
        return {} if with_uv == text else {"pip": ("console", text), "uv": ("console", with_uv)}
    return {}


def _tab(label: str, group: str, block: nodes.Node) -> nodes.container:
    title = nodes.rubric(label, nodes.Text(label), classes=["sd-tab-label"])
    title["sync_group"], title["sync_id"] = group, label
    content = create_component("tab-content", children=[block], classes=["sd-tab-content"])
    return create_component("tab-item", children=[title, content], classes=["sd-tab-item"])


def _captioned(block: nodes.literal_block) -> nodes.Element:
    """The block with its caption, where it has one."""
    around = block.parent
    return around if isinstance(around, nodes.container) and around.get("literal_block") else block


def _written(whole: nodes.Element, label: str, language: str, text: str) -> nodes.Element:
    """A copy of a block, in another way."""
    made = whole.deepcopy()
    block = made if isinstance(made, nodes.literal_block) else next(made.findall(nodes.literal_block))
    for node in (made, block):
        node["ids"], node["names"] = [f"{each}-{label.lower()}" for each in node["ids"]], []
    block["language"], block.rawsource = language, text
    block[:] = [nodes.Text(text.rstrip("\n"))]
    for caption in made.findall(nodes.caption):
        caption[:] = [nodes.Text(caption.astext().replace(".json", f".{label.lower()}"))]
    return made


def add_tabs(_app: Sphinx, document: nodes.document) -> None:
    """Put tabs in the place of each block that can be written in several ways."""
    for block in list(document.findall(nodes.literal_block)):
        texts = _texts(block)
        if not texts:
            continue
        group = "installer" if "uv" in texts else "job-format"
        whole = _captioned(block)
        first, *others = texts.items()
        made = [(label, _written(whole, label, *text)) for label, text in others]
        tabs = create_component("tab-set", classes=["sd-tab-set"])
        whole.replace_self(tabs)
        tabs += [_tab(label, group, each) for label, each in ((first[0], whole), *made)]


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("doctree-read", add_tabs)
    return {"parallel_read_safe": True}
