"""``hostcore validate --server``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hostcore.cli.job_options import job_of
from hostcore.cli.output import print_json, warn
from hostcore.cli.plan_lines import named, print_launch, print_plan, print_valid
from hostcore.cli.remote.answers import ForeignAnswer
from hostcore.cli.remote.client import Client
from hostcore.cli.remote.running import document_of, naming_options
from hostcore.job.load import load_job
from hostcore.job.names import is_builtin
from hostcore.job.spec import JobSpec
from hostcore.supervisor.plan import SERVING
from hostcore_hookspecs.kinds import KINDS
from hostcore_hookspecs.launcher import LaunchPlan

#: A check imports plugins and opens data, perhaps after others.
_PATIENCE_SECONDS: Final = 300.0


def validate_remote(server: str, job: Path, options: Mapping[str, Any], *, as_json: bool) -> None:
    """Check a job file where a service would run it."""
    with Client.of(server) as client:
        asked = job_of(job, options)
        with naming_options(asked):
            found = client.post("/v1/jobs:validate", document_of(asked), patience_seconds=_PATIENCE_SECONDS)
        try:
            spec, plan = load_job(found["job"]), found["plan"]
            _print(spec, plan, client.url, as_json=as_json)
        except (KeyError, TypeError) as error:
            raise ForeignAnswer(f"{client.url} answers what is no plan: {error!r}") from error


def _print(spec: JobSpec, plan: Mapping[str, Any], url: str, *, as_json: bool) -> None:
    checked = plan["checked"]
    launch = None if is_builtin(spec.launcher.use, "local") else LaunchPlan(**plan["launch"])
    if as_json:
        launched = {"launch": plan["launch"]} if launch else {}
        print_json({"job": spec.to_json(), "directory": None, **(checked or {}), **launched})
    else:
        serving, others = _plugins(plan["plugins"])
        fate = ("run", f"new, at {url}")
        if checked is None:
            print_valid(spec.run_id, [fate, *others, *serving])
        else:
            print_plan(spec, checked, fate[1], serving=serving)
        if launch is not None:
            print_launch(launch)
    for sentence in plan["unchecked"]:
        warn(f"unchecked: {sentence}")


def _plugins(found: Sequence[Mapping[str, Any]]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Kind and name of the plugins: those that serve a run beside its workers, and the others."""
    known = [one for one in found if one["kind"] in KINDS]
    shown = [(one["kind"] in SERVING, (KINDS[one["kind"]].label, named(one))) for one in known]
    return [line for serves, line in shown if serves], [line for serves, line in shown if not serves]
