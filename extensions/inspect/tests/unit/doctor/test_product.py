"""Products that are wrong are seen, and rounding is not taken for it."""

from typing import Any

import pytest
import torch

from hostcore_inspect.doctor.product import check_products

CPU = torch.device("cpu")
MATMUL = torch.Tensor.__matmul__


@pytest.fixture
def amiss(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Has products of 32 bits, and no others, come out as a function changes them."""

    def make(change: Any) -> None:
        def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            found = MATMUL(a, b)
            return change(found.clone()) if found.dtype == torch.float32 and not found.requires_grad else found

        monkeypatch.setattr(torch.Tensor, "__matmul__", matmul)

    return make


def products() -> dict[str, dict[str, Any]]:
    said: list[dict[str, Any]] = []
    check_products(CPU, lambda **content: said.append(content))
    return {one["product"]["precision"]: one["product"] for one in said if "product" in one}


def test_a_cpu_computes_rightly_in_every_precision() -> None:
    found = products()
    assert {precision: one["status"] for precision, one in found.items()} == {
        "fp32": "right",
        "bf16": "right",
        "fp16": "right",
    }
    assert all(one["tflops"] > 0 for one in found.values())


def _one_element(found: torch.Tensor) -> torch.Tensor:
    found[17, 42] += 1.0
    return found


def _not_a_number(found: torch.Tensor) -> torch.Tensor:
    found[0, 0] = float("nan")
    return found


@pytest.mark.parametrize(
    "change", [_one_element, _not_a_number, torch.zeros_like, torch.t], ids=lambda one: one.__name__
)
def test_a_wrong_product_is_seen(amiss: Any, change: Any) -> None:
    amiss(change)
    found = products()
    assert (found["fp32"]["status"], found["fp32"]["tflops"]) == ("wrong", None)
    assert found["bf16"]["status"] == "right"


def test_fp32_that_was_rounded_to_fewer_bits_is_told_apart_from_what_is_wrong(amiss: Any) -> None:
    amiss(lambda found: found * (1 + 2**-12))
    assert products()["fp32"]["status"] == "rounded"
