"""A run that goes on with other plugins than before; and a plugin whose module another distribution has overwritten."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

TRAINER = """
    import torch
    from hostcore_hookspecs import StepResult

    class Trainer:
        def setup(self, ctx): ...
        def configure(self, ctx): return {{"w": torch.zeros(1)}}
        def prepare_batch(self, raw_batch): return None
        def train_step(self, prepared_batch, state):
            state["w"] += {add}
            return StepResult(metrics={{"{name}": state["w"].clone()}})
        def state_dict(self, state): return dict(state)
        def load_state_dict(self, state, payload): state.update(payload)
"""


DATA = {"source": "mock", "num_rows": 100, "batch_size": 10}


def install(site: Any, distribution: str, *, module: str, name: str, version: str = "1.0", add: int = 1) -> None:
    entry_points = {"hostcore.trainers": {name: f"{module}:Trainer"}}
    modules = {f"{module}.py": TRAINER.format(add=add, name=name)}
    site.install(distribution, version=version, modules=modules, entry_points=entry_points)


def warnings(run: Any, code: str) -> list[str]:
    return [event["message"] for event in run.events if event.get("code") == code]


def test_another_version_is_a_warning_of_the_attempt_and_refused_with_same_plugins(
    site: Any, own_project: Callable
) -> None:
    install(site, "my-plugin", module="changed_trainer", name="mine")
    changed = own_project(site.environment)
    assert changed.command("run", changed.job(trainer="mine", max_steps=3, dataset=DATA)).code == 0
    (site.path / "my_plugin-1.0.dist-info").rename(site.path / "old")
    install(site, "my-plugin", module="changed_trainer", name="mine", version="2.0", add=100)

    before = changed.run().tree()
    refused = changed.command("resume", "a", "--set", "max_steps=4", "--same-plugins")
    assert refused.code == 2
    assert "--same-plugins: attempt 2 goes on with other plugins" in refused.err
    assert changed.run().tree() == before

    said = changed.command("resume", "a", "--set", "max_steps=4")
    assert said.code == 0
    (message,) = warnings(changed.run(), "resume.plugins")
    assert message.startswith("attempt 2 goes on with other plugins than attempt 1: the trainer 'mine'")
    assert message.endswith("my-plugin 1.0 -> my-plugin 2.0")
    for shown in (said.out, changed.command("status", "a").out):
        assert "  warning     attempt 2 goes on with other plugins than attempt 1" in shown

    assert changed.command("resume", "a", "--set", "max_steps=5").code == 0
    assert len(warnings(changed.run(), "resume.plugins")) == 1
    trainers = [
        (one["attempt"], plugin["version"], plugin["sha256"])
        for one in json.loads((changed.run().path / "config" / "run.json").read_bytes())["used"]
        for plugin in one["plugins"]
        if plugin["kind"] == "trainer"
    ]
    assert [one[:2] for one in trainers] == [(1, "1.0"), (2, "2.0")]
    assert len({one[2] for one in trainers} - {None}) == 2

    fingerprint = changed.command("status", "a", "--json").json["data"]
    assert f"\n  data        {fingerprint[:12]}\n" in changed.command("status", "a").out
    for asked in (["--plugin", "mine<2"], ["--distribution", "my-plugin==1.0"]):
        (found,) = changed.command("list", *asked, "--data", fingerprint[:8], "--json").json["runs"]
        (used,) = found["used"]
        assert (used["attempt"], used["plugins"][0]["version"], used["data"]) == (1, "1.0", fingerprint)


def test_another_content_of_an_import_path_is_a_warning(own_project: Callable) -> None:
    project = own_project()
    assert project.command("run", project.job(max_steps=3)).code == 0
    file: Path = project.path / "small_trainer.py"
    file.write_text(file.read_text() + "\n# changed\n")
    assert project.command("resume", "a", "--set", "max_steps=4").code == 0
    (message,) = warnings(project.run(), "resume.plugins")
    assert message.endswith("the trainer 'small_trainer:Trainer': another content of its files")
    again = project.command("resume", "a", "--set", "max_steps=5", "--same-plugins")
    assert again.code == 0, again.err


def test_a_module_that_another_distribution_has_overwritten_is_told_everywhere(
    site: Any, own_project: Callable
) -> None:
    install(site, "my-alpha", module="same_trainer", name="alpha")
    install(site, "my-beta", module="same_trainer", name="beta", add=2)
    project = own_project(site.environment)
    job = project.job(trainer="alpha", max_steps=1, metric_every=1)
    for command in (("plugins",), ("validate", job)):
        said = project.command(*command)
        assert said.code == 0, said.err
        assert "same_trainer.py is not the file that my-alpha has installed: it is that of my-beta 1.0" in said.err
        assert "my-beta has installed" not in said.err
    ran = project.command("run", job)
    assert ran.code == 0
    assert "  warning     the trainer alpha (my-alpha 1.0, same_trainer:Trainer)" in ran.out
    (message,) = warnings(project.run(), "plugin.other_code")
    assert "the trainer alpha (my-alpha 1.0, same_trainer:Trainer)" in message
