"""The result of ``hostcore validate`` as people read it."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from hostcore.cli.output import echo, style, warn
from hostcore.cli.run_client import CheckedJob
from hostcore.cli.wording import named_values
from hostcore.errors import is_option
from hostcore.job.data import with_sections
from hostcore.job.spec import JobSpec, job_view
from hostcore_builtin_plugins.progress import format_devices

#: The printed keys of a check.
PRINTED: Final = frozenset(
    {
        *("devices", "plugins", "num_rows", "num_shards", "data", "feed_bytes", "steps_per_epoch", "total_steps"),
        *("warnings", "deprecated", "other_code"),
    }
)


_BROUGHT: Final = ", as the trainer brings them"


def print_validation(found: CheckedJob) -> None:
    """Print the facts about a checked job."""
    spec, head = found.spec, [("run", found.outcome)]
    if len(files := list(dict.fromkeys(one for one in spec.origins.values() if not is_option(one)))) > 1:
        head.append(("files", ", ".join(files)))
    if found.checked is None:
        _print_valid(spec.run_id, [*head, *found.others, *found.serving])
    else:
        _print_valid(spec.run_id, [*head, *_facts(spec, found.checked, found.serving)])
        for warning in (*found.checked["warnings"], *found.checked["deprecated"], *found.checked.get("other_code", ())):
            warn(warning)
    if found.launch is not None:
        echo(f"\n{style('launch', bold=True)}  {found.launch.summary}\n\n{found.launch.document.rstrip()}")


def _facts(spec: JobSpec, checked: Mapping[str, Any], serving: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    lines = [_devices(checked["devices"], spec.precision)]
    brought = checked.get("brought", {})
    spec = with_sections(spec, brought)
    for plugin in checked["plugins"]:
        lines.append((plugin["kind"].replace("_", " "), plugin_with_origin(plugin)))
    lines += serving
    if checked["num_rows"] and spec.dataset:
        order = "shuffled" if spec.dataset.shuffle else "in file order"
        shards = "1 shard" if checked["num_shards"] == 1 else f"{checked['num_shards']:,} shards"
        mixture = checked["data"].get("mixture")
        an_epoch = " an epoch" if mixture else ""
        lines.append(
            (
                "data",
                f"{checked['num_rows']:,} rows{an_epoch} in {shards}, {order}, batches of {spec.dataset.batch_size:,}"
                f"{_BROUGHT if 'dataset' in brought else ''}",
            )
        )
        lines += _mixture(mixture) if mixture else []
        lines.append(("columns", ", ".join(checked["data"]["columns"])))
    for split in ("validation", "test"):
        if split in brought:
            size = getattr(spec, split).batch_size
            lines.append((split, f"{checked[f'{split}_rows']:,} rows, batches of {size:,}{_BROUGHT}"))
    if left_out := spec.rows_left_out(checked["num_rows"]):
        lines.append(("left out", _left_out(left_out, spec)))
    if checked["feed_bytes"]:
        lines.append(("memory", f"about {checked['feed_bytes'] / 1e6:,.0f} MB for the feed, beside the trainer's own"))
    per_epoch = f" ({checked['steps_per_epoch']:,} an epoch)" if checked["steps_per_epoch"] else ""
    lines.append(("steps", f"{checked['total_steps']:,}{per_epoch}"))
    lines.append(("cadence", _cadence(spec)))
    lines.append(("at risk", f"{_at_risk(spec, checked['total_steps'])}, if the run is killed"))
    return lines


def _mixture(mixture: Mapping[str, Any]) -> list[tuple[str, str]]:
    """``docs 70 %, code 30 %``, over the stages."""

    def shares(weights: Sequence[float]) -> str:
        named = zip(mixture["names"], weights, strict=True)
        return ", ".join(f"{name} {100 * weight / sum(weights):.4g} %" for name, weight in named)

    stages = [("mixture", f"{shares(one['weights'])}, until step {one['until']:,}") for one in mixture["stages"]]
    return [*stages, ("mixture", f"{shares(mixture['weights'])}; {mixture['exhausted']}")]


def _print_valid(run_id: str, lines: Sequence[tuple[str, str]]) -> None:
    echo(f"{style('valid', fg='green', bold=True)}  {run_id}")
    for line in named_values(lines):
        echo(line)


def _devices(devices: Sequence[str], precision: str) -> tuple[str, str]:
    separator = "; " if len(devices) > 1 else ", "
    return "devices" if len(devices) > 1 else "device", f"{format_devices(devices)}{separator}{precision}"


def plugin_with_origin(plugin: Mapping[str, Any]) -> str:
    """A plugin with where it comes from: ``flight_delay (hostcore-flight-delay 0.1.0)``."""
    origin = f" ({plugin['distribution']} {plugin['version']})" if plugin["distribution"] else ""
    return f"{plugin['name']}{origin}"


def _left_out(count: int, spec: JobSpec) -> str:
    """``1 row of each epoch, which does not fill a step of 16: always the last of the data``."""
    what, shuffled = ("row", spec.dataset.shuffle) if spec.dataset else ("mock batch", False)
    many = "" if count == 1 else "es" if what.endswith("ch") else "s"
    which = "those that come last in its order" if shuffled else "always the last of the data"
    fill = "does not fill" if count == 1 else "do not fill"
    return f"{count:,} {what}{many} of each epoch, which {fill} a step of {spec.rows_per_step:,}: {which}"


def _cadence(spec: JobSpec) -> str:
    job = job_view(spec)
    metrics = f"metrics every {job.metric_every:,}" if job.metric_every else "no metrics"
    every = spec.checkpoint_every
    often = f"every {every:,} and " if isinstance(every, int) else f"every {every} and "
    return f"{metrics}, a checkpoint {often if every else ''}at the end"


def _at_risk(spec: JobSpec, total_steps: int) -> str:
    """The training since the newest checkpoint, at most."""
    every = spec.checkpoint_every
    if isinstance(every, str):
        return f"the training of the last {every}"
    if 0 < every < total_steps:
        return f"the last {every:,} step{'s' * (every > 1)}"
    return f'the whole training, as "checkpoint_every" is {every:,}'
