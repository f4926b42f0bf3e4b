"""``hostcore new``: names, refusals, and what is written."""

import json
import keyword
import os
import shlex
import stat
import string
import sys
import tomllib
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT
from click.testing import CliRunner

from hostcore.plugins.installed import discover
from hostcore_builtin_plugins.extras import install_command
from hostcore_conformance.cli.new import new_command
from hostcore_conformance.scaffold import new_package
from hostcore_conformance.scaffold.naming import InvalidName, choose_names, kind_named
from hostcore_conformance.scaffold.new_package import (
    PLACEHOLDER,
    CannotWrite,
    Licence,
    contract_range,
    render,
    toolkit_range,
    write_package,
)
from hostcore_hookspecs import API_VERSION, KINDS

New = Callable[..., Any]

TRAINER = KINDS["trainer"]


@pytest.fixture
def new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> New:
    """``new("trainer", "mine", "--json")``, in an empty folder, where git knows nobody."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.delenv("GIT_CONFIG_COUNT", raising=False)
    return lambda *arguments: CliRunner().invoke(new_command, arguments, catch_exceptions=False)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# Names


@pytest.mark.parametrize(
    ("kind", "plugin", "package", "class_name"),
    [
        ("trainer", "my-trainer", "my_trainer", "MyTrainer"),
        ("trainer", "digits", "digits", "DigitsTrainer"),
        ("trainer", "a.b-c_d", "a_b_c_d", "ABCDTrainer"),
        ("trainer", "trainer", "trainer", "Trainer"),
        ("trainer", "x" * 40, "x" * 40, "X" + "x" * 39 + "Trainer"),
        ("data_source", "points", "points", "PointsSource"),
        ("policy", "our-policy", "our_policy", "OurPolicy"),
    ],
)
def test_package_and_class_follow_from_kind_and_name(kind: str, plugin: str, package: str, class_name: str) -> None:
    names = choose_names(KINDS[kind], plugin)
    assert (names.plugin, names.package, names.class_name) == (plugin, package, class_name)


def test_every_name_that_is_taken_is_one_that_discovery_takes(tmp_path: Path) -> None:
    tried = ["a", "9lives", "a.b", "a-b", "a_b", "a..b", "_a", "-a", ".a", "a-", "a.", "A", "aB", "ä", "a b", "", "a/b"]
    tried += [f"x{each}y" for each in string.printable]
    taken = []
    for name in tried:
        try:
            choose_names(TRAINER, name, "mine")
        except InvalidName:
            continue
        taken.append(name)
    assert {"a", "9lives", "a.b", "a-b", "a_b", "a..b"} <= set(taken)
    info = tmp_path / "all-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: all\nVersion: 1.0\n")
    lines = "".join(f"{name} = module:Symbol\n" for name in taken)
    (info / "entry_points.txt").write_text(f"[hostcore.trainers]\n{lines}")
    found = discover([str(tmp_path)])
    assert found.broken == ()
    assert {ref.name for ref in found.refs} == set(taken)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("My Trainer", "such as 'my-trainer'"),
        ("_mine", "such as 'mine'"),
        ("mine-", "such as 'mine'"),
        ("Ünet 2", "such as 'net-2'"),
        ("***", "such as 'my-trainer'"),
        ("", "such as 'my-trainer'"),
        ("x" * 41, "a name that people type has at most 40"),
    ],
)
def test_a_name_that_none_can_have_is_refused_with_one_that_can(name: str, hint: str) -> None:
    with pytest.raises(InvalidName) as raised:
        choose_names(TRAINER, name)
    assert raised.value.hint == hint
    assert repr(name) in raised.value.message


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("json", "standard library"),
        ("string", "standard library"),
        ("lambda", "keyword"),
        ("torch", "import"),
        ("tests", "other files and folders"),
        ("hostcore", "hostcore's own"),
        ("hostcore-digits", "hostcore's own"),
        ("3d-unet", "begins with a letter"),
        ("demo-trainer", "other files and folders"),
    ],
)
def test_a_package_that_would_stand_in_the_way_is_refused_with_a_name_that_would_not(name: str, reason: str) -> None:
    with pytest.raises(InvalidName, match=reason) as raised:
        choose_names(TRAINER, name)
    proposal = str(raised.value.hint).split("'")[1]
    assert choose_names(TRAINER, proposal).package
    assert "--package" in str(raised.value.hint)
    assert choose_names(TRAINER, name, "mine").package == "mine"


def test_a_package_name_that_python_or_people_would_not_take_is_refused() -> None:
    odd = ("Mine", "my-package", "a.b", "../a", "", "x" * 41)
    for package in (*odd, *keyword.kwlist, *sys.stdlib_module_names):
        with pytest.raises(InvalidName):
            choose_names(TRAINER, "mine", package)


def test_kinds_are_written_with_hyphens_or_underscores_and_an_unknown_one_is_refused_with_them(new: New) -> None:
    for kind in KINDS.values():
        assert kind_named(kind.name) is kind_named(kind.name.replace("_", "-")) is kind
    answer = new("trainr", "mine")
    assert answer.exit_code == 2
    assert "there is no kind 'trainr'; the kinds are trainer, data-source, callback," in answer.stderr
    assert "Did you mean 'trainer'?" in answer.stderr


# What is written


def written(kind: str = "trainer", name: str = "mine") -> Mapping[str, str]:
    return render(choose_names(KINDS[kind], name), Licence(year=2026, author="Ada"))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_plugin_tests_with_the_kit_ci_readme_and_licence(kind: str) -> None:
    files = written(kind)
    wanted = {"pyproject.toml", "README.md", "LICENSE", ".gitignore", ".github/workflows/ci.yml"}
    wanted |= {"mine/__init__.py", "mine/py.typed", f"mine/{kind}.py"}
    wanted |= {"tests/test_conformance.py", f"tests/test_{kind}.py"}
    assert wanted <= set(files)
    # The host takes no job with a policy or a launcher yet.
    assert ("job.json" in files) == (kind not in ("policy", "launcher"))
    project = tomllib.loads(files["pyproject.toml"])
    assert project["project"]["entry-points"] == {
        KINDS[kind].group: {"mine": f"mine.{kind}:{choose_names(KINDS[kind], 'mine').class_name}"}
    }
    assert project["project"]["dependencies"][0] == f"hostcore-hookspecs{contract_range(API_VERSION)}"
    assert set(project["tool"]["hostcore"]["conformance"]) == {"mine"}


def test_from_a_clone_readme_and_ci_install_hostcore_from_one() -> None:
    files = written()
    assert install_command("conformance") in files["README.md"]
    steps = files[".github/workflows/ci.yml"]
    assert 'git clone --depth 1 "${{ vars.HOSTCORE_REPOSITORY }}" ../hostcore' in steps
    assert steps.index("git clone") < steps.index("pip install -e '.[test]'")


def test_from_a_package_readme_and_ci_install_it_by_name(site_here: Any) -> None:
    site_here.install("hostcore", modules={}, entry_points={})
    assert "clone" not in written()["README.md"] + written()[".github/workflows/ci.yml"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_with_a_dot_is_one_key_of_toml_and_every_part_of_a_template_has_a_place(kind: str) -> None:
    project = tomllib.loads(written(kind, "a.b")["pyproject.toml"])
    assert list(project["project"]["entry-points"][KINDS[kind].group]) == ["a.b"]
    assert list(project["tool"]["hostcore"]["conformance"]) == ["a.b"]
    folder = Path(new_package.__file__).parent / "templates"
    shared = "".join(path.read_text() for path in (folder / "shared").rglob("*.tmpl"))
    parts = [path.name.partition(".")[0] for path in (folder / kind / "parts").iterdir()]
    assert parts
    assert [part for part in parts if f"${part}" not in shared] == []


@pytest.mark.parametrize(
    ("range_of", "version", "expected"),
    [
        *((contract_range, "1.0.0", ">=1,<2"), (contract_range, "1.3.2", ">=1.3,<2")),
        *((contract_range, "2.0.1", ">=2,<3"), (contract_range, "10.12.0", ">=10.12,<11")),
        *((toolkit_range, "0.1.0", ">=0.1.0,<0.2"), (toolkit_range, "0.9.3", ">=0.9.3,<0.10")),
        (toolkit_range, "1.4.2", ">=1.4.2,<2"),
    ],
)
def test_a_package_requires_contract_and_toolkit_as_it_was_written_for_or_a_later_compatible_one(
    range_of: Callable[[str], str], version: str, expected: str
) -> None:
    assert range_of(version) == expected


def test_the_same_command_writes_the_same(new: New, tmp_path: Path) -> None:
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
        assert new("callback", "mine", "--into", folder).exit_code == 0
    assert contents(tmp_path / "one") == contents(tmp_path / "other")


def test_it_says_what_it_has_written_and_what_to_type_next(new: New, tmp_path: Path) -> None:
    answer = new("trainer", "my-trainer")
    assert answer.exit_code == 0, answer.stderr
    said = answer.stdout.splitlines()
    assert said[0] == "my-trainer/ is a trainer in a pip package of its own:"
    assert {line.strip() for line in said[1 : said.index("Next:")]} == set(contents(tmp_path / "my-trainer"))
    assert [line.strip() for line in said[said.index("Next:") + 1 :]] == [
        "cd my-trainer && pip install -e '.[test]'",
        "hostcore run job.json",
        "hostcore check my-trainer",
    ]


def test_the_guide_shows_what_it_says(new: New) -> None:
    guide = ROOT / "docs/how-to/publish-a-plugin.md"
    command, _, shown = guide.read_text().partition("```console\n")[2].partition("```")[0].partition("\n")
    assert command == "$ hostcore new trainer my-trainer"
    assert new("trainer", "my-trainer").stdout == shown


def test_as_json_it_says_the_same(new: New, tmp_path: Path) -> None:
    (tmp_path / "two words").mkdir()
    answer = new("policy", "mine", "--into", "two words", "--package", "ours", "--json")
    said = json.loads(answer.stdout)
    target = tmp_path / "two words" / "mine"
    assert said["path"] == str(target)
    assert (said["kind"], said["name"], said["package"], said["warnings"]) == ("policy", "mine", "ours", [])
    assert said["files"] == sorted(contents(target))
    assert "ours/policy.py" in said["files"]
    assert shlex.split(said["next"][0])[1] == "two words/mine"
    assert said["next"][1:] == ["pytest", "hostcore check mine"]


def test_people_may_read_and_enter_what_is_written(new: New, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        new("trainer", "mine")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "mine").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "mine/README.md").stat().st_mode) == 0o644


# The licence


def licence(folder: Path) -> str:
    return next(line for line in (folder / "mine/LICENSE").read_text().splitlines() if line.startswith("Copyright"))


def test_the_licence_has_this_year_and_the_author_that_was_given(new: New, tmp_path: Path) -> None:
    before = date.today().year
    new("trainer", "mine", "--author", ' Ada "A" O\'Lovelace ')
    assert licence(tmp_path) in {f'Copyright (c) {year} Ada "A" O\'Lovelace' for year in (before, date.today().year)}
    assert PLACEHOLDER not in (tmp_path / "mine/README.md").read_text()


def test_without_an_author_git_is_asked_for_the_name_alone(
    new: New, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gitconfig").write_text("[user]\n\tname = Grace Hopper\n\temail = grace@example.com\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    new("trainer", "mine")
    assert licence(tmp_path).endswith("Grace Hopper")
    assert not any(b"grace@" in content for content in contents(tmp_path / "mine").values())


@pytest.mark.parametrize("has_git", [True, False])
def test_an_author_that_nobody_knows_is_a_placeholder_that_the_readme_mentions(
    new: New, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_git: bool
) -> None:
    if not has_git:
        monkeypatch.setenv("PATH", str(tmp_path))
    new("trainer", "mine")
    assert licence(tmp_path).endswith(PLACEHOLDER)
    assert f"`{PLACEHOLDER}` in `LICENSE`" in (tmp_path / "mine/README.md").read_text()


@pytest.mark.parametrize("author", ["", " ", "Ada\nLovelace", "Ada\x1b[31m"])
def test_an_author_that_a_licence_cannot_carry_is_refused(new: New, tmp_path: Path, author: str) -> None:
    answer = new("trainer", "mine", "--author", author)
    assert answer.exit_code == 2
    assert "cannot be an author's name" in answer.stderr
    assert list(tmp_path.iterdir()) == []


# Refusals


def _full_folder(path: Path) -> None:
    path.mkdir()
    (path / "work.py").write_text("days of it")


def _link(path: Path) -> None:
    path.with_name("elsewhere").mkdir()
    path.symlink_to(path.with_name("elsewhere"))


@pytest.mark.parametrize(
    "make", [_full_folder, _link, lambda path: path.write_text("a file"), lambda path: path.symlink_to("nowhere")]
)
def test_what_is_there_is_left_as_it_is(new: New, tmp_path: Path, make: Callable[[Path], Any]) -> None:
    make(tmp_path / "mine")
    before = {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")}
    answer = new("trainer", "mine")
    assert answer.exit_code == 2
    assert "is there already" in answer.stderr
    assert "--into" in answer.stderr
    assert {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_an_empty_folder_is_filled_and_a_second_time_nothing_is_changed(new: New, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    assert new("trainer", "mine").exit_code == 0
    before = contents(tmp_path)
    assert "mine/pyproject.toml" in before
    assert new("reporter", "mine").exit_code == 2
    assert contents(tmp_path) == before


def test_errors_are_json_if_json_was_asked_for(new: New) -> None:
    answer = new("trainer", "json", "--json")
    assert answer.exit_code == 2
    (error,) = json.loads(answer.stdout)["errors"]
    assert error["code"] == "scaffold.package"
    assert "'json'" in error["message"]


def test_a_folder_to_write_to_that_is_not_there_is_named(new: New, tmp_path: Path) -> None:
    answer = new("trainer", "mine", "--into", "none")
    assert answer.exit_code == 2
    assert f"there is no folder {tmp_path / 'none'}" in answer.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(CannotWrite, match="cannot write"):
        write_package({"a": "content", "a/b": "a file cannot be a folder"}, tmp_path / "mine")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", interrupt)  # the last moment at which one can come
    with pytest.raises(KeyboardInterrupt):
        write_package({"a": "content"}, tmp_path / "mine")
    assert list(tmp_path.iterdir()) == []


def test_what_appears_meanwhile_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "mine"
    look = new_package._require_free

    def look_and_be_overtaken(path: Path) -> None:
        look(path)
        _full_folder(path)

    monkeypatch.setattr(new_package, "_require_free", look_and_be_overtaken)
    with pytest.raises(CannotWrite):
        write_package({"a": "content"}, target)
    assert contents(tmp_path) == {"mine/work.py": b"days of it"}


# What is installed already


def test_an_installed_plugin_of_the_name_is_a_warning(new: New, tmp_path: Path, site_here: Any) -> None:
    site_here.install("others", modules={}, entry_points={"hostcore.trainers": {"mine": "others:Trainer"}})
    site_here.install("more", modules={}, entry_points={"hostcore.reporters": {"mine": "others:Reporter"}})
    answer = new("trainer", "mine")
    assert answer.exit_code == 0
    assert answer.stderr.splitlines() == [
        "warning: a trainer 'mine' of others 1.0 is installed: "
        "with both installed, jobs have to say others/mine or mine/mine"
    ]
    assert (tmp_path / "mine/pyproject.toml").is_file()


def test_what_is_installed_under_the_packages_names_is_a_warning(new: New, site_here: Any) -> None:
    site_here.install("My_Trainer", modules={}, entry_points={"hostcore.trainers": {"my-trainer": "old:Trainer"}})
    assert "is installed: installing the new package replaces it" in new("trainer", "my-trainer").stderr
    site_here.install("others", modules={"our_module.py": "raise SystemExit(9)"}, entry_points={})
    answer = new("trainer", "our-module")
    assert answer.exit_code == 0
    for words in ("there is a module 'our_module' already", "our_module.py", "--package"):
        assert words in answer.stderr


@pytest.mark.parametrize(("kind", "key"), [("policy", "policies"), ("launcher", "launcher")])
def test_the_readme_of_what_has_no_job_says_how_a_job_names_it(new: New, tmp_path: Path, kind: str, key: str) -> None:
    assert new(kind, "mine").exit_code == 0
    readme = (tmp_path / "mine/README.md").read_text()
    assert f'    "{key}": ' in readme
    assert "takes no" not in readme
