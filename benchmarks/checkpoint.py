"""Checkpoints: how long saving blocks the caller, and how long it takes until all is on the disk; beside peers.

The state is about 100 float32 tensors in the sizes of a transformer. All ways are called in this one process, one after
the other in every round, each round beginning with another one. Before each, what the one before wrote is removed and
the disk brought to rest (``sync``), so that nobody pays for the blocks of another. Ratios are to ``write`` in the same
round; a first round is not counted.

    python benchmarks/checkpoint.py [--mb 400] [--rounds 7] [--dir FOLDER] [--only write,hostcore] [--json FILE]

==================  ================================================================================================
``write``           one file, written and fsynced from the tensors' memory: what all others are compared with
``copy``            the tensors copied to memory that is there already: what a checkpoint in the background cannot avoid
``sha256``          the bytes hashed, in one thread
``hostcore``        blocks: ``StateBuffer.snapshot``. Done: written, hashed with SHA-256, committed; all fsynced
``hostcore_first``  the same with a new buffer, as at the first checkpoint of a run: the memory is allocated
``hostcore_file``   as ``hostcore``, with all tensors in a ``TensorFile``
``torch.save``      and fsync
``safetensors``     ``save_file`` and fsync
``dcp.save``        ``torch.distributed.checkpoint``, one rank; it fsyncs by itself
``dcp.async_save``  blocks: until it returns. Done: its future is
==================  ================================================================================================

None of the peers hashes what it writes, or leaves a checkpoint whole if it is killed while it replaces another.
"""

import argparse
import hashlib
import math
import os
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import results

State = dict[str, Any]


@attrs.frozen(kw_only=True)
class Took:
    """Seconds of one save."""

    #: Until the caller goes on.
    blocked: float
    #: Until all is on the disk.
    done: float


class Clock:
    """Measures from when it is made."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._blocked: float | None = None

    def returns(self) -> None:
        """From here on the caller could go on."""
        self._blocked = time.perf_counter() - self._began

    def took(self) -> Took:
        done = time.perf_counter() - self._began
        return Took(blocked=done if self._blocked is None else self._blocked, done=done)


#: Saves into a folder that is there and empty.
Save = Callable[[Path, Clock], None]


def make_state(mb: int) -> State:
    """Tensors of a transformer of 12 layers: 99 of them, of ``mb`` million bytes together."""
    import torch

    torch.manual_seed(0)
    layers = 12
    width = round(math.sqrt(mb * 1e6 / 4 / (layers * 12 + 10)))
    shapes: dict[str, tuple[int, ...]] = {
        "embedding": (10 * width, width),
        "norm.weight": (width,),
        "norm.bias": (width,),
    }
    for layer in range(layers):
        for name, rows, columns in (("qkv", 3, 1), ("out", 1, 1), ("up", 4, 1), ("down", 1, 4)):
            shapes[f"{layer}.{name}.weight"] = (rows * width, columns * width)
            shapes[f"{layer}.{name}.bias"] = (rows * width,)
    return {name: torch.randn(shape) for name, shape in shapes.items()}


def fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def write(state: State) -> Save:
    views = [memoryview(tensor.numpy()).cast("B") for tensor in state.values()]

    def save(folder: Path, clock: Clock) -> None:
        with (folder / "state").open("wb", buffering=0) as file:
            for view in views:
                rest = view
                while rest:
                    rest = rest[file.write(rest) :]
            os.fsync(file.fileno())

    return save


def copy(state: State) -> Save:
    import torch

    copies = {name: torch.zeros_like(tensor) for name, tensor in state.items()}

    def save(folder: Path, clock: Clock) -> None:
        for name, tensor in state.items():
            copies[name].copy_(tensor)

    return save


def sha256(state: State) -> Save:
    views = [memoryview(tensor.numpy()).cast("B") for tensor in state.values()]

    def save(folder: Path, clock: Clock) -> None:
        digest = hashlib.sha256()
        for view in views:
            digest.update(view)
        digest.hexdigest()

    return save


def hostcore(state: State, *, first: bool = False, placed: bool = False) -> Save:
    from hostcore.checkpoints.commit import Draft
    from hostcore.checkpoints.encoding import encode_state
    from hostcore.checkpoints.snapshot import StateBuffer
    from hostcore_hookspecs import TensorFile

    buffer = StateBuffer()
    model: Any = TensorFile("model.safetensors", state) if placed else state

    def save(folder: Path, clock: Clock) -> None:
        draft = Draft.begin(folder / "checkpoints", step=1, attempt=1)
        snapshot = (StateBuffer() if first else buffer).copy(encode_state({"model": model}))
        clock.returns()
        draft.commit(epoch=0, final=False, sealed=snapshot.write(draft.folder, "state"))

    return save


def torch_save(state: State) -> Save:
    import torch

    def save(folder: Path, clock: Clock) -> None:
        torch.save(state, folder / "state.pt")
        fsync(folder / "state.pt")

    return save


def safetensors(state: State) -> Save:
    from safetensors.torch import save_file

    def save(folder: Path, clock: Clock) -> None:
        save_file(state, folder / "state.safetensors")
        fsync(folder / "state.safetensors")

    return save


def dcp_save(state: State) -> Save:
    import torch.distributed.checkpoint as dcp

    return lambda folder, clock: dcp.save(state, checkpoint_id=folder / "dcp", no_dist=True)


def dcp_async_save(state: State) -> Save:
    import torch.distributed.checkpoint as dcp

    def save(folder: Path, clock: Clock) -> None:
        future: Any = dcp.async_save(state, checkpoint_id=folder / "dcp", no_dist=True)
        clock.returns()
        getattr(future, "upload_completion", future).result()  # with some stagers it is a pair of futures

    return save


WAYS: dict[str, Callable[[State], Save]] = {
    "write": write,
    "copy": copy,
    "sha256": sha256,
    "hostcore": hostcore,
    "hostcore_first": lambda state: hostcore(state, first=True),
    "hostcore_file": lambda state: hostcore(state, placed=True),
    "torch.save": torch_save,
    "safetensors": safetensors,
    "dcp.save": dcp_save,
    "dcp.async_save": dcp_async_save,
}


def in_turns(saves: dict[str, Save], rounds: int, folder: Path) -> dict[str, list[Took]]:
    """What each way took in each round."""
    took: dict[str, list[Took]] = {name: [] for name in saves}
    names = list(saves)
    for number in range(rounds + 1):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            place = folder / "benchmark"
            place.mkdir()
            os.sync()
            clock = Clock()
            saves[name](place, clock)
            answer = clock.took()
            shutil.rmtree(place)
            if number:
                took[name].append(answer)
        print(f"round {number} of {rounds}", file=sys.stderr)
    return took


def table(took: dict[str, list[Took]]) -> str:
    lines = ["| way | blocks, s | min..max | done after, s | min..max | done, of write |", "|---|---|---|---|---|---|"]
    written = [one.done for one in took["write"]]
    for name, of_way in took.items():
        ratios = [one.done / base for one, base in zip(of_way, written, strict=True)]
        shown = " | ".join(spread([getattr(one, key) for one in of_way]) for key in ("blocked", "done"))
        lines.append(f"| {name} | {shown} | {statistics.median(ratios):.2f} |")
    return "\n".join(lines)


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.3f} | {min(values):.3f}..{max(values):.3f}"


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--mb", type=int, default=400, help="size of the state, in million bytes")
    ask.add_argument("--rounds", type=int, default=7)
    ask.add_argument("--dir", type=Path, help="a folder on the disk to measure (else where temporary files go)")
    ask.add_argument("--only", default=",".join(WAYS), help="comma separated; write is always measured")
    results.add_option(ask)
    options = ask.parse_args()
    wanted = {"write", *options.only.split(",")}
    if unknown := wanted - WAYS.keys():
        raise SystemExit(f"unknown: {', '.join(unknown)}; there are {', '.join(WAYS)}")
    warnings.simplefilter("ignore")  # dcp: that it runs without a process group
    state = make_state(options.mb)
    size = sum(tensor.nbytes for tensor in state.values())
    saves = {name: way(state) for name, way in WAYS.items() if name in wanted}
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        took = in_turns(saves, options.rounds, Path(folder))
    seconds = {
        f"{name}, {key}": [getattr(one, key) for one in of_way]
        for name, of_way in took.items()
        for key in ("blocked", "done")
    }
    results.write(options.json, "checkpoint", results.rows("s", seconds), mb=options.mb)
    print(f"{size / 1e6:.0f} MB in {len(state)} tensors, {options.rounds} rounds")
    print(table(took))


if __name__ == "__main__":
    main()
