"""What it costs that the context knows the number of a batch, and what ``ImportPath.load`` takes; in CPU time.

The lines of the loop that prepare a batch, with and without the number of the batch, in turns in one process; a
``prepare_batch`` that does nothing. Each difference is of stretches beside one another.

    python benchmarks/batch_context.py [--rounds 21] [--batches 200000] [--json FILE]
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import results

from hostcore.worker.loop import _prepared
from hostcore_hookspecs import ImportPath, RunState, StepContext

ACCUMULATE = 4


def prepare_batch(raw_batch: Any, state: Any, ctx: StepContext) -> Any:
    """The least that a trainer can do."""
    return raw_batch


def seconds_of(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--rounds", type=int, default=21)
    ask.add_argument("--batches", type=int, default=200_000)
    results.add_option(ask)
    options = ask.parse_args()
    ctx, batches = StepContext(run_state=RunState(batch_in_epoch=7)), range(options.batches)
    run_state, together, path = ctx.run_state, tuple(range(ACCUMULATE)), ImportPath[Any]("collections:OrderedDict")

    def plain() -> None:
        for raw_batch in batches:
            prepare_batch(raw_batch, None, ctx)

    def numbered() -> None:
        for raw_batch in batches:
            ctx.batch_index = run_state.batch_in_epoch
            prepare_batch(raw_batch, None, ctx)

    def plain_together() -> None:
        for _ in batches[::ACCUMULATE]:
            tuple(prepare_batch(one, None, ctx) for one in together)

    def numbered_together() -> None:
        for _ in batches[::ACCUMULATE]:
            tuple(_prepared(together, prepare_batch, None, ctx))

    def load() -> None:
        for _ in batches[::10]:
            path.load()

    took: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        for name, with_it, without, times in (
            ("the number of a batch", numbered, plain, options.batches),
            (f"… of a batch, accumulate {ACCUMULATE}", numbered_together, plain_together, options.batches),
            ("ImportPath.load", load, lambda: None, len(batches[::10])),
        ):
            difference = seconds_of(with_it) - seconds_of(without)
            took.setdefault(name, []).append(difference / times * 1e9)
    results.write(options.json, "batch_context", results.rows("ns", took), batches=options.batches)
    print("| what | ns | quartiles |\n|---|---|---|")
    for name, values in took.items():
        low, median, high = statistics.quantiles(values, n=4)
        print(f"| {name} | {median:.0f} | {low:.0f}..{high:.0f} |")


if __name__ == "__main__":
    main()
