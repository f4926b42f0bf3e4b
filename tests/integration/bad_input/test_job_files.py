"""Job files that are none, and jobs with wrong keys and values: found before any plugin is imported."""

from typing import Any

import attrs
import pytest

GOOD: dict[str, Any] = {"trainer": "mine:Trainer", "max_steps": 1}


@attrs.frozen(kw_only=True)
class Case:
    """A bad job file, and what is said about it."""

    #: None: there is no file.
    job: object
    name: str = "job.json"
    pointer: str | None = None
    #: Parts of the message and of the hint.
    says: tuple[str, ...]
    hints: tuple[str, ...] = ()


def with_(**keys: Any) -> dict[str, Any]:
    return {**GOOD, **keys}


CASES = {
    "missing": Case(job=None, says=("no such job file",)),
    "not JSON": Case(job="trainer = some-trainer", says=("not valid JSON", "line 1, column 1")),
    "not an object": Case(job=[GOOD], pointer="", says=("must be an object", "a list of 1")),
    "YAML that is none": Case(job="trainer: [a\n", name="job.yaml", says=("not valid YAML", "line")),
    "unknown key": Case(
        job=with_(max_step=1),
        pointer="/max_step",
        says=('unknown key "max_step"',),
        hints=("did you mean", "max_steps"),
    ),
    "wrong type": Case(
        job=with_(metric_every="10"),
        pointer="/metric_every",
        says=("expected an integer", 'found "10"'),
        hints=("without the quotes",),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_bad_job_file_is_refused_with_one_clear_error(case: Case, workplace: Any) -> None:
    if case.job is not None:
        workplace.write(case.job, case.name)
    error = workplace.hostcore("run", case.name, "--json").error
    told = workplace.hostcore("validate", case.name).told
    assert (error["pointer"], error["file"]) == (case.pointer, case.name)
    for part in case.says:
        assert part in error["message"]
        assert part in told
    for part in case.hints:
        assert part in error["hint"]
        assert part in told
    assert f"file: {case.name}" in told
    assert workplace.tree() == {}
