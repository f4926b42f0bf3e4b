"""``hostcore export``."""

from pathlib import Path
from typing import Any, get_args

import click

from hostcore.cli import completion
from hostcore.cli.job_options import runs_dir_option
from hostcore.cli.output import echo, json_option, print_json, reports_errors
from hostcore_inspect.formats import Dtype, Format


class _Step(click.ParamType[int | str]):
    name = "step"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if value in ("last", "best"):
            return str(value)
        try:
            return int(value)
        except ValueError:
            self.fail(f"{value!r} is neither a step nor last or best", param, ctx)


@click.command("export", short_help="Write the weights of a run for other programs.")
@click.argument("run", shell_complete=completion.runs)
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--step", type=_Step(), default="last", show_default=True, help="Which checkpoint: a step, last, or best."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(get_args(Format)),
    help="hf: as from_pretrained reads it; dcp: of torch.distributed.checkpoint; torch: model.pt. If not given, hf"
    " where the trainer writes that, else safetensors.",
)
@click.option("--part", metavar="NAME", help="The weights in the trainer's state, if not its model: optimizer.state.")
@click.option("--dtype", type=click.Choice(get_args(Dtype)), help="Convert floating-point tensors.")
@click.option("--merge", is_flag=True, help="Add adapters to the weights of their model, and write that.")
@click.option(
    "--base",
    type=click.Path(path_type=Path),
    help="For --merge: the folder of the model. If not given, where it was when the adapters were trained.",
)
@runs_dir_option
@json_option
@reports_errors
def export_command(
    run: str,
    folder: Path,
    *,
    step: Any,
    form: Format | None,
    part: str | None,
    dtype: Dtype | None,
    merge: bool,
    base: Path | None,
    runs: Path,
    as_json: bool,
) -> None:
    """Write the weights of a checkpoint of RUN into FOLDER, which must not exist.

    Every byte of the checkpoint is verified before. Works while the run is active, too. Optimizer and random states
    stay in the run: training goes on from the checkpoint itself.

    RUN is a run id, the beginning of one, or a run directory. An unknown run exits 2.
    """
    from hostcore.runs.find import find_run
    from hostcore_builtin_plugins.progress import format_bytes
    from hostcore_inspect.export import export

    directory = find_run(run, runs)
    done = export(directory, folder, step=step, format=form, part=part, dtype=dtype, merge=merge, base=base)
    size = sum((folder / name).stat().st_size for name in done.files)
    if as_json:
        print_json(
            {
                "run_id": directory.run_id,
                "step": done.step,
                "format": done.format,
                "part": done.part,
                "folder": str(folder.absolute()),
                "files": list(done.files),
                "elements": done.elements,
                "bytes": size,
            }
        )
        return
    echo(f"step {done.step:,} of {directory.run_id}: {folder} ({done.format}, {format_bytes(size)})")
    for name in done.files:
        echo(f"  {name}")
