"""The words that people search for, as entries of the index, which the search puts before any other text.

``search_words.toml`` has them by page. A word of several pages, or a page that is not there, is a warning.
"""

import tomllib
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from docutils import nodes
from sphinx.addnodes import index
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms import SphinxTransform
from sphinx.util.logging import getLogger

_FILE: Final = "search_words.toml"
_LOG: Final = getLogger(__name__)


class SearchWords(SphinxTransform):
    """Put the words of a page at its beginning."""

    #: Before the domains look at the document.
    default_priority = 800
    by_page: ClassVar[dict[str, list[str]]] = {}

    def apply(self, **_options: Any) -> None:
        """Change the document in place."""
        for node in self.document.findall(index):  # such as terms of the glossary: no page that is meant
            node["entries"] = [(kind, text, target, "", key) for kind, text, target, _main, key in node["entries"]]
        words = self.by_page.get(self.env.docname)
        section = next(self.document.findall(nodes.section), None)
        if words and section is not None:
            spellings = dict.fromkeys(one for word in words for one in (word, word.replace("-", " "), _joined(word)))
            entries = [("single", word, section["ids"][0], "main", None) for word in spellings]
            section.insert(1, index(entries=entries))  # behind the title, which must come first


def _joined(word: str) -> str:
    """``multi gpu`` as ``multi-gpu``, where it is two words."""
    return word.replace(" ", "-") if word.count(" ") == 1 else word


def _read(app: Sphinx) -> None:
    SearchWords.by_page = tomllib.loads((app.srcdir / _FILE).read_text(encoding="utf-8"))
    counted = Counter(word.lower() for words in SearchWords.by_page.values() for word in words)
    for word in (word for word, times in counted.items() if times > 1):
        _LOG.warning("%s: %r is a word of several pages", _FILE, word)


def _find_missing(_app: Sphinx, env: BuildEnvironment) -> Sequence[str]:
    for page in SearchWords.by_page.keys() - env.found_docs:
        _LOG.warning("%s: there is no page %r", _FILE, page)
    return []


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_transform(SearchWords)
    app.connect("builder-inited", _read)
    app.connect("env-updated", _find_missing)
    return {"parallel_read_safe": True}
