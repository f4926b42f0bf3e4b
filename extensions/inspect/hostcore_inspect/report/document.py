"""A report as a document: one HTML file that needs no other file and no network.

``templates/document.html`` is what all of them have: the head, the list of sections, the foot. The template of a report
extends it. The report of a run is one; extensions write others.
"""

import base64
import contextlib
import functools
import hashlib
import os
import re
import shlex
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import attrs
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from hostcore import __version__
from hostcore.cli.wording import NOTHING, ago, best_of, figure, lasting, shortened, steps_of, warnings_of
from hostcore.events.regular_file import NotRegular, open_regular
from hostcore.events.times import moment
from hostcore_builtin_plugins.progress import format_bytes, format_devices
from hostcore_hookspecs.errors import HostcoreError

#: Generator of the document, which distinguishes a report from other files.
GENERATOR: Final = "hostcore report"
#: Size of the head of a report, in bytes, which contains the generator.
_HEAD_BYTES: Final = 2_000
_HERE: Final = "hostcore_inspect.report"
#: Control characters, which HTML does not allow, and marks that let a text read otherwise than it is written.
_UNPRINTABLE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@attrs.frozen
class Section:
    """A part of a report; ``templates/sections/<id>.html`` writes it."""

    id: str
    title: str
    #: What it shows; if that is empty, the section is left out.
    content: Any


def render(
    template: str, *, style: str, script: str, now: int, sections: Sequence[Section], package: str = _HERE, **shown: Any
) -> str:
    """A report as HTML. Whatever its templates print is escaped, unless a template itself has made it.

    :param template: Extends ``document.html``.
    :param style: The style sheet, and ``script`` the script: the only ones that a browser takes from the document.
    :param now: When it is written, in milliseconds since 1970.
    :param package: Whose ``templates`` are used, before those of the report of a run.
    :param shown: What else the templates name.
    """
    return render_part(
        template,
        package=package,
        **shown,
        sections=sections,
        now=now,
        zone=time.strftime("%z", time.localtime(now / 1000)),
        version=__version__,
        generator=GENERATOR,
        style=style,
        script=script,
        # Nothing is ever loaded, and nothing that a run has brought along is ever executed.
        policy=f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; script-src '{_digest(script)}'",
    )


def render_part(template: str, *, package: str, **shown: Any) -> str:
    """HTML that is no document of its own, such as what a notebook shows of an object."""
    page = _templates(package).get_template(template).render(**shown)
    return _UNPRINTABLE.sub(_printable, page.encode(errors="replace").decode())


def assets(package: str, *names: str) -> str:
    """Files of the ``assets`` of a package, one behind the other."""
    folder = files(package) / "assets"
    return "".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names)


def require_replaceable(path: Path, *, force: bool) -> None:
    """Refuse to replace a file that is not a report.

    :raises HostcoreError: When there is something else than a report.
    """
    if path.is_dir():
        hint = "name the file: --output FILE"
        raise HostcoreError("the report is a file, and this is a folder", code="report.name", file=str(path), hint=hint)
    if force:
        return
    try:
        with open_regular(path, follow_links=True) as file:
            is_report = f'content="{GENERATOR}"'.encode() in file.read(_HEAD_BYTES)
    except NotRegular:
        is_report = False
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unwritable(path, error) from error
    if not is_report:
        hint = "--output FILE puts the report elsewhere, --force replaces the file"
        raise HostcoreError("there is a file that is not a report", code="report.exists", file=str(path), hint=hint)


def save(path: Path, content: bytes) -> None:
    """Write a report, whole or not at all.

    :raises HostcoreError: When it cannot be written there.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> HostcoreError:
    return HostcoreError(
        f"the report cannot be written: {error.strerror or error}",
        code="report.unwritable",
        file=str(path),
        hint="--output FILE puts it elsewhere",
    )


def _printable(found: re.Match[str]) -> str:
    """A picture of a control character; a mark of an unknown character for what has no picture."""
    code = ord(found[0])
    return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else "\ufffd"


@functools.cache
def _templates(package: str) -> Environment:
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(name) for name in dict.fromkeys((package, _HERE))]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "ago": ago,
        "command": lambda words: shlex.join(["hostcore", *words]),
        "count": lambda value: NOTHING if value is None else f"{value:,}",
        "devices": format_devices,
        "figure": figure,
        "iso": _iso,
        "lasting": lasting,
        "moment": moment,
        "shortened": shortened,
        "size": format_bytes,
    }
    environment.globals |= {"best_of": best_of, "steps_of": steps_of, "warnings_of": warnings_of, "NOTHING": NOTHING}
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    return environment


def _iso(time_ms: int) -> str | None:
    """Format a moment for programs, in UTC; None if it is out of range."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return None


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
