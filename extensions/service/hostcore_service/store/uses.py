"""Plugins with their versions, and data, that the runs of jobs used, as indexed rows."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs
from packaging.utils import canonicalize_name
from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    delete,
    exists,
    false,
    func,
    insert,
    not_,
    or_,
    select,
    true,
)

from hostcore.runs.used import Used, UseQuery, WantedPlugin
from hostcore_service.store.job import storable
from hostcore_service.store.tables import JOBS, USED_PLUGINS, USES

#: Limit per job: its run directory, from which the rows come, is written by the job.
_MOST_ROWS: Final = 2000


def kept(used: Sequence[Used]) -> tuple[Used, ...]:
    """The newest entries of a run, as many as are kept."""
    rows, newest = 0, []
    for one in reversed(used):
        rows += 1 + len(one.plugins)
        if rows > _MOST_ROWS:
            break
        newest.append(one)
    return tuple(reversed(newest))


def write_use(connection: Connection, run_id: str, used: Sequence[Used]) -> None:
    """Replace what is known of a run."""
    connection.execute(delete(USED_PLUGINS).where(USED_PLUGINS.c.run_id == run_id))
    connection.execute(delete(USES).where(USES.c.run_id == run_id))
    uses = {one.attempt: one for one in used}
    if uses:
        connection.execute(
            insert(USES),
            [{"run_id": run_id, "attempt": one.attempt, "data": _stored(one.data)} for one in uses.values()],
        )
    rows = [
        {"run_id": run_id, "attempt": one.attempt, "number": number, **_row(plugin)}
        for one in uses.values()
        for number, plugin in enumerate(one.plugins)
    ]
    if rows:
        connection.execute(insert(USED_PLUGINS), rows)


def _row(plugin: Any) -> dict[str, str | None]:
    distribution = None if plugin.distribution is None else canonicalize_name(plugin.distribution)
    return {
        **{key: _stored(value) for key, value in attrs.asdict(plugin).items()},
        "distribution": _stored(distribution),
    }


def _stored(text: str | None) -> str | None:
    return None if text is None else storable(text)


class Uses:
    """The conditions of a question, for the versions that a database has at this moment.

    :raises InvalidQuery: When the fingerprint of data is the beginning of several.
    """

    def __init__(self, connection: Connection, query: UseQuery) -> None:
        self._query = query
        self._connection = connection
        if query.data:
            begins = USES.c.data.startswith(query.data, autoescape=True)
            query.require_one(list(connection.execute(select(USES.c.data).where(begins).distinct().limit(9)).scalars()))

    def matches(self) -> ColumnElement[bool]:
        """Condition: one attempt of a job used everything in the query."""
        conditions = [USES.c.run_id == JOBS.c.run_id, *(self._is_used(one) for one in self._asked)]
        if self._query.data:
            conditions.append(USES.c.data.startswith(self._query.data, autoescape=True))
        return exists().where(*conditions)

    def unknown(self) -> ColumnElement[bool]:
        """Condition: a job does not match, but may have used everything in the query."""
        from_the_first = exists().where(USES.c.run_id == JOBS.c.run_id, USES.c.attempt == 1)
        reasons = [JOBS.c.used.is_(None), not_(from_the_first)]
        if self._query.data:
            reasons.append(exists().where(USES.c.run_id == JOBS.c.run_id, USES.c.data.is_(None)))
        for wanted in self._asked:
            named = and_(USED_PLUGINS.c.run_id == JOBS.c.run_id, _is_of(wanted))
            reasons.append(exists().where(named, self._among(wanted, None)))
        return and_(not_(self.matches()), or_(*reasons))

    @property
    def _asked(self) -> Iterator[WantedPlugin]:
        yield from (*self._query.plugins, *self._query.distributions)

    def _is_used(self, wanted: WantedPlugin) -> ColumnElement[bool]:
        same = and_(USED_PLUGINS.c.run_id == USES.c.run_id, USED_PLUGINS.c.attempt == USES.c.attempt)
        return exists().where(same, _is_of(wanted), self._among(wanted, True)).correlate(USES)

    def _among(self, wanted: WantedPlugin, is_admitted: bool | None) -> ColumnElement[bool]:
        """Condition: a plugin has an admitted version or, for None, one that cannot be compared."""
        if not wanted.versions:
            return true() if is_admitted else false()
        there = select(USED_PLUGINS.c.version).where(_is_of(wanted)).distinct()
        found = [one for one in self._connection.execute(there).scalars() if wanted.admits(one) is is_admitted]
        named = USED_PLUGINS.c.version.in_([one for one in found if one is not None])
        return or_(named, USED_PLUGINS.c.version.is_(None)) if None in found else named


def _is_of(wanted: WantedPlugin) -> ColumnElement[bool]:
    conditions = []
    if wanted.name is not None:
        conditions.append(USED_PLUGINS.c.name == wanted.name)
    if wanted.distribution is not None:
        conditions.append(USED_PLUGINS.c.distribution == wanted.distribution)
    return and_(*conditions)


def count(connection: Connection, *conditions: ColumnElement[bool]) -> int:
    """Count the jobs that meet all conditions."""
    found: int = connection.execute(select(func.count()).select_from(JOBS).where(*conditions)).scalar_one()
    return found
