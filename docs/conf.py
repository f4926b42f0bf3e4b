"""How the documentation is built. Warnings are errors; nothing is fetched, so it builds without a network."""

import sys
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

import attrs
from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "hostcore"
author = "the hostcore authors"
copyright = author
release = version = version_of("hostcore")

extensions = [
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_markdown_builder",
    "markdown_pages",
    "notebooks",
    "variants",
    "sphinx.ext.autodoc",
    "hookspecs",
    "events",
    "commands",
    "jobspec",
    "operatorfile",
    "checks",
    "plugins",
    "search_words",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build"]

smartquotes_action = "De"

html_theme = "furo"
html_title = f"hostcore {version}"
html_copy_source = False
html_show_copyright = False

# Commands are copied without their prompts, and without what they print.
copybutton_prompt_text = r"\$ |>>> "
copybutton_prompt_is_regexp = True
copybutton_line_continuation_character = "\\"

myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

# Every reference to something of ours must resolve. What belongs to others would need their inventories.
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"(collections|contextlib|pathlib|types|typing)\..*"),
    ("py:.*", r"(attrs|np|numpy|pa|pyarrow|pluggy|torch)(\..*)?"),
    # The standard library's, as annotations of the contract spell them.
    ("py:.*", r"(Any|BaseException|Callable|Iterator|Mapping|Sequence|Tensor|ModuleType|Literal|NamedTuple|Protocol)"),
    ("py:class", r"hostcore_hookspecs\.markers\._F"),
    ("py:class", r"hostcore_hookspecs\.setting_types\.T_co"),
    ("py:class", r"hostcore_toolkit\.devices\.Batch"),
]


def _without_generated_constructor(*event: Any) -> tuple[str, str | None] | None:
    """An attrs class is documented by its fields; its generated constructor would list them again, without words."""
    _app, what, _name, obj, *_ = event
    return ("", None) if what == "class" and attrs.has(obj) else None


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-signature", _without_generated_constructor)
