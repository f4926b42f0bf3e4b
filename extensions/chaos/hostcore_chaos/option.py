"""The option ``--chaos``: adds the callback ``chaos`` and the uploader ``chaos`` to a job."""

import json
from collections.abc import Mapping
from typing import Any, Final

import click

from hostcore.cli.job_options import AddedOptions

_NAME: Final = "hostcore-chaos/chaos"


def _changes(given: Mapping[str, Any]) -> Mapping[str, str]:
    if not given["chaos"]:
        return {}
    from hostcore.errors import Errors
    from hostcore_chaos.faults import check, is_outage

    try:
        check(given["chaos"])
    except Errors as errors:
        for one in errors.errors:
            one.pointer, one.file = None, "--chaos"
        raise
    outages = [text for text in given["chaos"] if is_outage(text)]
    others = [text for text in given["chaos"] if not is_outage(text)]
    changes = {}
    if others:
        changes[_appended("callbacks", faults=others, seed=given["chaos_seed"])] = "--chaos"
    if outages:
        changes[_appended("uploaders", faults=outages)] = "--chaos"
    return changes


def _appended(key: str, **settings: Any) -> str:
    return f"/{key}/-={json.dumps({'use': _NAME, **settings})}"


OPTIONS: Final = AddedOptions(
    options=(
        click.Option(
            ["--chaos"],
            multiple=True,
            metavar="ACTION@WHEN",
            help="Inject a fault, once per run: sigterm@step=37, kill@checkpoint=2, store-down@30s..60s; repeatable.",
        ),
        click.Option(
            ["--chaos-seed"],
            type=click.IntRange(0),
            default=0,
            metavar="N",
            help="Draws what --chaos leaves open: kill@step=10..200.",
        ),
    ),
    changes=_changes,
)
