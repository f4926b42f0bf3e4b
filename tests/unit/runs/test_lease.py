"""Who runs a run, told from real processes."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import attrs
import pytest

from hostcore.events.writer import now_ms
from hostcore.runs.documents import CorruptDocument, write_document
from hostcore.runs.lease import Lease, ProcessIdentity


def lease(process: ProcessIdentity, *, age_seconds: float = 0) -> Lease:
    renewed = now_ms() - round(age_seconds * 1000)
    return Lease(process=process, attempt=1, step=7, last_progress_ms=renewed, renewed_ms=renewed)


class TestALease:
    def test_comes_back_from_its_file(self, tmp_path) -> None:
        written = lease(ProcessIdentity.current())
        written.write(tmp_path / "lease.json")
        assert Lease.read(tmp_path / "lease.json") == written

    def test_that_does_not_exist_is_none(self, tmp_path) -> None:
        assert Lease.read(tmp_path / "lease.json") is None

    def test_that_is_damaged_is_an_error_that_names_the_file(self, tmp_path) -> None:
        (tmp_path / "lease.json").write_text("{")
        with pytest.raises(CorruptDocument) as caught:
            Lease.read(tmp_path / "lease.json")
        assert caught.value.file == str(tmp_path / "lease.json")

    @pytest.mark.parametrize("content", ["{}", '{"process": {}}', '{"process": null}', '{"process": {"pid": 1}}'])
    def test_that_is_something_else_is_an_error_that_names_the_file(self, tmp_path, content: str) -> None:
        (tmp_path / "lease.json").write_text(content)
        with pytest.raises(CorruptDocument, match=r"not a (Lease|ProcessIdentity)") as caught:
            Lease.read(tmp_path / "lease.json")
        assert caught.value.file == str(tmp_path / "lease.json")

    def test_of_a_newer_hostcore_is_read_without_what_is_new(self, tmp_path) -> None:
        written = lease(ProcessIdentity.current())
        document = attrs.asdict(written)
        write_document(
            tmp_path / "lease.json", {**document, "newer": 1, "process": {**document["process"], "newer": 1}}
        )
        assert Lease.read(tmp_path / "lease.json") == written

    def test_of_a_process_that_runs_is_live(self, holder) -> None:
        assert lease(holder.identity).is_live

    def test_of_a_process_that_runs_is_live_however_old_it_is(self, holder) -> None:
        assert lease(holder.identity, age_seconds=10_000).is_live

    def test_of_a_stopped_process_is_live(self, holder) -> None:
        os.kill(holder.process.pid, signal.SIGSTOP)
        assert lease(holder.identity).is_live

    def test_of_a_killed_process_is_not_live_at_once(self, holder) -> None:
        holder.process.kill()
        holder.process.wait()
        assert not lease(holder.identity).is_live

    def test_of_a_zombie_is_not_live(self, holder) -> None:
        holder.process.kill()
        os.waitid(os.P_PID, holder.process.pid, os.WEXITED | os.WNOWAIT)  # dead, but not yet reaped
        assert not lease(holder.identity).is_live

    def test_of_a_recycled_process_number_is_not_live(self, holder) -> None:
        earlier = attrs.evolve(holder.identity, start_time=holder.identity.start_time - 1)
        assert not lease(earlier).is_live

    def test_of_a_process_before_the_last_boot_is_not_live(self, holder) -> None:
        assert not lease(attrs.evolve(holder.identity, boot_id="another")).is_live

    def test_of_another_machine_is_live_while_it_is_renewed(self) -> None:
        elsewhere = attrs.evolve(ProcessIdentity.current(), host="elsewhere.example", boot_id="another")
        assert lease(elsewhere, age_seconds=20).is_live

    def test_of_another_machine_is_over_30_seconds_after_it_was_renewed(self) -> None:
        elsewhere = attrs.evolve(ProcessIdentity.current(), host="elsewhere.example", boot_id="another")
        assert not lease(elsewhere, age_seconds=31).is_live


class TestAProcess:
    def test_is_the_same_from_inside_and_outside(self, holder) -> None:
        assert holder.identity.pid == holder.process.pid
        assert holder.identity.is_here
        assert holder.identity.runs

    def test_knows_itself(self) -> None:
        assert ProcessIdentity.current() == ProcessIdentity.current()
        assert ProcessIdentity.current().runs

    def test_with_brackets_and_spaces_in_its_name_is_told_like_any_other(self, tmp_path) -> None:
        program = tmp_path / "a) R (b"
        shutil.copy(shutil.which("sleep"), program)
        process = subprocess.Popen([program, "100"])
        try:
            started = int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19])
            assert attrs.evolve(ProcessIdentity.current(), pid=process.pid, start_time=started).runs
        finally:
            process.kill()
            process.wait()
