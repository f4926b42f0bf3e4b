"""``hostcore check``: what it knows without making a check, what it refuses, and the files that it writes."""

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import attrs
import pytest

from hostcore_conformance.check import checks_for, table
from hostcore_conformance.cli.check_lines import CheckLines
from hostcore_conformance.process.exchange import Ended
from hostcore_conformance.report_files import (
    ReportUnwritable,
    as_endpoint,
    as_json,
    as_junit,
    as_svg,
    document,
    require_writable,
    write_whole,
)
from hostcore_conformance.result import CheckResult, Report

PASSED = CheckResult(id="trainer.trains", status="passed", level="must", seconds=0.5)
FAILED = CheckResult(
    id="trainer.killed[train_step]",
    status="failed",
    level="must",
    message="expected 1 < 2; got <3> & \x00. Mend it.",
    expected="1 < 2",
    got="<3> & \x00",
    fix="Mend it.",
    traceback="Traceback: \x1b[31m]]>",
    seconds=1.25,
)
SHOULD = attrs.evolve(FAILED, id="trainer.loss_falls", level="should")
SKIPPED = CheckResult(id="trainer.accumulates", status="skipped", level="must", message="it declares no accumulate")
BLOCKED = CheckResult(id="trainer.resumes", status="blocked", level="must", message="not asked")
UNASKED = attrs.evolve(SKIPPED, id="trainer.trains", message="there is no job", wants_example=True, no_example=True)
FOLLOWING = attrs.evolve(UNASKED, id="trainer.resumes", message="not asked, because trainer.trains was not: …")
KNOWN = CheckResult(id="trainer.stops", status="expected_failure", level="must", message="it cannot")


def report_of(*results: CheckResult, name: str = "mine") -> Report:
    return Report(
        kind="trainer",
        name=name,
        distribution="my-trainer",
        version="1.0.0",
        hostcore="0.1.0",
        api_version="1.2.3",
        python="3.11.0",
        created_ms=1_700_000_000_000,
        results=results,
    )


@pytest.mark.parametrize(
    ("result", "word"),
    [
        *((PASSED, "ok"), (FAILED, "FAIL"), (SHOULD, "should"), (SKIPPED, "skip"), (BLOCKED, "blocked")),
        *((UNASKED, "unasked"), (KNOWN, "known")),
    ],
)
def test_each_result_has_a_line_that_begins_with_what_came_of_it(
    result: CheckResult, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    CheckLines(aside=False, verbose=False).show(Ended(result=result))
    assert capsys.readouterr().out.split()[:2] == [word, result.id]


def test_the_process_that_was_called_imports_no_more_than_it_uses(imported: Callable[..., set[str]]) -> None:
    assert imported("check", "--help") & {"torch", "pyarrow", "rich", "numpy", "fsspec", "matplotlib"} == set()
    asked = ["check", "local", "--kind", "launcher", "--only", "plugin.resolves", "--json", "report.json"]
    assert imported(*asked) & {"torch", "pyarrow"} == set()


def test_list_shows_every_check_of_a_kind_or_of_the_kind_of_a_plugin(hostcore: Callable) -> None:
    said = hostcore("check", "--list", "data-source")
    assert said.code == 0
    ids = [check.id for check in checks_for("data_source")]
    assert [line.split()[0] for line in said.out.splitlines()[1:]] == ids
    listed = hostcore("check", "--list", "parquet", "--json", "-").json["checks"]
    assert [one["id"] for one in listed] == ids
    assert set(listed[0]) == {"id", "level", "since", "requires", "title"}


def test_explain_shows_the_documentation_of_a_check_and_proposes_what_was_meant(hostcore: Callable) -> None:
    for check in {one.kind: one for one in table().values()}.values():  # one of each kind
        said = hostcore("check", "--explain", check.family)
        assert said.code == 0
        assert check.title in said.out
        assert f"{check.level.upper()}, since version {check.since}" in said.out
        assert check.doc.splitlines()[-1] in said.out
    said = hostcore("check", "--explain", "policy.answer")
    assert said.code == 2
    assert "there is no check 'policy.answer'" in said.err
    assert 'did you mean "policy.answers"' in said.err.lower()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nobody-has-it"], "no plugin 'nobody-has-it' is installed"),
        ([], "Which plugin?"),
        (["local", "--kind", "lawn-mower"], "'lawn-mower' is not one of trainer, data-source"),
        (["local", "--settings", "{"], "not JSON"),
        (["local", "--settings", "[1]"], "a JSON object is needed"),
        (["local", "--job", "nowhere.json"], "nowhere.json"),
        (["local", "--only", "trainer.resume_exact"], "is not for a launcher"),
        (["local", "--json", "no/folder/report.json"], "--json: there is no folder"),
        (["local", "--badge", "."], "--badge is a file, and this is a folder"),
        (["local", "--timeout", "0"], "--timeout"),
    ],
)
def test_what_cannot_be_checked_is_said_in_one_error(hostcore: Callable, arguments: list[str], words: str) -> None:
    said = hostcore("check", *arguments)
    assert (said.code, said.out) == (2, "")
    assert words in said.err
    assert "Traceback" not in said.err


def test_errors_are_json_where_the_report_would_be(hostcore: Callable) -> None:
    said = hostcore("check", "nobody-has-it", "--json", "-")
    assert (said.code, [error["code"] for error in said.json["errors"]]) == (2, ["plugin.unknown"])


def test_several_plugins_take_no_settings_of_one(hostcore: Callable, tmp_path: Path) -> None:
    entries = '[project.entry-points."hostcore.launchers"]\nlocal = "a:B"\nother = "a:C"\n'
    (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "hostcore-builtin-plugins"\n{entries}')
    said = hostcore("check", "--settings", "{}")
    assert said.code == 2
    assert "give its NAME" in said.err


def test_the_json_of_several_plugins_has_a_report_each() -> None:
    one, other = report_of(PASSED), report_of(FAILED, name="other")
    assert document([one])["results"] == [PASSED.as_dict()]
    torn = attrs.evolve(PASSED, message="torn: \udcff")
    assert json.loads(as_json([report_of(torn)]).encode())["results"] == [torn.as_dict()]
    assert [each["plugin"]["name"] for each in document([one, other])["reports"]] == ["mine", "other"]


def test_junit_has_the_shape_that_servers_read() -> None:
    text = as_junit([report_of(PASSED, FAILED, SHOULD, SKIPPED, BLOCKED, KNOWN)])
    root = ET.fromstring(text.encode())
    assert root.tag == "testsuites"
    (suite,) = root
    assert suite.tag == "testsuite"
    counts = {"tests": "6", "failures": "1", "errors": "0", "skipped": "4", "time": "3.000"}
    assert (
        {**suite.attrib, **counts}
        == suite.attrib
        == {"name": "trainer.mine", **counts, "timestamp": "2023-11-14T22:13:20"}
    )
    assert {key: root.attrib[key] for key in counts} == counts
    properties, *cases = suite
    assert [each.tag for each in properties] == ["property"] * len(properties)
    assert {each.tag for each in cases} == {"testcase"}
    assert [(each.get("classname"), each.get("name")) for each in cases][1] == ("trainer.mine", FAILED.id)
    assert [[child.tag for child in each] for each in cases] == [[], ["failure"], *[["skipped"]] * 4]
    failure = cases[1][0]
    assert failure.get("message") == "expected 1 < 2; got <3> & \ufffd. Mend it."
    assert failure.text is not None
    assert "]]>" in failure.text
    assert cases[2][0].get("message", "").startswith("should: ")


@pytest.mark.parametrize(
    ("results", "words"),
    [
        ([PASSED], "certified 1.2"),
        ([PASSED, SHOULD], "conforms 1.2"),
        ([PASSED, UNASKED, FOLLOWING], "not fully checked"),
        ([FAILED, UNASKED], "fails"),
        ([PASSED, FAILED], "fails"),
        ([], "conforms 1.2"),
    ],
)
def test_a_badge_says_the_verdict_also_to_those_who_do_not_see_it(results: list[CheckResult], words: str) -> None:
    reports = [report_of(PASSED), report_of(*results)]
    root = ET.fromstring(as_svg(reports))
    svg = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{svg}svg"
    assert root.get("role") == "img"
    assert root.get("aria-label") == root.findtext(f"{svg}title") == f"hostcore: {words}"
    assert [each.text for each in root.iter(f"{svg}text")] == ["hostcore", words]
    endpoint = json.loads(as_endpoint(reports))
    assert endpoint == {"schemaVersion": 1, "label": "hostcore", "message": words, "color": endpoint["color"]}


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text("before")
    with pytest.raises(UnicodeEncodeError):
        write_whole(file, "half \ud800")
    assert file.read_text() == "before"
    assert list(tmp_path.iterdir()) == [file]
    write_whole(file, "after")
    assert file.read_text() == "after"
    with pytest.raises(ReportUnwritable, match="there is no folder"):
        require_writable(tmp_path / "none" / "x", "--json")


@pytest.mark.parametrize(
    ("results", "verdict", "line"),
    [
        ([PASSED], "certified", "is certified: 1 passed"),
        ([PASSED, SHOULD], "conforms", "conforms: 1 passed, 1 warning"),
        ([PASSED, FAILED, SHOULD], "fails", "does NOT conform: 1 passed, 1 failed, 1 warning"),
        (
            [PASSED, SKIPPED, UNASKED, FOLLOWING],
            "not fully checked",
            "is NOT fully checked: 1 passed, 1 skipped, 2 not asked",
        ),
        ([PASSED, FAILED, UNASKED], "fails", "does NOT conform: 1 passed, 1 failed, 1 not asked"),
    ],
)
def test_the_line_and_the_json_say_the_verdict_and_only_of_a_must_that_it_failed(
    results: list[CheckResult], verdict: str, line: str
) -> None:
    report = report_of(*results)
    assert report.line == f"the trainer mine (my-trainer 1.0.0) {line}"
    told = report.as_dict()
    assert told["verdict"] == verdict
    assert told["summary"]["failed"] == results.count(FAILED)
    assert told["summary"]["warning"] == results.count(SHOULD)
    assert sum(told["summary"].values()) == len(told["results"])
    assert [result["no_example"] for result in told["results"]] == [one in (UNASKED, FOLLOWING) for one in results]


@pytest.mark.parametrize(("partial", "tags"), [(False, [[], ["error"], ["skipped"]]), (True, [[], *[["skipped"]] * 2])])
def test_junit_has_an_error_where_there_is_no_example_unless_that_is_accepted(
    partial: bool, tags: list[list[str]]
) -> None:
    (suite,) = ET.fromstring(as_junit([report_of(PASSED, UNASKED, FOLLOWING)], partial=partial).encode())
    properties, *cases = suite
    assert [[child.tag for child in case] for case in cases] == tags
    assert (suite.get("errors"), suite.get("skipped")) == (("0", "2") if partial else ("1", "1"))
    assert {one.get("name"): one.get("value") for one in properties}["verdict"] == "not fully checked"
