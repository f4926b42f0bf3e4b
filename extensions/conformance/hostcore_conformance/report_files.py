"""Results of the checks as files: JSON, JUnit XML for continuous integration servers, and a badge for a README."""

import json
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

import attrs

from hostcore_conformance.result import CheckResult, Report
from hostcore_hookspecs.errors import HostcoreError

#: What XML 1.0 cannot hold, escaped or not (section 2.2).
_NO_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LABEL: Final = "hostcore"
#: The advance of characters in Verdana at 11 pixels, which is what badges are set in; in pixels.
_NARROW, _WIDE, _USUAL = 4.0, 9.5, 6.9
_PADDING: Final = 6


class ReportUnwritable(HostcoreError):
    """A report has no place where it can be written."""

    code = "conformance.report"


def require_writable(path: Path, option: str) -> None:
    """See that a file can be written, before the work of its contents is done.

    :param option: The option that names the file.
    :raises ReportUnwritable: It cannot.
    """
    folder = path.absolute().parent
    if path.is_dir():
        raise ReportUnwritable(f"{option} is a file, and this is a folder", file=str(path))
    if not folder.is_dir():
        raise ReportUnwritable(f"{option}: there is no folder {folder}", file=str(path), hint=f"mkdir -p {folder}")
    if not os.access(folder, os.W_OK):
        raise ReportUnwritable(f"{option}: nothing can be written in {folder}", file=str(path))


def write_whole(path: Path, content: str) -> None:
    """Write a file; what was there before is replaced.

    :raises ReportUnwritable: It cannot be written; what was there before is intact.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(content, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise ReportUnwritable(f"cannot be written: {error.strerror or error}", file=str(path)) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def document(reports: Sequence[Report]) -> dict[str, Any]:
    """Plain JSON: the report itself if there is one, else ``{"reports": […]}``."""
    documents = [report.as_dict() for report in reports]
    return documents[0] if len(documents) == 1 else {"reports": documents}


def as_json(reports: Sequence[Report]) -> str:
    """The text of the file. What UTF-8 cannot hold, as parts of file names, is escaped."""
    text = json.dumps(document(reports), indent=2, ensure_ascii=False) + "\n"
    return text.encode(errors="backslashreplace").decode()


def as_junit(reports: Sequence[Report], *, partial: bool = False) -> str:
    """The text of the file: a suite for each plugin, a test case for each check.

    A MUST that failed is a failure. What was blocked or does not apply is skipped, and so are known failures and a
    SHOULD that failed: they do not make a plugin wrong. What could not be asked without an example is an error, once.

    :param partial: Whether that is accepted; then it is skipped, too.
    """
    every = [result for report in reports for result in report.results]
    root = ET.Element("testsuites", {"name": "hostcore check", **_counts(every, partial)})
    for report in reports:
        root.append(_suite(report, partial))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _suite(report: Report, partial: bool) -> ET.Element:
    name = f"{report.kind}.{report.name}"
    when = datetime.fromtimestamp(report.created_ms / 1000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S")
    suite = ET.Element("testsuite", {"name": _text(name), "timestamp": when, **_counts(report.results, partial)})
    properties = ET.SubElement(suite, "properties")
    about = {
        "distribution": report.distribution,
        "version": report.version,
        "hostcore": report.hostcore,
        "hostcore-hookspecs": report.api_version,
        "python": report.python,
        "certified": str(report.certified).lower(),
        "verdict": report.verdict,
    }
    for key, value in about.items():
        if value is not None:
            ET.SubElement(properties, "property", name=key, value=_text(value))
    for result in report.results:
        suite.append(_case(result, name, partial))
    return suite


def _case(result: CheckResult, suite: str, partial: bool) -> ET.Element:
    case = ET.Element("testcase", classname=_text(suite), name=_text(result.id), time=f"{result.seconds:.3f}")
    if not result.ok:
        failure = ET.SubElement(case, "failure", message=_text(result.message), type=result.level)
        parts = {"expected": result.expected, "got": result.got, "fix": result.fix}
        lines = [f"{label}: {text}" for label, text in parts.items() if text]
        failure.text = _text("\n".join([*lines, result.traceback]))
    elif _is_error(result, partial):
        ET.SubElement(case, "error", message=_text(f"not asked: {result.message}"), type="example")
    elif result.status != "passed":
        word = "should" if result.outcome == "warning" else result.status.replace("_", " ")
        ET.SubElement(case, "skipped", message=_text(f"{word}: {result.message}"))
    return case


def _is_error(result: CheckResult, partial: bool) -> bool:
    """Return whether a check could not be made without an example, and does not only follow from another."""
    return result.no_example and not result.is_followup and not partial


def _counts(results: Sequence[CheckResult], partial: bool) -> dict[str, str]:
    failures = sum(not result.ok for result in results)
    errors = sum(_is_error(result, partial) for result in results)
    skipped = sum(result.status != "passed" for result in results) - failures - errors
    return {
        "tests": str(len(results)),
        "failures": str(failures),
        "errors": str(errors),
        "skipped": str(skipped),
        "time": f"{sum(result.seconds for result in results):.3f}",
    }


def _text(text: str) -> str:
    return _NO_XML.sub("\ufffd", text)


@attrs.frozen(kw_only=True)
class Saying:
    """Text and colour of the badge."""

    text: str
    #: Of the right half; with white text on it, the contrast is at least 4.5 (WCAG AA).
    colour: str


def saying(reports: Sequence[Report]) -> Saying:
    """Return the badge of all the plugins together."""
    contract = ".".join(reports[0].api_version.split(".")[:2]) if reports else ""
    if reports and all(report.certified for report in reports):
        return Saying(text=f"certified {contract}", colour="#1a7f37")
    if not reports or not all(report.ok for report in reports):
        return Saying(text="fails", colour="#cf222e")
    if not all(report.is_fully_checked for report in reports):
        return Saying(text="not fully checked", colour="#57606a")
    return Saying(text=f"conforms {contract}", colour="#0969da")


def as_endpoint(reports: Sequence[Report]) -> str:
    """The JSON that shields.io draws a badge from (https://shields.io/badges/endpoint-badge)."""
    said = saying(reports)
    document = {"schemaVersion": 1, "label": _LABEL, "message": said.text, "color": said.colour}
    return json.dumps(document, indent=2) + "\n"


def as_svg(reports: Sequence[Report]) -> str:
    """The badge itself; it needs no font and no server."""
    said = saying(reports)
    left, right = _width(_LABEL), _width(said.text)
    title = escape(f"{_LABEL}: {said.text}", quote=True)
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" aria-label="{title}">
  <title>{title}</title>
  <clipPath id="round"><rect width="{left + right}" height="20" rx="3"/></clipPath>
  <g clip-path="url(#round)">
    <rect width="{left}" height="20" fill="#444c56"/>
    <rect x="{left}" width="{right}" height="20" fill="{escape(said.colour, quote=True)}"/>
  </g>
  <g fill="#fff" text-anchor="middle" font-family="Verdana,Geneva,DejaVu Sans,sans-serif" font-size="11">
    <text x="{left / 2:g}" y="14" textLength="{left - 2 * _PADDING}">{escape(_LABEL)}</text>
    <text x="{left + right / 2:g}" y="14" textLength="{right - 2 * _PADDING}">{escape(said.text)}</text>
  </g>
</svg>
"""


def _width(text: str) -> int:
    """Of a half, in pixels."""
    widths = [_NARROW if one in "ijlt.,:|!'f " else _WIDE if one in "mwMW" else _USUAL for one in text]
    return round(sum(widths)) + 2 * _PADDING
