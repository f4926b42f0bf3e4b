"""The parent of all ranks of these tests: it imports torch once, which takes two seconds, and then forks.

Reads one JSON request per line on its standard input and answers each with one line. A request names contracts, one for
each rank, and the workers are run as the supervisor does it: "go" when all are "ready".
"""

import faulthandler
import gc
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from pathlib import Path

import pyarrow.parquet  # noqa: F401 - what is imported here is imported once
import torch
import torch.distributed.checkpoint
import torch.distributed.checkpoint.staging
import torch.distributed.fsdp
import torch.distributed.tensor

from hostcore.runs.channel import Channel
from hostcore.worker.attempt import run_attempt
from hostcore.worker.line import SupervisorLine
from hostcore.worker.stop import StopSwitch, noted_by
from hostcore_toolkit import training_state

sys.path.insert(0, str(Path(__file__).parent))


class Rank:
    """A forked worker."""

    def __init__(self, rank: int, request: dict, environment: dict[str, str], listening: socket.socket | None) -> None:
        self.said: list = []
        self.code: int | None = None
        ours, theirs = Channel.pair()
        self.channel = ours
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            os.environ.update(environment, RANK=str(rank), LOCAL_RANK=str(rank))
            if rank == 0 and listening is not None:
                os.environ["HOSTCORE_MASTER_FD"] = str(listening.fileno())
            elif listening is not None:
                listening.close()
            ours.close()
            self._work(Path(request["contracts"][rank]), theirs, request)
        theirs.close()

    def _work(self, contract: Path, channel: Channel, request: dict) -> None:
        code = 99
        with Path(request["outputs"], f"output-{os.environ['RANK']}.txt").open("ab", buffering=0) as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        faulthandler.dump_traceback_later(request["seconds"] - 1)
        try:
            os.chdir(request["cwd"])
            stop = StopSwitch()
            with noted_by(stop):
                code = run_attempt(contract, SupervisorLine(channel, stop), stop)
        except BaseException:  # noqa: BLE001 - it is in the output then, and the code says so
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)

    def poll(self) -> None:
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)


def run(request: dict) -> dict:
    """Run the workers of a request to their ends, or to its time limit."""
    count = len(request["contracts"])
    environment = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "OMP_NUM_THREADS": "1"}
    listening = None
    if count > 1:
        listening = socket.create_server(("127.0.0.1", request["port"]), backlog=128)
        environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(listening.getsockname()[1])}
        if not request["serves"]:
            listening.close()
            listening = None
    ranks = [Rank(rank, request, environment, listening) for rank in range(count)]
    if listening is not None:
        listening.close()
    end = time.monotonic() + request["seconds"]
    going = False
    while any(rank.code is None for rank in ranks) and time.monotonic() < end:
        open_ones = [rank for rank in ranks if rank.channel is not None]
        for channel in select.select([rank.channel for rank in open_ones], [], [], 0.02)[0]:
            rank = next(one for one in open_ones if one.channel is channel)
            try:
                rank.said.append(channel.receive())
            except EOFError:
                rank.channel = None
        if not going and all(any(kind == "ready" for kind, _ in rank.said) for rank in ranks):
            going = True
            for rank in ranks:
                rank.channel.send("go", {})
        for rank in ranks:
            rank.poll()
    hung = [number for number, rank in enumerate(ranks) if rank.code is None]
    for rank in ranks:
        if rank.code is None:
            os.killpg(rank.pid, signal.SIGKILL)
            os.waitpid(rank.pid, 0)
    return {
        "codes": [rank.code for rank in ranks],
        "hung": hung,
        "said": [[one for one in rank.said if one[0] != "ready"] for rank in ranks],
    }


def warm_up() -> None:
    """Import what torch imports when it is first used. One thread: a child cannot go on with the threads of another."""
    torch.set_num_threads(1)
    model = torch.nn.Linear(1, 1)
    training_state(model, torch.optim.AdamW(model.parameters()))


if __name__ == "__main__":
    warm_up()
    gc.collect()
    gc.freeze()  # a collection in a rank would copy every page
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)
