"""The model, and the text that it writes."""

import math

import pytest
import torch
from char_lm.generate import generate
from char_lm.model import CharLm
from torch import Tensor
from torch.nn.functional import cross_entropy


@pytest.fixture
def model() -> CharLm:
    torch.manual_seed(0)
    return CharLm(context=32, layers=2, heads=2, width=32).eval()


def write(model: CharLm, prompt: bytes = b"for ", **changes: object) -> bytes:
    settings = {"length": 40, "context": 32, "temperature": 1.0, "top_k": 0, "seed": 0, **changes}
    return generate(model, prompt, **settings)


def test_no_position_sees_what_comes_after_it(model: CharLm) -> None:
    tokens = torch.randint(0, 256, (3, 32))
    changed = tokens.clone()
    changed[:, 20:] = (changed[:, 20:] + 1) % 256
    with torch.no_grad():
        before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, :20], after[:, :20])
    assert not torch.allclose(before[:, 20:], after[:, 20:])


def test_an_untrained_model_finds_all_bytes_about_equally_likely(model: CharLm) -> None:
    tokens = torch.randint(0, 256, (8, 33))
    with torch.no_grad():
        loss = cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    assert float(loss) == pytest.approx(math.log(256), abs=0.1)


def test_a_text_begins_with_its_prompt_may_outgrow_the_context_and_is_that_of_its_seed(model: CharLm) -> None:
    before = torch.get_rng_state()
    text = write(model, seed=1)
    assert text.startswith(b"for ")
    assert len(text) == 4 + 40
    assert text == write(model, seed=1) != write(model, seed=2)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("settings", [{"top_k": 1}, {"temperature": 1e-4}])
def test_with_one_byte_to_choose_from_or_no_temperature_the_likeliest_follows(
    model: CharLm, settings: dict[str, float]
) -> None:
    text = write(model, seed=1, **settings)
    assert text == write(model, seed=2, **settings)
    with torch.no_grad():
        assert text[4] == int(model(torch.tensor([list(b"for ")]))[0, -1].argmax())


def test_only_the_top_k_are_drawn_from() -> None:
    def likelier_the_higher(tokens: Tensor) -> Tensor:
        return torch.arange(256.0).expand(1, tokens.shape[1], 256) / 1000

    assert set(write(likelier_the_higher, length=40, top_k=3)[4:]) == {253, 254, 255}
