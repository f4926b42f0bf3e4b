"""Other ranks of an engine, which answer rank 0 as a test wants them to."""

import socket
import threading
from pathlib import Path
from typing import Any

import attrs

from hostcore.runs.channel import Channel
from hostcore.supervisor.engine import Engine
from hostcore_engines.ranks.rendezvous import RankZeroAddress, Rendezvous, proof

#: The longest that anything may take here that takes no time.
SECONDS = 60
#: The name of threads that answer in place of a rank.
ANSWERING = "answering rank 0"


def engine(rank: int, **changes: Any) -> Engine:
    """The engine of a rank of two that are on one machine, as the environment describes it."""
    whole = Engine(
        rank=rank,
        local_rank=rank,
        world_size=2,
        local_world_size=2,
        master_addr="127.0.0.1",
        master_port=29500,
        launch="none",
    )
    return attrs.evolve(whole, **changes)


def join(ranks: Rendezvous, runs: Path, **changes: Any) -> Channel:
    """A line as another rank has it; welcomed, unless something about it is wrong."""
    (file,) = (runs / ".ranks").iterdir()
    place = RankZeroAddress.read(file)
    assert place is not None
    return greet(place.port, **{"token": place.token, **changes})


def greet(port: int, token: str, **changes: Any) -> Channel:
    """A line to rank 0, on which a thread says what a rank says, once rank 0 looks after it."""
    line = Channel(socket.create_connection(("127.0.0.1", port)))
    said = {
        "token": token,
        "rank": 1,
        "world_size": 2,
        "meeting": engine(1).meeting,
        "nonce": "mine",
        "probe": "",
        **changes,
    }

    def answer() -> None:
        try:
            _, challenge = line.receive(SECONDS)
        except EOFError:  # rank 0 has all its ranks, and has closed the line
            return
        knows = proof(
            *(said["token"], "join", challenge["nonce"], said["nonce"]),
            *(said["rank"], said["world_size"], said["meeting"], said["probe"]),
        )
        line.send("join", {key: said[key] for key in ("rank", "nonce", "probe")} | {"proof": knows})

    threading.Thread(target=answer, name=ANSWERING, daemon=True).start()
    return line


def wait_for_answers() -> None:
    """Wait until no thread reads from a line any more."""
    for thread in threading.enumerate():
        if thread.name == ANSWERING:
            thread.join(SECONDS)
