"""The pages as Markdown, and lists of them for language models: ``llms.txt`` and ``llms-full.txt`` (https://llmstxt.org).

The builder ``markdown`` writes the pages, from the same documents as the HTML and beside it.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from docutils import nodes
from sphinx.addnodes import toctree
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.osutil import relative_uri
from sphinx_design.shared import PassthroughTextElement, is_component

_SUMMARY: Final = (
    "hostcore turns independently installed pip packages into machine-learning training jobs. A trainer is a Python "
    "class with three methods; a job is one file in JSON, YAML or TOML; `hostcore run job.json` runs it."
)
#: A row of a table.
_ROW: Final = re.compile(r"^\|.*\|$", re.MULTILINE)


class PlainMarkdown(SphinxPostTransform):
    """Replace what Markdown has no form for: captions, cards, boxes with titles, tabs (the first stays), raw HTML."""

    default_priority = 100
    builders = ("markdown",)

    def run(self, **_options: Any) -> None:
        """Change the document in place."""
        for tabs in list(self.document.findall(lambda node: is_component(node, "tab-set"))):
            first = tabs.children[0]
            tabs.replace_self(first.children[1].children)
        for kind in (nodes.caption, PassthroughTextElement):
            for node in list(self.document.findall(kind)):
                node.replace_self(nodes.paragraph("", "", nodes.strong("", node.astext())))
        for box in list(self.document.findall(nodes.admonition)):
            title, *content = box.children
            box.replace_self([nodes.paragraph("", "", nodes.strong("", title.astext())), *content])
        for kind in (nodes.raw, toctree):
            for node in list(self.document.findall(kind)):
                node.parent.remove(node)
        for node in list(self.document.findall(nodes.abbreviation)):
            node.replace_self(node.children)


def _sections(env: BuildEnvironment) -> Iterator[tuple[str, list[str]]]:
    """The captions of the index, with the pages below each."""
    for tree in env.get_doctree(env.config.root_doc).findall(toctree):
        yield tree["caption"], list(tree["includefiles"])


def _first_sentence(text: str) -> str:
    """The first sentence of a page, without links."""
    prose = (each for each in text.split("\n\n") if each.strip() and each.lstrip()[0] not in "#|`*>![<-")
    paragraph = " ".join(re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", next(prose, "")).split())
    return re.split(r"(?<=[.:]) (?=[A-Z`])", paragraph)[0].removesuffix(":")


def _narrow(text: str) -> str:
    """Tables without the spaces and dashes that align their columns."""
    return _ROW.sub(lambda row: re.sub(" {2,}", " ", re.sub("-{4,}", "---", row[0])), text)


def write_lists(app: Sphinx, failure: Exception | None) -> None:
    """Write both lists, once the pages are there.

    :param failure: What has ended the build, if anything.
    """
    if failure is not None or app.builder.name != "markdown":
        return
    out = Path(app.outdir)
    lines, whole = [f"# {app.config.project}", "", f"> {_SUMMARY}", ""], []
    for caption, pages in _sections(app.env):
        lines += [f"## {caption}", ""]
        for page in pages:
            text = (out / f"{page}.md").read_text(encoding="utf-8")
            title = app.env.titles[page].astext()
            uri = relative_uri("", f"{page}.md")
            lines.append(f"- [{title}]({uri}): {_first_sentence(text)}".removesuffix(": "))
            if page != "changelog":
                whole.append(f"<!-- {uri} -->\n\n{_narrow(text.strip())}\n")
        lines.append("")
    (out / "llms.txt").write_text("\n".join(lines), encoding="utf-8")
    (out / "llms-full.txt").write_text("\n".join([f"# {app.config.project}\n", f"> {_SUMMARY}\n", *whole]), "utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_post_transform(PlainMarkdown)
    app.connect("build-finished", write_lists)
    return {"parallel_read_safe": True}
