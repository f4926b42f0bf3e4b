"""Runs in every state that a run can be left in, without a worker."""

from pathlib import Path
from typing import Any

import attrs
import orjson

from hostcore.checkpoints.commit import commit
from hostcore.events.writer import now_ms
from hostcore.runs.lease import Lease, ProcessIdentity
from hostcore.runs.record import RunRecord
from hostcore.runs.result import EXIT_CODES, RunResult
from hostcore.supervisor.opening import Opening, open_run
from hostcore.supervisor.plan import RunPlan


@attrs.frozen
class Past:
    """What earlier attempts have left."""

    plan: RunPlan

    def attempt(self, number: int = 1, **opening: Any) -> Opening:
        """An attempt that was begun by a process that is dead now."""
        opened = open_run(self.plan)
        assert isinstance(opened, Opening)
        assert opened.attempt == number
        record = RunRecord(job=self.plan.spec.to_json(), job_dir="/", parent=opened.parent or None)
        record.write(self.plan.directory.record)
        me = ProcessIdentity.current()
        dead = attrs.evolve(me, start_time=me.start_time - 1)
        self.lease(process=dead)
        claim = self.plan.directory.attempts / f"{number}.json"
        claim.write_bytes(orjson.dumps({**orjson.loads(claim.read_bytes()), "process": attrs.asdict(dead)}))
        return opened

    def lease(self, **changes: Any) -> None:
        """Change the lease of the newest attempt."""
        attrs.evolve(Lease.read(self.plan.directory.lease), **changes).write(self.plan.directory.lease)

    def ended(self, status: str) -> "Past":
        """A run whose first attempt has ended so."""
        self.attempt()
        self.result(status)
        return self

    def checkpoint(self, step: int) -> Path:
        def fill(folder: Path) -> None:
            (folder / "host.json").write_text("{}")
            (folder / "trainer").mkdir()
            (folder / "trainer" / "weights 1.bin").write_bytes(bytes([step % 256]) * 1000)

        commit(self.plan.checkpoints_dir, step=step, epoch=0, final=False, attempt=1, fill=fill)
        return self.plan.checkpoints_dir / f"step-{step:06d}"

    def result(self, status: str, *, attempt: int = 1) -> RunResult:
        result = RunResult(
            run_id="a",
            status=status,
            exit_code=EXIT_CODES[status],
            attempt=attempt,
            step=10,
            epoch=0,
            started_ms=now_ms(),
            ended_ms=now_ms(),
        )
        result.write(self.plan.directory.result)
        self.plan.directory.lease.unlink(missing_ok=True)
        return result

    def tree(self) -> dict[str, bytes | None]:
        """Everything in the run directory, with its content."""
        root = self.plan.directory.path
        return {str(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in root.rglob("*")}
