"""The describe subprocess: plugins are imported there and nowhere else, and whatever they do, an answer comes back."""

import importlib.util
import subprocess
import sys

import pytest

from hostcore.plugins.describe import DescribeError, Question, describe
from hostcore_builtin_plugins.extras import install_command
from hostcore_hookspecs import Capabilities

NEEDS_SCHEMA = pytest.mark.skipif(
    importlib.util.find_spec("hostcore.job.schema") is None, reason="hostcore.job.schema is not there"
)


@pytest.fixture
def ask(lab, monkeypatch):
    """Ask about installed plugins in a process that sees the site."""
    monkeypatch.setenv("PYTHONPATH", lab.site.environment["PYTHONPATH"])

    def ask(*questions, **options):
        asked = [question if isinstance(question, Question) else Question(**question) for question in questions]
        return describe(asked, job_dir=lab.job_dir, **options)

    return ask


def _question(selected, **more):
    return Question(kind=selected.ref.kind, name=selected.ref.name, named_at="/trainer", **more)


def test_a_plugin_is_described_without_being_imported_here(lab, ask):
    source = lab.trainer("CAPABILITIES = Capabilities(accumulate=True)").replace(
        "class Mine:", 'class Mine:\n    """Learns things.\n\n    In detail.\n    """\n'
    )
    (found,) = ask(_question(lab.install("trainer", source)))
    assert found.errors == ()
    assert found.ref.provenance == "mine-1 (dist-1 1.0)"
    assert found.doc == "Learns things."
    assert found.capabilities == Capabilities(accumulate=True)
    assert set(found.hooks) >= {"train_step", "configure"}
    assert found.settings_schema is None
    assert "lab_plugin_1" not in sys.modules


def test_wrappers_are_told_apart(lab, ask):
    source = lab.component("def on_train_end(self): ...\n@hookimpl(wrapper=True)\ndef train_step(self): yield")
    (found,) = ask(_question(lab.install("callback", source)))
    assert (found.hooks, found.wraps) == (("on_train_end",), ("train_step",))


@NEEDS_SCHEMA
def test_settings_are_described_as_json_schema(lab, ask):
    source = lab.trainer("@attrs.frozen\nclass Hyperparams:\n    lr: float\n")
    (found,) = ask(_question(lab.install("trainer", source)))
    assert found.settings_schema["properties"]["lr"]["type"] == "number"
    assert found.settings_schema["required"] == ["lr"]


@NEEDS_SCHEMA
def test_the_settings_of_a_job_are_checked_and_the_component_constructed(lab, ask):
    source = lab.trainer("@attrs.frozen\nclass Hyperparams:\n    lr: float\ndef __init__(self): raise OSError('no')")
    selected = lab.install("trainer", source)
    (wrong,) = ask(_question(selected, settings={"lr": "x"}, pointer="/hyperparams"))
    assert [error.pointer for error in wrong.errors] == ["/hyperparams/lr"]
    (right,) = ask(_question(selected, settings={"lr": 1.0}, pointer="/hyperparams"))
    assert [error.code for error in right.errors] == ["plugin.construct"]


def test_a_selected_plugin_can_be_asked_about(lab, ask):
    (found,) = ask(Question.about(lab.install("trainer", lab.trainer())))
    assert (found.name, found.errors) == ("dist-1/mine-1", ())


def test_everything_that_is_wrong_comes_back_with_codes_pointers_and_tracebacks(lab, ask):
    bomb = lab.install("trainer", "raise ValueError('boom')")
    wrong = lab.install("trainer", lab.trainer(configure=None, train_step="def train_step(self, x): ..."))
    first, second, third = ask(_question(bomb), _question(wrong), {"kind": "trainer", "name": "nope"})
    (error,) = first.errors
    assert (error.code, error.pointer) == ("plugin.import", "/trainer")
    assert error.traceback.rstrip().endswith("ValueError: boom")
    assert {error.code for error in second.errors} == {"plugin.signature", "plugin.missing_methods"}
    assert [error.code for error in third.errors] == ["plugin.unknown"]


@pytest.mark.parametrize(
    "noise",
    [
        "print('hello')",
        "import os\nos.write(1, b'from C')",
        "import subprocess\nsubprocess.run(['echo', 'from a child'])",
        "import sys\nsys.stdout.close()",
        "import atexit\natexit.register(lambda: print('late'))",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,)).start()",
    ],
)
def test_what_a_plugin_does_to_the_process_does_not_corrupt_the_answer(lab, ask, noise):
    (found,) = ask(_question(lab.install("trainer", noise + "\n" + lab.trainer())))
    assert found.errors == ()


def test_a_plugin_that_asks_for_input_gets_none(lab, ask):
    (found,) = ask(_question(lab.install("trainer", "input()")))
    assert "EOFError" in found.errors[0].message


@pytest.mark.parametrize(
    ("death", "says"),
    [
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "died (SIGSEGV)"),
        ("import os\nos._exit(0)", "died (exit code 0)"),
        ("import os\nos._exit(3)", "died (exit code 3)"),
    ],
)
def test_a_plugin_that_kills_the_process_is_an_error_of_its_own_alone(lab, ask, death, says):
    killer, fine = lab.install("trainer", death), lab.install("trainer", lab.trainer())
    first, second = ask(_question(killer), _question(fine))
    (error,) = first.errors
    assert (error.code, error.pointer) == ("plugin.crashed", "/trainer")
    assert says in error.message
    assert second.errors == ()


def test_a_plugin_that_never_finishes_importing_is_an_error(lab, ask):
    selected = lab.install("trainer", "import threading\nthreading.Event().wait()")
    (found,) = ask(_question(selected), timeout_seconds=3)
    assert found.errors[0].code == "plugin.timeout"


def test_an_interpreter_that_does_not_exist_is_told(ask):
    with pytest.raises(DescribeError, match="/no/such/python cannot be started"):
        ask({"kind": "trainer", "name": "x"}, python="/no/such/python")


def test_an_interpreter_without_hostcore_is_told(ask, tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    with pytest.raises(DescribeError) as raised:
        ask({"kind": "trainer", "name": "x"}, python=str(tmp_path / "bare/bin/python"))
    assert "has no usable hostcore" in raised.value.message
    assert raised.value.hint == install_command(python=str(tmp_path / "bare/bin/python"))


def test_a_module_of_the_working_directory_does_not_shadow_the_hosts(lab, ask, tmp_path, monkeypatch):
    (tmp_path / "attrs.py").write_text("raise SystemExit('shadowed')")
    monkeypatch.chdir(tmp_path)
    (found,) = ask(_question(lab.install("trainer", lab.trainer())))
    assert found.errors == ()
