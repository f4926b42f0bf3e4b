"""``hostcore check`` as people and CI servers call it: a process, its output, its exit code, its files."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import fork_server
import pexpect
import pytest
from waiting import wait_until

from hostcore_hookspecs import API_VERSION

REFERENCE = Path(__file__).resolve().parent / "reference"

pytestmark = pytest.mark.usefixtures("installed_plugins")


def check(*arguments: str | Path, cwd: Path = REFERENCE, **env: str) -> subprocess.CompletedProcess[str]:
    return fork_server.ran(["check", *map(str, arguments)], cwd=cwd, env={**os.environ, **env}, text=True)


def statuses(document: dict) -> dict[str, str]:
    return {result["id"]: result["status"] for result in document["results"]}


def test_a_good_plugin_is_certified_and_the_files_say_so(tmp_path: Path) -> None:
    names = ("report.json", "junit.xml", "badge.svg", "badge.json")
    report, junit, badge, endpoint = (tmp_path / name for name in names)
    said = check("reference", "--kind", "resolver", "--certified", "--json", report, "--junit", junit, "--badge", badge)
    assert said.returncode == 0, said.stdout + said.stderr
    assert said.stdout.splitlines()[0].startswith("checking the resolver reference (hostcore-reference-plugins 1.0.0):")
    assert "is certified:" in said.stdout.splitlines()[-1]
    document = json.loads(report.read_text())
    assert document["certified"] is True
    assert all({"id", "status", "level", "message"} <= set(result) for result in document["results"])
    assert statuses(document)["resolver.answers"] == "passed"
    (suite,) = ET.parse(junit).getroot()
    assert {case.get("name") for case in suite.iter("testcase")} == set(statuses(document))
    assert f"certified {API_VERSION.rpartition('.')[0]}" in badge.read_text()
    said = check("reference", "--kind", "resolver", "--only", "resolver.answers", "--badge", endpoint)
    assert json.loads(endpoint.read_text())["message"] == f"conforms {API_VERSION.rpartition('.')[0]}"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


@pytest.mark.parametrize(("only", "begun"), [((), 2), (("--only", "plugin.registered"), 0)])
def test_what_runs_import_is_imported_before_the_example_is(only: tuple[str, ...], begun: int, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.hostcore.conformance.digits]\nharness = "harness.py:Digits"\n')
    (tmp_path / "harness.py").write_text(
        "import os\n"
        "from pathlib import Path\n"
        "children = Path(f'/proc/self/task/{os.getpid()}/children').read_text()\n"
        "Path('children').write_text(children)\n"
        "raise RuntimeError('that is enough')\n"
    )
    mark = f"HOSTCORE_TEST_MARK_{os.getpid()}_{begun}"
    said = check("digits", "--kind", "trainer", *only, cwd=tmp_path, **{mark: "1"})
    assert "that is enough" in said.stdout + said.stderr
    assert len((tmp_path / "children").read_text().split()) == begun, "the server of runs, and one with other hashes"
    wait_until(lambda: _processes_with(mark) == [], "all that was begun to be gone")


@pytest.mark.parametrize(
    ("name", "how", "place"),
    [
        ("segfaults", "the process died (SIGSEGV)", "at deadly.py:"),
        ("exits", "the process died (exit code 7)", ""),
        ("hangs", "the check was not over after 5 seconds", "at deadly.py:"),
    ],
)
def test_a_plugin_that_ends_the_process_has_failed_and_the_rest_is_asked(name: str, how: str, place: str) -> None:
    # Only what hangs is waited for; the other checks have to be over by then, on a busy machine as well.
    limit = "5" if name == "hangs" else "60"
    said = check(name, "--only", "policy.*", "--timeout", limit, "--json", "-")
    assert said.returncode == 1
    document = json.loads(said.stdout)
    found = statuses(document)
    assert (found["policy.answers"], found["policy.odd_jobs"], found["policy.same_answer"]) == (
        "passed",
        "failed",
        "passed",
    )
    failed = next(result for result in document["results"] if result["id"] == "policy.odd_jobs")
    assert failed["got"].startswith(how)
    assert place in failed["got"]
    assert failed["fix"]
    assert "deadly.py" in failed["traceback"] or not place
    block = said.stderr[said.stderr.index("FAIL  policy.odd_jobs  MUST") :]
    for words in (how, "printed   the plan has no plugins", "hostcore check --explain policy.odd_jobs"):
        assert words in block


def test_what_a_plugin_prints_is_shown_on_demand_and_its_secrets_never() -> None:
    settings = '{"token": {"$secret": "env:POLICY_TOKEN"}}'
    asked = ["shows-its-token", "--only", "policy.answers", "--settings", settings, "--json", "-"]
    said = check(*asked, "-v", POLICY_TOKEN="hunter2hunter2")
    assert said.returncode == 1
    assert "hunter2" not in said.stdout + said.stderr
    assert "the token is ********" in said.stderr
    assert 'raise ValueError(f"{self.settings.token.value}' in said.stderr
    (result,) = json.loads(said.stdout)["results"]
    assert result["got"].startswith("ValueError: ******** is not valid any more at deadly.py:")


def test_certified_says_what_is_missing(tmp_path: Path) -> None:
    lenient = check("reference", "--kind", "launcher", "--only", "launcher.p*", cwd=tmp_path)
    assert lenient.returncode == 0, lenient.stdout
    strict = check("reference", "--kind", "launcher", "--only", "launcher.p*", "--certified", cwd=tmp_path)
    assert strict.returncode == 1
    missing = [line for line in strict.stdout.splitlines() if line.startswith("  not certified: ")]
    assert any("give a harness with runs_here = True" in line and "launcher.polls" in line for line in missing)
    assert any("--only" in line for line in missing)


def test_a_trainer_without_an_example_job_is_not_fully_checked(tmp_path: Path) -> None:
    report, junit = tmp_path / "report.json", tmp_path / "junit.xml"
    asked = ["digits", "--only", "trainer.t*", "--only", "plugin.r*", "--json", report, "--junit", junit]
    said = check(*asked, cwd=tmp_path)
    assert said.returncode == 1
    assert "is NOT fully checked:" in said.stdout
    assert "conforms" not in said.stdout
    for words in (
        "there is no example job",
        "--job tests/job.json",
        "  not asked trainer.trains, ",
        "--partial",
    ):
        assert words in said.stdout
    assert json.loads(report.read_text())["verdict"] == "not fully checked"
    assert ET.parse(junit).getroot().get("errors") == "1"
    accepted = check(*asked, "--partial", cwd=tmp_path)
    assert accepted.returncode == 0
    assert "is NOT fully checked:" in accepted.stdout
    assert ET.parse(junit).getroot().get("errors") == "0"
    assert check("digits", "--partial", "--certified", cwd=tmp_path).returncode == 2


def test_a_check_answers_to_the_id_of_one_that_it_includes(tmp_path: Path) -> None:
    asked = ["reference", "--kind", "reporter", "--only", "plugin.closes_twice", "--json", "-"]
    (result,) = json.loads(check(*asked).stdout)["results"]
    assert (result["id"], result["status"]) == ("reporter.closes_always[twice]", "passed")
    (tmp_path / "pyproject.toml").write_text(
        '[tool.hostcore.conformance."reporter:reference"]\nharness = "harness_reporter:Sink"\n'
        'expected_failures = { "plugin.closes_twice" = "to be seen" }\n'
    )
    said = check(*asked, cwd=tmp_path, PYTHONPATH=os.pathsep.join([os.environ["PYTHONPATH"], str(REFERENCE)]))
    assert "it passes, though it is declared to fail: 'to be seen'" in said.stdout, said.stdout + said.stderr
    explained = check("--explain", "plugin.closes_twice").stdout
    assert explained.startswith("plugin.closes_twice")
    assert "includes  plugin.closes_twice" in explained
    refused = check("reference", "--kind", "policy", "--only", "plugin.closes_twice")
    assert "the check 'plugin.closes_twice' is not for a policy" in refused.stderr


def test_a_check_that_is_blocked_shows_why() -> None:
    said = check("reference", "--kind", "resolver", "--only", "resolver.answers", "--settings", '{"stoer": "x"}')
    assert said.returncode == 1
    assert 'did you mean "store"?' in said.stdout
    assert "1 failed, 1 blocked" in said.stdout.splitlines()[-1]


def test_without_a_name_all_plugins_of_the_project_are_checked(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "hostcore-reference-plugins"\n'
        '[project.entry-points."hostcore.resolvers"]\nreference = "a:B"\n'
        '[project.entry-points."hostcore.policies"]\nreference = "a:C"\n'
        '[tool.hostcore.conformance."resolver:reference"]\n'
        'expected_failures = { "plugin.resolves" = "to be seen" }\n'
    )
    (tmp_path / "below").mkdir()
    said = check("--only", "plugin.resolves", "--json", "-", cwd=tmp_path / "below")
    assert said.returncode == 1, "what passes though it was said to fail is a failure"
    first, second = json.loads(said.stdout)["reports"]
    assert (first["plugin"]["kind"], statuses(first)) == ("resolver", {"plugin.resolves": "failed"})
    assert (second["plugin"]["kind"], statuses(second)) == ("policy", {"plugin.resolves": "passed"})


def test_a_terminal_shows_what_is_being_checked_and_a_line_for_each_result() -> None:
    command = ["-m", "hostcore", "check", "reference", "--kind", "policy", "--only", "policy.*"]
    terminal = pexpect.spawn(
        sys.executable, command, cwd=str(REFERENCE), encoding="utf-8", timeout=300, dimensions=(30, 90)
    )
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.before)
    lines = [line for line in re.split(r"[\r\n]+", plain) if line]
    assert lines[0].endswith("finding the plugin")
    assert any(line.startswith("checking the policy reference") for line in lines)
    assert any(re.fullmatch(r"ok +policy\.answers +\d+\.\d\d s", line) for line in lines)
    assert "the policy reference (hostcore-reference-plugins 1.0.0) passes what was asked: 5 passed" in lines


@pytest.mark.parametrize(("asked", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_being_stopped_leaves_nothing_behind(asked: signal.Signals, code: int, tmp_path: Path) -> None:
    mark = f"HOSTCORE_TEST_MARK_{os.getpid()}_{asked.name}"
    process = subprocess.Popen(
        [sys.executable, "-m", "hostcore", "check", "hangs", "--only", "policy.*", "-v"],
        cwd=REFERENCE,
        env={**os.environ, "TMPDIR": str(tmp_path), mark: "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    with process:
        for line in process.stderr:
            if line == "the plan has no plugins\n":  # it hangs from now on
                break
        process.send_signal(asked)
        assert process.wait(timeout=300) == code
    assert list(tmp_path.iterdir()) == []
    assert _processes_with(mark) == []


def _processes_with(variable: str) -> list[str]:
    """The processes of this machine that have an environment variable."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes()
        except OSError:  # it has ended, or is somebody else's
            continue
        if f"{variable}=".encode() in environment:
            found.append(process.name)
    return found
