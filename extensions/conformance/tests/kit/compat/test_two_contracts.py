"""Two versions of the contract: what a plugin for one does on the other. Real distributions, real processes.

The host is the one of this checkout throughout: it passes the arguments that 1.0 has, as a host that is a little older
than the contract does.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostcore_builtin_plugins.extras import install_command

DATA = {"source": "mock", "num_rows": 96, "num_shards": 4, "batch_size": 8, "shuffle": True}
FIRST = {
    "trainer": "first",
    "dataset": DATA,
    "checkpoint_every": 4,
    "callbacks": ["first-wrapper", "both"],
    "reporters": ["first-reporter"],
}
OLD = ["takes-an-old-argument", "imports-an-old-name"]

ARGUMENT = (
    "the callback takes-an-old-argument (old-names 1.0.0, old_names.argument:TakesRequestedBy) uses the argument"
    " 'requested_by' of the hook on_stop_requested, which is deprecated since 1.1.0 and will be removed in 1.3.0 of the"
    " contract: read run_state.stop_requests[-1].requested_by"
)


def outcome(place: Any) -> dict[str, Any]:
    """All of a run that does not depend on the clock."""
    losses = [(event["step"], event["metrics"]) for event in place.events("metrics")]
    folder = place.folder / "runs/r/checkpoints/step-000008"
    files = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.iterdir())}
    assert "state.safetensors" in files
    # Checkpoints are written beside the steps: when one is saved, the steps may be further.
    told = place.witness("reporter.json")
    return {
        "losses": losses,
        "checkpoint": files,
        "wrapper": place.witness("wrapper.json"),
        "saved": told.count("checkpoint_saved"),
        "reporter": [name for name in told if name != "checkpoint_saved"],
    }


def test_a_plugin_made_for_1_0_does_the_same_on_1_1_bit_for_bit_and_goes_on_from_its_checkpoint_on_1_3(
    on: Callable,
) -> None:
    done = {}
    for version in ("1.0.0", "1.1.0"):
        place = on(version)
        said = place.hostcore("run", place.job(**FIRST))
        assert said.code == 0, said.err
        assert place.events("warning") == []
        done[version] = outcome(place)
    assert len(done["1.0.0"]["losses"]) == 8
    assert done["1.1.0"] == done["1.0.0"]

    # What is for both takes the new argument where there is one.
    assert on("1.0.0").witness("both.json") == {"step": 8}
    assert on("1.1.0").witness("both.json") == {"step": 8, "seconds": None}

    later = on("1.3.0")
    half = on("1.0.0").folder / "runs/r/checkpoints/step-000004.json"
    said = later.hostcore("run", later.job(**FIRST), "--from", str(half))
    assert said.code == 0, said.err
    resumed = outcome(later)
    assert resumed["losses"] == done["1.0.0"]["losses"][4:]
    assert resumed["checkpoint"]["state.safetensors"] == done["1.0.0"]["checkpoint"]["state.safetensors"]


def test_on_1_1_both_what_is_new_and_what_is_deprecated_work_and_the_run_says_once_what_will_go(on: Callable) -> None:
    place = on("1.1.0")
    # The same callback twice: that is one thing to tell.
    said = place.hostcore("run", place.job(trainer="second", callbacks=["second-listener", *OLD, OLD[0]]))
    assert said.code == 0, said.err

    # From a host that knows only 1.0, new arguments have their defaults.
    assert place.witness("listener.json") == {"seconds": None}
    state = (place.folder / "runs/r/checkpoints/step-000002/state.json").read_text()
    assert '"positions":[-1,-1]' in state

    assert (place.folder / "asked.txt").read_text() == "enough: takes-an-old-argument (old-names 1.0.0)"
    warnings = place.events("warning")
    assert {warning["code"] for warning in warnings} == {"plugin.deprecated"}
    told = [warning["message"] for warning in warnings]
    assert told.count(ARGUMENT) == 1
    assert {message.partition(" uses ")[2] for message in told if message != ARGUMENT} == {
        "hostcore_hookspecs.MetricPoint, which is deprecated since 1.1.0 and will be removed in 1.3.0 of the contract:"
        " read run_state.metrics"
    }
    assert "which is deprecated since 1.1.0" in " ".join((said.out + said.err).split())


class TestAPluginMadeFor11:
    def test_is_refused_on_1_0_before_it_is_imported_with_what_to_install(self, on: Callable) -> None:
        place = on("1.0.0")
        said = place.hostcore("run", place.job(trainer="second", callbacks=["second-listener"]), "--json")
        assert said.code == 2
        trainer, listener = said.json["errors"]
        assert trainer["code"] == listener["code"] == "plugin.contract_version"
        assert (trainer["pointer"], listener["pointer"]) == ("/trainer", "/callbacks/0")
        assert trainer["message"] == (
            "made-for-1-1 1.0.0 requires hostcore-hookspecs<2,>=1.1, but hostcore-hookspecs 1.0.0 is installed"
        )
        assert trainer["hint"].endswith(f"then {install_command()}")
        assert not (place.folder / "made_for_1_1.imported").exists()
        assert not (place.folder / "runs").exists()


class TestADeprecatedName:
    def test_is_shown_by_plugins_show_on_1_1(self, on: Callable) -> None:
        said = on("1.1.0").hostcore("plugins", "show", "takes-an-old-argument")
        assert (said.code, said.err) == (0, f"warning: {ARGUMENT}\n")
        (shown,) = on("1.1.0").hostcore("plugins", "show", "takes-an-old-argument", "--json").json["plugins"]
        assert shown["deprecated"] == [ARGUMENT]

    def test_is_an_error_on_1_3_that_names_the_replacement(self, on: Callable) -> None:
        place = on("1.3.0")
        said = place.hostcore("run", place.job(trainer="first", dataset=DATA, callbacks=OLD), "--json")
        assert said.code == 2
        argument, name = said.json["errors"]
        assert (argument["code"], argument["pointer"]) == ("plugin.removed", "/callbacks/0")
        assert argument["message"] == (
            "the callback takes-an-old-argument (old-names 1.0.0, old_names.argument:TakesRequestedBy):"
            " on_stop_requested takes the argument 'requested_by', which was removed from the contract in 1.3.0"
            " (deprecated since 1.1.0)"
        )
        assert argument["hint"] == "In place of 'requested_by': read run_state.stop_requests[-1].requested_by."
        assert (name["code"], name["pointer"]) == ("plugin.import", "/callbacks/1")
        assert (
            "hostcore_hookspecs.MetricPoint was removed from the contract in 1.3.0 (deprecated since 1.1.0): read"
            " run_state.metrics"
        ) in name["message"]
        assert not (place.folder / "runs/r").exists()


class TestARequirement:
    @pytest.fixture
    def here(self, on: Callable, site: Any) -> Any:
        """Contract 1.0, and a trainer ``t`` of a distribution with other requirements."""

        def place(*requires: str) -> Any:
            module = {"must_not_be_imported.py": "1 / 0"}
            entry_points = {"hostcore.trainers": {"t": "must_not_be_imported:T"}}
            site.install("its-trainer", modules=module, entry_points=entry_points, requires=requires)
            return on("1.0.0", Path(site.path))

        return place

    def test_of_the_next_major_version_is_refused(self, here: Callable) -> None:
        place = here("hostcore-hookspecs>=2")
        said = place.hostcore("run", place.job(trainer="t"))
        assert said.code == 2
        assert "its-trainer 1.0 requires hostcore-hookspecs>=2, but hostcore-hookspecs 1.0.0" in said.err
        assert f"then {install_command()}" in said.err
        assert "ZeroDivisionError" not in said.err

    def test_that_is_missing_is_a_warning_of_the_list(self, here: Callable) -> None:
        said = here().hostcore("plugins")
        assert said.code == 0
        assert "warning: its-trainer does not say which version of hostcore-hookspecs it was made for" in said.err
