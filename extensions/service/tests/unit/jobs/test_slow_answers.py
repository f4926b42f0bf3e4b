"""An engine or a store that does not answer keeps nobody waiting but those that ask it."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from waiting import wait_until

from hostcore.runs.launch import Launch
from hostcore_hookspecs.launcher import LaunchHandle, LogChunk
from hostcore_service.jobs import files, printing

#: More than there are threads for requests.
MANY = 50


class Hanging:
    """The launcher of all jobs, and their mirror: who asks either waits until the test lets go."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def read_logs(self, handle: LaunchHandle, since: str) -> LogChunk:
        self.go_on.wait()
        return LogChunk(text="", next=since)

    def artifacts(self) -> Iterator[Any]:
        self.go_on.wait()
        return iter(())

    def checkpoints(self) -> list[Any]:
        self.go_on.wait()
        return []


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Hanging:
    made = Hanging()
    monkeypatch.setattr(printing, "launcher_for", lambda *_: made)
    monkeypatch.setattr(files, "_mirrored", lambda _: made)
    return made


@pytest.mark.parametrize("what", ["logs", "artifacts", "checkpoints"])
def test_other_requests_are_answered_while_an_engine_or_a_store_is_silent(
    opened: Any, hanging: Hanging, what: str
) -> None:
    directory = opened.job(handle=LaunchHandle(launcher="told", id="a.1"))
    Launch(attempt=1, submitted_ms=1, sees_run_dir=False).write(directory.launch)
    threads_of_calls = opened.app.state.streams.limiter(far=True)
    waiting = MANY - int(threads_of_calls.total_tokens)
    with ThreadPoolExecutor(MANY) as threads:
        asked = [threads.submit(opened.get, f"/v1/jobs/a/{what}") for _ in range(MANY)]
        try:
            wait_until(lambda: threads_of_calls.statistics().tasks_waiting == waiting, "all of them to wait")
            assert [job["run_id"] for job in opened.get("/v1/jobs").json()["jobs"]] == ["a"]
        finally:
            hanging.go_on.set()
        assert [one.result().status_code for one in asked] == [200] * MANY
