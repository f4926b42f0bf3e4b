"""The report as JUnit XML, which continuous integration servers show as tests."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final
from xml.etree import ElementTree as ET

from hostcore_conformance.result import CheckResult, Report

#: What XML 1.0 cannot hold, escaped or not (section 2.2).
_NO_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


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
    """Whether a check could not be asked without an example, and does not only follow from another."""
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
