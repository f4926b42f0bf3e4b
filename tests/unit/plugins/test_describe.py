"""The describe subprocess: plugins are imported there and nowhere else, and whatever they do, an answer comes back."""

import json
import subprocess
import sys

import pytest

from hostcore.plugins.describe import DescribeError, describe
from hostcore_builtin_plugins.extras import install_command
from hostcore_hookspecs import Capabilities


@pytest.fixture
def ask(lab, monkeypatch):
    """Ask about installed plugins in a process that sees the site."""
    monkeypatch.setenv("PYTHONPATH", lab.site.environment["PYTHONPATH"])

    def ask(*selected, **options):
        return describe([one.ref for one in selected], job_dir=lab.job_dir, **options)

    return ask


def test_a_plugin_is_described_without_being_imported_here(lab, ask):
    source = lab.trainer("CAPABILITIES = Capabilities(accumulate=True)").replace(
        "class Mine:", 'class Mine:\n    """Learns things.\n\n    In detail.\n    """\n'
    )
    (found,) = ask(lab.install("trainer", source))
    assert found.errors == ()
    assert found.ref.provenance == "mine-1 (dist-1 1.0)"
    assert found.doc == "Learns things."
    assert found.capabilities == Capabilities(accumulate=True)
    assert set(found.hooks) >= {"train_step", "configure"}
    assert found.settings_schema is None
    assert "lab_plugin_1" not in sys.modules


def test_wrappers_are_told_apart(lab, ask):
    source = lab.component("def on_train_end(self): ...\n@hookimpl(wrapper=True)\ndef train_step(self): yield")
    (found,) = ask(lab.install("callback", source))
    assert (found.hooks, found.wraps) == (("on_train_end",), ("train_step",))


def test_settings_are_described_as_json_schema(lab, ask):
    source = lab.trainer("@attrs.frozen\nclass Hyperparams:\n    lr: float\n")
    (found,) = ask(lab.install("trainer", source))
    assert found.settings_schema["properties"]["lr"]["type"] == "number"
    assert found.settings_schema["required"] == ["lr"]


DEPRECATES = """
from hostcore_hookspecs import API_VERSION, deprecated

argument = ("callback", "on_stop_requested", "requested_by")
going = deprecated.Deprecation(since=API_VERSION, removed_in="1.99.0", instead="take run_state.stop_requests")
deprecated.ARGUMENTS = {argument: going}
"""


def test_deprecated_names_are_part_of_a_description_which_is_json(lab, ask):
    source = lab.component("def on_stop_requested(self, requested_by): pass") + DEPRECATES
    (found,) = ask(lab.install("callback", source))
    document = json.loads(json.dumps(found.as_dict()))
    assert document["errors"] == []
    assert document["hooks"] == ["on_stop_requested"]
    assert "'requested_by'" in document["deprecated"][0]


def test_everything_that_is_wrong_comes_back_with_codes_and_tracebacks(lab, ask):
    bomb = lab.install("trainer", "raise ValueError('boom')")
    wrong = lab.install("trainer", lab.trainer(configure=None, train_step="def train_step(self, x): ..."))
    gone = lab.select("trainer", "nope:Trainer")
    first, second, third = ask(bomb, wrong, gone)
    (error,) = first.errors
    assert error.code == "plugin.import"
    assert error.traceback.rstrip().endswith("ValueError: boom")
    assert {error.code for error in second.errors} == {"plugin.signature", "plugin.missing_methods"}
    assert [error.code for error in third.errors] == ["plugin.import"]


NOISES = (
    "print('hello')",
    "import os\nos.write(1, b'from C')",
    "import subprocess\nsubprocess.run(['echo', 'from a child'])",
    "import sys\nsys.stdout.close()",
    "import atexit\natexit.register(lambda: print('late'))",
    "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,)).start()",
)


def test_what_plugins_do_to_the_process_does_not_corrupt_the_answer(lab, ask):
    found = ask(*(lab.install("trainer", f"{noise}\n{lab.trainer()}") for noise in NOISES))
    assert [one.errors for one in found] == [()] * len(NOISES)


def test_a_plugin_that_asks_for_input_gets_none(lab, ask):
    (found,) = ask(lab.install("trainer", "input()"))
    assert "EOFError" in found.errors[0].message


def test_a_plugin_that_kills_the_process_is_an_error_of_its_own_alone(lab, ask):
    deaths = {
        "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)": "died (SIGSEGV)",
        "import os\nos._exit(0)": "died (exit code 0)",
        "import os\nos._exit(3)": "died (exit code 3)",
    }
    *killers, fine = ask(*(lab.install("trainer", source) for source in [*deaths, lab.trainer()]))
    assert [[one.code for one in killer.errors] for killer in killers] == [["plugin.crashed"]] * 3
    for killer, says in zip(killers, deaths.values(), strict=True):
        assert says in killer.errors[0].message
    assert fine.errors == ()


def test_a_plugin_that_never_finishes_importing_is_an_error(lab, ask):
    selected = lab.install("trainer", "import threading\nthreading.Event().wait()")
    (found,) = ask(selected, timeout_seconds=0.5)
    assert found.errors[0].code == "plugin.timeout"


def test_an_interpreter_that_does_not_exist_is_told(lab, ask):
    with pytest.raises(DescribeError, match="/no/such/python cannot be started"):
        ask(lab.select("trainer", "x:T"), python="/no/such/python")


def test_an_interpreter_without_hostcore_is_told(lab, ask, tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    with pytest.raises(DescribeError) as raised:
        ask(lab.select("trainer", "x:T"), python=str(tmp_path / "bare/bin/python"))
    assert "has no usable hostcore" in raised.value.message
    assert raised.value.hint == install_command(python=str(tmp_path / "bare/bin/python"))


def test_a_module_of_the_working_directory_does_not_shadow_the_hosts(lab, ask, tmp_path, monkeypatch):
    (tmp_path / "attrs.py").write_text("raise SystemExit('shadowed')")
    monkeypatch.chdir(tmp_path)
    (found,) = ask(lab.install("trainer", lab.trainer()))
    assert found.errors == ()
