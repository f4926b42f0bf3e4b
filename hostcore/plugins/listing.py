"""Document of the installed plugins, for ``hostcore plugins --json`` and the service.

Plugins ship conformance reports: ``conformance.json`` in their top-level package, which is found without importing it.
``hostcore check NAME --json FILE`` writes one: ``{"plugin": {"kind", "name", "distribution", "version"}, "hostcore",
"api_version", "python", "created_ms", "certified", "results": [{"id", "status", "level", "message"}]}``. A package with
several plugins ships ``{"reports": [that, …]}``.
"""

import functools
import importlib.util
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, Final

import attrs
import orjson

from hostcore.job.names import canonical
from hostcore.plugins.installed import Discovered, package_of
from hostcore_hookspecs.plan import PluginRef

FILE_NAME: Final = "conformance.json"
_YEAR_10000_MS: Final = 253_402_300_800_000
_STATUSES: Final = ("passed", "failed", "blocked", "skipped", "expected_failure")


class MalformedReport(ValueError):
    """A file of that name which ``hostcore check`` did not write."""


@attrs.frozen(kw_only=True)
class FailedCheck:
    """A check that the plugin failed when the report was made."""

    id: str
    level: str
    message: str


@attrs.frozen(kw_only=True)
class ShippedReport:
    """The conformance report that a plugin ships."""

    kind: str
    name: str
    #: What was checked, which need not be what is installed.
    distribution: str | None
    version: str | None
    #: What it was checked with.
    hostcore: str
    api_version: str
    python: str
    #: In milliseconds since 1970, UTC.
    created_ms: int
    certified: bool
    #: The number of results by status; ``failed`` are MUSTs, a SHOULD that failed is a ``warning``.
    summary: Mapping[str, int]
    failures: Sequence[FailedCheck]
    #: Whether checks could not be asked, because there was no example of the plugin's use.
    is_partial: bool = False

    @property
    def verdict(self) -> str:
        """In a word or two: ``certified``, ``2 failed``, ``not fully checked``, ``61 passed``."""
        if self.certified:
            return "certified"
        if self.summary["failed"]:
            return f"{self.summary['failed']} failed"
        return "not fully checked" if self.is_partial else f"{self.summary['passed']} passed"

    def is_of(self, ref: PluginRef) -> bool:
        """Return whether the installed version is the one that was checked."""
        return self.version == ref.version


@attrs.frozen(kw_only=True)
class ShippedReports:
    """The reports of what is installed."""

    by_plugin: Mapping[PluginRef, ShippedReport]
    #: Files that cannot be used, one sentence each.
    problems: Sequence[str]


def shipped_reports(refs: Sequence[PluginRef], found: Discovered) -> ShippedReports:
    """Look for the reports of installed plugins; imports none, and fails for none.

    :param found: What is installed, the plugins among it.
    """
    reports: dict[PluginRef, ShippedReport] = {}
    problems: dict[str, None] = {}
    read = functools.cache(_reports_of)
    for ref in refs:
        try:
            for report in read(package_of(ref.value), found.path_of(ref)):
                if _is_about(report, ref):
                    reports[ref] = report
        except Exception as error:  # noqa: BLE001 - a third-party finder or file: its error is data
            known = isinstance(error, MalformedReport | OSError)
            why = str(error) if known else f"{type(error).__name__}: {error}"
            problems[f"the conformance report of {ref.dist} {ref.version} cannot be used: {why}"] = None
    return ShippedReports(by_plugin=reports, problems=tuple(problems))


def _is_about(report: ShippedReport, ref: PluginRef) -> bool:
    of = report.distribution is None or canonical(report.distribution) == canonical(ref.dist or "")
    return of and (report.kind, report.name) == (ref.kind, ref.name)


def _reports_of(package: str, path: Sequence[str] | None) -> tuple[ShippedReport, ...]:
    """The reports in a top-level package; none in a namespace package, a single module, or one that is not there.

    :param path: The folders that it is installed in; None: where this process imports from.
    :raises MalformedReport: The file is not a report.
    :raises OSError: The file cannot be read.
    """
    # The name of the top level only: to find a submodule, Python would import its parents.
    spec = importlib.util.find_spec(package) if path is None else PathFinder.find_spec(package, path)
    if spec is None or spec.origin is None or not spec.submodule_search_locations:
        return ()
    file = Path(spec.submodule_search_locations[0], FILE_NAME)
    try:
        content = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):  # also of a package in an archive
        return ()
    try:
        document = orjson.loads(content)
        documents = document["reports"] if isinstance(document, dict) and "reports" in document else [document]
        return tuple(_report(one) for one in _list(documents, "reports"))
    except ValueError as error:
        raise MalformedReport(f"{error} ({file})") from error


def _report(document: object) -> ShippedReport:
    report = _object(document, "the report")
    plugin = _object(report.get("plugin"), '"plugin"')
    results = [_object(one, "a result") for one in _list(report.get("results"), "results")]
    statuses = [_one_of(_STATUSES, one.get("status")) for one in results]
    should = sum(one.get("level") == "should" and one["status"] == "failed" for one in results)
    summary = {**dict.fromkeys(_STATUSES, 0), **Counter(statuses), "warning": should}
    summary["failed"] -= should
    certified, created_ms = report.get("certified"), report.get("created_ms")
    if not isinstance(certified, bool):
        raise MalformedReport(f'"certified" is to be true or false, found {_told(certified)}')
    if not isinstance(created_ms, int) or not 0 <= created_ms < _YEAR_10000_MS:
        raise MalformedReport(f'"created_ms" is to be milliseconds since 1970, found {_told(created_ms)}')
    if certified and (summary["failed"] or summary["warning"] or summary["blocked"] or not results):
        raise MalformedReport("it says that it is certified, and its results say otherwise")
    return ShippedReport(
        kind=_text(plugin, "kind"),
        name=_text(plugin, "name"),
        distribution=None if plugin.get("distribution") is None else _text(plugin, "distribution"),
        version=None if plugin.get("version") is None else _text(plugin, "version"),
        hostcore=_text(report, "hostcore"),
        api_version=_text(report, "api_version"),
        python=_text(report, "python"),
        created_ms=created_ms,
        certified=certified,
        summary=summary,
        failures=tuple(
            FailedCheck(id=_text(one, "id"), level=_text(one, "level"), message=_line(one.get("message")))
            for one, status in zip(results, statuses, strict=True)
            if status == "failed"
        ),
        is_partial=any(one.get("no_example") is True for one in results),
    )


def _object(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise MalformedReport(f"{what} is to be an object, found {_told(value)}")
    return value


def _list(value: object, key: str) -> Sequence[object]:
    if not isinstance(value, list):
        raise MalformedReport(f'"{key}" is to be a list, found {_told(value)}')
    return value


def _one_of(allowed: Sequence[str], value: object) -> str:
    if value not in allowed:
        raise MalformedReport(f'"status" is to be one of {", ".join(allowed)}, found {_told(value)}')
    return str(value)


def _text(values: Mapping[str, Any], key: str) -> str:
    """A string that a terminal can be given: no control characters."""
    value = values.get(key)
    if not isinstance(value, str) or not value or not value.isprintable():
        raise MalformedReport(f'"{key}" is to be a string, found {_told(value)}')
    return value


def _line(value: object) -> str:
    """A message in one printable line."""
    text = " ".join(value.split()) if isinstance(value, str) else ""
    return "".join(character if character.isprintable() else "?" for character in text)


def _told(value: object) -> str:
    return "nothing" if value is None else f"{value!r:.60}"


def plugins_document(found: Discovered, shipped: ShippedReports | None = None) -> dict[str, Any]:
    """Everything that discovery has found, as plain JSON. Imports no plugin.

    :param shipped: The conformance reports of the plugins; they are looked for if not given.
    """
    shipped = shipped or shipped_reports(found.refs, found)
    conflicting = found.conflicts
    plugins = [
        {
            "kind": ref.kind,
            "name": ref.name,
            "value": ref.value,
            "distribution": ref.dist,
            "version": ref.version,
            "conflict": (ref.kind, ref.name) in conflicting,
            "conformance": conformance_document(ref, shipped.by_plugin.get(ref)),
        }
        for ref in found.refs
    ]
    return {"plugins": plugins, "broken": [attrs.asdict(one) for one in found.broken]}


def conformance_document(ref: PluginRef, report: ShippedReport | None) -> dict[str, Any] | None:
    """Return a shipped report beside the installed version as plain JSON; None without a report."""
    if report is None:
        return None
    return {
        "certified": report.certified,
        "is_partial": report.is_partial,
        "summary": dict(report.summary),
        "failures": [attrs.asdict(one) for one in report.failures],
        "version": report.version,
        "is_of_installed_version": report.is_of(ref),
        "hostcore": report.hostcore,
        "api_version": report.api_version,
        "python": report.python,
        "created_ms": report.created_ms,
    }
