"""Names and values that Kubernetes does not take, or takes for something else."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from hostcore_engines.kubernetes.environment import escaped
from hostcore_engines.kubernetes.names import label_value, object_name, pointer
from hostcore_hookspecs import FatalError
from hostcore_hookspecs.job import Resources

Manifests = Callable[..., dict[str, Any]]

LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
ALPHABET = "aZ0-_./:$ \n\t\"'`;&|(){}[]<>*?!#~%^\\=,ü日🚀\u0000\u202e\ud800"


def _texts(count: int, longest: int = 80) -> list[str]:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    generator = random.Random(seed)
    return ["".join(generator.choices(ALPHABET, k=generator.randrange(longest))) for _ in range(count)]


def test_any_text_becomes_a_label_that_tells_it_apart() -> None:
    texts = {*_texts(5000), "a" * 63, "a" * 64, "-", "_", "a-", "meta_demo_001", "a b", "a_b"}
    values = {text: label_value(text) for text in texts}
    assert [value for value in values.values() if not LABEL.fullmatch(value)] == []
    assert len(set(values.values())) == len(texts)
    assert values["meta_demo_001"] == "meta_demo_001"


@pytest.mark.parametrize("name", ["a", "a" * 52, "a" * 53, "a" * 63, "meta-" * 12 + "a"])
def test_a_name_leaves_room_for_what_operators_put_behind_it(name: str) -> None:
    made = object_name(name)
    assert NAME.fullmatch(made)
    assert len(f"{made}-worker-999") <= 63
    assert object_name(name) == made
    assert (made == name) == (len(name) <= 52)


def test_two_long_names_that_begin_alike_stay_apart() -> None:
    assert object_name("a" * 62 + "b") != object_name("a" * 62 + "c")


def test_kubernetes_hands_on_what_was_escaped() -> None:
    """As ``k8s.io/kubernetes/third_party/forked/golang/expansion`` reads it."""
    for text in _texts(3000):
        expanded, at, made = "", 0, escaped(text)
        while at < len(made):
            if made[at] == "$" and at + 1 < len(made):
                assert made[at + 1] == "$"  # never "$(", which would be a variable
                at += 1
            expanded += made[at]
            at += 1
        assert expanded == text


def test_labels_are_made_to_fit_and_annotations_say_what_they_were(manifests: Manifests, kind: str) -> None:
    metadata = manifests(labels={"team.example/who": "a & b"}, trainer="mod:Class")[kind]["metadata"]
    assert LABEL.fullmatch(metadata["labels"]["team.example/who"])
    assert metadata["annotations"]["team.example/who"] == "a & b"
    assert LABEL.fullmatch(metadata["labels"]["trainer.deepfinery/framework"])
    assert metadata["annotations"]["trainer.deepfinery/framework"] == "mod:Class"


@pytest.mark.parametrize("section", ["labels", "annotations"])
@pytest.mark.parametrize(
    "key",
    [
        "trainer.deepfinery/run-id",
        "trainer.deepfinery/framework",
        "app.kubernetes.io/managed-by",
        "hostcore/launch-id",
        "hostcore/cancelled",
    ],
)
def test_a_job_cannot_pass_for_another(manifests: Manifests, section: str, key: str) -> None:
    """A label whose text is no label's value becomes an annotation: what is closed is closed in both."""
    with pytest.raises(FatalError, match="set by the launcher") as refused:
        manifests(**{section: {key: "demo 2"}})
    assert refused.value.pointer == pointer(section, key)


@pytest.mark.parametrize(
    ("job", "where"),
    [
        ({"labels": {"a b": "x"}}, "/labels/a b"),
        ({"labels": {"-a": "x"}}, "/labels/-a"),
        ({"labels": {"UPPER.example/x y": "1"}}, "/labels/UPPER.example~1x y"),
        ({"labels": {"a/b/c": "1"}}, "/labels/a~1b~1c"),
        ({"labels": {"a": "nul\0"}}, "/labels/a"),
        ({"annotations": {"a b": "x"}}, "/annotations/a b"),
        ({"annotations": {"a": "x" * 300_000}}, "/annotations"),
        ({"resources": Resources(namespace="Team A")}, "/resources/namespace"),
        ({"resources": Resources(namespace="a" * 64)}, "/resources/namespace"),
        ({"resources": Resources(namespace="../kube-system")}, "/resources/namespace"),
        ({"resources": Resources(image="a b")}, "/resources/image"),
        ({"resources": Resources(image="-x")}, "/resources/image"),
        ({"resources": Resources(cpus_per_node=1e-9)}, "/resources/cpus_per_node"),
        ({"resources": Resources(memory_per_node_gb=1e-9)}, "/resources/memory_per_node_gb"),
        ({"resources": Resources(env={"1A": ""})}, "/resources/env/1A"),
        ({"resources": Resources(env={"A=B": ""})}, "/resources/env/A=B"),
        ({"resources": Resources(env={"": ""})}, "/resources/env/"),
        ({"resources": Resources(env={"A": "nul\0"})}, "/resources/env/A"),
        ({"resources": Resources(env={"A": "\ud800"})}, "/resources/env/A"),
        ({"resources": Resources(env={"RUN_ID": "other"})}, "/resources/env/RUN_ID"),
        ({"resources": Resources(env={"HOME": "/root"})}, "/resources/env/HOME"),
        ({"resources": Resources(env={"RANK": "0"})}, "/resources/env/RANK"),
        ({"resources": Resources(env={"PET_NNODES": "1"})}, "/resources/env/PET_NNODES"),
    ],
)
def test_a_mistake_in_the_job_is_shown_where_it_is(manifests: Manifests, job: dict[str, Any], where: str) -> None:
    with pytest.raises(FatalError) as refused:
        manifests(**job)
    assert refused.value.pointer == where


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({"volume": "Runs"}, "/launcher/volume"),
        ({"volume": "runs", "volume_path": "/elsewhere"}, "/launcher/volume_path"),
        ({"volume": "runs", "volume_path": "srv"}, "/launcher/volume_path"),
        ({"volume": "runs", "volume_path": "/srv/../srv"}, "/launcher/volume_path"),
        ({"namespace": "a_b"}, "/launcher/namespace"),
        ({"service_account": "a b"}, "/launcher/service_account"),
        ({"image_pull_secrets": ("ok", "not/ok")}, "/launcher/image_pull_secrets/1"),
        ({"secret_env": {"A": "no-key"}}, "/launcher/secret_env/A"),
        ({"secret_env": {"A": "a/b/c"}}, "/launcher/secret_env/A"),
        ({"secret_env": {"HOME": "a/b"}}, "/launcher/secret_env/HOME"),
        ({"node_selector": {"a b": "x"}}, "/launcher/node_selector/a b"),
        ({"node_selector": {"a": "x y"}}, "/launcher/node_selector/a"),
    ],
)
def test_a_mistake_in_the_settings_is_shown_where_it_is(
    manifests: Manifests, settings: dict[str, Any], where: str
) -> None:
    with pytest.raises(FatalError) as refused:
        manifests(settings=settings)
    assert refused.value.pointer == where


def test_pointers_are_escaped() -> None:
    assert pointer("labels", "a/b~c") == "/labels/a~1b~0c"
