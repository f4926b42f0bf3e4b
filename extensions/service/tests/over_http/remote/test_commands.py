"""Every command about a job of a service says what it says of the same run on the machine where that lies."""

import json
from collections.abc import Callable
from typing import Any

import pytest

Command = Callable[..., Any]


@pytest.fixture(scope="module", autouse=True)
def runs(service: Any) -> dict[str, Any]:
    """``alpha`` has succeeded, ``alps`` has failed; what their commands said."""
    alps = service.job_file("alps", hyperparams={"fail_at": 2}, terminal=False)
    failing = service.command("run", alps, "--json")
    # Paths of the job start at its file, and what its options say at the working directory, as they do locally.
    alpha = service.run("run", service.job_file("alpha", profiles={"long": {"max_steps": 6}}), "--profile", "long")
    out, err = failing.communicate(timeout=600)
    return {"alpha": alpha, "alps": type(alpha)(code=failing.returncode, out=out, err=err)}


def documents(text: str) -> Any:
    """What a command prints as JSON, without what depends on the machine; the keys in their order."""

    def known(value: Any) -> Any:
        if isinstance(value, dict):
            return [(key, known(item)) for key, item in value.items() if key not in ("submitted_ms", "directory")]
        return [known(item) for item in value] if isinstance(value, list) else value

    return known(json.loads(text))


def result_of(service: Any, run_id: str) -> dict[str, Any]:
    return json.loads((service.runs / run_id / "result.json").read_bytes())


class TestRun:
    def test_shows_the_run_and_says_how_it_ended(self, service: Any, runs: Any) -> None:
        said = runs["alpha"]
        assert said.code == 0, said.err
        assert said.out.splitlines()[0] == "succeeded  alpha"
        assert f"  everything  {service.url}/v1/jobs/alpha" in said.out.splitlines()
        assert f"  checkpoint  {service.url}/v1/jobs/alpha/checkpoints/6" in said.out.splitlines()
        lines = said.err.splitlines()
        assert lines[0] == f"alpha  submitted to {service.url}"
        assert "alpha final checkpoint checkpoints/step-000006 saved" in said.err
        assert lines[-1] == "alpha succeeded at step 6"

    def test_exits_and_prints_json_as_a_run_of_this_machine_does(self, service: Any, runs: Any) -> None:
        said = runs["alps"]
        assert (said.code, said.json) == (1, result_of(service, "alps"))
        assert said.json["error"]["message"] == "the loss has exploded"
        assert said.err.splitlines() == [f"alps  submitted to {service.url}"], "its job has no reporter"

    def test_of_a_bad_job_says_where_it_is_wrong(self, service: Any, there: Command) -> None:
        """What this machine finds, what the service finds in it, and what it does not let others do."""
        for keys, code, pointer in [
            ({"max_steps": -1}, "value.range", "/max_steps"),
            ({"trainer": "tyny"}, "plugin.unknown", "/trainer"),
            ({"trainer": "mine:Trainer"}, "job.not_allowed", "/trainer"),
            ({"weights": "w.pt"}, "job.not_allowed", "/weights"),
        ]:
            file = service.job_file("bad", **keys)
            said = there("run", str(file), "--json")
            assert said.code == 2
            (error,) = said.json["errors"]
            assert (error["code"], error["pointer"], error["file"]) == (code, pointer, str(file))
        assert there("run", str(service.job_file("alpha")), "--json").json["errors"][0]["code"] == "job.exists"

    def test_refuses_what_cannot_be_done_elsewhere(self, service: Any, there: Command) -> None:
        file = str(service.job_file("never"))
        for arguments in (
            ["run", file, "--in-process"],
            ["run", file, "--trace-hooks"],
            ["resume", "alpha", "--set", "max_steps=9"],
            ["cancel", "alpha", "--force"],
        ):
            said = there(*arguments)
            assert (said.code, said.out) == (2, ""), arguments

    def test_apart_exits_at_once(self, service: Any, there: Command) -> None:
        said = there("run", str(service.job_file("quick", launcher="instant")), "--detach", "--json")
        assert (said.code, said.json["run_id"], said.json["status"]) == (0, "quick", "submitted")
        again = there("run", str(service.job_file("second", launcher="instant")), "--detach")
        assert f"  logs        hostcore logs -f second --server {service.url}" in again.out.splitlines()


#: Commands about runs that have ended; RUN stands for each of them.
ASKED = [
    *("list --status failed", "list --trainer tiny --status failed", "list --trainer other"),
    *("list --status failed --json", "list --trainer tiny --status failed --json", "list --trainer other --json"),
    *("status RUN", "status RUN -v", "status RUN -f", "status RUN --json"),
    *("logs RUN", "logs RUN --json", "logs RUN -n 2", "logs RUN --since 3 --json", "logs RUN --attempt 1 -n 1"),
    *("logs RUN -f", "logs RUN -f -n 1 --json", "logs RUN --output", "logs RUN --output -f --rank 0"),
    *("logs RUN --attempt 7", "logs RUN --output --rank 3"),
]


class TestLooking:
    @pytest.mark.parametrize("command", ASKED)
    def test_says_what_the_same_command_says_where_the_run_lies(
        self, service: Any, there: Command, here: Command, masked: Callable[[str], list[str]], command: str
    ) -> None:
        for run_id in ("alpha", "alps")[: 1 + ("RUN" in command)]:
            arguments = command.replace("RUN", run_id).split()
            one, other = there(*arguments), here(*arguments)
            assert one.code == other.code
            if command.startswith("logs"):
                assert one.out == other.out
                assert one.err.splitlines() == [line for line in other.err.splitlines() if "file:" not in line]
            elif "--json" in arguments:
                assert documents(one.out) == documents(service.hidden(other.out))
            else:
                assert masked(one.out) == masked(service.hidden(other.out))

    def test_lists_the_newest_first_or_by_a_metric_and_all_plugins(
        self, service: Any, there: Command, here: Command
    ) -> None:
        run_ids = [run["run_id"] for run in there("list", "--json").json["runs"]]
        assert set(run_ids) >= {"alpha", "alps"}
        assert [run["run_id"] for run in there("list", "-n", "1", "--json").json["runs"]] == run_ids[:1]
        name = next(iter(here("status", "alpha", "--json").json["metrics"]))
        for options in ["--sort", name], ["--sort", name, "--reverse"], ["--metric", name, "-n", "2"]:
            one, other = (look("list", *options, "--json").json["runs"] for look in (there, here))
            assert [(run["run_id"], run["metrics"]) for run in one] == [
                (run["run_id"], run["metrics"]) for run in other
            ]
        runs = there("list", "--sort", name, "--json").json["runs"]
        values = [run["metrics"][name] for run in runs if run["metrics"]]
        assert (len(values) > 1, values) == (True, sorted(values))
        assert there("list", "--sort", "no-such-metric").code == 2

        local = service.run("plugins", "--json", "--server", "")
        assert there("plugins", "--json").json == there("plugins", "list", "--json").json == local.json
        assert {"tiny", "deaf"} <= {one["name"] for one in local.json["plugins"]}
        assert there("plugins").out == service.run("plugins", "--server", "").out

    def test_the_beginning_of_a_run_id_is_enough(self, there: Command, here: Command) -> None:
        assert there("status", "alph", "--json").json["run_id"] == "alpha"
        for name, code in ("al", "run.ambiguous"), ("alfa", "run.unknown"), ("runs/alpha", "run.unknown"):
            one, other = there("status", name, "--json"), here("status", name, "--json")
            assert (one.code, other.code) == (2, 2)
            assert one.json["errors"][0]["code"] == other.json["errors"][0]["code"] == code
        assert "did you mean 'alpha'?" in there("status", "alphha", "--json").json["errors"][0]["hint"]

    def test_validate(self, service: Any, there: Command) -> None:
        file = service.job_file("valid", dataset={"source": "mock", "num_rows": 64, "batch_size": 4})
        one, other = there("validate", str(file), "--json"), service.run("validate", file, "--json", "--server", "")
        assert (one.code, other.code) == (0, 0)
        assert list(one.json) == list(other.json)
        told, here = one.json, other.json
        allowed = told["job"].pop("import_paths"), here["job"].pop("import_paths")
        assert allowed == (False, True), "the operator of this service has not opened them"
        assert documents(json.dumps(told)) == documents(json.dumps(here))


class TestEnded:
    def test_cancelling_a_run_that_has_ended_changes_nothing(self, there: Command, here: Command) -> None:
        for run_id in ("alpha", "alps"):
            one, other = there("cancel", run_id, "--json"), here("cancel", run_id, "--json")
            assert (one.code, one.json) == (other.code, other.json)
            assert one.json["requested"] is False

    def test_going_on_with_a_finished_run_does_nothing(self, there: Command) -> None:
        said = there("resume", "alpha")
        assert (said.code, said.out.splitlines()[0]) == (0, "succeeded  alpha  (finished before: nothing to do)")

    def test_a_run_of_which_only_its_engine_knows_is_told_as_far_as_that_goes(self, service: Any) -> None:
        said = service.run("run", service.job_file("afar", launcher="instant"), "--json")
        assert (said.code, said.json["status"], said.json["final_checkpoint"]) == (0, "succeeded", None)
        logs = service.run("logs", "afar")
        assert (logs.code, logs.out) == (0, "")
        assert logs.err.startswith("nothing of afar to show; it is succeeded")


def test_the_token_never_shows(service: Any, there: Command) -> None:
    for token in (None, "the-wrong-token-for-this-service"):
        said = there("list", token=token, url=service.url)
        assert said.code == 2
        assert "the service wants a token" in said.err
        assert "export TRAINER_API_TOKEN" in said.err
        assert token is None or token not in said.err


def test_a_wrong_address_is_one_error(there: Command, service: Any) -> None:
    for url, code, says in [
        ("http://127.0.0.1:9", 1, "does not answer: Connection refused"),
        (service.url.replace("http", "https"), 1, "does not speak TLS"),
        ("127.0.0.1:8321", 2, "its URL begins with http:// or https://"),
        ("https://user:password@127.0.0.1", 2, "would end up in logs"),
        (f"{service.url}/elsewhere", 2, "does not know what was asked"),
    ]:
        said = there("status", "alpha", url=url)
        assert (said.code, said.out) == (code, ""), url
        assert says in said.err
        assert said.err.count("error:") == 1
