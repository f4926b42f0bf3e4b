"""The texts of job files: JSON, and YAML 1.2 and TOML as other ways to write it, by the ending of the file's name."""

import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from hostcore.job.json_values import MAX_DEPTH, Pairs
from hostcore.job.wording import found
from hostcore_hookspecs.errors import HostcoreError

if TYPE_CHECKING:
    from ruamel.yaml import YAML
    from ruamel.yaml.composer import Composer
    from ruamel.yaml.error import StreamMark

MAX_JSON_BYTES: Final = 16 * 1024 * 1024
#: Pure Python reads these, YAML at a few seconds for so much.
MAX_YAML_BYTES: Final = 256 * 1024
MAX_TOML_BYTES: Final = 256 * 1024

#: A first line, after comments, that JSON cannot have. Lines are matched in one way only: texts of strangers are, too.
_COMMENTS: Final = r"(?:[^\S\n]*(?:#[^\n]*)?\n)*"
_YAML_KEY: Final = re.compile(_COMMENTS + r"(?:---\s|[A-Za-z_]\w*:\s)")
_TOML_KEY: Final = re.compile(_COMMENTS + r"(?:[A-Za-z_$][\w.-]*\s*=|\[\[?[A-Za-z_][\w.-]*\])")
#: By the message of tomllib.
_TOML_HINTS: Final = {
    "Invalid value": "strings take double quotes; true and false are written so",
    "Cannot overwrite a value": "the key is given more than once: keep one of them",
}
_TOML_PART: Final = r"""(?>[\w-]+|"[^"\n]*"|'[^'\n]*')"""
#: A key of more parts than a job has levels, for which tomllib takes time by the square.
_TOML_DEEP: Final = re.compile(
    rf"(?:^|[\[{{,])[^\S\n]*{_TOML_PART}(?>[^\S\n]*\.[^\S\n]*{_TOML_PART}){{{MAX_DEPTH}}}", re.MULTILINE
)
#: The numbers of YAML 1.2 (10.3.2); ruamel takes those of YAML 1.1 for numbers as well: 1_000, 0b11, 2024_01_05.
_YAML_NUMBERS: Final = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_YAML_NUMBER: Final = re.compile(
    r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_TOML_PLACE: Final = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)


@attrs.frozen(kw_only=True)
class JobFormat:
    """A way to write a job."""

    endings: tuple[str, ...]
    #: More of a file is not read.
    most_bytes: int
    parse: Callable[[str], Any]


def parse_json(text: str) -> Any:
    """Strict JSON, except that duplicate keys and NaN are left for :func:`~hostcore.job.json_values.checked`.

    That knows where they are.

    :raises HostcoreError: ``job.syntax`` with line and column, or ``job.too_deep``.
    """
    try:
        return json.loads(text, object_pairs_hook=Pairs)
    except json.JSONDecodeError as error:
        message = f"not valid JSON: {error.msg}, line {error.lineno}, column {error.colno}"
        raise HostcoreError(message, code="job.syntax", hint=_json_hint(text, error.pos)) from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError:  # Python refuses to read integers of more than 4,300 digits
        raise HostcoreError("an integer has thousands of digits", code="job.syntax") from None


def _json_hint(text: str, position: int) -> str | None:
    for name, key in (("YAML", _YAML_KEY), ("TOML", _TOML_KEY)):
        if key.match(text):
            return f"this looks like {name}: let the file's name end in .{name.lower()}"
    rest = text[position : position + 8]
    if rest.startswith(("}", "]")) or (re.search(r",\s*$", text[:position]) is not None and rest[:1] in ("}", "]")):
        return "remove the comma before it"
    if rest.startswith("'"):
        return "strings and keys take double quotes"
    if rest.startswith(("//", "/*", "#")):
        return "JSON has no comments; a job in YAML (job.yaml) or TOML (job.toml) may have them"
    if word := re.match(r"True|False|None", rest):
        return f"write {'null' if word[0] == 'None' else word[0].lower()}"
    return None


def parse_toml(text: str) -> Any:
    """TOML 1.0. Dates, which JSON does not have, are left for :func:`~hostcore.job.json_values.checked`.

    :raises HostcoreError: ``job.syntax`` with line and column, or ``job.too_deep``.
    """
    import tomllib

    if _TOML_DEEP.search(text):
        raise _too_deep()
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        placed = _TOML_PLACE.fullmatch(str(error))
        what, line, column = placed.groups() if placed else (str(error), None, None)
        where = f", line {line}, column {column}" if line else ", at the end"
        message = f"not valid TOML: {what[:1].lower()}{what[1:]}{where}"
        raise HostcoreError(message, code="job.syntax", hint=_TOML_HINTS.get(what)) from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError:  # thousands of digits, and dates that are none
        raise HostcoreError("not valid TOML: a number or a date in it is none", code="job.syntax") from None


def parse_yaml(text: str) -> Any:
    """The one document of a YAML text, as ruamel's safe loader sees it: no anchors, no tags, no second document.

    :raises HostcoreError: ``job.syntax``, ``job.duplicate_key`` or ``job.too_deep``, with line and column.
    """
    from ruamel.yaml.constructor import DuplicateKeyError
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        return _plain_yaml().load(text)
    except DuplicateKeyError as error:
        name = re.match(r'found duplicate key "(.*?)" with value', str(error.problem), re.DOTALL)
        message = f"{found(name[1]) if name else 'a key'} is given more than once{_place(error.problem_mark)}"
        raise HostcoreError(message, code="job.duplicate_key", hint="keep one of them") from None
    except MarkedYAMLError as error:
        message = f"not valid YAML: {error.problem or error.context}{_place(error.problem_mark or error.context_mark)}"
        raise HostcoreError(message, code="job.syntax") from None
    except RecursionError:
        raise _too_deep() from None
    except (YAMLError, ValueError) as error:
        raise HostcoreError(f"not valid YAML: {error}".splitlines()[0], code="job.syntax") from None


def _plain_yaml() -> "YAML":
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.Composer = _plain_composer()
    return yaml


@functools.cache
def _plain_composer() -> "type[Composer]":
    """Refuses what JSON does not have, before it can grow: aliases ("billion laughs"), anchors, tags, depth."""
    from ruamel.yaml.composer import Composer
    from ruamel.yaml.events import AliasEvent, CollectionStartEvent, ScalarEvent
    from ruamel.yaml.nodes import ScalarNode

    class PlainComposer(Composer):
        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            event = self.parser.peek_event()
            if isinstance(event, AliasEvent) or getattr(event, "anchor", None) is not None:
                raise _refused("anchors and aliases are not taken in jobs", event.start_mark, "write the value twice")
            tagged = isinstance(event, ScalarEvent | CollectionStartEvent) and event.ctag is not None
            if tagged and str(event.ctag) != "!":
                raise _refused(f"the tag {event.ctag} is not taken in jobs", event.start_mark, "write a plain value")
            if self.depth > MAX_DEPTH:
                raise HostcoreError(f"nested more than {MAX_DEPTH} levels deep", code="job.too_deep")
            self.depth += 1
            node = super().compose_node(parent, index)
            self.depth -= 1
            is_number = isinstance(node, ScalarNode) and node.tag in _YAML_NUMBERS
            if is_number and not _YAML_NUMBER.fullmatch(node.value):
                node.tag = "tag:yaml.org,2002:str"
            return node

    return PlainComposer


def _refused(message: str, mark: "StreamMark", hint: str) -> HostcoreError:
    return HostcoreError(message + _place(mark), code="job.syntax", hint=hint)


def _place(mark: "StreamMark | None") -> str:
    return f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""


def _too_deep() -> HostcoreError:
    return HostcoreError("nested too deep to be a job", code="job.too_deep")


_JSON: Final = JobFormat(endings=(".json",), most_bytes=MAX_JSON_BYTES, parse=parse_json)
_FORMATS: Final = (
    _JSON,
    JobFormat(endings=(".yaml", ".yml"), most_bytes=MAX_YAML_BYTES, parse=parse_yaml),
    JobFormat(endings=(".toml",), most_bytes=MAX_TOML_BYTES, parse=parse_toml),
)
#: How the names of job files end.
ENDINGS: Final = tuple(ending for one in _FORMATS for ending in one.endings)


def format_of(path: Path) -> JobFormat:
    """The format of a file, by the ending of its name; JSON for any other ending."""
    return next((one for one in _FORMATS if path.suffix.lower() in one.endings), _JSON)
