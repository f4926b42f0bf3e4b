"""From the names in a job to plugins, with errors that say what to do."""

import attrs
import pytest

from hostcore.errors import Errors
from hostcore.job.sections import ComponentUse, DatasetSpec
from hostcore.job.spec import JobSpec
from hostcore.plugins.errors import PluginError
from hostcore.plugins.installed import Discovered, discover
from hostcore.plugins.resolve import in_room, resolve, select

TRAINERS = "hostcore.trainers"


def _error(name, kind, discovered):
    with pytest.raises(PluginError) as raised:
        resolve(name, kind, discovered, pointer="/trainer")
    assert raised.value.pointer == "/trainer"
    return raised.value


@pytest.fixture
def found(site):
    for dist in ("dist-a", "dist-b"):
        site.install(dist, modules={}, entry_points={TRAINERS: {"x": "m:T"}})
    site.install(
        "flights", modules={}, entry_points={TRAINERS: {"late_flights": "m:T"}, "hostcore.callbacks": {"ema": "m:E"}}
    )
    site.install("broken-dist", modules={}, entry_points="nonsense")
    return discover([str(site.path)])


def test_a_name_resolves(found):
    assert resolve("late_flights", "trainer", found).dist == "flights"


@pytest.mark.parametrize("name", ["dist-b/x", "Dist_B/x"])
def test_a_qualified_name_picks_the_distribution(found, name):
    assert resolve(name, "trainer", found).dist == "dist-b"


@pytest.mark.parametrize("path", ["train:MyTrainer", "my_pkg.train:MyTrainer", "train:", "train:Outer.Inner"])
def test_an_import_path_is_taken_as_it_is(path):
    ref = resolve(path, "trainer", Discovered(refs=()))
    assert (ref.name, ref.value, ref.dist) == (path, path, None)


@pytest.mark.parametrize("name", ["my_trainer", "my_package.train", "spread.inside"])
def test_a_module_alone_is_an_import_path_if_nothing_is_registered_by_its_name(tmp_path, found, name):
    for file in (
        "my_trainer.py",
        "my_package/__init__.py",
        "my_package/train.py",
        "spread/inside.py",
        "late_flights.py",
    ):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text("raise SystemExit('imported')")
    assert resolve(name, "trainer", found, job_dir=tmp_path) == resolve(f"{name}:", "trainer", found)
    assert resolve("late_flights", "trainer", found, job_dir=tmp_path).dist == "flights"


@pytest.mark.parametrize("name", ["folder", "json", "folder.absent", "lightning", "not-a-module"])
def test_what_is_no_module_of_the_users_stays_an_unknown_name(tmp_path, found, name):
    (tmp_path / "folder").mkdir()
    (tmp_path / "lightning.py").touch()  # the name of a trainer that can be installed
    with pytest.raises(PluginError) as caught:
        resolve(name, "trainer", found, job_dir=tmp_path)
    assert caught.value.code == "plugin.unknown"


def test_the_supervisor_takes_no_module(tmp_path, found):
    (tmp_path / "telling.py").touch()
    with pytest.raises(PluginError, match="no reporter is called 'telling'"):
        resolve("telling", "reporter", found, job_dir=tmp_path)


def test_two_distributions_with_one_name_are_both_named(found):
    error = _error("x", "trainer", found)
    assert error.code == "plugin.conflict"
    assert error.message == "'x' is provided by: dist-a 1.0, dist-b 1.0; write dist-a/x or dist-b/x"


def test_one_distribution_with_one_name_twice_is_told_as_its_mistake(site):
    site.install("dist-a", modules={}, entry_points="[hostcore.trainers]\nx = m:T\nx = m:U\n")
    error = _error("dist-a/x", "trainer", discover([str(site.path)]))
    assert "dist-a 1.0 registers 'x' more than once under hostcore.trainers: m:T, m:U" in error.message
    assert "'m:T'" in error.hint


@pytest.mark.parametrize("name", ["late-flights", "late_flihgts", "Late_Flights"])
def test_an_unknown_name_gets_the_nearest_and_how_to_find_what_brings_it(found, name):
    error = _error(name, "trainer", found)
    assert error.code == "plugin.unknown"
    assert "did you mean 'late_flights'?" in error.message
    assert "`hostcore plugins` shows" in error.hint
    assert "install the package that registers it under 'hostcore.trainers'" in error.hint
    assert "broken_dist" in error.hint


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("ema", "", "ema (flights 1.0) is a callback; those are named under 'callbacks'"),
        ("no-such-dist/x", "no installed distribution 'no-such-dist' has plugins", "pip install no-such-dist"),
        ("flights/x", "flights does not register a trainer 'x'", ""),
    ],
    ids=["another kind", "no such distribution", "not in that distribution"],
)
def test_a_name_that_is_looked_for_in_the_wrong_place_is_told_so(found, name, message, hint):
    error = _error(name, "trainer", found)
    assert message in error.message
    assert hint in (error.hint or "")


@pytest.mark.parametrize(("path", "better"), [("./train.py:T", "train:T"), ("src/train.py:T", "src.train:T")])
def test_a_file_in_place_of_a_module_gets_the_module(path, better):
    error = _error(path, "trainer", Discovered(refs=()))
    assert error.code == "plugin.import_path"
    assert repr(better) in error.hint


@pytest.mark.parametrize(
    ("name", "path"), [("circle_trainer.py", "circle_trainer:"), ("src/circle_trainer.py", "src.circle_trainer:")]
)
def test_the_name_of_a_python_file_gets_its_import_path(found, name, path):
    error = _error(name, "trainer", found)
    assert error.code == "plugin.unknown"
    assert error.message == f"no trainer is called {name!r}; did you mean {path!r}?"
    assert "module:symbol" in error.hint


def test_an_import_path_for_the_supervisor_is_refused_with_the_group_to_register_under():
    error = _error("train:Reporter", "reporter", Discovered(refs=()))
    assert "outside the worker" in error.message
    assert "hostcore.reporters" in error.hint


def _spec(**changes):
    return attrs.evolve(
        JobSpec(
            trainer="late_flights",
            hyperparams={"lr": 0.1},
            dataset=DatasetSpec(source="hostcore-builtin-plugins/parquet", settings={"parquet_paths": ["a"]}),
            reporters=(ComponentUse(use="hostcore-builtin-plugins/terminal"),),
            callbacks=(ComponentUse(use="ema", settings={"decay": 0.9}), ComponentUse(use="mod:Callback")),
            launcher=ComponentUse(use="hostcore-builtin-plugins/local"),
        ),
        **changes,
    )


@pytest.fixture
def installed(site_here):
    site_here.install(
        "flights", modules={}, entry_points={TRAINERS: {"late_flights": "m:T"}, "hostcore.callbacks": {"ema": "m:E"}}
    )
    return discover()


def test_everything_a_job_names_is_selected_with_pointers_and_labels(installed):
    selected = select(_spec(validation=DatasetSpec(source="hostcore-builtin-plugins/mock")), installed)
    assert [(use.use, use.pointer, use.named_at) for use in selected] == [
        ("trainer:late_flights", "/hyperparams", "/trainer"),
        ("data_source:parquet#train", "/dataset", "/dataset/source"),
        ("data_source:mock#validation", "/validation", "/validation/source"),
        ("callback:0:ema", "/callbacks/0", "/callbacks/0"),
        ("callback:1:mod:Callback", "/callbacks/1", "/callbacks/1"),
        ("reporter:0:terminal", "/reporters/0", "/reporters/0"),
        ("launcher:local", "/launcher", "/launcher"),
    ]
    assert selected[0].settings == {"lr": 0.1}
    assert selected[3].settings == {"decay": 0.9}


def test_each_room_gets_its_own(installed):
    selected = select(_spec(), installed)
    assert [use.ref.kind for use in in_room(selected, "worker")] == ["trainer", "data_source", "callback", "callback"]
    assert [use.ref.kind for use in in_room(selected, "supervisor")] == ["reporter", "launcher"]


def test_everything_that_is_wrong_comes_at_once(installed, site_here):
    site_here.install(
        "old", modules={}, entry_points={"hostcore.callbacks": {"old": "m:E"}}, requires=["hostcore-hookspecs<1"]
    )
    wrong = _spec(trainer="nope", callbacks=(ComponentUse(use="ema"), ComponentUse(use="old")))
    with pytest.raises(Errors) as raised:
        select(wrong, discover())
    assert [(error.code, error.pointer) for error in raised.value.errors] == [
        ("plugin.unknown", "/trainer"),
        ("plugin.contract_version", "/callbacks/1"),
    ]
