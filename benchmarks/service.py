"""The job service: submits a second, how long lists take with many jobs, memory, cold start; beside an MLflow server.

    python benchmarks/service.py [--jobs 10000] [--submits 800] [--requests 200] [--peer /path/to/mlflow] [--json FILE]

``hostcore serve`` and ``mlflow server`` run in processes of their own, with SQLite, one after the other. Eight clients,
threads of this process, create jobs (a launcher that starts nothing takes them, and says that they have succeeded) and
MLflow runs; then the database is filled up and lists are asked for, one after the other. What is compared is recording
something over HTTP, and listing 50 of many. The peer does less: it writes no files at that, and launches nothing.

A job is also launched: its run directory and its records are written with fsync in the meantime, by the same process.
"""

import argparse
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import results

CLIENTS = 8
PAGE = 50
COLD_STARTS = 3

LAUNCHER = """
from hostcore_hookspecs import LaunchHandle, LaunchPlan, LaunchStatus, LogChunk

class Nothing:
    def plan(self, ctx): return LaunchPlan(summary="nothing")
    def launch(self, ctx): return LaunchHandle(launcher="nothing", id=ctx.launch_id)
    def poll(self, handle): return LaunchStatus(status="succeeded")
    def cancel(self, handle, grace_seconds): pass
    def read_logs(self, handle, since): return LogChunk(text="", next="0")
"""
ENTRY_POINTS = "[hostcore.launchers]\nnothing = nothing:Nothing\n[hostcore.trainers]\nnothing = nothing:Nothing\n"
OPERATOR = 'launcher = "nothing"\n[http]\nrequests_per_minute = 0\n'


class Client:
    """A connection that is kept."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer, which must be a good one."""
        data = json.dumps(body).encode() if body is not None else None
        self._connection.request(method, path, data, {"Content-Type": "application/json"} if data else {})
        response = self._connection.getresponse()
        answer = response.read()
        if response.status >= 300:
            raise SystemExit(f"{method} {path}: {response.status} {answer[:300]!r}")
        return json.loads(answer) if answer else None


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def answers(port: int, path: str) -> bool:
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except OSError:
        return False


@contextmanager
def served(command: list[str], port: int, health: str, place: Path, environment: dict[str, str]) -> Iterator[Any]:
    """A server, once it answers: its process, and the seconds that took."""
    began = time.perf_counter()
    with (place / "server.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=place, env={**os.environ, **environment}, stdout=log, stderr=log)
    try:
        while not answers(port, health):
            if process.poll() is not None:
                raise SystemExit(f"{command[0]} has ended:\n{(place / 'server.log').read_text()}")
            time.sleep(0.005)
        yield process, time.perf_counter() - began
    finally:
        process.terminate()
        process.wait()


def resident_mb(pid: int) -> float:
    """Of a process and its children."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    own = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return own + sum(resident_mb(int(child)) for child in children)


def created_a_second(port: int, count: int, create: Callable[[Client, int], Any]) -> float:
    """How many things a second eight clients create."""
    clients = [Client(port) for _ in range(CLIENTS)]

    def work(number: int) -> None:
        for turn in range(number, count, CLIENTS):
            create(clients[number], turn)

    began = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as threads:
        list(threads.map(work, range(CLIENTS)))
    return count / (time.perf_counter() - began)


def milliseconds(count: int, ask: Callable[[], Any]) -> list[float]:
    """How long each of some requests takes, one after the other."""
    ask()
    times = []
    for _ in range(count):
        began = time.perf_counter()
        ask()
        times.append((time.perf_counter() - began) * 1000)
    return times


def hostcore(place: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """The job service."""
    site, port = place / "site", free_port()
    info = site / "nothing-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "nothing.py").write_text(LAUNCHER)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nothing\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    (place / "operator.toml").write_text(OPERATOR)
    environment = {
        "PYTHONPATH": str(site),
        "HOSTCORE_CONFIG": str(place / "operator.toml"),
        "HOSTCORE_RUNS_DIR": str(place / "runs"),
    }
    command = [sys.executable, "-m", "hostcore", "serve", "--insecure-no-auth", "--port", str(port)]
    command += ["--log-level", "warning"]
    job = {"trainer": "nothing", "max_steps": 3, "terminal": False, "labels": {"team": "maps"}}

    def create(client: Client, number: int) -> None:
        client.ask("POST", "/v1/jobs", {**job, "run_id": f"job-{number}"})

    starts = []
    for _ in range(COLD_STARTS):
        with served(command, port, "/healthz", place, environment) as (process, seconds):
            starts.append(seconds)
            after_start = resident_mb(process.pid)
    with served(command, port, "/healthz", place, environment) as (process, _):
        rate = created_a_second(port, asked.submits, create)
        client = Client(port)
        while any(job["status"] != "succeeded" for job in client.ask("GET", "/v1/jobs?limit=500")["jobs"]):
            time.sleep(0.1)
        fill_up(place / "runs" / ".service" / "jobs.sqlite", asked.submits, asked.jobs)
        path, cursor = f"/v1/jobs?limit={PAGE}", ""
        while page := client.ask("GET", path + cursor)["next"]:
            cursor = f"&cursor={page}"
        lists = {
            "newest": milliseconds(asked.requests, lambda: client.ask("GET", path)),
            "filtered": milliseconds(
                asked.requests, lambda: client.ask("GET", f"{path}&status=failed&label=team%3Dmaps")
            ),
            "last page": milliseconds(asked.requests, lambda: client.ask("GET", path + cursor)),
        }
        memory = resident_mb(process.pid)
    return {"starts": starts, "after_start_mb": after_start, "rate": rate, "lists": lists, "memory_mb": memory}


def fill_up(database: Path, there: int, wanted: int) -> None:
    """Copy jobs until there are as many as wanted; every tenth has failed."""
    import sqlite3

    with sqlite3.connect(database, timeout=30) as connection:
        connection.row_factory = sqlite3.Row
        (row,) = connection.execute("SELECT * FROM jobs LIMIT 1").fetchall()
        job = dict(row)
        names = ", ".join(job)
        marks = ", ".join(f":{name}" for name in job)
        for number in range(there, wanted):
            run_id = f"job-{number}"
            status = "failed" if number % 10 == 0 else "succeeded"
            submitted = job["submitted_ms"] - number
            other = {"run_id": run_id, "name": run_id, "status": status, "submitted_ms": submitted}
            connection.execute(f"INSERT INTO jobs ({names}) VALUES ({marks})", {**job, **other})
            connection.execute("INSERT INTO labels VALUES (?, 'team', 'maps')", (run_id,))


def mlflow(place: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """MLflow's tracking server, which records runs and lists them."""
    port = free_port()
    command = [asked.peer, "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{place / 'mlflow.sqlite'}"]
    starts = []
    for _ in range(COLD_STARTS + 1):  # the first makes the database
        with served(command, port, "/health", place, {}) as (process, seconds):
            starts.append(seconds)
            after_start = resident_mb(process.pid)
    with served(command, port, "/health", place, {}) as (process, _):

        def create(client: Client, number: int) -> None:
            tags = [{"key": "team", "value": "maps"}]
            body = {"experiment_id": "0", "run_name": f"job-{number}", "start_time": number, "tags": tags}
            client.ask("POST", "/api/2.0/mlflow/runs/create", body)

        rate = created_a_second(port, asked.submits, create)
        created_a_second(port, asked.jobs - asked.submits, create)
        client = Client(port)

        def search(**more: Any) -> Any:
            order = ["attributes.start_time DESC"]
            body = {"experiment_ids": ["0"], "max_results": PAGE, "order_by": order, **more}
            return client.ask("POST", "/api/2.0/mlflow/runs/search", body)

        page, token = search(), None
        while page.get("next_page_token"):
            token = page["next_page_token"]
            page = search(page_token=token)
        lists = {
            "newest": milliseconds(asked.requests, search),
            "filtered": milliseconds(
                asked.requests, lambda: search(filter="tags.team = 'maps' AND attributes.status = 'RUNNING'")
            ),
            "last page": milliseconds(asked.requests, lambda: search(page_token=token)),
        }
        memory = resident_mb(process.pid)
    return {"starts": starts[1:], "after_start_mb": after_start, "rate": rate, "lists": lists, "memory_mb": memory}


def rows(name: str, found: dict[str, Any]) -> Iterator[str]:
    yield f"| {name}: cold start, s | {statistics.median(found['starts']):.2f} | |"
    yield f"| {name}: memory after the start, MB | {found['after_start_mb']:.0f} | |"
    yield f"| {name}: created a second, {CLIENTS} clients | {found['rate']:.0f} | |"
    for what, took in found["lists"].items():
        p99 = statistics.quantiles(took, n=100)[98]
        yield f"| {name}: list, {what}, ms | {statistics.median(took):.1f} | {p99:.1f} |"
    yield f"| {name}: memory with all of them, MB | {found['memory_mb']:.0f} | |"


def results_of(name: str, found: dict[str, Any]) -> dict[str, results.Row]:
    """The rows of one system; of a list, each request is a round."""
    return {
        **results.rows("s", {f"{name}: cold start": found["starts"]}),
        **results.rows("jobs/s", {f"{name}: created": [found["rate"]]}, less_is_better=False),
        **results.rows("ms", {f"{name}: list, {what}": took for what, took in found["lists"].items()}),
        **results.rows("MB", {f"{name}: memory after the start": [found["after_start_mb"]]}),
        **results.rows("MB", {f"{name}: memory with all of them": [found["memory_mb"]]}),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--submits", type=int, default=800)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--peer", help="the command mlflow, in an environment of its own")
    results.add_option(parser)
    asked = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, measure in (("hostcore", hostcore), ("mlflow", mlflow)):
            if name == "hostcore" or asked.peer:
                place = Path(folder, name)
                place.mkdir()
                found[name] = measure(place, asked)
    every = {name: row for system, measured in found.items() for name, row in results_of(system, measured).items()}
    results.write(asked.json, "service", every, jobs=asked.jobs, submits=asked.submits)
    print("| what | p50 | p99 |\n|---|---|---|")
    for name, measured in found.items():
        print("\n".join(rows(name, measured)))


if __name__ == "__main__":
    main()
