"""What Python shows of an error: what was wrong, where, and what to do."""

from pathlib import Path

import pytest

from hostcore.errors import Errors, described
from hostcore.job.load import load_job
from hostcore_hookspecs import HostcoreError


def test_an_error_is_described_with_what_is_known_of_its_place_and_what_to_do() -> None:
    error = HostcoreError("no", pointer="/seed", file="job.json", hint="do", plugin="x (d 1.0)")
    assert described(error) == "no\n  plugin: x (d 1.0)\n      at: /seed\n    file: job.json\n    hint: do"
    assert described(HostcoreError("no", file="--set seed")) == "no\n    from: --set seed"
    assert described(HostcoreError("no")) == "no"
    assert described(HostcoreError("no", pointer="", hint="do")) == "no\n    hint: do"
    assert described(HostcoreError("x (d 1.0) is bad", plugin="x (d 1.0)")) == "x (d 1.0) is bad"


def test_several_errors_are_shown_as_described_and_their_message_stays_plain() -> None:
    errors = Errors([HostcoreError("a", pointer="/x", hint="do"), HostcoreError("b")])
    assert str(errors) == "a\n      at: /x\n    hint: do\nb"
    assert errors.message == "a\nb"


def test_python_shows_which_job_file_is_missing_and_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "job.json").touch()
    with pytest.raises(Errors) as caught:
        load_job(tmp_path / "jobs.json")
    assert str(caught.value) == (
        f'there is no such job file\n    file: {tmp_path / "jobs.json"}\n    hint: did you mean "job.json"?'
    )
