"""``hostcore environments``: those that were built for jobs on this machine."""

import time

import click

from hostcore.cli.output import echo, json_option, print_json, print_table, reports_errors
from hostcore.cli.wording import ago


@click.group("environments", short_help="List and remove the environments that were built for jobs.")
def environments_command() -> None:
    """List and remove the environments that were built for jobs on this machine."""


@environments_command.command("list")
@json_option
@reports_errors
def list_command(*, as_json: bool) -> None:
    """List them, the last used first.

    SIZE counts files that an environment shares with others or with uv's cache, too.
    """
    from hostcore_environments.cache import EnvironmentCache, most_bytes, most_kept

    cache = EnvironmentCache()
    found = cache.all()
    if as_json:
        kept = {"environments": most_kept(), "bytes": most_bytes()}
        print_json({"folder": str(cache.folder), "kept": kept, "environments": [one.as_dict() for one in found]})
    elif found:
        now = time.time_ns() // 1_000_000
        rows = [
            (one.key, one.python, f"{one.size / 1e6:,.0f} MB", ago(one.used_ms, now), ", ".join(one.made_for))
            for one in found
        ]
        print_table(["ENVIRONMENT", "PYTHON", "SIZE", "USED", "MADE FOR"], rows)
        whole = sum(one.size for one in found)
        told = f"the {most_kept()} last used are kept, and at most {most_bytes() / 1e9:g} GB"
        echo(f"{whole / 1e9:.1f} GB in {cache.folder}; {told}", err=True)
    else:
        echo(f"no environments in {cache.folder}", err=True)


@environments_command.command("remove")
@click.argument("keys", nargs=-1, metavar="[ENVIRONMENT]...")
@click.option("--all", "everything", is_flag=True, help="Remove all that no run uses.")
@reports_errors
def remove_command(*, keys: tuple[str, ...], everything: bool) -> None:
    """Remove environments, given by their names or the beginnings of these. One that a run uses stays.

    With --all, what builds that were killed have left is removed, too.

    The next run of any requirements asks the package index anew.
    """
    from hostcore_environments.cache import EnvironmentCache
    from hostcore_environments.resolutions import forget

    if bool(keys) == everything:
        raise click.UsageError("name environments, or give --all")
    cache = EnvironmentCache()
    there = [one.key for one in cache.all()]
    chosen = there if everything else [_one(key, there) for key in keys]
    forget(cache.resolutions)
    for key in dict.fromkeys(chosen):
        echo(f"removed {key}" if cache.remove(key) else f"{key} is in use, and stays")
    for left in cache.clear() if everything else []:
        echo(f"removed {left}, which was left behind")


def _one(key: str, there: list[str]) -> str:
    found = [one for one in there if one.startswith(key)]
    if len(found) != 1:
        raise click.BadParameter(f"{len(found)} environments begin with {key!r}; see `hostcore environments list`")
    return found[0]
