"""The policy ``allow-list``."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from hostcore_builtin_plugins.policies.allow_list import AllowList
from hostcore_hookspecs import (
    Denial,
    Job,
    Plan,
    PluginRef,
    PluginUse,
    PolicyContext,
    Principal,
    Resources,
    SampleRequest,
)

TRAINER = PluginRef(kind="trainer", name="good", value="good:Trainer", dist="good-trainers", version="1.0")
ADA = Principal(name="ada", groups=("research",))


def ask(settings: dict[str, Any], *, over_http: bool = True, principal: Principal = ADA, **job: Any) -> Denial | None:
    plan = Plan(job=Job(trainer="good", **job), plugins=[TRAINER])
    policy = AllowList(settings=AllowList.Settings(**settings))
    return policy.authorize_job(plan, principal, PolicyContext(plan=plan, over_http=over_http))


@pytest.mark.parametrize(
    ("settings", "job", "denied"),
    [
        *(({"trainers": one}, {}, False) for one in (("good",), ("good-trainers/*",), ("x", "go?d"), ("*",))),
        *(({"trainers": one}, {}, True) for one in ((), ("other",), ("other-trainers/good",), ("Good",))),
        ({}, {"resources": Resources(image="any"), "checkpoint_base_uri": "s3://any"}, False),
        ({"images": (), "namespaces": (), "data_uris": (), "checkpoint_uris": ()}, {}, False),
        *(
            ({"checkpoint_uris": ("s3://c/runs/*",)}, {"checkpoint_base_uri": f"s3://c/runs{one}"}, False)
            for one in ("", "/", "/ada")
        ),
        ({"trainers": (), "principals": ("ada",)}, {}, True),
        ({"trainers": (), "principals": ("bob",)}, {}, False),
        ({"trainers": (), "groups": ("res*",)}, {}, True),
        ({"trainers": (), "groups": ("sales",)}, {}, False),
        ({"trainers": (), "principals": ("bob",), "groups": ("research",)}, {}, True),
        ({"trainers": (), "principals": ()}, {}, False),
        ({"trainers": (), "over_http_only": True}, {"over_http": False}, False),
        ({"trainers": (), "over_http_only": True}, {}, True),
        ({"trainers": ()}, {"over_http": False}, True),
    ],
)
def test_what_a_list_names_passes_and_it_may_be_about_some_people_or_the_service_only(
    settings: dict[str, Any], job: dict[str, Any], denied: bool
) -> None:
    denial = ask(settings, **job)
    assert (denial is not None) == denied
    assert denial is None or "'good'" in denial.reason


@pytest.mark.parametrize("pattern", ["Good_Trainers/good", "good.trainers/*", "GOOD-trainers/good"])
@pytest.mark.parametrize("name", ["good", "Good_Trainers/good", "good.trainers/good"])
def test_a_distribution_is_the_same_however_the_list_and_the_job_spell_it(pattern: str, name: str) -> None:
    policy = AllowList(settings=AllowList.Settings(trainers=(pattern,)))
    known = [attrs.evolve(TRAINER, dist="Good.Trainers")]
    for plugins in (known, [] if "/" in name else known):  # without plugins: of an environment that is not built
        plan = Plan(job=Job(trainer=name), plugins=plugins)
        assert policy.authorize_job(plan, ADA, PolicyContext(plan=plan, over_http=True)) is None
    plan = Plan(job=Job(trainer=name), plugins=[attrs.evolve(TRAINER, dist="evil-trainers")])
    assert policy.authorize_job(plan, ADA, PolicyContext(plan=plan, over_http=True)) is not None


def test_the_mirror_s_uploader_is_known_however_the_job_spells_it() -> None:
    uploader = PluginUse(name="Hostcore_Builtin_Plugins/fsspec")
    ref = PluginRef(kind="uploader", name="fsspec", value="f:F", dist="hostcore_builtin_plugins", version="1")
    plan = Plan(job=Job(checkpoint_base_uri="s3://c/x", uploaders=[uploader]), plugins=[ref])
    policy = AllowList(settings=AllowList.Settings(checkpoint_uris=("s3://c/*",)))
    assert policy.authorize_job(plan, ADA, PolicyContext(plan=plan, over_http=True)) is None


def test_everything_is_told_at_once_with_what_is_allowed() -> None:
    denial = ask(
        {
            "images": ("good/*", "fine:1"),
            "namespaces": (),
            "data_uris": ("s3://data/*",),
            "checkpoint_uris": ("s3://c/*",),
        },
        resources=Resources(image="evil", namespace="kube-system"),
        dataset={"parquet_paths": ["s3://data/x", "s3://data-evil/x"]},
        checkpoint_base_uri="s3://evil",
    )
    assert denial is not None
    assert denial.reason == (
        "the image 'evil' is not allowed; allowed are good/*, fine:1; "
        "the namespace 'kube-system' is not allowed; allowed is none; "
        "the place to read 's3://data-evil/x' is not allowed; allowed are s3://data/*; "
        "the place for checkpoints 's3://evil' is not allowed; allowed are s3://c/*"
    )


@pytest.mark.parametrize(
    "job",
    [
        {"dataset": {"parquet_paths": "s3://evil/x"}},
        {"validation": {"paths": ["s3://data/a", "s3://evil/x"]}},
        {"test": {"index": "s3://evil/x"}},
        {"weights": "s3://evil/x"},
        {"begins_from": "s3://evil/x"},
        {"inputs": {"model": "s3://evil/x"}},
        {"inputs": {"model": {"uri": "s3://evil/x"}}},
        {"samples": (SampleRequest(prompt="x", source_image="s3://evil/x"),)},
        {"dataset": {"parquet_paths": "s3://data/x", "storage_options": {"endpoint_url": "http://evil"}}},
        {"dataset": {"source": "mine", "folder": "evil"}},
        {"inputs": {"model": {"uri": "s3://data/x", "storage_options": {"proxies": {"https": "evil:3128"}}}}},
        {"weights": "s3://data/../evil/x"},
        {"weights": "s3://data/%2e%2e/evil/x"},
    ],
)
def test_all_that_is_read_must_be_listed(job: dict[str, Any]) -> None:
    assert ask({"data_uris": ("s3://data/*",)}, **job) is not None


TRAINING: dict[str, Any] = {"checkpoint_uris": ("s3://training/*",)}


def uploading(name: str = "fsspec", **settings: Any) -> dict[str, Any]:
    mirror = PluginUse(name="hostcore-builtin-plugins/fsspec")
    return {"checkpoint_base_uri": "s3://training/ada", "uploaders": (PluginUse(name=name, settings=settings), mirror)}


@pytest.mark.parametrize(
    "job",
    [
        uploading(uri="s3://attacker/x"),
        uploading(uri="s3://training/x", storage_options={"client_kwargs": {"endpoint_url": "https://attacker"}}),
        uploading(storage_options={"endpoint_url": "https://attacker"}),
        uploading(storage_options={"config_kwargs": {"proxies": {"https": "attacker:3128"}}}),
        uploading(uri="s3://training/x", storage_options={"account_name": "attacker"}),
        uploading(uri="s3://training/../attacker"),
        uploading(uri="/data/digits"),
        uploading("http", url="https://attacker/{path}"),
        uploading("http", url="s3://training/{path}", checkpoint_url="https://attacker"),
        uploading("mlflow-artifacts", tracking_uri="http://attacker"),
        uploading("third/party", bucket="attacker"),
        uploading("third/party", targets=["s3://training/x", "s3://attacker/x"]),
    ],
)
def test_every_place_that_an_uploader_writes_to_must_be_listed(job: dict[str, Any]) -> None:
    denial = ask(TRAINING, **job)
    assert denial is not None
    assert "of the uploader" in denial.reason
    assert "allowed are s3://training/*" in denial.reason
    assert ask({}, **job) is None


@pytest.mark.parametrize(
    "job",
    [
        uploading("third/party", tier="cold"),
        uploading("third-party/fsspec"),
        uploading("http"),
        uploading(uri={"$secret": "env:PLACE"}),
        uploading("third/party", uri="s3://training/x", endpoint={"$secret": "env:PLACE"}),
    ],
)
def test_an_uploader_that_may_write_anywhere_is_denied_unless_anywhere_is_allowed(job: dict[str, Any]) -> None:
    denial = ask(TRAINING, **job)
    assert denial is not None
    assert "whose settings do not tell where it writes to, is not allowed" in denial.reason
    assert ask({"checkpoint_uris": ("*",)}, **job) is None


@pytest.mark.parametrize(
    "job",
    [
        uploading(),
        uploading(uri=None, storage_options={"key": "k", "token": {"$secret": "env:T"}}, verify=False),
        uploading("hostcore-builtin-plugins/fsspec", uri="s3://training/mine"),
        uploading("third/party", uri="s3://training/x", experiment="digits", parts=8),
    ],
)
def test_an_uploader_that_writes_to_listed_places_passes(job: dict[str, Any]) -> None:
    assert ask(TRAINING, **job) is None
