"""A job that runs where its directory is not seen: the service tells what the launcher and the mirror say."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from checkout import TESTS

FAR_LAUNCHER = TESTS / "integration/mirror/far_launcher.py"


@pytest.fixture
def far(make_server: Callable[..., Any], service_site: Any, tmp_path: Path) -> Any:
    """A service whose jobs run in another folder, ``tmp_path/far``, and are mirrored to ``tmp_path/mirror``."""
    service_site.install(
        "far-launcher",
        modules={"far_launcher.py": FAR_LAUNCHER.read_text()},
        entry_points={"hostcore.launchers": {"far": "far_launcher:Far"}},
    )
    (tmp_path / "mirror").mkdir()
    return make_server(
        launchers="far = {}", http=f'checkpoint_roots = ["{tmp_path}/mirror"]', HOSTCORE_TEST_FAR=str(tmp_path / "far")
    )


def test_everything_of_a_job_that_ran_far_away_is_seen_from_here(far: Any, tmp_path: Path) -> None:
    far.submit(
        run_id="away",
        launcher="far",
        max_steps=4,
        metric_every=1,
        checkpoint_every=2,
        checkpoint_base_uri=str(tmp_path / "mirror"),
    )
    events = far.request("GET", "/v1/jobs/away/events?follow=true").body.splitlines()

    job = far.job("away")
    assert (job["status"], job["step"], job["attempt"], job["exit_code"]) == ("succeeded", 4, 1, 0)
    assert job["run"]["status"] == "succeeded"
    assert {"tiny"} <= {plugin["name"] for plugin in job["run"]["plugins"]}
    assert job["job"]["launcher"] == "far"
    mirror = tmp_path / "mirror" / "away" / "framework=tiny"
    assert events == (mirror / "logs" / "events.jsonl").read_bytes().splitlines()
    assert [orjson.loads(line)["seq"] for line in events] == list(range(1, len(events) + 1))

    checkpoints = far.request("GET", "/v1/jobs/away/checkpoints").json["checkpoints"]
    assert [(one["step"], one["final"]) for one in checkpoints] == [(2, False), (4, True)]
    assert all(one["saved_ms"] for one in checkpoints)
    record = far.request("GET", "/v1/jobs/away/checkpoints/4").json
    for file in record["files"]:
        answer = far.request("GET", f"/v1/jobs/away/checkpoints/4/files/{file['path']}")
        assert answer.body == (mirror / "checkpoints" / "step-000004" / file["path"]).read_bytes()
        assert answer.headers["etag"] == f'"{file["sha256"]}"'

    listed = {one["path"] for one in far.request("GET", "/v1/jobs/away/artifacts").json["artifacts"]}
    assert {"config/run.json", "result.json", "logs/events.jsonl"} <= listed
    assert not any(path.startswith(("attempts", "checkpoints", "config/contract")) for path in listed)
    part = far.request("GET", "/v1/jobs/away/artifacts/result.json", headers={"Range": "bytes=2-9"})
    assert (part.status, part.body) == (206, (mirror / "result.json").read_bytes()[2:10])

    text = far.request("GET", "/v1/jobs/away/logs", headers={"Accept": "text/plain"}).body
    assert text == next((tmp_path / "far").glob("*/output")).read_bytes() != b""

    lines = far.request("GET", "/v1/jobs/away/logs").body.splitlines()
    pieces = [orjson.loads(line) for line in lines]
    assert len(pieces) > 1
    rest = far.request("GET", f"/v1/jobs/away/logs?source=launcher&since={pieces[0]['next']}").body.splitlines()
    assert [orjson.loads(line) for line in rest] == pieces[1:]
    assert job["sees_run_dir"] is False
    assert far.request("GET", "/v1/jobs/away/logs?source=worker&attempt=1").codes == ["run.unseen"]
