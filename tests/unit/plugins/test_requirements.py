"""The contract's version is checked before anything is imported."""

import sys

import pytest
from checkout import ROOT

from hostcore.plugins.errors import PluginError
from hostcore.plugins.installed import discover
from hostcore.plugins.resolve import check_distribution, undeclared
from hostcore_builtin_plugins.extras import install_command
from hostcore_hookspecs import API_VERSION

TRAINERS = "hostcore.trainers"


def _ref(site, requires):
    site.install("my-dist", modules={"m.py": "1 / 0"}, entry_points={TRAINERS: {"mine": "m:T"}}, requires=requires)
    return next(ref for ref in discover().refs if ref.name == "mine")


@pytest.mark.parametrize(
    "requires",
    [
        ["hostcore-hookspecs>=1,<2"],
        ["hostcore_hookspecs>=1"],
        ["Hostcore.Hookspecs"],
        ["hostcore-hookspecs>=1", 'hostcore-hookspecs>=9; python_version < "3"'],
        ["hostcore-hookspecs>=1", 'hostcore-hookspecs>=9; extra == "next"'],
        ["hostcore-hookspecs @ file:///somewhere"],
        ["hostcore-hookspecs-extras>=9"],
        ["other (this line is not a requirement", "hostcore-hookspecs>=1"],
        [],
    ],
)
def test_a_requirement_that_admits_the_installed_contract_passes(site_here, requires):
    check_distribution(_ref(site_here, requires))


@pytest.mark.parametrize(
    "requires",
    [
        ["hostcore-hookspecs>=2"],
        ["hostcore-hookspecs<1"],
        ["hostcore-hookspecs>=1", f"hostcore_hookspecs!={API_VERSION}"],
    ],
)
def test_a_requirement_that_does_not_is_an_error_that_says_everything(site_here, requires):
    ref = _ref(site_here, requires)
    with pytest.raises(PluginError) as raised:
        check_distribution(ref, pointer="/trainer")
    error = raised.value
    assert error.code == "plugin.contract_version"
    assert "my-dist 1.0 requires hostcore" in error.message
    assert f"hostcore-hookspecs {API_VERSION} is installed" in error.message
    assert error.pointer == "/trainer"
    assert "pip install" in error.hint
    assert "m" not in sys.modules


MAJOR, MINOR = map(int, API_VERSION.split(".")[:2])


@pytest.mark.parametrize(
    ("requires", "hint"),
    [
        (f"hostcore-hookspecs>={MAJOR}.{MINOR + 1},<{MAJOR + 1}", f"update the clone {ROOT}, then {install_command()}"),
        (f"hostcore-hookspecs=={MAJOR + 1}.*", f"update the clone {ROOT}, then {install_command()}"),
        ("hostcore-hookspecs~=0.9", "pip install --upgrade my-dist"),
        ("hostcore-hookspecs<1", "pip install --upgrade my-dist"),
    ],
)
def test_the_hint_says_which_of_the_two_is_too_old(site_here, requires, hint):
    with pytest.raises(PluginError) as raised:
        check_distribution(_ref(site_here, [requires]))
    assert raised.value.hint.endswith(hint)


@pytest.mark.parametrize(
    "wanted", ["'hostcore-hookspecs<3,>=2'", "'hostcore-hookspecs>1.9'", "'hostcore-hookspecs==2.*'"]
)
def test_the_hint_names_the_packages_where_the_host_came_as_one(site_here, wanted):
    site_here.install("hostcore", modules={}, entry_points={})
    with pytest.raises(PluginError) as raised:
        check_distribution(_ref(site_here, [wanted.strip("'")]))
    assert raised.value.hint.endswith(f"pip install --upgrade hostcore {wanted}")


def test_an_unreadable_requirement_on_the_contract_is_an_error(site_here):
    with pytest.raises(PluginError, match="unreadable requirement"):
        check_distribution(_ref(site_here, ["hostcore-hookspecs >> 1"]))


@pytest.mark.parametrize("requires", [[], ["hostcore-hookspecs>=1"]], ids=["none", "declared"])
def test_no_requirement_at_all_is_told_by_undeclared(site_here, requires):
    _ref(site_here, requires)
    assert ("my-dist" in undeclared(discover())) == (not requires)
