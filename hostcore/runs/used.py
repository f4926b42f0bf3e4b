"""Plugins and data that the attempts of a run used, and the query for the runs that used some of them."""

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from hostcore.errors import Errors
from hostcore.runs.documents import CorruptDocument, from_document
from hostcore.runs.record import RunRecord
from hostcore_hookspecs.errors import HostcoreError

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

#: ``digits``, ``dist/digits`` or ``module:symbol``; behind it may stand versions.
_ASKED: Final = re.compile(r"\s*(?P<name>[^\s<>=!~,;\[\]@]+)\s*(?P<versions>[<>=!~].*)?")
_HEXADECIMAL: Final = re.compile(r"[0-9a-f]{8,64}")
#: Of a text of a plugin; a job may write what it likes into its record.
_LONGEST: Final = 256
_MOST_ATTEMPTS: Final = 10**9
#: Digits of a fingerprint that people are shown.
_SHOWN: Final = 12


class InvalidQuery(HostcoreError):
    """A question that cannot be asked: no version specifier, no fingerprint, or one that is of several data."""

    code = "run.query"


@attrs.frozen(kw_only=True)
class UsedPlugin:
    """A plugin that a run used."""

    kind: str
    #: As the job names it.
    name: str
    #: None for an import path, as the version.
    distribution: str | None = None
    version: str | None = None
    #: See :class:`~hostcore.plugins.provenance.Provenance`; None as well in a record of an earlier hostcore.
    sha256: str | None = None

    @property
    def provenance(self) -> tuple[str, str, str | None, str | None]:
        """Everything but the hash."""
        return self.kind, self.name, self.distribution, self.version


_KEYS: Final = tuple(field.name for field in attrs.fields(UsedPlugin))


@attrs.frozen(kw_only=True)
class Used:
    """Plugins and data that a run used from one attempt on, until the next entry."""

    attempt: int
    plugins: tuple[UsedPlugin, ...] = ()
    #: The fingerprint of the training data; empty if they have none; None if that is not known.
    data: str | None = None

    @classmethod
    def of(cls, found: Any, *, file: Path) -> "Used":
        """An entry of a record.

        :raises CorruptDocument: When it is none.
        """
        try:
            used = from_document(cls, {**found, "plugins": tuple(map(_plugin, found.get("plugins", ())))}, file=file)
        except (AttributeError, TypeError) as error:
            raise CorruptDocument(f"what an attempt used is {found!r:.100}", file=str(file)) from error
        if not 0 < used.attempt < _MOST_ATTEMPTS or len(used.data or "") > _LONGEST:
            raise CorruptDocument(f"what an attempt used is {found!r:.100}", file=str(file))
        return used


def _plugin(found: Any) -> UsedPlugin:
    """A plugin of a record, of which one run has a dozen, and a list many runs.

    :raises TypeError: When it is none.
    """
    texts = [found.get(key) for key in _KEYS]
    if None in texts[:2] or any(text is not None and (type(text) is not str or len(text) > _LONGEST) for text in texts):
        raise TypeError("no plugin")
    return UsedPlugin(**dict(zip(_KEYS, texts, strict=True)))


def shown_fingerprint(fingerprint: str | None) -> str:
    """The beginning of a fingerprint, which is enough to ask for its runs."""
    return (fingerprint or "")[:_SHOWN]


def recorded_use(record: RunRecord, file: Path) -> list[Used]:
    """Return the valid entries of a record, oldest first; none in that of an earlier hostcore, or in a wrong one.

    A job may write anything into its record. The use of such a run is unknown.

    :param file: The record.
    """
    try:
        return [Used.of(one, file=file) for one in record.used] if isinstance(record.used, list) else []
    except CorruptDocument:
        return []


def used_by(record: RunRecord, *, attempt: int, file: Path) -> list[Used]:
    """Return the entries of a record about its attempts, oldest first.

    An earlier hostcore has recorded the plugins of the newest attempt alone.

    :param attempt: The newest.
    :param file: The record.
    """
    used = recorded_use(record, file)
    try:
        newest = Used.of({"attempt": max(attempt, 1), "plugins": record.plugins}, file=file)
    except CorruptDocument:
        return used
    known = {one.provenance for one in used[-1].plugins} if used else set()
    is_new = newest.plugins and {one.provenance for one in newest.plugins} != known
    return [*used, newest] if is_new else used


def with_use(before: Sequence[Used], used: Used) -> list[Used]:
    """Return the entries of a run with one more attempt; the same entries if it uses what the attempt before used.

    :param before: Oldest first; an entry of this attempt is replaced.
    """
    earlier = [one for one in before if one.attempt < used.attempt]
    same = earlier and attrs.evolve(earlier[-1], attempt=used.attempt) == used
    return earlier if same else [*earlier, used]


def changed_plugins(used: Sequence[Used], before: int, attempt: int) -> list[str]:
    """The plugins of the worker that an attempt has in another version or with another content, in words.

    :param used: What the attempts used, oldest first.
    """
    from hostcore_hookspecs.kinds import KINDS  # `hostcore list` does without

    old, new = ({(one.kind, one.name): one for one in _in_force(used, at)} for at in (before, attempt))
    return [
        _changed(old[key], one)
        for key, one in new.items()
        if KINDS[one.kind].room == "worker" and key in old and _is_other(old[key], one)
    ]


def _in_force(used: Sequence[Used], attempt: int) -> Sequence[UsedPlugin]:
    return next((one.plugins for one in reversed(used) if one.attempt <= attempt), ())


def _is_other(old: UsedPlugin, new: UsedPlugin) -> bool:
    return old.provenance != new.provenance or (None not in (old.sha256, new.sha256) and old.sha256 != new.sha256)


def _changed(old: UsedPlugin, new: UsedPlugin) -> str:
    was, now = (" ".join(filter(None, (one.distribution, one.version))) for one in (old, new))
    what = (
        f"{was or 'an import path'} -> {now or 'an import path'}"
        if was != now
        else f"another content of {now or 'its files'}"
    )
    return f"the {new.kind.replace('_', ' ')} {new.name!r}: {what}"


@attrs.frozen(kw_only=True)
class WantedPlugin:
    """Plugins of a name, of a distribution, or both, in some versions."""

    #: As it was asked for: ``digits>=0.1,<0.2``.
    text: str
    #: None: of any name.
    name: str | None = None
    #: Normalized; None: of any.
    distribution: str | None = None
    versions: "SpecifierSet"

    def is_of(self, plugin: UsedPlugin) -> bool:
        """Return whether it is the plugin's name and distribution."""
        from packaging.utils import canonicalize_name

        return (self.name is None or self.name == plugin.name) and (
            self.distribution is None
            or (plugin.distribution is not None and self.distribution == canonicalize_name(plugin.distribution))
        )

    def admits(self, version: str | None) -> bool | None:
        """Return whether a version is among those, pre-releases as well; None if it cannot be compared."""
        from packaging.version import InvalidVersion, Version

        if not self.versions:
            return True
        try:
            return None if version is None else self.versions.contains(Version(version), prereleases=True)
        except InvalidVersion:
            return None


@attrs.frozen(kw_only=True)
class UseQuery:
    """A query for the runs with an attempt that used all of this."""

    plugins: Sequence[WantedPlugin] = ()
    distributions: Sequence[WantedPlugin] = ()
    #: The beginning of a fingerprint of data; empty: of any.
    data: str = ""

    @classmethod
    def parse(
        cls, *, plugins: Sequence[str] = (), distributions: Sequence[str] = (), data: str | None = None
    ) -> "UseQuery":
        """Parse a query: names with version specifiers (PEP 440), and the beginning of a fingerprint.

        :raises Errors: Each with the option in ``file``.
        """
        errors: list[HostcoreError] = []

        def wanted(texts: Sequence[str], option: str) -> list[WantedPlugin]:
            found = []
            for text in texts:
                try:
                    found.append(_wanted(text, option))
                except InvalidQuery as error:
                    errors.append(error)
            return found

        query = cls(
            plugins=wanted(plugins, "--plugin"),
            distributions=wanted(distributions, "--distribution"),
            data=(data or "").strip().lower(),
        )
        if data is not None and not _HEXADECIMAL.fullmatch(query.data):
            errors.append(
                InvalidQuery(
                    f"{data!r} is no fingerprint of data, nor the first 8 digits of one or more",
                    file="--data",
                    hint="`hostcore status RUN` shows that of a run",
                )
            )
        if errors:
            raise Errors(errors)
        return query

    def __bool__(self) -> bool:
        """Return whether the query has any condition."""
        return bool(self.plugins or self.distributions or self.data)

    def answer(self, used: Sequence[Used]) -> list[Used]:
        """Return the entries in which all of it was used, each with the plugins of the query alone."""
        return [found for one in used if (found := self._match(one)) is not None]

    def _match(self, used: Used) -> Used | None:
        if self.data and not (used.data or "").startswith(self.data):
            return None
        found: list[UsedPlugin] = []
        for wanted in (*self.plugins, *self.distributions):
            matching = [one for one in used.plugins if wanted.is_of(one) and wanted.admits(one.version)]
            if not matching:
                return None
            found += [one for one in matching if one not in found]
        return attrs.evolve(used, plugins=tuple(found))

    def is_unknown(self, used: Sequence[Used]) -> bool:
        """Return whether a run that does not match may be meant all the same: its entries are incomplete."""
        if not used or used[0].attempt > 1 or (self.data and any(one.data is None for one in used)):
            return True
        asked = (*self.plugins, *self.distributions)
        return any(
            wanted.is_of(plugin) and wanted.admits(plugin.version) is None
            for one in used
            for plugin in one.plugins
            for wanted in asked
        )

    def require_one(self, fingerprints: Collection[str]) -> None:
        """Require that the beginning of a fingerprint is that of one.

        :param fingerprints: Of data that were found with it; each once.
        :raises InvalidQuery: When there are several.
        """
        if self.data and len(fingerprints) > 1:
            raise InvalidQuery(
                f"{len(fingerprints)} fingerprints begin with {self.data!r}: {', '.join(sorted(fingerprints)[:8])}",
                file="--data",
                hint="give more of the fingerprint",
            )


def _wanted(text: str, option: str) -> WantedPlugin:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.utils import canonicalize_name

    asked, why = _ASKED.fullmatch(text), ""
    try:
        versions = SpecifierSet((asked and asked["versions"]) or "")
    except InvalidSpecifier as error:
        asked, why = None, f": {error}"
    if asked is None:
        raise InvalidQuery(
            f"{text!r} is no name, nor one with version specifiers (PEP 440){why}",
            file=option,
            hint="for example 'digits>=0.1,<0.2', in a shell in quotes",
        )
    name = str(asked["name"])
    if option == "--distribution":
        return WantedPlugin(text=text, distribution=canonicalize_name(name), versions=versions)
    distribution, _, own = name.rpartition("/")
    return WantedPlugin(
        text=text, name=own, distribution=canonicalize_name(distribution) if distribution else None, versions=versions
    )
