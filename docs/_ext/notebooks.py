"""Jupyter notebooks as pages: their text and code, and the outputs that are stored in them. Nothing is executed."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from docutils import nodes
from myst_parser.parsers.sphinx_ import MystParser
from sphinx.application import Sphinx

#: Colours of what commands print.
_SGR: Final = re.compile(r"\x1b\[[0-9;]*m")


def _block(language: str, text: str) -> str:
    fence = "`" * (max(map(len, re.findall("`+", text)), default=2) + 1)
    return f"{fence}{language}\n{text.strip(chr(10))}\n{fence}"


def _output(output: Mapping[str, Any]) -> str:
    """What a cell has put out, as MyST; the richest form of it."""
    if output["output_type"] == "stream":
        return _block("text", _SGR.sub("", "".join(output["text"]).replace("\r\n", "\n")))
    if output["output_type"] == "error":
        return _block("text", _SGR.sub("", "\n".join(output["traceback"])))
    data = {kind: "".join(content) for kind, content in output["data"].items()}
    if png := data.get("image/png"):
        inline = f'<img alt="{data["text/plain"].strip("<>")}" src="data:image/png;base64,{png.strip()}">'
        return _block("{raw} html", inline)
    return _block("{raw} html", data["text/html"]) if "text/html" in data else _block("text", data["text/plain"])


def markdown(notebook: Mapping[str, Any], name: str) -> Iterator[str]:
    """The paragraphs of a page.

    :param notebook: As nbformat 4 has it.
    :param name: Of its file, which the page offers beneath its title.
    """
    for number, cell in enumerate(notebook["cells"]):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield source
        else:
            yield _block("python" if not source.startswith("!") else "console", source)
            yield from map(_output, cell["outputs"])
        if number == 0:
            yield f"This page is a notebook: {{download}}`{name}`."


class NotebookParser(MystParser):
    """Reads ``.ipynb``."""

    supported = ("ipynb",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        """Parse a notebook as the page that is made of it."""
        name = Path(document["source"]).name
        super().parse("\n\n".join(markdown(json.loads(inputstring), name)), document)


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_source_suffix(".ipynb", "ipynb")
    app.add_source_parser(NotebookParser)
    return {"parallel_read_safe": True}
