"""The result of a launch, among others that lie in the run directory."""

from __future__ import annotations

import json
import os
from pathlib import Path

from hostcore_builtin_plugins.run_result import earlier_result, read_log, result_of
from hostcore_hookspecs import LogChunk


def end(run_dir: Path, status: str, *, at_ns: int, **more: object) -> None:
    file = run_dir / "result.json"
    file.write_text(json.dumps({"status": status, "exit_code": 0, **more}))
    os.utime(file, ns=(at_ns, at_ns))


def test_every_try_of_a_launch_knows_the_result_that_was_there_before_the_first(tmp_path: Path) -> None:
    end(tmp_path, "cancelled", at_ns=1)
    first = earlier_result(str(tmp_path), "a.1")
    end(tmp_path, "succeeded", at_ns=2)
    again, of_another = earlier_result(str(tmp_path), "a.1"), earlier_result(str(tmp_path), "a.2")
    assert (first, again, of_another) == (1, 1, 2)
    found = result_of(str(tmp_path), again)
    assert found is not None
    assert found.status == "succeeded"
    assert result_of(str(tmp_path), of_another) is None


def test_a_launch_of_a_new_run_takes_any_result_for_its_own(tmp_path: Path) -> None:
    assert earlier_result(str(tmp_path), "a.1") is None
    end(tmp_path, "succeeded", at_ns=1)
    assert earlier_result(str(tmp_path), "a.1") is None


def test_a_try_that_was_killed_while_it_noted_that_has_started_nothing(tmp_path: Path) -> None:
    end(tmp_path, "cancelled", at_ns=1)
    earlier_result(str(tmp_path), "a.1")
    (tmp_path / "config" / "before.a.1").write_text("")
    assert earlier_result(str(tmp_path), "a.1") == 1


def test_a_result_is_none_any_more_when_the_next_attempt_has_begun(tmp_path: Path) -> None:
    end(tmp_path, "preempted", at_ns=1, attempt=1)
    assert result_of(str(tmp_path), None) is not None
    (tmp_path / "attempts").mkdir()
    (tmp_path / "attempts" / "2.json").write_text("{}")
    assert result_of(str(tmp_path), None) is None


def test_what_a_run_puts_in_place_of_its_files_is_not_followed_or_waited_for(tmp_path: Path) -> None:
    (tmp_path / "token").write_text('{"status": "succeeded"}')
    (tmp_path / "link").symlink_to(tmp_path / "token")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        assert read_log(tmp_path / name, "") == LogChunk(text="", next="0")
        run_dir = tmp_path / f"run-{name}"
        run_dir.mkdir()
        (tmp_path / name).rename(run_dir / "result.json")
        assert result_of(str(run_dir), None) is None
