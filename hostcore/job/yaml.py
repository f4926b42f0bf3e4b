"""YAML 1.2 as another way to write the JSON of a job: no anchors, no tags, no second document."""

import re
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, StreamMark, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionStartEvent, ScalarEvent

from hostcore.job.json_values import MAX_DEPTH
from hostcore.job.wording import found
from hostcore_hookspecs.errors import HostcoreError


class _PlainComposer(Composer):
    """Refuses what JSON does not have, before it can grow: aliases ("billion laughs"), anchors, tags, depth."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.parser.peek_event()
        if isinstance(event, AliasEvent) or getattr(event, "anchor", None) is not None:
            raise _refused("anchors and aliases are not taken in jobs", event.start_mark, "write the value twice")
        tagged = isinstance(event, ScalarEvent | CollectionStartEvent) and event.ctag is not None
        if tagged and str(event.ctag) != "!":
            raise _refused(f"the tag {event.ctag} is not taken in jobs", event.start_mark, "write a plain value")
        if self.depth > MAX_DEPTH:
            message = f"nested more than {MAX_DEPTH} levels deep"
            raise HostcoreError(message, code="job.too_deep")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def parse_yaml(text: str) -> Any:
    """The one document of a YAML text, as ruamel's safe loader sees it.

    :raises HostcoreError: ``job.syntax``, ``job.duplicate_key`` or ``job.too_deep``, with line and column.
    """
    yaml = YAML(typ="safe", pure=True)
    yaml.Composer = _PlainComposer
    try:
        return yaml.load(text)
    except DuplicateKeyError as error:
        name = re.match(r'found duplicate key "(.*?)" with value', str(error.problem), re.DOTALL)
        message = f"{found(name[1]) if name else 'a key'} is given more than once{_place(error.problem_mark)}"
        raise HostcoreError(message, code="job.duplicate_key", hint="keep one of them") from None
    except MarkedYAMLError as error:
        message = f"not valid YAML: {error.problem or error.context}{_place(error.problem_mark or error.context_mark)}"
        raise HostcoreError(message, code="job.syntax") from None
    except RecursionError:
        raise HostcoreError("nested too deep to be a job", code="job.too_deep") from None
    except (YAMLError, ValueError) as error:
        raise HostcoreError(f"not valid YAML: {error}".splitlines()[0], code="job.syntax") from None


def _refused(message: str, mark: StreamMark, hint: str) -> HostcoreError:
    return HostcoreError(message + _place(mark), code="job.syntax", hint=hint)


def _place(mark: StreamMark | None) -> str:
    return f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
