"""The corpus of bad jobs: each gets one clear error, with a code, a place and words, and never a traceback."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hostcore.errors import Errors
from hostcore.job.load import load_job
from hostcore_hookspecs import API_VERSION, HostcoreError

GOOD: dict[str, Any] = {"trainer": "flight_delay", "dataset": {"parquet_paths": ["train.parquet"]}}


def errors_of(source: Any, **how: Any) -> tuple[HostcoreError, ...]:
    with pytest.raises(Errors) as caught:
        load_job(source, **how)
    return caught.value.errors


FILES: list[tuple[str, str, bytes, str, str | None, str]] = [
    # what, file name, content, code, pointer, a part of the message
    ("empty", "job.json", b"", "job.empty", None, "empty"),
    ("blank", "job.json", b" \n\t\n", "job.empty", None, "empty"),
    ("not_json", "job.json", b"trainer = flight_delay", "job.syntax", None, "line 1, column 1"),
    ("cut_off", "job.json", b'{"trainer": "x",\n "seed": ', "job.syntax", None, "line 2, column"),
    ("trailing_garbage", "job.json", b'{"trainer": "x"}\n}', "job.syntax", None, "Extra data, line 2, column 1"),
    ("two_documents", "job.json", b"{} {}", "job.syntax", None, "Extra data, line 1, column 4"),
    ("not_utf8", "job.json", b'{"trainer": "caf\xe9"}', "job.encoding", None, "byte 16 is 0xe9"),
    ("utf16", "job.json", '{"trainer": "x"}'.encode("utf-16"), "job.encoding", None, "not UTF-8"),
    ("a_list", "job.json", b"[]", "job.not_object", "", "found an empty list"),
    ("a_string", "job.json", b'"job"', "job.not_object", "", 'found "job"'),
    ("null", "job.json", b"null", "job.not_object", "", "found null"),
    ("deep_list", "job.json", b"[" * 10_000 + b"]" * 10_000, "job.too_deep", None, "deep"),
    ("deep_object", "job.json", b'{"a":' * 10_000 + b"1" + b"}" * 10_000, "job.too_deep", None, "deep"),
    ("deep_unclosed", "job.json", b"[" * 10_000, "job.too_deep", None, "deep"),
    (
        "rather_deep",
        "job.json",
        b'{"hyperparams":' * 70 + b"1" + b"}" * 70,
        "job.too_deep",
        "/hyperparams" * 65,
        "nested too deep",
    ),
    ("huge", "job.json", b" " * (50 * 1024**2), "job.too_large", None, "at most 16 MB"),
    ("duplicate_key", "job.json", b'{"trainer": "x", "seed": 1, "seed": 2}', "job.duplicate_key", "/seed", '"seed"'),
    (
        "duplicate_key_inside",
        "job.json",
        b'{"trainer": "x", "mock_batches": [{"a/b": 1, "a/b": 1}]}',
        "job.duplicate_key",
        "/mock_batches/0/a~1b",
        "more than once",
    ),
    ("nan", "job.json", b'{"trainer": "x", "hyperparams": {"lr": NaN}}', "job.value", "/hyperparams/lr", "NaN"),
    ("infinity", "job.json", b'{"trainer": "x", "hyperparams": {"lr": -Infinity}}', "job.value", None, "-Infinity"),
    ("overflow", "job.json", b'{"trainer": "x", "hyperparams": {"lr": 1e999}}', "job.value", None, "Infinity"),
    ("many_digits", "job.json", b'{"trainer": "x", "seed": ' + b"9" * 5000 + b"}", "job.syntax", None, "digits"),
    ("surrogate", "job.json", b'{"trainer": "\\ud800"}', "job.value", "/trainer", "surrogate"),
    ("surrogate_key", "job.json", b'{"\\udc00": 1}', "job.value", None, "surrogate"),
    ("nul", "job.json", b'{"weights": "a\\u0000b"}', "job.value", "/weights", "U+0000"),
    ("yaml_empty", "job.yaml", b"# nothing\n", "job.not_object", "", "found null"),
    ("yaml_list", "job.yml", b"- a\n", "job.not_object", "", "a list of 1"),
    ("yaml_syntax", "job.yaml", b"trainer: [a\n", "job.syntax", None, "line"),
    ("yaml_tab", "job.yaml", b"a:\n\tb: 1\n", "job.syntax", None, "line 2, column 1"),
    ("yaml_control", "job.yaml", b"a: \x07", "job.syntax", None, "not valid YAML"),
    ("yaml_duplicate", "job.yaml", b"seed: 1\nseed: 2\n", "job.duplicate_key", None, '"seed" is given more than once'),
    ("yaml_alias", "job.yaml", b"a: &x [1]\nb: *x\n", "job.syntax", None, "aliases are not taken in jobs, line 1"),
    ("yaml_loop", "job.yaml", b"a: &x [*x]\n", "job.syntax", None, "aliases"),
    ("yaml_tag", "job.yaml", b"a: !!python/object:os.system x\n", "job.syntax", None, "tag"),
    ("yaml_set", "job.yaml", b"a: !!set {x}\n", "job.syntax", None, "tag"),
    ("yaml_date", "job.yaml", b"labels: {day: 2024-01-01}\n", "job.value", "/labels/day", "2024-01-01 is a date"),
    ("yaml_no_date", "job.yaml", b"a: 2024-99-99\n", "job.syntax", None, "month"),
    ("yaml_nan", "job.yaml", b"hyperparams: {lr: .nan}\n", "job.value", "/hyperparams/lr", "NaN"),
    ("yaml_integer_key", "job.yaml", b"labels: {1: a}\n", "job.value", "/labels/1", "key must be a string, found 1"),
    ("yaml_list_key", "job.yaml", b"? [1]\n: 2\n", "job.value", None, "key must be a string"),
    ("yaml_deep", "job.yaml", b"[" * 10_000, "job.too_deep", None, "deep"),
    ("yaml_two_documents", "job.yaml", b"--- {}\n--- {}\n", "job.syntax", None, "another document"),
    ("toml_empty", "job.toml", b"# nothing\n", "key.missing", "/trainer", "trainer"),
    ("toml_syntax", "job.toml", b"trainer = 'a'\nseed 1\n", "job.syntax", None, "line 2, column 6"),
    ("toml_end", "job.toml", b"labels = {a = 'b'", "job.syntax", None, "not valid TOML"),
    ("toml_duplicate", "job.toml", b"seed = 1\nseed = 2\n", "job.syntax", None, "overwrite a value, line 2"),
    ("toml_control", "job.toml", b"trainer = '\x07'", "job.syntax", None, "not valid TOML"),
    ("toml_date", "job.toml", b"[labels]\nday = 2024-01-01\n", "job.value", "/labels/day", "2024-01-01 is a date"),
    ("toml_time", "job.toml", b"[labels]\nat = 07:32:00\n", "job.value", "/labels/at", "is not JSON"),
    ("toml_no_date", "job.toml", b"a = 2024-99-99\n", "job.syntax", None, "not valid TOML"),
    ("toml_nan", "job.toml", b"[hyperparams]\nlr = nan\n", "job.value", "/hyperparams/lr", "NaN"),
    ("toml_digits", "job.toml", b"seed = " + b"9" * 5000, "job.syntax", None, "not valid TOML"),
    ("toml_deep", "job.toml", b"a = " + b"[" * 10_000, "job.too_deep", None, "deep"),
    ("toml_dots", "job.toml", b"a" + b".a" * 100_000 + b" = 1", "job.too_deep", None, "deep"),
    ("toml_table_dots", "job.toml", b"[[a" + b" . 'b.c'" * 20_000 + b"]]", "job.too_deep", None, "deep"),
    ("toml_inline_dots", "job.toml", b"a = {b = 1, c" + b".a" * 100_000 + b" = 1}", "job.too_deep", None, "deep"),
    ("toml_huge", "job.toml", b"#" * (2 * 1024**2), "job.too_large", None, "at most 256 KB"),
    ("toml_named_json", "job.json", b"# mine\n[dataset]\n", "job.syntax", None, "line 1"),
    ("yaml_huge", "job.yaml", b"#" * (2 * 1024**2), "job.too_large", None, "at most 256 KB"),
]


@pytest.mark.parametrize("key", ["hyperparams" + ".a" * 100_000, "/hyperparams" + "/a" * 100_000])
def test_an_override_of_a_hundred_thousand_levels_is_one_short_error(key: str) -> None:
    (error,) = errors_of({"trainer": "a:B", "max_steps": 1}, overrides=[f"{key}=1"])
    assert error.code == "job.too_deep"
    assert error.message == "the key has 100,001 levels; a job is nested at most 64 levels deep"
    assert error.file == f"--set {key[:40]}…"


@pytest.mark.parametrize(
    ("name", "content", "code", "pointer", "fragment"),
    [case[1:] for case in FILES],
    ids=[case[0] for case in FILES],
)
def test_a_file_that_is_no_job_is_one_clear_error(
    tmp_path: Path, name: str, content: bytes, code: str, pointer: str | None, fragment: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    (error,) = errors_of(path)
    assert error.code == code
    assert fragment in error.message
    assert error.file == str(path)
    assert pointer is None or error.pointer == pointer


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("trainer = digits\n", "strings take double quotes; true and false are written so"),
        ("seed = 1\nseed = 2\n", "the key is given more than once: keep one of them"),
        ('{"a": [1,]}', "remove the comma before it"),
        ("{'a': 1}", "strings and keys take double quotes"),
        ('{"a": True}', "write true"),
        ('{"a": None}', "write null"),
        ('{"a": 1 // one\n}', "JSON has no comments; a job in YAML (job.yaml) or TOML (job.toml) may have them"),
        ('{"a": 1, "a": 2}', "keep one of them"),
        ('{"a": NaN}', "leave the key out, or use null where it is allowed"),
        ('{"a": "caf\xe9"}', "save it as UTF-8"),
        (" " * (17 * 1024**2), "data belongs into files that the job names"),
        ("", 'the least that runs is {"trainer": …}'),
    ],
    ids=lambda text: text[:20],
)
def test_a_frequent_slip_in_json_or_toml_has_a_hint(tmp_path: Path, text: str, hint: str) -> None:
    path = tmp_path / ("job.toml" if " = " in text else "job.json")
    path.write_bytes(text.encode("latin-1"))
    assert errors_of(path)[0].hint == hint


def test_a_missing_file_names_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "train_job.json").write_text("{}")
    (error,) = errors_of(tmp_path / "train-job.json")
    assert (error.code, error.hint) == ("job.not_found", 'did you mean "train_job.json"?')
    assert errors_of(tmp_path / "no" / "job.json")[0].code == "job.not_found"


def test_a_folder_is_no_job_file(tmp_path: Path) -> None:
    (error,) = errors_of(tmp_path)
    assert (error.code, error.message) == ("job.unreadable", "this is a folder, not a job file")
    assert error.hint == "there is no job file in it, none that ends in .json, .yaml or .toml"


@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
def test_what_is_no_regular_file_is_no_job_and_not_waited_for(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    path = Path("/dev/zero" if kind == "device" else "job.json")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
    (error,) = errors_of(path)
    assert (error.code, error.message) == ("job.unreadable", "this is not a regular file")
    assert "/dev/stdin" in error.hint


@pytest.fixture
def piped_in() -> Iterator[Callable[[bytes], Path]]:
    """``piped_in(b"{}")``: the path by which a shell's ``<(…)`` would pass it."""
    descriptors = []

    def pipe(content: bytes) -> Path:
        read, write = os.pipe()
        descriptors.append(read)
        with os.fdopen(write, "wb") as writer:
            writer.write(content)
        return Path(f"/dev/fd/{read}")

    yield pipe
    for descriptor in descriptors:
        os.close(descriptor)


def test_a_job_can_be_piped_in_and_its_paths_start_at_the_working_directory(
    piped_in: Callable[[bytes], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = load_job(piped_in(json.dumps(GOOD).encode()))
    assert spec.job_dir == tmp_path
    assert spec.dataset.settings["parquet_paths"] == [str(tmp_path / "train.parquet")]


def test_a_pipe_of_nothing_is_an_empty_job(piped_in: Callable[[bytes], Path]) -> None:
    assert errors_of(piped_in(b""))[0].code == "job.empty"


def test_a_folder_in_place_of_a_job_file_names_those_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b.yaml", "a.json", "trainer.py"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    assert errors_of(Path())[0].hint == "in it: a.json, b.yaml"
    here = Path("..") / tmp_path.name
    assert errors_of(here)[0].hint == f"in it: {here / 'a.json'}, {here / 'b.yaml'}"
    for number in range(4):
        (tmp_path / f"c{number}.json").touch()
    assert errors_of(Path())[0].hint == "in it: a.json, b.yaml, c0.json, c1.json, c2.json, and 1 more"


@pytest.mark.parametrize(
    ("content", "trainer"),
    [
        ("", "circle_trainer:"),
        ("class CircleTrainer: pass", "circle_trainer:"),
        ("class (", "circle_trainer:"),
        ("class A: pass\nclass Mine:\n    def train_step(self): ...\n", "circle_trainer:Mine"),
    ],
)
def test_a_python_file_is_no_job_and_gets_the_trainer_it_may_hold(tmp_path: Path, content: str, trainer: str) -> None:
    path = tmp_path / "circle_trainer.py"
    path.write_text(content)
    (error,) = errors_of(path)
    assert (error.code, error.message) == ("job.unreadable", "this is Python, not a job")
    assert f'{{"trainer": "{trainer}", "dataset": ' in str(error.hint)


def test_many_empty_lines_before_a_slip_in_json_are_read_in_one_pass(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text("\n" * 10_000 + " # a job\n" * 10_000 + "{'a': 1}")
    assert errors_of(path)[0].code == "job.syntax"


@pytest.mark.parametrize("text", ["trainer: x\n", "# a job\n\n  # of mine\ntrainer:\n", "---\na: 1\n"])
def test_yaml_in_a_json_file_is_told_how_to_be_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "job.json"
    path.write_text(text)
    (error,) = errors_of(path)
    assert (error.code, error.hint) == ("job.syntax", "this looks like YAML: let the file's name end in .yaml")


def test_yes_in_yaml_is_told_to_be_true(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("{trainer: x, dataset: {parquet_paths: a, shuffle: yes}}")
    assert errors_of(path)[0].hint == "write true; yes is text, also in YAML 1.2"
    path.write_text("{trainer: x, max_steps: 1, deterministic: Off}")
    assert errors_of(path)[0].hint == "write false; Off is text, also in YAML 1.2"


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("learning_rate", 'did you mean "hyperparams.learning_rate"?'),
        ("lr", 'did you mean "hyperparams.lr"?'),
        ("parquet_paths", 'did you mean "dataset.parquet_paths"?'),
        ("batch_size", 'did you mean "dataset.batch_size"?'),
        ("shufle", 'did you mean "dataset.shuffle"?'),
        ("max_step", 'did you mean "max_steps"?'),
    ],
)
def test_a_setting_at_the_top_of_a_job_is_told_where_it_belongs(key: str, hint: str) -> None:
    (error,) = errors_of({**GOOD, key: 1})
    assert (error.code, error.pointer) == ("key.unknown", f"/{key}")
    assert str(error.hint).startswith(hint)
    assert len(str(error.hint)) < 200


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_says_so(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text("{}")
    path.chmod(0)
    assert "permission denied" in errors_of(path)[0].message


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"trainer": "./line.py:Line"}, 'did you mean "line:Line"?'),
        ({"devices": ["2"]}, 'did you mean "auto:2"?'),
        ({"devices": 2}, 'write "auto:2", with quotes'),
        ({"precision": "16-mixed"}, 'did you mean "fp16"?'),
        ({"precision": "bf16-mixed"}, 'did you mean "bf16"?'),
        ({"precision": "32-true"}, 'did you mean "fp32"?'),
        ({"dataset": "p.csv"}, 'write "dataset": {"source": "csv", "paths": ["p.csv"]}'),
        ({"dataset": "s3://b/*.jsonl.gz"}, 'write "dataset": {"source": "json", "paths": ["s3://b/*.jsonl.gz"]}'),
        ({"validation": "val.parquet"}, 'write "validation": {"parquet_paths": ["val.parquet"]}'),
    ],
)
def test_what_other_libraries_write_has_a_hint_how_a_job_writes_it(changes: dict[str, Any], hint: str) -> None:
    (error,) = errors_of({**GOOD, **changes})
    assert error.hint == hint


@pytest.mark.parametrize("name", ["a" * 5000, "a\0b", "x" * 300 + ".py"])
def test_a_name_that_no_file_can_have_is_one_error(name: str) -> None:
    message = "this is not a file name" if "\0" in name else "the job file cannot be read: file name too long"
    (error,) = errors_of(Path(name))
    assert (error.code, error.message) == ("job.unreadable", message)


def test_an_endless_pipe_is_too_large() -> None:
    with subprocess.Popen(["yes"], stdout=subprocess.PIPE) as endless:
        assert errors_of(Path(f"/dev/fd/{endless.stdout.fileno()}"))[0].code == "job.too_large"


def test_a_deep_job_from_python_is_refused_and_so_is_one_that_holds_itself() -> None:
    loop: dict[str, Any] = {}
    loop["hyperparams"] = loop
    assert errors_of({"trainer": "x", "hyperparams": loop})[0].code == "job.too_deep"


def test_a_job_from_python_may_hold_only_json() -> None:
    job = {"trainer": "x", "hyperparams": {"a": object(), "b": {1}, 3: "c", "d": 1j}}
    assert [(error.code, error.pointer) for error in errors_of(job)] == [
        ("job.value", "/hyperparams/a"),
        ("job.value", "/hyperparams/b"),
        ("job.value", "/hyperparams/3"),
        ("job.value", "/hyperparams/d"),
    ]


NAME_GRAMMAR = "expected the name of a plugin"
CHANGES: list[tuple[dict[str, Any], str, str, str]] = [
    # merged into GOOD (None removes), code, pointer, a part of the message
    ({"trainer": None}, "key.missing", "/trainer", '"trainer" is missing'),
    *(
        (
            {"environment": {"requirements": ["a"], "indexes": [index]}},
            "value.invalid",
            "/environment/indexes/0",
            "is no address of an index, or one with credentials",
        )
        for index in ("--index-url=x", "https://a https://b", "https://me:word@index.example/simple")
    ),
    (
        {"environment": {"lock": "pylock.toml", "indexes": ["https://index.example"]}},
        "value.invalid",
        "/environment/indexes",
        "no requirements to ask an index for",
    ),
    ({"environment": {}}, "value.invalid", "/environment", "has neither requirements, lock nor interpreter"),
    (
        {"environment": {"lock": "a", "requirements": ["b"]}},
        "value.invalid",
        "/environment",
        "has requirements and lock",
    ),
    (
        {"environment": {"requirements": ["numpy", "--pre"]}},
        *("value.invalid", "/environment/requirements/1", "is an option"),
    ),
    ({"trainer": 3}, "value.type", "/trainer", NAME_GRAMMAR),
    ({"trainer": ""}, "value.range", "/trainer", NAME_GRAMMAR),
    ({"trainer": "Flight Delay"}, "value.range", "/trainer", 'found "Flight Delay"'),
    ({"trainer": "a/b/c"}, "value.range", "/trainer", NAME_GRAMMAR),
    ({"trainer": "-x"}, "value.range", "/trainer", NAME_GRAMMAR),
    ({"trainer": ":X"}, "value.range", "/trainer", NAME_GRAMMAR),
    ({"trainer": "a:b:c"}, "value.range", "/trainer", NAME_GRAMMAR),
    ({"trainer": "../x.py:X"}, "value.range", "/trainer", NAME_GRAMMAR),
    ({"lables": {}}, "key.unknown", "/lables", 'unknown key "lables"'),
    ({"a/b~c": 1}, "key.unknown", "/a~1b~0c", "unknown key"),
    ({"run_id": "../x"}, "value.range", "/run_id", "a run id"),
    ({"run_id": ""}, "value.range", "/run_id", "a run id"),
    ({"run_id": "a" * 129}, "value.range", "/run_id", "at most 128"),
    ({"run_id": "a\n"}, "value.range", "/run_id", "a run id"),
    ({"run_id": 7}, "value.type", "/run_id", "found 7"),
    ({"trainer_api_version": "v2"}, "job.api_version", "/trainer_api_version", API_VERSION),
    ({"trainer_api_version": 1}, "value.type", "/trainer_api_version", "expected a string"),
    ({"hyperparams": []}, "value.type", "/hyperparams", "expected an object"),
    ({"dataset": []}, "value.type", "/dataset", "expected an object, found an empty list"),
    ({"dataset": {"parquet_paths": None}}, "key.missing", "/dataset/source", "names no source"),
    ({"dataset": {"batch_size": -1}}, "value.range", "/dataset/batch_size", "of at least 1, found -1"),
    ({"dataset": {"batch_size": 0}}, "value.range", "/dataset/batch_size", "found 0"),
    ({"dataset": {"batch_size": "32"}}, "value.type", "/dataset/batch_size", 'found "32"'),
    ({"dataset": {"batch_size": 32.0}}, "value.type", "/dataset/batch_size", "found 32.0"),
    ({"dataset": {"batch_size": True}}, "value.type", "/dataset/batch_size", "found true"),
    ({"dataset": {"columns": "a"}}, "value.type", "/dataset/columns", "expected a list of strings"),
    ({"dataset": {"columns": ["a", 1]}}, "value.type", "/dataset/columns/1", "expected a string"),
    ({"dataset": {"columns": ["a", "b", "a"]}}, "value.invalid", "/dataset/columns/2", '"a" is listed twice'),
    ({"dataset": {"shuffle": 1}}, "value.type", "/dataset/shuffle", "expected true or false"),
    ({"dataset": {"lanes": 0}}, "value.range", "/dataset/lanes", "of at least 1"),
    ({"dataset": {"shuffle_window": 0}}, "value.range", "/dataset/shuffle_window", "of at least 1"),
    ({"dataset": {"source": "My Source"}}, "value.range", "/dataset/source", NAME_GRAMMAR),
    ({"mock_batches": [1]}, "job.conflict", "/mock_batches", "both given"),
    ({"mock_batches": []}, "value.range", "/mock_batches", "of at least 1 element"),
    ({"mock_batches": 3}, "value.type", "/mock_batches", "expected a list"),
    ({"max_steps": -1}, "value.range", "/max_steps", "found -1"),
    ({"max_steps": "10"}, "value.type", "/max_steps", 'found "10"'),
    ({"max_steps": 10**20}, "job.value", "/max_steps", "100000000000000000000 has more than 64 bits"),
    ({"epochs": 0}, "value.range", "/epochs", "of at least 1"),
    ({"metric_every": -1}, "value.range", "/metric_every", "of at least 0"),
    ({"checkpoint_every": 0.5}, "value.type", "/checkpoint_every", "expected an integer"),
    ({"checkpoint_every": -1}, "value.range", "/checkpoint_every", "of at least 0"),
    ({"checkpoint_every": "0m"}, "value.range", "/checkpoint_every", 'a time such as "90s", "10m" or "2h"'),
    ({"checkpoint_every": "10 min"}, "value.range", "/checkpoint_every", 'a time such as "90s", "10m" or "2h"'),
    ({"validate_every": "epohc"}, "value.type", "/validate_every", 'or "epoch"'),
    ({"seed": -1}, "value.range", "/seed", "from 0 to 4294967295"),
    ({"seed": 2**32}, "value.range", "/seed", "from 0 to 4294967295"),
    ({"deterministic": "yes"}, "value.type", "/deterministic", "expected true or false"),
    ({"device": "gpu"}, "value.range", "/device", '"cuda:N"'),
    ({"device": "cuda:-1"}, "value.range", "/device", 'found "cuda:-1"'),
    ({"device": "cuda:01"}, "value.range", "/device", 'found "cuda:01"'),
    ({"device": "cuda:x"}, "value.range", "/device", 'found "cuda:x"'),
    ({"device": ["cpu"]}, "value.type", "/device", "a list of 1"),
    ({"device": "cpu", "devices": ["cpu"]}, "job.conflict", "/devices", "both given"),
    ({"devices": []}, "value.range", "/devices", "of at least 1 element"),
    ({"devices": ["cuda", "gpu"]}, "value.range", "/devices/1", 'found "gpu"'),
    ({"precision": "fp8"}, "value.choice", "/precision", '"fp32", "bf16" or "fp16"'),
    ({"callbacks": "lr-monitor"}, "value.type", "/callbacks", "expected a list"),
    ({"callbacks": [{"patience": 3}]}, "key.missing", "/callbacks/0/use", '"use" is missing'),
    ({"callbacks": ["ok", "Not OK"]}, "value.range", "/callbacks/1", NAME_GRAMMAR),
    ({"callbacks": [{"use": "Not OK"}]}, "value.range", "/callbacks/0/use", NAME_GRAMMAR),
    ({"callbacks": [3]}, "value.type", "/callbacks/0", "expected a string or an object, found 3"),
    ({"reporters": None, "launcher": 3}, "value.type", "/launcher", "expected a string or an object"),
    ({"keep_checkpoints": -1}, "value.range", "/keep_checkpoints", "of at least 0"),
    ({"resume_from_checkpoint": 3}, "value.type", "/resume_from_checkpoint", "expected true or false or a string"),
    ({"weights": ["a"]}, "value.type", "/weights", "expected a string"),
    ({"weights": ""}, "value.range", "/weights", "of at least 1 character"),
    ({"labels": {"a": 1}}, "value.type", "/labels/a", "expected a string, found 1"),
    ({"owner": {}}, "value.type", "/owner", "expected a string"),
    ({"profiles": {"a": 1}}, "value.type", "/profiles/a", "expected an object"),
    ({"samples": {"prompt": "a"}}, "value.type", "/samples", "expected a list"),
    ({"samples": [{"promt": "a"}]}, "key.unknown", "/samples/0/promt", "unknown key"),
    ({"resources": {"num_nodes": 0}}, "value.range", "/resources/num_nodes", "of at least 1"),
    ({"environment": {"requirements": "torch"}}, "value.type", "/environment/requirements", "a list"),
    ({"grace_seconds": -1}, "value.range", "/grace_seconds", "of at least 0"),
    ({"max_restarts": 1.5}, "value.type", "/max_restarts", "expected an integer"),
]


def changed(job: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    merged = dict(job)
    for key, value in change.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = changed(merged[key], value)
        else:
            merged[key] = value
    return merged


@pytest.mark.parametrize(
    ("change", "code", "pointer", "fragment"), CHANGES, ids=[str(case[0])[:60] for case in CHANGES]
)
def test_a_bad_value_is_one_error_at_its_place(change: dict[str, Any], code: str, pointer: str, fragment: str) -> None:
    (error,) = errors_of(changed(GOOD, change))
    assert (error.code, error.pointer) == (code, pointer)
    assert fragment in error.message


def test_everything_that_is_wrong_is_told_at_once() -> None:
    job = {
        "trainer": "Bad Name",
        "lables": {},
        "dataset": {"parquet_paths": "a.parquet", "batch_size": -1},
        "seed": "1",
        "environment": {"python": "3.12"},
        "hyperparams": {"token": {"$secret": "vault:token"}},
    }
    assert [(error.pointer, error.code) for error in errors_of(job)] == [
        ("/trainer", "value.range"),
        ("/lables", "key.unknown"),
        ("/dataset/batch_size", "value.range"),
        ("/seed", "value.type"),
        ("/environment", "value.invalid"),
        ("/hyperparams/token", "secret.reference"),
    ]


def test_every_error_of_the_corpus_is_plain_json_and_short() -> None:
    for change, *_ in CHANGES:
        (error,) = errors_of(changed(GOOD, change))
        assert json.loads(json.dumps(error.as_dict())) == error.as_dict()
        assert len(error.message) < 300
        assert "\n" not in error.message


def test_an_integer_that_readers_would_change_is_refused_wherever_it_stands() -> None:
    (error,) = errors_of(changed(GOOD, {"hyperparams": {"x": [2**63 - 1, -(10**30)]}}))
    assert (error.code, error.pointer, error.hint) == ("job.value", "/hyperparams/x/1", "write it as a string")
    assert error.message == "-1000000000000000000000000000000 has more than 64 bits"


def test_the_json_schema_refuses_what_the_loader_refuses_by_type_and_bounds() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    from hostcore.job.schema import job_schema

    validator = jsonschema.Draft202012Validator(job_schema({}))
    assert validator.is_valid(GOOD)
    # 32.0 and 10**20 are integers to JSON Schema; "$" matches before a last newline in Python's dialect alone
    different = ({"dataset": {"batch_size": 32.0}}, {"max_steps": 10**20}, {"run_id": "a\n"})
    beyond_schemas = ("job.conflict", "job.api_version", "value.invalid")
    for change, code, pointer, _ in CHANGES:
        job = changed(GOOD, change)
        if code in beyond_schemas or pointer == "/dataset/source" or change in different:
            continue
        assert not validator.is_valid(job), change


def test_no_bad_file_reaches_the_recursion_limit_of_python(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    for depth in (sys.getrecursionlimit() // 2, sys.getrecursionlimit() - 60, sys.getrecursionlimit() * 3):
        path.write_text('{"a":' * depth + "1" + "}" * depth)
        assert errors_of(path)[0].code == "job.too_deep"
