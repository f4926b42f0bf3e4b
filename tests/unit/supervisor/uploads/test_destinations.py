"""The uploaders of a job as destinations: named, told apart, and put below a base."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from hostcore.job.sections import DeliveryUse
from hostcore.plugins.component import load_component
from hostcore.plugins.resolve import Selected
from hostcore.supervisor.uploads.destination import Destination, destinations_of, mirroring, prefix_of
from hostcore_hookspecs.plan import PluginRef

Made = Callable[..., list[Destination]]


@pytest.fixture
def made() -> Made:
    """``made({"uri": "s3://a"}, …)``: a destination for each, all of the fsspec uploader."""
    pytest.importorskip("hostcore_builtin_plugins.uploaders.fsspec")
    value = "hostcore_builtin_plugins.uploaders.fsspec:FsspecUploader"
    ref = PluginRef(kind="uploader", name="fsspec", value=value, dist="hostcore-builtin-plugins", version="0.1.0")

    def make(*settings: Mapping[str, Any], base_uri: str | None = None) -> list[Destination]:
        uses = [DeliveryUse(use="fsspec", required=True, settings=one) for one in settings]
        selected = [Selected(ref=ref, settings=one, pointer="/uploaders/0", use="u", named_at="/") for one in settings]
        components = [load_component(one, job_dir=Path.cwd()) for one in selected]
        return destinations_of(components, uses, base_uri=base_uri)

    return make


def test_two_uses_of_one_uploader_have_names_of_their_own(made: Made) -> None:
    one, two = made({"uri": "/a"}, {"uri": "/b"})
    assert (one.name, two.name) == ("fsspec", "fsspec.2")
    assert one.label != two.label
    assert one.required


def test_a_destination_is_known_by_its_settings_and_the_base(made: Made) -> None:
    keys = [one.key for one in (*made({"uri": "/a"}, {"uri": "/b"}, {}), *made({}, base_uri="/c"))]
    assert len(set(keys)) == 4
    assert [one.key for one in made({"uri": "/b"}, {"uri": "/a"})] == [keys[1], keys[0]]


def test_the_base_uri_of_a_job_stands_for_an_uploader() -> None:
    other, own = DeliveryUse(use="http"), DeliveryUse(use="fsspec", settings={"uri": "/elsewhere"})
    assert mirroring([other], None) == (other,)
    assert [one.use for one in mirroring([other, own], "/base")][2:] == ["hostcore-builtin-plugins/fsspec"]
    assert len(mirroring([DeliveryUse(use="fsspec", required=True)], "/base")) == 1


def test_a_run_has_its_place_below_any_base() -> None:
    assert prefix_of("run-1", "my-dist/my_trainer") == "run-1/framework=my-dist-my_trainer"
    assert prefix_of("run-1", "module:Trainer") == "run-1/framework=module-Trainer"
