"""Reading ``entry_points.txt``.

Not by ``importlib.metadata``: a malformed file makes it raise ``TypeError`` about a tuple, and what it tolerates
differs between Python versions. The format: https://packaging.python.org/en/latest/specifications/entry-points/
"""

import re
from collections.abc import Iterator

_VALUE = re.compile(r"(?P<module>\w+(\.\w+)*):(?P<symbol>\w+(\.\w+)*)(\s*\[[^\]]*\])?")


class MalformedEntryPointsError(ValueError):
    """The file is not what the format says; the message says which line."""


def entry_points(text: str) -> Iterator[tuple[str, str, str]]:
    """The entry points of a file, in its order, as ``(group, name, value)``.

    :raises MalformedEntryPointsError: At the first line that is neither a group, nor ``name = value``, nor a comment.
    """
    group = None
    for number, line in enumerate(text.splitlines(), start=1):
        content = line.strip()
        if not content or content[0] in "#;":
            continue
        if content[0] == "[":
            if content[-1] != "]":
                raise MalformedEntryPointsError(f"entry_points.txt, line {number}: no closing bracket in {content!r}")
            group = content[1:-1].strip()
            continue
        name, equals, value = content.partition("=")
        if group is None or not equals:
            raise MalformedEntryPointsError(
                f"entry_points.txt, line {number}: expected {'a [group]' if group is None else 'name = value'},"
                f" found {content!r}"
            )
        yield group, name.strip(), value.strip()


def import_path(value: str) -> tuple[str, str] | None:
    """Module and symbol of ``module:symbol``, without the extras that entry points may carry; None if it is not one."""
    match = _VALUE.fullmatch(value)
    return (match["module"], match["symbol"]) if match else None
