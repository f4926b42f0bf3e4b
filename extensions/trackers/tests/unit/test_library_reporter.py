"""A reporter whose library works in a process of its own: all that another library needs is its session."""

import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from hostcore_hookspecs import Event, FatalError, TransientError
from hostcore_hookspecs.events import Metrics
from hostcore_trackers.history import Row
from hostcore_trackers.library_reporter import LibraryReporter

Course = Any
MakeCourse = Callable[..., Course]

SESSION = """
    import os
    from pathlib import Path
    from hostcore_hookspecs import FatalError
    from hostcore_trackers.library_process import serve

    class Session:
        def history(self, *, file):
            with Path(file).open("a+") as opened:
                opened.write("begin\\n")
                opened.seek(0)
                numbers = [int(line.split()[0]) for line in opened if line != "begin\\n"]
            return {"last_seq": max(numbers, default=0)}

        def log(self, *, file, seq, row):
            with Path(file).open("a") as opened:
                opened.write(f"{seq} {row['loss']}\\n")
            if row["loss"] == 666:
                os._exit(1)
            if row["loss"] == 401:
                raise FatalError("no such user")

        def end(self):
            with Path(os.environ["ENDS"]).open("a") as opened:
                opened.write("end\\n")

    serve(Session())
"""


class FileReporter(LibraryReporter):
    """A tracker whose rows are the lines of a file."""

    LIBRARY, SESSION = "Lines", "the_lines"

    def __init__(self, folder: Path) -> None:
        super().__init__(timeout_seconds=60)
        self._folder = folder

    def _where(self, event: Event) -> dict[str, str]:
        return {"file": str(self._folder / self._ctx.run_id)}

    def _tell(self, event: Event, row: Row) -> None:
        self._call("log", **self._where(event), seq=event.seq, row=row)

    def _environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        return {**variables, "PYTHONPATH": str(self._folder), "ENDS": str(self._folder / "ends")}


@pytest.fixture
def reporter(tmp_path: Path) -> FileReporter:
    (tmp_path / "the_lines.py").write_text(textwrap.dedent(SESSION))
    return FileReporter(tmp_path)


def steps(run: Course, *losses: float) -> list[Event]:
    return [run.tell(Metrics(metrics={"loss": loss}), step=10 * number) for number, loss in enumerate(losses)]


def test_each_row_is_told_once_also_by_another_process(
    reporter: FileReporter, course: MakeCourse, tmp_path: Path
) -> None:
    run = course()
    told = steps(run, 3.0, 2.0, 1.0)
    for some in (told[:2], told):
        reporter.open(run.ctx())
        for event in some:
            reporter.report_event(event)
        reporter.close()
    assert (tmp_path / "flights-1").read_text().split("\n")[:-1] == ["begin", "1 3.0", "2 2.0", "begin", "3 1.0"]
    assert (tmp_path / "ends").read_text() == "end\nend\n"


def test_after_a_failure_another_process_finds_out_what_is_there(
    reporter: FileReporter, course: MakeCourse, tmp_path: Path
) -> None:
    run = course()
    first, dies, refused = steps(run, 3.0, 666, 401)
    reporter.open(run.ctx())
    reporter.report_event(first)
    with pytest.raises(TransientError, match="the process of Lines has ended"):
        reporter.report_event(dies)
    reporter.report_event(dies)  # it is there
    with pytest.raises(FatalError, match="no such user"):
        reporter.report_event(refused)
    reporter.close()
    reporter.close()
    assert (tmp_path / "flights-1").read_text().split("\n")[:-1] == ["begin", "1 3.0", "2 666", "begin", "3 401"]


def test_what_the_library_prints_is_in_a_log_of_its_name(
    reporter: FileReporter, course: MakeCourse, tmp_path: Path
) -> None:
    run = course()
    (tmp_path / "the_lines.py").write_text("raise SystemExit('no licence')")
    reporter.open(run.ctx())
    with pytest.raises(TransientError, match="the process of Lines has ended: … no licence"):
        reporter.report_event(*steps(run, 3.0))
    reporter.close()
    assert Path(run.run_dir, "logs", "lines.log").read_text() == "no licence\n"
