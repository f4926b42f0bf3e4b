"""``{plugins}``: every plugin of the repository's distributions, by the code of ``hostcore plugins directory``.

For pages in Markdown. Other plugins of the environment are left out.
"""

import tomllib
from pathlib import Path
from typing import Any, Final

from generated import GeneratedDirective
from sphinx.application import Sphinx

ROOT: Final = Path(__file__).resolve().parents[2]
_FOLDERS: Final = ("builtin_plugins", "extensions/*", "example_trainers/*")


def distributions() -> set[str]:
    """The names of the repository's distributions that have plugins."""
    files = [file for folder in _FOLDERS for file in ROOT.glob(f"{folder}/pyproject.toml")]
    projects = [tomllib.loads(file.read_text(encoding="utf-8"))["project"] for file in files]
    return {one["name"] for one in projects if any(each.startswith("hostcore.") for each in one["entry-points"])}


def render() -> list[str]:
    """A section for every kind."""
    from hostcore.cli.named_plugins import describe_installed, environment_named
    from hostcore.cli.plugin_page import entries, page
    from hostcore.plugins.listing import shipped_reports

    here = environment_named(None)
    refs = [ref for ref in here.discovered.refs if ref.dist in distributions()]
    shipped = shipped_reports(refs, here.discovered)
    return list(page(entries(describe_installed(refs, here), here.discovered, shipped)))


class Plugins(GeneratedDirective):
    """The directory of plugins."""

    def lines(self) -> list[str]:
        """All plugins."""
        return render()


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_directive("plugins", Plugins)
    return {"parallel_read_safe": True}
