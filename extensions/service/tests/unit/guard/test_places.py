"""What a job from others may name, and what is said when it may not."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from hostcore.supervisor.operator_file import HttpSettings
from hostcore_hookspecs import HostcoreError
from hostcore_service.guard.places import wrong_places

Job = Mapping[str, Any]
HOSTS = ("minio:9000", "*.corp.example", "127.0.0.1:8080", "[fd00::1]:80")
#: What a name server says; of all other names, nothing.
NAMES = {
    "inside.example.com": ["93.184.216.34", "10.1.2.3"],
    "a.corp.example": ["10.1.2.3"],
    "ok.example": ["8.8.8.8"],
    "link.example": ["169.254.169.254"],
}


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """Folders that are open in the tests below, and links."""
    for folder in ("data/sub", "runs/inside", "deep/er", "closed", "data[1]/deep", "data1", "loop"):
        (tmp_path / folder).mkdir(parents=True)
    for link, target in (
        ("runs/out", "data"),
        ("deep/er/out", "closed"),
        ("fine", "deep"),
        ("linked", "data"),
        ("loop/loop", "loop/loop"),
    ):
        (tmp_path / link).symlink_to(tmp_path / target)
    return tmp_path


def wrong(folders: Path, job: Job, **opened: Sequence[str]) -> list[HostcoreError]:
    """Return what is refused; ``D`` stands for the tests' folder, in the job and in what is open."""

    def here(value: Any) -> Any:
        if isinstance(value, str):
            return value.replace("D/", f"{folders}/")
        if isinstance(value, Mapping):
            return {key: here(item) for key, item in value.items()}
        return [here(item) for item in value] if isinstance(value, list | tuple) else value

    usual = {"data_roots": ["D/data"], "checkpoint_roots": ["D/runs"], "hosts": HOSTS}
    http = HttpSettings(**{key: tuple(here(value)) for key, value in {**usual, **opened}.items()})
    return wrong_places(here(job), http, look_up=lambda asked: {name: NAMES.get(name, []) for name in asked})


def data(*uris: str, **more: Any) -> Job:
    return {"dataset": {"parquet_paths": list(uris), **more}}


LET_IN: list[Job] = [
    data(*("s3://bucket/a/b.parquet", "s3a://b/k", "gs://b/*.parquet", "az://c/x", "hf://datasets/u/r@rev/x.parquet")),
    data(*("abfs://container@account.dfs.core.windows.net/x", "s3://bucket/my data/x", "s3://b/k?versionId=3")),
    data("s3://arn:aws:s3:us-west-2:123456789012:accesspoint/ap/x"),
    data(*("https://data.corp.example/x.csv", "http://data.corp.example:8080/x?a=b#c")),
    data(*("http://minio:9000/x", "http://127.0.0.1:8080/x", "http://[fd00::1]/x", "http://a.corp.example/x")),
    # What lies in a root, whether or not it is there yet; what was written may be read.
    *({"weights": f"{scheme}D/data{path}"} for scheme in ("", "file://") for path in ("/", "/sub", "/sub/*.x", "/new")),
    {
        "weights": "D/runs/w",
        "resume_from_checkpoint": "file://D/runs/r/checkpoints/step-000001",
        **data("D/runs/*.parquet"),
    },
    {"reporters": [{"use": "webhook", "ca_file": "D/data/ca.pem"}]},
    {"reporters": [{"use": "x", "token": {"$secret": "file:/run/secrets/token"}}]},
    # What is no place.
    *({"hyperparams": {"text": text}} for text in ("bert-base-uncased", "meta-llama/Llama-3", "torch::nn", ".")),
    *({"hyperparams": {"text": text}} for text in ("16:9", "cuda:0", "1.2.3", "a.b.c", "0:100", "a = b, c; d")),
    {"hyperparams": {"text": "100% sure: a/b (1/2). Wait... ~5 days; résumé of the year 24/12. A/B\uff1a?"}},
    *({"hyperparams": {"text": text}} for text in (r"(\d+)[/-](\w*)\.py$", "val/loss", "2026/11/28", "and/or: yes")),
    *({"hyperparams": {"text": text}} for text in ("</s>", "<|/INST|>", "hm :/", "url:x", r"\N", r"q_proj|\.k_proj")),
    {"hyperparams": {"word": "a" * 2**20, "brackets": "[" + ":" * 2**18}},
    {"hyperparams": {"server": "adam", "base_url": "local"}, "reporters": [{"use": "x", "tracking_uri": "databricks"}]},
    # Options of stores, and what only looks encoded.
    data("az://c/x", "D/data/a%20b/x", storage_options={"account_name": "mine", "sas_token": "?sv=2020&sig=a%2Fb%3D"}),
    data("az://c/x", storage_options={"connection_string": {"$secret": "env:AZURE"}, "anon": False}),
    data("s3://b/k?endpoint_override=http://minio:9000", storage_options={"proxies": {"https": "http://minio:9000"}}),
    # Text for people.
    *({key: {"a": ["/etc/passwd", "http://127.0.0.1"]}} for key in ("labels", "annotations", "owner", "mock_batches")),
    {"release_ref": {"a": ["/etc/passwd", "http://127.0.0.1"]}, "samples": [{"prompt": "/imagine file:///x"}]},
]
#: A job, and the places that are refused.
REFUSED: list[tuple[Job, list[str]]] = [
    # A relative path starts nowhere.
    (data("s3://a/b", "data/x.parquet"), ["/dataset/parquet_paths/1"]),
    ({"validation": {"source": "csv", "paths": "x.csv"}}, ["/validation/paths"]),
    ({"test": {"source": "shards", "index": "index.json"}}, ["/test/index"]),
    ({"dataset": {"of": [{"parquet_paths": "s3://a/b"}, {"paths": ["x.csv"]}]}}, ["/dataset/of/1/paths/0"]),
    ({"dataset": {"of": [{"parquet_paths": ["D/closed/x"]}]}}, ["/dataset/of/0/parquet_paths/0"]),
    ({"dataset": {"of": [{"of": [{"index": "x"}]}]}}, ["/dataset/of/0/of/0/index"]),
    ({"weights": "w.safetensors"}, ["/weights"]),
    ({"checkpoint_base_uri": "runs"}, ["/checkpoint_base_uri"]),
    ({"resume_from_checkpoint": "runs/a/checkpoints/step-1"}, ["/resume_from_checkpoint"]),
    ({"inputs": {"a/b": {"uri": "model"}, "model": "./model"}}, ["/inputs/a~1b/uri", "/inputs/model"]),
    ({"samples": [{"source_image": "x.png"}]}, ["/samples/0/source_image"]),
    ({"uploaders": [{"use": "fsspec", "uri": "out"}]}, ["/uploaders/0/uri"]),
    # The options of stores lead nowhere else.
    *(
        (data("s3://b/k", storage_options=options), [f"/dataset/storage_options/{place}"])
        for options, place in (
            ({"client_kwargs": {"endpoint_url": "http://169.254.169.254"}}, "client_kwargs/endpoint_url"),
            ({"host": "10.0.0.1"}, "host"),
            ({"endpoint": "minio:9001"}, "endpoint"),
            ({"proxies": ["vault"]}, "proxies/0"),
            ({"connection_string": "BlobEndpoint=http://127.0.0.1:10000/x;AccountName=a"}, "connection_string"),
            ({"key_file": "/etc/ssh/id"}, "key_file"),
            # fsspec takes it for the scheme.
            ({"protocol": "reference", "fo": {"refs": {"s3://b/k": ["{{u}}etc/passwd"]}}}, "protocol"),
            ({"config_kwargs": {"proxies": {"https": "vault:8200"}}}, "config_kwargs/proxies/https"),
            ({"proxy_url": "vault:8200"}, "proxy_url"),
            ({"endpoint_url": "vault.corp"}, "endpoint_url"),
            ({"account_host": 2852039166}, "account_host"),
            *(({"account_name": name}, "account_name") for name in ("127.0.0.1:8080/?", "localhost:80#", "a/x", 5)),
            ({"azure_storage_account_name": "localhost:80/x?"}, "azure_storage_account_name"),
            ({"connection_string": "BlobEndpoint=169.254.169.254;AccountName=a"}, "connection_string"),
            (
                {"google_service_account_key": r'{"gcs_base_url": "http\u003a\u002f\u002fa"}'},
                "google_service_account_key",
            ),
            ({"azure_storage_use_emulator": True}, "azure_storage_use_emulator"),
        )
    ),
    # Several hosts, and several places, in one text.
    *(
        ({"hyperparams": {key: text}}, [f"/hyperparams/{key}"])
        for key, text in (
            ("server", "vault:8200"),
            ("hosts", "10.0.0.1,10.0.0.2"),
            ("bootstrap_servers", "a:9092,10.0.0.2:9092"),
            ("endpoint", "169.254.169.254 x"),
            ("api_url", "vault:80"),
        )
    ),
    *(
        ({"weights": text}, ["/weights"])
        for text in (
            *("D/data/a:/etc/passwd", "s3://b/k,file:///etc/passwd", "s3://b/k;http://169.254.169.254/", "s3://b/k,/x"),
            *("http://minio:9000/,http://vault/", "http://minio:9000/?u=http://vault/", "http://minio:9000/?url=a.b"),
        )
    ),
    (
        {"reporters": [{"use": "redis-streams", "url": "rediss://minio:9000/0?ssl_ca_certs=/etc/passwd"}]},
        ["/reporters/0/url"],
    ),
    # A name counts for what it leads to; a server that nobody has opened may send whoever asks it anywhere.
    (
        data(
            *(
                "https://inside.example.com/x",
                "https://a.corp.example/x",
                "https://ok.example/x",
                "https://no.example/x",
            )
        ),
        [f"/dataset/parquet_paths/{number}" for number in (0, 2, 3)],
    ),
    (
        {"reporters": [{"use": "x", "host": one} for one in ("inside.example.com", "a.corp.example", "no.a")]},
        ["/reporters/0/host", "/reporters/2/host"],
    ),
    (data("https://data.corp.example/x", "http://8.8.8.8/x"), ["/dataset/parquet_paths/1"]),
    ({"hyperparams": {"word": "a" * 2**20 + "://x"}}, ["/hyperparams/word"]),
]
#: Roots, a job, and whether it is let in: links that lead out of a root, and names that look like patterns.
ROOTS: list[tuple[str, Job, bool]] = [
    *(("D/deep", {"weights": f"D/{one}"}, False) for one in ("deep/", "deep/er", "fine/", "deep/*/x", "deep/er/out")),
    *(("D/loop", {"weights": f"D/{one}"}, True) for one in ("loop/", "loop/x")),
    ("D/linked", {"weights": "D/linked/w"}, True),
    *(
        ("D/data[1]", data(f"D/{one}"), True)
        for one in ("data[1]/", "data[1]/deep", "data[1]/*.parquet", "data[1]/*/x")
    ),
    *(("D/data[1]", data(f"D/{one}"), False) for one in ("data1/", "data[12]/*", "data?/*")),
]


@pytest.mark.parametrize("job", LET_IN)
def test_what_is_open_or_no_place_may_be_named(job: Job, folders: Path) -> None:
    assert wrong(folders, job) == []


@pytest.mark.parametrize(("job", "pointers"), REFUSED)
def test_what_is_not_open_is_refused_with_its_place(job: Job, pointers: list[str], folders: Path) -> None:
    assert sorted({str(one.pointer) for one in wrong(folders, job)}) == pointers


@pytest.mark.parametrize(("root", "job", "is_open"), ROOTS)
def test_a_root_is_what_lies_in_it_and_not_what_links_lead_to(
    root: str, job: Job, is_open: bool, folders: Path
) -> None:
    assert (wrong(folders, job, data_roots=[root]) == []) is is_open


def test_an_opened_name_never_leads_to_a_metadata_service(folders: Path) -> None:
    job = data("http://link.example/x", "http://169.254.169.254/x", "http://metadata/x")
    assert len(wrong(folders, job, hosts=["*"])) == 3


def test_credentials_in_a_uri_are_refused_and_not_repeated(folders: Path) -> None:
    (error,) = wrong(folders, {"reporters": [{"use": "redis-streams", "url": "redis://me:hunter2@example.com/0"}]})
    assert ("credentials" in error.message, "hunter2" in error.message) == (True, False)
    assert "$secret" in str(error.hint)


def test_a_job_cannot_make_the_service_ask_for_names_without_end() -> None:
    job = data(*(f"https://h{number}.example/x" for number in range(65)))
    asked: list[str] = []
    (error,) = wrong_places(job, HttpSettings(hosts=("*",)), look_up=lambda names: asked.extend(names) or {})  # type: ignore[func-returns-value]
    assert ("65 hosts" in error.message, asked) == (True, [])


WRITING: list[Job] = [
    {"checkpoint_base_uri": "PLACE", "run_id": "r"},
    {"uploaders": [{"use": "fsspec", "uri": "PLACE"}]},
    {"uploaders": ["http", {"use": "x", "deep": {"folder": ["PLACE"]}}]},
    {"reporters": [{"use": "tensorboard", "path": "PLACE"}]},
    {"callbacks": [{"use": "x", "path": "PLACE"}]},
]


def test_nothing_is_written_where_the_operator_has_opened_data_only(folders: Path) -> None:
    def writes(job: Any, place: str) -> Any:
        if isinstance(job, Mapping):
            return {key: writes(item, place) for key, item in job.items()}
        return [writes(item, place) for item in job] if isinstance(job, list) else job.replace("PLACE", place)

    for scheme, job in itertools.product(("", "file://"), WRITING):
        for place in ("data/", "data/digits", "runs/out", "runs/out/digits"):
            (error,) = wrong(folders, writes(job, f"{scheme}D/{place}"))
            assert "does not lie in one of the folders that jobs may write to" in error.message
            assert "checkpoint_roots" in str(error.hint)
        assert wrong(folders, writes(job, f"{scheme}D/runs/inside")) == []
    (error,) = wrong(folders, {"weights": "/elsewhere"})
    assert "data_roots" in str(error.hint)


def test_a_mirror_is_not_written_through_a_link_into_the_data(folders: Path) -> None:
    for run_id, pointers in (("out", ["/checkpoint_base_uri"]), ("new", [])):
        found = wrong(folders, {"checkpoint_base_uri": "D/runs/", "run_id": run_id})
        assert [one.pointer for one in found] == pointers
