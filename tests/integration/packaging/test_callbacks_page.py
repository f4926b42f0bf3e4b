"""``docs/reference/callbacks.md`` is written by hand, and has what the classes have."""

import json
from importlib.metadata import distribution
from typing import Any

import attrs
import pytest
from checkout import ROOT

PAGE = ROOT / "docs" / "reference" / "callbacks.md"
CALLBACKS = {
    one.name: one for one in distribution("hostcore-builtin-plugins").entry_points if one.group == "hostcore.callbacks"
}


@pytest.mark.parametrize("name", CALLBACKS)
def test_every_callback_has_a_section_with_its_settings_and_their_defaults(name: str) -> None:
    section = PAGE.read_text().partition(f"\n## `{name}`\n")[2].partition("\n## ")[0]
    assert section
    settings: Any = getattr(CALLBACKS[name].load(), "Settings", None)
    for field in attrs.fields(settings) if settings else ():
        row = next((line for line in section.splitlines() if line.startswith(f"| `{field.name}` |")), "")
        assert row, f"no row for {field.name}"
        if isinstance(field.default, str | int | float):
            assert f"`{json.dumps(field.default)}`" in row
