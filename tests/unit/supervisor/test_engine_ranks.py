"""How the host finds what brings the ranks of an engine together."""

import attrs
import pytest

from hostcore.plugins.extensions import BrokenExtension
from hostcore.plugins.installed import Discovered, discover
from hostcore.supervisor.engine_ranks import EngineRanks, NoEngineRanks, installed_engine_ranks
from hostcore_builtin_plugins.extras import install_command
from hostcore_hookspecs.kinds import RANKS_GROUP


def test_it_is_that_of_the_engines() -> None:
    assert isinstance(installed_engine_ranks(discover()), EngineRanks)


def test_without_any_the_error_names_the_package_and_the_way_round() -> None:
    with pytest.raises(
        NoEngineRanks, match="RANK and WORLD_SIZE say that an engine has started several ranks"
    ) as caught:
        installed_engine_ranks(Discovered(refs=()))
    assert caught.value.hint == f"{install_command('torchrun')}; or unset RANK and WORLD_SIZE to run without an engine"


def test_of_two_none_is_taken() -> None:
    (registered,) = discover().extensions_of(RANKS_GROUP)["engine"]
    other = attrs.evolve(registered, name="other", dist="their-ranks", version="2.0")
    with pytest.raises(BrokenExtension, match=r"is provided by: hostcore-engines .*, their-ranks 2\.0"):
        installed_engine_ranks(Discovered(refs=(), extensions=(registered, other)))
