"""Whose fault it was, and the part of the traceback that is theirs."""

import pytest

from hostcore.plugins.attribution import attribute, plugin_traceback
from hostcore.plugins.hooks import Hooks


def _raised(call, *values):
    with pytest.raises(Exception) as caught:
        call(*values)
    return caught.value


@pytest.fixture
def trainer(lab):
    source = "import json\n" + lab.trainer(train_step="def train_step(self): return json.loads('{')")
    return lab.load("trainer", source)


@pytest.fixture
def wrapping(lab):
    return lab.load("callback", lab.component("@hookimpl(wrapper=True)\ndef train_step(self, *, ctx): return (yield)"))


def test_an_exception_in_a_library_belongs_to_the_component_that_called_it_through_whatever_wrapper(trainer, wrapping):
    for components in ([trainer], [trainer, wrapping]):
        error = _raised(Hooks(components).bind("train_step", of=trainer), None, None, None)
        assert attribute(error, [wrapping, trainer]) is trainer
    assert attribute(_raised(int, "x"), [trainer]) is None


def test_an_exception_of_the_wrapper_belongs_to_the_wrapper(lab, trainer):
    body = "@hookimpl(wrapper=True)\ndef train_step(self):\n    1 / 0\n    yield"
    wrapping = lab.load("callback", lab.component(body))
    error = _raised(Hooks([trainer, wrapping]).bind("train_step", of=trainer), None, None, None)
    assert attribute(error, [trainer, wrapping]) is wrapping


def test_of_two_uses_of_one_class_it_is_the_instance_that_raised(lab):
    selected = lab.install("callback", lab.component("def on_train_end(self): self._fail()\ndef _fail(self): 1 / 0"))
    one, other = lab.load_selected(selected), lab.load_selected(selected)
    error = _raised(other.instance.on_train_end)
    assert attribute(error, [one, other]) is other


def test_of_two_plugins_of_one_package_it_is_the_one_that_called_the_shared_code(lab):
    lab.site.install(
        "shared",
        modules={
            "shared_pkg/__init__.py": "",
            "shared_pkg/tools.py": "def fail(): 1 / 0",
            "shared_pkg/a.py": "from shared_pkg.tools import fail\nclass A:\n    def on_train_end(self): fail()",
            "shared_pkg/b.py": "from shared_pkg.tools import fail\nclass B:\n    def on_train_end(self): fail()",
        },
        entry_points={"hostcore.callbacks": {"a": "shared_pkg.a:A", "b": "shared_pkg.b:B"}},
    )
    a, b = (lab.load_selected(lab.select("callback", name)) for name in "ab")
    assert attribute(_raised(b.instance.on_train_end), [a, b]) is b


def test_the_traceback_starts_at_the_plugin_and_keeps_what_it_called(trainer, wrapping):
    error = _raised(Hooks([trainer, wrapping]).bind("train_step", of=trainer), None, None, None)
    text = plugin_traceback(error, trainer)
    assert text.splitlines()[0] == "Traceback (most recent call last):"
    assert "lab_plugin_1.py" in text.splitlines()[1]
    assert "json/decoder.py" in text
    assert "pluggy" not in text
    assert text.rstrip().splitlines()[-1].startswith("json.decoder.JSONDecodeError")


def test_the_traceback_keeps_the_cause(lab):
    step = """
        def train_step(self):
            try:
                1 / 0
            except ZeroDivisionError as error:
                raise RuntimeError("outer") from error
    """
    one = lab.load("trainer", lab.trainer(train_step=step))
    text = plugin_traceback(_raised(one.instance.train_step), one)
    assert "ZeroDivisionError" in text
    assert "direct cause" in text
