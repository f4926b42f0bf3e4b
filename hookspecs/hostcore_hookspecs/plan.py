"""Plan of a run: the job and the plugins that it selected."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from hostcore_hookspecs.job import Job


@attrs.frozen(kw_only=True, order=True)
class PluginRef:
    """One plugin: an entry point of an installed distribution, or an import path. Nothing is imported."""

    #: ``trainer``, ``data_source``, ``callback``, …
    kind: str
    #: The registered name, or the import path.
    name: str
    #: ``module:symbol``.
    value: str
    #: The distribution that registers it; None for an import path.
    dist: str | None = None
    version: str | None = None
    #: It runs code or programs that a job names, as its distribution declares (``hostcore.runs_code``).
    runs_code: bool = False

    @property
    def provenance(self) -> str:
        """Name in messages: ``flight_delay (hostcore-flight-delay 0.1.0)``."""
        return f"{self.name} ({self.dist} {self.version})" if self.dist else self.name


@attrs.frozen(kw_only=True)
class Plan:
    """A job and the plugins it selected, in the order of the job file."""

    job: "Job"
    plugins: Sequence[PluginRef]
