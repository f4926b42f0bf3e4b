"""Ten thousand hostile places: what is let in reaches nothing that is closed."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hostcore.job.names import engine_name
from hostcore.supervisor.operator_file import HttpSettings
from hostcore_service.guard.places import wrong_places
from hostcore_service.train.mapping import label

Attacks = Callable[[random.Random], Iterator[tuple[str, dict[str, Any]]]]

SEED = 20_261_121
pytestmark = pytest.mark.filterwarnings("ignore")  # of programs that are given what they do not like
LABEL = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")


def test_ten_thousand_hostile_places_reach_nothing_that_is_closed(ground: Any, programs: Any, attacks: Attacks) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    http = HttpSettings(data_roots=(ground.root,), checkpoint_roots=(ground.root,))
    let_in = {uri for uri, job in itertools.islice(attacks(chance), 10_000) if not wrong_places(job, http)}
    assert {uri: reached for uri in let_in if (reached := programs.reach(uri))} == {}


def test_the_programs_do_reach_what_is_closed_when_nobody_guards_it(
    ground: Any, programs: Any, attacks: Attacks
) -> None:
    print(f"seed {SEED}")
    reached = [programs.reach(uri) for uri, _ in itertools.islice(attacks(random.Random(SEED)), 600)]
    assert sum("read the secret" in str(one) for one in reached) > 30
    assert sum("connected to" in str(one) for one in reached) > 30


@pytest.mark.parametrize("make", [engine_name, label])
def test_ten_thousand_hostile_names_become_dns_labels(make: Any) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    alphabet = "abcXYZ0189-_./ \t\n\0~%$`'\"\\;|&<>{}[]()*?äßİıﬁ名前\u202e\u200b\ud7ff😀"
    for _ in range(10_000):
        text = "".join(chance.choices(alphabet, k=chance.choice((0, 1, 2, 5, 20, 62, 63, 64, 65, 300))))
        assert LABEL.fullmatch(make(text)), text


def test_names_that_differ_in_what_labels_can_say_stay_different() -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    texts = {
        "a" + "".join(chance.choices("ab0-", k=chance.choice((1, 3, 40, 62, 63, 70, 200)))) + "z" for _ in range(10_000)
    }
    assert len({label(text) for text in texts}) == len(texts)
