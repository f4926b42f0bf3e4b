"""A thousand ranks and a thousand jobs, by driver: what the supervisor and the service see each second.

    python benchmarks/thousand_nodes.py [--ranks 100,1000,4000] [--jobs 1000] [--seconds 30] [--only ranks,service]
                                        [--json FILE]

**Ranks.** Real parts of the supervisor of rank 0, with lines over real sockets to ranks that are simulated in another
process: they join (``Rendezvous``), say that they are ready, and then nothing; their logs are files of one folder. Each
simulated second is ten looks (``WorkerSession.listen`` without waiting, ``Journal.merge``), between which rank 0 writes
ten measurements and each other rank, every ten seconds, a warning. Measured: how long the meeting takes, the CPU time
of such a second, and how many files are opened in it: each asks the server of a shared folder.

**Service.** ``hostcore serve`` with SQLite in a process of its own. All jobs run, on a launcher that is in no process,
and is asked by the service as often as an operator's file says by default; clients ask for one job after the other, as
fast as they are answered. Measured: how long it takes until all run, and how much CPU time for each; answers a second,
and the share of a core that the service takes when no client asks.
"""

import argparse
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import results
import service

LOOKS_A_SECOND = 10
WARNING_EVERY = 10
LAUNCHER = service.LAUNCHER.replace('status="succeeded"', 'status="running"')


# -- ranks -------------------------------------------------------------------------------------------------------------


def be_the_ranks(runs: Path, world_size: int) -> None:
    """All ranks but the first: join, say "ready", and stay until rank 0 hangs up."""
    from hostcore.runs.channel import Channel
    from hostcore_engines.ranks.rendezvous import FOLDER, RankZeroAddress, proof

    (file,) = (runs / FOLDER).iterdir()
    place = RankZeroAddress.read(file)
    assert place is not None
    lines = []
    for rank in range(1, world_size):
        line = Channel(socket.create_connection(("127.0.0.1", place.port)))
        _, challenge = line.receive(600)
        told = proof(place.token, "join", challenge["nonce"], "mine", rank, world_size, meeting(world_size), "")
        line.send("join", {"rank": rank, "nonce": "mine", "probe": "", "proof": told})
        lines.append(line)
    for line in lines:
        line.receive(600)
        line.send("ready", {"device": "cpu"})
    sys.stdin.read()


def engine(world_size: int) -> Any:
    from hostcore.supervisor.engine import Engine

    address = {"master_addr": "127.0.0.1", "master_port": 29500, "launch": "growth"}
    return Engine(rank=0, local_rank=0, world_size=world_size, local_world_size=world_size, **address)


def meeting(world_size: int) -> str:
    found: str = engine(world_size).meeting
    return found


@contextmanager
def simulated(runs: Path, world_size: int) -> Iterator[None]:
    command = [sys.executable, __file__, "--be-the-ranks", str(runs), str(world_size)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        try:
            yield
        finally:
            assert process.stdin is not None
            process.stdin.close()


class Opened:
    """Counts the files that this process opens, from when it is made."""

    def __init__(self) -> None:
        self.count = 0
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        self.count += event == "open" and not isinstance(arguments[0], int)  # an open file that becomes an object


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def of_ranks(world_size: int, seconds: int, opened: Opened) -> dict[str, list[float]]:
    """What rank 0's supervisor takes: the meeting, and each simulated second."""
    from hostcore.events.codec import encode_payload
    from hostcore.runs.directory import RunDirectory
    from hostcore.supervisor.attempt.journal import Journal
    from hostcore.supervisor.interrupts import Interrupts
    from hostcore.supervisor.workers.session import WorkerSession
    from hostcore_engines.ranks.rendezvous import Rendezvous, _WorkerElsewhere
    from hostcore_hookspecs.events import Metrics, Warning
    from hostcore_hookspecs.job import Job

    measured = encode_payload(Metrics(metrics={"loss": 0.5}), time_ms=1, step=1, epoch=0)
    warned = encode_payload(Warning(code="growth", message="x" * 80), time_ms=1, step=1, epoch=0)
    with tempfile.TemporaryDirectory() as place:
        runs = Path(place, "runs")
        directory = RunDirectory(runs / "growth")
        directory.logs.mkdir(parents=True)
        logs = [directory.rank_events(1, rank) for rank in range(world_size)]
        for log in logs:
            log.touch()
        with Rendezvous(engine(world_size), runs, Interrupts()) as ranks, simulated(runs, world_size):
            began = time.perf_counter()
            ranks.gather(600)
            met = time.perf_counter() - began
            session = WorkerSession()
            lines = {rank: _WorkerElsewhere(line) for rank, line in sorted(ranks._lines.items())}
            session.start(lambda rank, *_: lines[rank + 1], [(Path(), Path())] * (world_size - 1))
            while not session.summaries:
                list(session.listen(1))
            opening: Any = SimpleNamespace(directory=directory, attempt=1)
            journal = Journal(opening, Job(), ranks=world_size)
            journal.open()
            found: dict[str, list[float]] = {"meeting, s": [met], "CPU s a second": [], "files opened a second": []}
            for second in range(seconds):
                cpu, files = 0.0, 0
                for look in range(LOOKS_A_SECOND):
                    append(logs[0], measured)
                    moment = second * LOOKS_A_SECOND + look
                    for log in logs[1 + moment % (WARNING_EVERY * LOOKS_A_SECOND) :: WARNING_EVERY * LOOKS_A_SECOND]:
                        append(log, warned)
                    before, count = cpu_seconds(), opened.count
                    list(session.listen(0))
                    journal.merge()
                    cpu, files = cpu + cpu_seconds() - before, files + opened.count - count
                found["CPU s a second"].append(cpu)
                found["files opened a second"].append(files)
            journal.close()
            ranks._lines.clear()  # they say no more
    return found


def append(log: Path, line: bytes) -> None:
    with log.open("ab") as file:
        file.write(line)


# -- the service -------------------------------------------------------------------------------------------------------


def of_service(jobs: int, seconds: int) -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        site, port = place / "site", service.free_port()
        info = site / "nothing-1.0.dist-info"
        info.mkdir(parents=True)
        (site / "nothing.py").write_text(LAUNCHER)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nothing\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(service.ENTRY_POINTS)
        (place / "operator.toml").write_text(service.OPERATOR)
        environment = {
            "PYTHONPATH": str(site),
            "HOSTCORE_CONFIG": str(place / "operator.toml"),
            "HOSTCORE_RUNS_DIR": str(place / "runs"),
        }
        command = [sys.executable, "-m", "hostcore", "serve", "--insecure-no-auth", "--port", str(port)]
        command += ["--log-level", "warning"]
        job = {"trainer": "nothing", "max_steps": 3, "terminal": False, "labels": {"team": "maps"}}

        def create(client: service.Client, number: int) -> None:
            client.ask("POST", "/v1/jobs", {**job, "run_id": f"job-{number}"})

        def ask(client: service.Client, number: int) -> None:
            client.ask("GET", f"/v1/jobs/job-{number % jobs}")

        with service.served(command, port, "/healthz", place, environment) as (process, _):
            began, before = time.perf_counter(), ticks(process.pid)
            created = service.created_a_second(port, jobs, create)
            client = service.Client(port)
            while any(one["status"] != "running" for one in client.ask("GET", "/v1/jobs?status=submitted")["jobs"]):
                time.sleep(0.5)
            found: dict[str, list[float]] = {
                "submits a second": [created],
                "all run after, s": [time.perf_counter() - began],
                "CPU s a job until all run": [(ticks(process.pid) - before) / jobs],
                "core without clients": [],
            }
            for _ in range(max(1, seconds // 10)):
                before = ticks(process.pid)
                time.sleep(10)
                found["core without clients"].append((ticks(process.pid) - before) / 10)
            found["answers a second"] = [service.created_a_second(port, jobs, ask) for _ in range(3)]
    return found


def ticks(pid: int) -> float:
    """CPU time of a process, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--ranks", default="100,1000,4000", help="comma separated")
    ask.add_argument("--jobs", type=int, default=1000)
    ask.add_argument("--seconds", type=int, default=30)
    ask.add_argument("--only", default="ranks,service")
    ask.add_argument("--be-the-ranks", nargs=2, help=argparse.SUPPRESS)
    results.add_option(ask)
    options = ask.parse_args()
    if options.be_the_ranks:
        runs, world_size = options.be_the_ranks
        return be_the_ranks(Path(runs), int(world_size))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(map(int, options.ranks.split(","))) + 1024
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted if hard < 0 else min(wanted, hard)), hard))
    found: dict[str, list[float]] = {}
    if "ranks" in options.only:
        opened = Opened()
        for world_size in map(int, options.ranks.split(",")):
            of_size = of_ranks(world_size, options.seconds, opened)
            found |= {f"{world_size} ranks: {name}": values for name, values in of_size.items()}
    if "service" in options.only:
        of_jobs = of_service(options.jobs, options.seconds)
        found |= {f"{options.jobs} jobs: {name}": values for name, values in of_jobs.items()}
    rows = {
        name: results.Row(
            values=values, unit="as named", less_is_better=not name.endswith(("submits a second", "answers a second"))
        )
        for name, values in found.items()
    }
    results.write(options.json, "thousand_nodes", rows)
    print(", ".join(f"{key} {value}" for key, value in results.machine().items()))
    print("\n| what | median | min..max |\n|---|---|---|")
    for name, values in found.items():
        print(f"| {name} | {statistics.median(values):.3g} | {min(values):.3g}..{max(values):.3g} |")
    return None


if __name__ == "__main__":
    main()
