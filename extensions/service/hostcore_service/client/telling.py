"""How a job of a service ended, or was sent on its way, as commands tell it of runs of this machine."""

from pathlib import PurePosixPath

from hostcore.checkpoints.names import step_of_folder
from hostcore.cli.output import print_json
from hostcore.cli.report import print_result, print_submission
from hostcore.runs.result import RunResult
from hostcore_service.client.address import shown, words_for
from hostcore_service.client.jobs import path_of


def report_remote_result(result: RunResult, url: str, *, as_json: bool, note: str = "") -> None:
    """Say how a job ended.

    :param url: Of the service.
    :param note: A few words behind its name.
    """
    print_result(result, lambda: _places(result, url), as_json=as_json, note=note)


def _places(result: RunResult, url: str) -> list[tuple[str, str]]:
    place = url + path_of(result.run_id)
    step = step_of_folder(PurePosixPath(result.final_checkpoint).name) if result.final_checkpoint else None
    lines = [("checkpoint", f"{place}/checkpoints/{step}")] if step is not None else []
    lines.append(("everything", place))
    if result.status != "succeeded" and result.final_checkpoint:
        lines.append(("to go on", shown(url, "resume", result.run_id)))
    return lines


def report_remote_submission(run_id: str, url: str, *, as_json: bool) -> None:
    """Say that a job was submitted, and how to watch it."""
    if as_json:  # what is known of a run of this machine, and where it is instead
        print_json({"run_id": run_id, "status": "submitted", "directory": None, "launch": None, "server": url})
    else:
        print_submission(run_id, [run_id, *words_for(url)], url + path_of(run_id))
