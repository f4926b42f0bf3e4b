"""Tables in an object store: a real S3 server, which the libraries talk to themselves."""

import itertools
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import boto3
import lance
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from ports import free_ports
from waiting import wait_until

from hostcore_hookspecs import InvalidData

_NAMES = itertools.count()


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """A process of its own: deltalake holds the interpreter's lock while it waits for an answer."""
    port = free_ports(1)
    command = [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        wait_until(lambda: _answers(port), "the S3 server answers")
        yield f"http://127.0.0.1:{port}"
        server.terminate()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


@pytest.fixture
def options(store: str) -> Mapping[str, str]:
    """Options of the server for both libraries."""
    return {
        "aws_endpoint": store,
        "aws_access_key_id": "key",
        "aws_secret_access_key": "secret",
        "aws_region": "us-east-1",
        "allow_http": "true",
        "aws_allow_http": "true",
        "aws_s3_allow_unsafe_rename": "true",  # of Delta: this server has one writer
    }


@pytest.fixture
def bucket(store: str) -> str:
    name = f"tables-{next(_NAMES)}"
    boto3.client(
        "s3",
        endpoint_url=store,
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        region_name="us-east-1",
    ).create_bucket(Bucket=name)
    return name


def _write(kind: str, uri: str, rows: range, options: Mapping[str, str], *, mode: str) -> None:
    table = pa.table({"id": pa.array(rows, pa.int64())})
    if kind == "lance":
        lance.write_dataset(table, uri, storage_options=dict(options), mode=mode)
    else:
        write_deltalake(uri, table, storage_options=dict(options), mode=mode)


@pytest.mark.parametrize("kind", ["lance", "delta"])
def test_a_run_reads_the_version_it_began_with_from_a_store_and_what_is_not_there_is_one_error(
    kind: str, bucket: str, options: Mapping[str, str], open_source: Callable[..., Any], read: Callable[..., list[Any]]
) -> None:
    uri = f"s3://{bucket}/rows"
    _write(kind, uri, range(40), options, mode="overwrite")
    before = open_source(kind, uri=uri, storage_options=options, columns=["id"], run="a")

    _write(kind, uri, range(40, 60), options, mode="append")
    again = open_source(kind, uri=uri, storage_options=options, columns=["id"], run="a")
    newer = open_source(kind, uri=uri, storage_options=options, columns=["id"], run="b")

    assert read(before) == read(again) == list(range(40))
    assert sorted(read(newer)) == list(range(60))
    assert [shard.id for shard in again.shards()] == [shard.id for shard in before.shards()]
    nothing = f"s3://{bucket}/nothing"
    with pytest.raises(InvalidData) as caught:
        open_source(kind, uri=nothing, storage_options=options, columns=["id"], run="c")
    assert nothing in f"{caught.value.message} {caught.value.file}"
