"""Jobs whose settings name objects of the user's code, by the installed command."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

#: The model is in another file than the trainer, which does not import it.
TRAINER = """
import attrs
from hostcore_hookspecs import ImportPath
from small_trainer import Trainer

class Generic(Trainer):
    @attrs.frozen(kw_only=True)
    class Hyperparams(Trainer.Hyperparams):
        module: ImportPath[type] = attrs.field(metadata={"help": "The model."})

    def configure(self, ctx):
        return {**super().configure(ctx), "start": ctx.hyperparams.module.load().start}

    def train_step(self, prepared_batch, state, ctx):
        result = super().train_step(prepared_batch, state, ctx)
        result.metrics["start"] = state["start"]
        return result

    def load_state_dict(self, state, payload):
        state.update({**payload, "start": state["start"]})
"""
MODELS = """
class Auto:
    start = 3.0

class Manual:
    start = 4.0
"""


@pytest.fixture(scope="module")
def models(project: Any) -> Any:
    """The project with a generic trainer, and models for it."""
    (project.path / "generic_trainer.py").write_text(TRAINER)
    (project.path / "lit_models.py").write_text(MODELS)
    (project.path / "lit_broken.py").write_text("raise RuntimeError('no weights here')\n")
    return project


def settings(module: str, **keys: Any) -> dict[str, Any]:
    usual = {"trainer": "generic_trainer:Generic", "hyperparams": {"module": module}}
    return {"max_steps": 2, "metric_every": 1, **usual, **keys}


def job(models: Any, run_id: str, module: str, **keys: Any) -> Path:
    return models.job(f"{run_id}.json", run_id=run_id, **settings(module, **keys))


def test_a_run_goes_on_with_the_object_that_it_began_with_and_with_no_other(models: Any) -> None:
    assert models.command("run", job(models, "auto", "lit_models:Auto")).code == 0
    run = models.run("auto")
    assert json.loads((run.path / "config" / "run.json").read_text())["job"]["hyperparams"] == {
        "module": "lit_models:Auto"
    }
    assert run.metric("start") == {1: 3.0, 2: 3.0}
    assert models.command("run", job(models, "auto", "lit_models:Auto", max_steps=3)).code == 0
    assert run.metric("start") == {1: 3.0, 2: 3.0, 3: 3.0}
    other = models.command("run", job(models, "auto", "lit_models:Manual", max_steps=4))
    assert other.code == 2
    assert '/hyperparams/module: "lit_models:Auto" -> "lit_models:Manual"' in other.err


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("lit_models.Auto", "value.range"),
        ("lit_modles:Auto", "object.import"),
        ("lit_broken:Auto", "object.import"),
        ("lit_models:Atuo", "object.symbol"),
        ("lit_models:__name__", "object.kind"),
    ],
)
def test_validate_and_run_refuse_a_path_that_names_no_class(
    models: Any, run_here: Callable, look: Callable, here: Path, module: str, code: str
) -> None:
    for name in ("small_trainer.py", "generic_trainer.py", "lit_models.py", "lit_broken.py"):
        Path(name).write_bytes((models.path / name).read_bytes())
    for said in (run_here("wrong", "--json", **settings(module)), look("validate", "wrong.json", "--json")):
        assert said.code == 2
        (error,) = said.json["errors"]
        assert (error["code"], error["pointer"]) == (code, "/hyperparams/module")
        assert "Traceback" not in said.err
    assert not (here / "wrong").exists()


def test_a_job_without_import_paths_imports_no_object(models: Any) -> None:
    (models.path / "lit_noted.py").write_text("open('imported', 'w').close()\nclass Auto: start = 1.0\n")
    said = models.command("validate", job(models, "closed", "lit_noted:Auto", import_paths=False), "--json")
    assert said.code == 2
    (error,) = said.json["errors"]
    assert (error["code"], error["pointer"]) == ("job.import_paths", "/trainer")
    assert not (models.path / "imported").exists()


@pytest.mark.parametrize("allowed", [False, ["hostcore-builtin-plugins/fsspec"], []])
def test_a_plugin_that_runs_programs_is_refused_by_a_job_without_import_paths(run_here: Callable, allowed: Any) -> None:
    """As in a container, whose plugins the service that sends the job has not seen."""
    keys = {"hyperparams": {"command": ["touch", "imported"]}, "import_paths": allowed, "max_steps": 1}
    said = run_here("program", "--json", trainer="Hostcore_Builtin_Plugins/process", **keys)
    assert said.code == 2
    (error,) = said.json["errors"]
    assert (error["code"], error["pointer"]) == ("job.import_paths", "/trainer")
    assert not Path("imported").exists()


def test_import_paths_names_the_plugins_that_may_run_programs(models: Any) -> None:
    keys = {"hyperparams": {"command": ["false"]}, "import_paths": ["hostcore-builtin-plugins/process"]}
    said = models.command("validate", models.job("named.json", trainer="process", max_steps=1, **keys), "--json")
    assert "job.import_paths" not in {one["code"] for one in said.json.get("errors", ())}


def test_the_schema_says_what_the_path_must_name(models: Any) -> None:
    schema = models.command("schema", "generic_trainer:Generic").json
    (rule,) = schema["else"]["allOf"]
    told = rule["then"]["properties"]["hyperparams"]["properties"]["module"]
    assert (told["type"], told["format"]) == ("string", "python-import-path")
    assert told["description"] == "The model. The import path of a class: module:symbol."
    assert ":" in told["pattern"]
