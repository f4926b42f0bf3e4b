"""``config/run.json``: the job as resolved, what it ran with, and where it came from."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from hostcore.runs.documents import CorruptDocument, from_document, read_document, write_document

if TYPE_CHECKING:
    from hostcore.job.spec import JobSpec
    from hostcore.plugins.installed import Discovered

SCHEMA = "hostcore.run/1"


@attrs.frozen(kw_only=True)
class RunRecord:
    """The record of a run, rewritten by each attempt's supervisor, since a longer run may be asked for."""

    #: The job with all defaults filled in; loads back as a job.
    job: Mapping[str, Any]
    #: The folder of the job file; import paths are searched there.
    job_dir: str
    #: The selected plugins of both rooms, each a :class:`~hostcore_hookspecs.plan.PluginRef`: what the workers load.
    #: Empty in a record of an earlier hostcore.
    refs: Sequence[Mapping[str, Any]] = attrs.field(factory=list)
    #: Plugins with distribution, version and hash.
    plugins: Sequence[Mapping[str, Any]] = ()
    #: What the attempts used, each entry from its attempt on: see :class:`~hostcore.runs.used.Used`. ``plugins`` are
    #: those of the newest attempt, also before it has begun to train.
    used: Sequence[Mapping[str, Any]] = attrs.field(factory=list)
    #: The conditions of the attempts, each entry from its attempt on: see :mod:`hostcore.runs.retrained`.
    conditions: Sequence[Mapping[str, Any]] = attrs.field(factory=list)
    #: Versions of Python, hostcore and the libraries that decide about the result.
    environment: Mapping[str, Any] = attrs.field(factory=dict)
    #: The checkpoint of another run that this one started from.
    parent: str | None = None
    #: When the run was first submitted, in milliseconds since 1970.
    submitted_ms: int = 0
    #: Steps after which the run is complete; 0 while that is not known.
    total_steps: int = 0
    #: Rows of the data that each epoch leaves out, because they do not fill a step.
    rows_left_out: int = 0
    #: The sections of data that the trainer brings to the job, by name, as the newest attempt has found them; None
    #: while that is not known.
    brought: Mapping[str, Any] | None = None
    #: Ranks of the newest attempt; 0 while that is not known.
    world_size: int = 0

    @property
    def job_with_data(self) -> Mapping[str, Any]:
        """The job with the data that its trainer brings; plain JSON."""
        return {**self.job, **(self.brought or {})}

    def spec(self, *, world_size: int | None = None, with_data: bool = False) -> "JobSpec":
        """Load the job that the run was made for.

        :param world_size: Ranks, where they are known. None: those of the newest attempt, or, before the first, what
            the job asks for.
        :param with_data: With the data that its trainer brings, as far as it is known.
        :raises HostcoreError: When this version of hostcore does not take the job any more.
        """
        from hostcore.job.load import load_job  # half of the time in which `hostcore list` starts

        ranks = world_size or self.world_size or None
        job = self.job_with_data if with_data else self.job
        return load_job(job, job_dir=Path(self.job_dir), world_size=ranks)

    def selectable(self) -> "Discovered":
        """Return the plugins that names in the job stand for: those of the plan, or, without one, all installed.

        :raises CorruptDocument: When an entry is no plugin.
        """
        from hostcore.plugins.installed import Discovered, discover
        from hostcore_hookspecs.plan import PluginRef

        if not self.refs:
            return discover()
        return Discovered(refs=tuple(from_document(PluginRef, one, file=Path("run.json")) for one in self.refs))

    def write(self, path: Path) -> None:
        """Write the record."""
        write_document(path, {"schema": SCHEMA, **attrs.asdict(self)})

    @classmethod
    def read(cls, path: Path) -> "RunRecord":
        """Read a record.

        :raises FileNotFoundError: When there is none.
        :raises CorruptDocument: When the file is not a record.
        """
        record = from_document(cls, read_document(path), file=path)
        if not isinstance(record.job, dict) or "trainer" not in record.job:
            raise CorruptDocument("the record holds no job", file=str(path))
        return record
