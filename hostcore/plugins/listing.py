"""Document of the installed plugins, for ``hostcore plugins --json`` and the service.

Plugins ship conformance reports: ``conformance.json`` in their top-level package, which is found without importing it.
``hostcore check NAME --json FILE`` writes one: ``{"plugin": {"kind", "name", "distribution", "version"}, "hostcore",
"api_version", "python", "created_ms", "certified", "results": [{"id", "status", "level", "message"}]}``. A package with
several plugins ships ``{"reports": [that, …]}``.
"""

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs
import orjson

from hostcore.job.names import canonical
from hostcore.plugins.installed import Discovered, find_package, package_of
from hostcore_hookspecs.plan import PluginRef

T = TypeVar("T")

FILE_NAME: Final = "conformance.json"
_YEAR_10000_MS: Final = 253_402_300_800_000
_STATUSES: Final = ("passed", "failed", "blocked", "skipped", "expected_failure")
_NOUNS: Final = {str: "a string", int: "an integer", bool: "true or false", dict: "an object", list: "a list"}
#: Of a report, in the document of its plugin.
_SHOWN: Final = (
    *("certified", "is_partial", "summary", "failures", "version", "is_of_installed_version"),
    *("hostcore", "api_version", "python", "created_ms"),
)


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
    #: Of the plugin that was checked, which need not be the installed one.
    distribution: str | None
    version: str | None
    #: The versions that it was checked with.
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
        """Return the result in a word or two: ``certified``, ``2 failed``, ``not fully checked``, ``61 passed``."""
        if self.certified:
            return "certified"
        if self.summary["failed"]:
            return f"{self.summary['failed']} failed"
        return "not fully checked" if self.is_partial else f"{self.summary['passed']} passed"

    def verdict_of(self, ref: PluginRef) -> str:
        """Return the verdict, with the version that was checked if that is not the installed one."""
        return self.verdict if self.is_of(ref) else f"{self.verdict} (of {self.version or 'no version'})"

    def is_of(self, ref: PluginRef) -> bool:
        """Return whether the installed version is the one that was checked."""
        return self.version == ref.version

    def document(self, ref: PluginRef) -> dict[str, Any]:
        """Return the report beside the installed plugin as plain JSON."""
        values = {**attrs.asdict(self), "is_of_installed_version": self.is_of(ref)}
        return {key: values[key] for key in _SHOWN}


@attrs.frozen(kw_only=True)
class ShippedReports:
    """The conformance reports of installed plugins."""

    by_plugin: Mapping[PluginRef, ShippedReport]
    #: Files that cannot be used, one sentence each.
    problems: Sequence[str]


def shipped_reports(refs: Sequence[PluginRef], found: Discovered) -> ShippedReports:
    """Read the reports of installed plugins; imports none, and fails for none.

    :param found: The installed plugins, ``refs`` among them.
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
    """Return the reports in a top-level package; none in a namespace package, a single module, or a missing one.

    :param path: The folders that it is installed in; None: where this process imports from.
    :raises MalformedReport: The file is not a report.
    :raises OSError: The file cannot be read.
    """
    spec = find_package(package, path)
    if spec is None or spec.origin is None or not spec.submodule_search_locations:
        return ()
    file = Path(spec.submodule_search_locations[0], FILE_NAME)
    try:
        content = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):  # also of a package in an archive
        return ()
    try:
        document = orjson.loads(content)
        several = isinstance(document, dict) and "reports" in document
        return tuple(map(_report, _given(document, "reports", list) if several else [document]))
    except ValueError as error:
        raise MalformedReport(f"{error} ({file})") from error


def _report(report: object) -> ShippedReport:
    plugin, results = _given(report, "plugin", dict), _given(report, "results", list)
    certified, created_ms = _given(report, "certified", bool), _given(report, "created_ms", int)
    statuses = Counter(_given(one, "status", str) for one in results)
    if unknown := statuses.keys() - set(_STATUSES):
        raise MalformedReport(f'"status" is to be one of {", ".join(_STATUSES)}, found {min(unknown)!r:.60}')
    failed = [one for one in results if one["status"] == "failed"]
    should = sum(one.get("level") == "should" for one in failed)
    summary = {**dict.fromkeys(_STATUSES, 0), **statuses, "warning": should, "failed": len(failed) - should}
    if not 0 <= created_ms < _YEAR_10000_MS:
        raise MalformedReport(f'"created_ms" is to be milliseconds since 1970, found {created_ms!r:.60}')
    if certified and (failed or summary["blocked"] or not results):
        raise MalformedReport("it says that it is certified, and its results say otherwise")
    return ShippedReport(
        kind=_given(plugin, "kind", str),
        name=_given(plugin, "name", str),
        distribution=None if plugin.get("distribution") is None else _given(plugin, "distribution", str),
        version=None if plugin.get("version") is None else _given(plugin, "version", str),
        hostcore=_given(report, "hostcore", str),
        api_version=_given(report, "api_version", str),
        python=_given(report, "python", str),
        created_ms=created_ms,
        certified=certified,
        summary=summary,
        failures=tuple(
            FailedCheck(id=_given(one, "id", str), level=_given(one, "level", str), message=_line(one.get("message")))
            for one in failed
        ),
        is_partial=any(one.get("no_example") is True for one in results),
    )


def _given(values: object, key: str, kind: type[T]) -> T:
    """Return the value of a key, of a type. A terminal can be given its text: no control characters."""
    value: Any = values.get(key) if isinstance(values, dict) else None
    unprintable = isinstance(value, str) and not (value and value.isprintable())
    if type(value) is not kind or unprintable:
        found = "nothing" if value is None else f"{value!r:.60}"
        raise MalformedReport(f'"{key}" is to be {_NOUNS[kind]}, found {found}')
    return value


def _line(value: object) -> str:
    """Return a message in one printable line."""
    text = " ".join(value.split()) if isinstance(value, str) else ""
    return "".join(character if character.isprintable() else "?" for character in text)


def plugins_document(found: Discovered, shipped: ShippedReports | None = None) -> dict[str, Any]:
    """Return everything that is installed, as plain JSON. Imports no plugin.

    :param shipped: The conformance reports of the plugins; they are read if not given.
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
            "conformance": (report := shipped.by_plugin.get(ref)) and report.document(ref),
        }
        for ref in found.refs
    ]
    return {"plugins": plugins, "broken": [attrs.asdict(one) for one in found.broken]}
