"""Commands are entry points: what is installed is listed and called, and what is wrong with it is said."""

import pkgutil
import re
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

import pytest

from hostcore.cli import commands

GREET = """
import click

@click.command("greet", short_help="Say hello.")
@click.argument("name")
def greet(name):
    click.echo(f"hello {name}")
"""


def entry(value: str, name: str = "greet") -> dict[str, dict[str, str]]:
    return {"hostcore.commands": {name: value}}


class TestACommandOfAnotherDistribution:
    def test_is_listed_and_called(self, hostcore: Callable, site_here: Any) -> None:
        site_here.install("greeter", modules={"greeter_one.py": GREET}, entry_points=entry("greeter_one:greet"))
        assert re.search(r"^  greet +Say hello\.$", hostcore("--help").out, re.MULTILINE)
        assert hostcore("greet", "Ada").out == "hello Ada\n"

    @pytest.mark.parametrize(
        ("source", "says"),
        [
            ("raise RuntimeError('no such device')", "RuntimeError: no such device"),
            ("raise SystemExit('a script without a main guard')", "SystemExit: a script without a main guard"),
            ("import no_such_dependency", "ModuleNotFoundError: No module named 'no_such_dependency'"),
            ("", "AttributeError: module 'greeter_two' has no attribute 'greet'"),
            ("def greet(): pass", "greeter_two:greet is no click.core.Command"),
        ],
        ids=["raises", "exits", "lacks a dependency", "lacks the symbol", "is no command"],
    )
    def test_that_cannot_be_used_hides_no_other(
        self, hostcore: Callable, site_here: Any, source: str, says: str
    ) -> None:
        site_here.install(
            "greeter", version="2.0", modules={"greeter_two.py": source}, entry_points=entry("greeter_two:greet")
        )
        shown = " ".join(hostcore("--help").out.split())
        assert f"greet 'greet' of greeter 2.0 is broken: {says}" in shown
        assert "validate Check a job without starting it" in shown
        said = hostcore("greet", "Ada")
        assert (said.code, said.out) == (2, "")
        assert f"'greet' of greeter 2.0 is broken: {says}" in said.err

    def test_that_two_distributions_have_is_called_of_neither(self, hostcore: Callable, site_here: Any) -> None:
        for name in ("one", "two"):
            module = f"greeter_of_{name}"
            site_here.install(f"greeter-{name}", modules={f"{module}.py": GREET}, entry_points=entry(f"{module}:greet"))
        said = hostcore("greet", "Ada")
        assert (said.code, said.out) == (2, "")
        assert "'greet' is provided by: greeter-one 1.0, greeter-two 1.0" in said.err

    def test_does_not_take_the_place_of_one_of_the_host(self, hostcore: Callable, site_here: Any) -> None:
        modules = {"greeter_four.py": GREET}
        site_here.install("a-greeter", modules=modules, entry_points=entry("greeter_four:greet", "list"))
        assert hostcore("list", "--json").json == {"runs": []}
        (broken,) = hostcore("plugins", "--json").json["broken"]
        assert broken["distribution"] == "a-greeter"
        assert "'list' in hostcore.commands is a command of hostcore itself" in broken["error"]


def test_a_service_that_nothing_talks_to_is_refused_with_the_schemes_there_are(hostcore: Callable) -> None:
    said = hostcore("status", "a", "--server", "ftp://example.org")
    assert said.code == 2
    assert "no installed package talks to a service at 'ftp://example.org'" in said.err
    assert "its URL begins with http:// or https://" in said.err


def test_the_entry_points_of_the_host_are_its_modules_of_commands() -> None:
    # A command of the host is found by its module's name, without a look at what is installed.
    registered = {
        one.name: one.value
        for one in entry_points(group="hostcore.commands")
        if one.value.startswith("hostcore.cli.commands.")
    }
    modules = [one.name for one in pkgutil.iter_modules(commands.__path__)]
    assert registered == {name: f"hostcore.cli.commands.{name}:{name}_command" for name in modules}


@pytest.mark.parametrize("name", ["../x", "list.x", ".", "", "__init__", "cancel\0", "ru n"])
def test_what_is_no_name_of_a_command_is_unknown(hostcore: Callable, name: str) -> None:
    said = hostcore(name)
    assert (said.code, said.out) == (2, "")
    assert "No such command" in said.err
