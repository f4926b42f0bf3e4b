"""What the commands say, and with what exit code they end."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

import hostcore as package
from hostcore.plugins.installed import discover
from hostcore_hookspecs import KINDS, Kind
from hostcore_hookspecs.events import PAYLOADS

#: Of the host and of the project's other distributions.
COMMANDS = (
    *(
        "cancel",
        "check",
        "compare",
        "debug",
        "doctor",
        "environments",
        "evaluate",
        "export",
        "from-lightning",
        "gc",
        "list",
        "logs",
        "new",
        "plugins",
    ),
    *(
        "replay",
        "report",
        "resume",
        "rm",
        "rows",
        "run",
        "schema",
        "serve",
        "status",
        "sweep",
        "upload",
        "validate",
        "verify",
    ),
)
ERROR_KEYS = ["code", "message", "pointer", "file", "hint"]


class TestTheCommand:
    @pytest.mark.parametrize("flag", ["--help", "-h"])
    def test_lists_its_commands(self, hostcore: Callable, flag: str) -> None:
        said = hostcore(flag)
        assert said.code == 0
        assert package.__version__ in hostcore("--version").out
        listed = said.out.partition("Commands:\n")[2]
        assert [line.split()[0] for line in listed.splitlines() if line[2] != " "] == list(COMMANDS)

    @pytest.mark.parametrize("name", COMMANDS)
    def test_has_help_for_every_command(self, hostcore: Callable, name: str) -> None:
        said = hostcore(name, "--help")
        assert (said.code, said.out.startswith(f"Usage: hostcore {name}")) == (0, True)

    @pytest.mark.parametrize(("typed", "meant"), [("plugin", "plugins"), ("stauts", "status"), ("valdate", "validate")])
    def test_suggests_the_command_that_was_meant(self, hostcore: Callable, typed: str, meant: str) -> None:
        said = hostcore(typed)
        assert said.code == 2
        assert f"No such command '{typed}'. Did you mean '{meant}'?" in said.err
        assert "`hostcore --help` lists the commands" in hostcore("xyzzy").err

    def test_refuses_to_resume_and_begin_at_once(self, hostcore: Callable, tmp_path: Path) -> None:
        (tmp_path / "job.json").write_text('{"trainer": "a:B", "max_steps": 1}')
        said = hostcore("run", "job.json", "--resume", "--from", "x")
        assert said.code == 2
        assert "--resume and --from exclude each other" in said.err


class TestHooks:
    @pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
    def test_every_method_is_shown_with_its_arguments(self, kind: Kind, hostcore: Callable) -> None:
        said = hostcore("plugins", "hooks", kind.name.replace("_", "-"))
        assert said.code == 0
        for hook in kind.hooks:
            needed = "required" if hook in kind.required else "optional"
            assert f"\n{hook}({', '.join(kind.arguments(hook))})  {needed}\n    Called" in said.out

    def test_as_json(self, hostcore: Callable) -> None:
        said = hostcore("plugins", "hooks", "data-source", "--json")
        (hook,) = said.json["hooks"]
        assert (hook["name"], hook["required"], hook["arguments"]) == ("open_dataset", True, ["dataset", "ctx"])


class TestPlugins:
    @pytest.mark.parametrize("arguments", [["plugins", "--json"], ["plugins", "list", "--json"]])
    def test_has_the_documented_keys(self, hostcore: Callable, arguments: list[str]) -> None:
        said = hostcore(*arguments)
        assert said.code == 0
        assert list(said.json) == ["plugins", "broken"]
        for plugin in said.json["plugins"]:
            assert list(plugin) == ["kind", "name", "value", "distribution", "version", "conflict", "conformance"]
        builtins = [one for one in said.json["plugins"] if one["distribution"] == "hostcore-builtin-plugins"]
        assert {(one["kind"], one["name"]) for one in builtins} >= {
            ("data_source", "parquet"),
            ("data_source", "mock"),
            ("reporter", "terminal"),
            ("launcher", "local"),
        }

    def test_names_what_is_broken_and_where(self, hostcore: Callable, site_here: Any) -> None:
        site_here.install("broken", modules={}, entry_points="[hostcore.trainers\nx = y:Z")
        (broken,) = hostcore("plugins", "--json").json["broken"]
        assert list(broken) == ["distribution", "path", "error"]
        assert broken["distribution"] == "broken"

    def test_that_are_unknown_exit_2_with_the_nearest_name(self, hostcore: Callable) -> None:
        said = hostcore("plugins", "show", "parket", "--json")
        assert said.code == 2
        assert "parquet" in said.json["errors"][0]["hint"]

    def test_are_shown_with_their_settings(self, hostcore: Callable) -> None:
        said = hostcore("plugins", "show", "mock", "--json")
        assert said.code == 0
        (plugin,) = said.json["plugins"]
        assert (plugin["kind"], plugin["ref"]["dist"]) == ("data_source", "hostcore-builtin-plugins")
        assert {"num_rows", "num_shards"} <= set(plugin["settings_schema"]["properties"])

    def test_are_a_page(self, hostcore: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
        found = discover()
        few = tuple(ref for ref in found.refs if ref.kind == "reporter")  # to import all takes seconds
        monkeypatch.setattr("hostcore.plugins.installed.discover", lambda: attrs.evolve(found, refs=few))
        said = hostcore("plugins", "directory")
        assert (said.code, said.out.partition("\n")[0]) == (0, "# Plugins")
        assert [ref.name for ref in few if f"### Reporter `{ref.name}`\n" not in said.out] == []
        listed = hostcore("plugins", "directory", "--json").json["plugins"]
        assert [one["ref"]["name"] for one in listed] == [ref.name for ref in few]


class TestSchema:
    def test_of_job_files_has_every_key_of_a_job(self, hostcore: Callable) -> None:
        said = hostcore("schema")
        assert (said.code, said.err) == (0, "")
        assert said.json["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        assert {"trainer", "dataset", "max_steps", "resume_from_checkpoint"} <= set(said.json["properties"])

    def test_of_events_names_every_event(self, hostcore: Callable) -> None:
        text = hostcore("schema", "--events").out
        assert [name for name in PAYLOADS if f'"{name}"' not in text] == []

    def test_with_an_unknown_plugin_exits_2(self, hostcore: Callable) -> None:
        said = hostcore("schema", "parket")
        assert (said.code, said.out) == (2, "")
        assert "parquet" in said.err


class TestErrors:
    @pytest.mark.parametrize("command", ["run", "validate"])
    def test_are_all_told_at_once_as_one_document(self, hostcore: Callable, tmp_path: Path, command: str) -> None:
        (tmp_path / "job.json").write_text('{"trainer": "a:B", "max_steps": -1, "seed": "x", "nonsense": 1}')
        said = hostcore(command, "job.json", "--json")
        assert said.code == 2
        assert list(said.json) == ["errors"]
        assert {error["pointer"] for error in said.json["errors"]} == {"/max_steps", "/seed", "/nonsense"}
        assert all(list(error) == ERROR_KEYS for error in said.json["errors"])
        shown = hostcore(command, "job.json")
        assert (shown.code, shown.out, shown.err.count("error: ")) == (2, "", 3)
        for line in ("at: /max_steps", "file: job.json"):
            assert line in shown.err
        assert not (tmp_path / "runs").exists()
