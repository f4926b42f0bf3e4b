"""A job that runs where its directory is not seen: the service tells what the launcher and the mirror say."""

from pathlib import Path
from typing import Any

import orjson


def test_everything_of_a_job_that_ran_far_away_is_seen_from_here(far_machine: Any, tmp_path: Path) -> None:
    far = far_machine("a")
    far.submit(
        run_id="away",
        launcher="away",
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
    assert job["job"]["launcher"] == "away"
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
    assert text == next((tmp_path / "a-far").glob("*/output")).read_bytes() != b""

    lines = far.request("GET", "/v1/jobs/away/logs").body.splitlines()
    pieces = [orjson.loads(line) for line in lines]
    assert len(pieces) > 1
    rest = far.request("GET", f"/v1/jobs/away/logs?source=launcher&since={pieces[0]['next']}").body.splitlines()
    assert [orjson.loads(line) for line in rest] == pieces[1:]
    assert job["sees_run_dir"] is False
    assert far.request("GET", "/v1/jobs/away/logs?source=worker&attempt=1").codes == ["run.unseen"]
