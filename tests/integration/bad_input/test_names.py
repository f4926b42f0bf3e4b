"""Names of plugins that stand for nothing, for too much, or for something made for another contract."""

from typing import Any

import pytest

from hostcore_builtin_plugins.extras import install_command

TRAINER = """
from hostcore_hookspecs import StepResult

class Trainer:
    def setup(self): pass
    def configure(self): return {}
    def prepare_batch(self, raw_batch): return raw_batch
    def train_step(self, prepared_batch): return StepResult(metrics={"loss": 1.0})
    def state_dict(self, state): return state
    def load_state_dict(self, state, payload): state.update(payload)
"""


def install(site: Any, distribution: str, name: str = "tide_table", **how: Any) -> None:
    module = f"{distribution.replace('-', '_')}_code"
    site.install(
        distribution,
        modules={f"{module}.py": f"print('imported')\n{TRAINER}"},
        entry_points={"hostcore.trainers": {name: f"{module}:Trainer"}},
        **how,
    )


@pytest.fixture
def refused(workplace: Any) -> Any:
    """What is said, by each command that could, about a job with one mistake."""

    def said(**job: Any) -> tuple[dict[str, Any], str]:
        workplace.write({"trainer": "tide_table", "mock_batches": [1], **job})
        ran, validated = workplace.hostcore("run", "job.json", "--json"), workplace.hostcore("validate", "job.json")
        assert ran.error["message"] in validated.told
        assert workplace.tree() == {}
        return ran.error, validated.told

    return said


def test_an_unknown_trainer_is_answered_with_the_nearest_name_and_how_to_get_it(site: Any, refused: Any) -> None:
    install(site, "tides")
    error, told = refused(trainer="tide_tabel")
    assert error["pointer"] == "/trainer"
    assert "no trainer is called 'tide_tabel'; did you mean 'tide_table'?" in error["message"]
    for part in ("hostcore plugins", "install the package that registers it"):
        assert part in error["hint"]
        assert part in told


def test_a_plugin_for_another_contract_is_refused_without_importing_it(site: Any, refused: Any) -> None:
    install(site, "tides", requires=("hostcore-hookspecs>=2,<3",))
    error, told = refused()
    assert error["pointer"] == "/trainer"
    assert "tides 1.0 requires hostcore-hookspecs" in error["message"]
    assert "but hostcore-hookspecs 1." in error["message"]
    assert f"then {install_command()}" in error["hint"]
    assert "imported" not in told


def test_a_reporter_that_cannot_be_constructed_is_refused(site: Any, refused: Any) -> None:
    code = (
        "class Broken:\n    def __init__(self): raise ValueError('no token')\n    def report_event(self, event): pass\n"
    )
    site.install(
        "trackers", modules={"tracker.py": code}, entry_points={"hostcore.reporters": {"tracker": "tracker:Broken"}}
    )
    install(site, "tides")
    error, _ = refused(reporters=["hostcore-builtin-plugins/terminal", "tracker"])
    assert error["pointer"] == "/reporters/1"
    assert "the reporter tracker (trackers 1.0, tracker:Broken) could not be constructed" in error["message"]
    assert "ValueError: no token" in error["message"]
    assert error["file"].endswith("tracker.py")


def test_an_unknown_key_does_not_hide_an_unknown_trainer(workplace: Any) -> None:
    workplace.write({"trainer": "tide_tabel", "mock_batches": [1], "max_stesp": 3})
    for command in ("run", "validate"):
        errors = workplace.hostcore(command, "job.json", "--json").errors
        found = [(error["code"], error["pointer"]) for error in errors]
        assert found == [("key.unknown", "/max_stesp"), ("plugin.unknown", "/trainer")]


def test_a_trainer_named_by_its_file_is_answered_with_its_import_path(workplace: Any) -> None:
    workplace.write(TRAINER, "line.py")
    workplace.write({"trainer": "line.py:Trainer", "mock_batches": [1]})
    (error,) = workplace.hostcore("run", "job.json", "--json").errors
    assert error["hint"] == "did you mean line:Trainer?"
