"""The launchers of a service: the operator's, with the operator's settings, never those of a job or its row."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sqlalchemy import make_url

from hostcore.errors import Errors
from hostcore.job.names import canonical_plugin, without_builtin
from hostcore.job.sections import ComponentUse
from hostcore.plugins.installed import Discovered
from hostcore.plugins.launching import JobLauncher, launcher_of
from hostcore.plugins.published import how_to_install
from hostcore.supervisor.operator_file import OperatorFile
from hostcore_service.guard.refusal import NotAllowed
from hostcore_service.settings import Settings

LOG: Final = logging.getLogger("hostcore_service")


def launcher_use(asked: Any, operator: OperatorFile) -> dict[str, Any]:
    """The key ``launcher`` of a job: one of the operator's, with the operator's settings.

    :param asked: Value of the job: a name, or an object with one; None for the default.
    :raises Errors: When there is no such launcher, or the job has settings for it.
    """
    default = operator.launcher
    settings = {plain(name): found for name, found in operator.launchers.items()}
    name = default.use if asked is None else asked.get("use") if isinstance(asked, Mapping) else asked
    if isinstance(asked, Mapping) and set(asked) != {"use"}:
        first = min(set(asked) - {"use"}, default="use")
        raise Errors([_not_allowed(f"/launcher/{first}", "the settings of launchers are the operator's")])
    if isinstance(name, str) and plain(name) == plain(default.use):
        return {"use": canonical_plugin(default.use), **settings.get(plain(name), {}), **default.settings}
    if not isinstance(name, str) or plain(name) not in settings:
        known = ", ".join(dict.fromkeys([plain(default.use), *settings]))
        raise Errors([_not_allowed("/launcher", f"the launcher {name!r} is not one of this service's: {known}")])
    return {"use": canonical_plugin(name), **settings[plain(name)]}


def operators_launcher(name: str | None, operator: OperatorFile, discovered: Discovered) -> JobLauncher:
    """One of the operator's launchers, loaded: what is relative in its settings starts at the operator's file.

    :param name: None for the default.
    :raises HostcoreError: When it is not one of them, is not installed, or does not take its settings.
    """
    use = launcher_use(name, operator)
    settings = {key: value for key, value in use.items() if key != "use"}
    return launcher_of(ComponentUse(use=use["use"], settings=settings), discovered, job_dir=operator.folder)


def warn_of_shared_database(settings: Settings, discovered: Discovered) -> None:
    """Log a warning if the database is a file in a folder shared with jobs: the service trusts its contents.

    Jobs of the launcher ``local`` are processes of this machine and of this user, from which nothing is kept.

    :raises HostcoreError: When one of the operator's launchers cannot be loaded.
    """
    url = make_url(settings.database)
    if url.get_backend_name() != "sqlite" or not url.database:
        return
    operator = settings.operator
    uses = [launcher_use(name, operator) for name in (None, *operator.launchers)]
    for name, use in {plain(use["use"]): use for use in uses}.items():
        shared = Path(use.get("volume_path") or settings.runs)
        if name == "local" or not Path(url.database).is_relative_to(shared):
            continue
        if operators_launcher(name, operator, discovered).sees_run_dir:
            LOG.warning(
                "the database %s lies in %s, which is shared with what %s starts: move it ([service] database)",
                *(url.database, shared, name),
            )


def plain(name: str) -> str:
    """The name of a launcher without the distribution, if that is one of the project's."""
    return name.rpartition("/")[2] if how_to_install("launcher", name) else without_builtin(name)


def _not_allowed(pointer: str, message: str) -> NotAllowed:
    return NotAllowed(message, pointer=pointer, hint="see [launcher] and [launchers.NAME] in HOSTCORE_CONFIG")
