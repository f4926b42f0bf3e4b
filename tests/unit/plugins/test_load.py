"""Importing, constructing and checking a component; whatever its author did, one line says what."""

import signal
import sys

import pytest

from hostcore.errors import Errors
from hostcore_hookspecs import Capabilities, InvalidSettings


def test_a_trainer_is_imported_constructed_and_complete(lab):
    component = lab.load("trainer", lab.trainer("CAPABILITIES = Capabilities(accumulate=True)"), {"lr": 1})
    assert component.kind.name == "trainer"
    assert component.settings == {"lr": 1}
    assert component.capabilities == Capabilities(accumulate=True)
    assert set(component.hook_names) == {*component.kind.required, "setup", "state_dict", "load_state_dict"}


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("x = 1\n1 / 0", "ZeroDivisionError: division by zero ({file}:2)"),
        ("import sys\n\nsys.exit('bye')", "SystemExit: bye ({file}:3)"),
        ("raise BaseException('odd')", "BaseException: odd ({file}:1)"),
        ("def f(:\n  pass", "SyntaxError: invalid syntax ({file}:1)"),
        ("raise ValueError('two\\nlines')", "ValueError: two lines ({file}:1)"),
        ("class E(Exception):\n    def __str__(self): 1 / 0\nraise E", "E: <exception str() failed> ({file}:3)"),
    ],
)
def test_an_import_that_raises_is_one_line_with_the_plugins_file_and_line(lab, source, says):
    selected = lab.install("trainer", source)
    error = lab.error(lambda: lab.load_selected(selected), "plugin.import")
    file = lab.site.path / "lab_plugin_1.py"
    assert error.message.startswith("the trainer mine-1 (dist-1 1.0, lab_plugin_1:Mine) could not be imported: ")
    assert error.message.endswith(says.format(file=file))
    assert "\n" not in error.message
    assert error.pointer == "/x"
    assert error.plugin == "mine-1 (dist-1 1.0)"
    assert error.__cause__ is not None


def test_the_traceback_of_an_import_starts_at_the_plugin(lab):
    selected = lab.install("trainer", "def f():\n    raise ValueError('deep')\nf()\n")
    error = lab.error(lambda: lab.load_selected(selected), "plugin.import")
    lines = error.traceback.splitlines()
    assert "lab_plugin_1.py" in lines[1]
    assert "importlib" not in error.traceback
    assert lines[-1] == "ValueError: deep"


def test_a_keyboard_interrupt_is_not_the_plugins_fault(lab):
    selected = lab.install("trainer", "raise KeyboardInterrupt")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # of an interpreter, whatever a test has set
    try:
        with pytest.raises(KeyboardInterrupt):
            lab.load_selected(selected)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_missing_dependency_of_a_plugin_is_named(lab):
    selected = lab.install("trainer", "import no_such_dependency")
    error = lab.error(lambda: lab.load_selected(selected), "plugin.import")
    assert "No module named 'no_such_dependency'" in error.message
    assert "'no_such_dependency', which is not installed" in error.hint


def test_a_registered_module_that_does_not_exist_is_an_incomplete_installation(lab):
    lab.site.install("gone", modules={}, entry_points={"hostcore.trainers": {"gone": "gone_pkg.sub:T"}})
    error = lab.error(lambda: lab.load_selected(lab.select("trainer", "gone")), "plugin.import")
    assert "its module 'gone_pkg' does not exist" in error.message
    assert "--force-reinstall gone" in error.hint


def test_a_missing_symbol_gets_the_nearest(lab):
    lab.site.install(
        "d", modules={"d.py": "class Trainer: ..."}, entry_points={"hostcore.trainers": {"d": "d:Trianer"}}
    )
    error = lab.error(lambda: lab.load_selected(lab.select("trainer", "d")), "plugin.symbol")
    assert "d has no 'Trianer'; did you mean 'Trainer'?" in error.message


# Import paths


def test_an_import_path_is_found_in_the_job_folder_after_everything_installed(lab):
    component = lab.load_path("trainer", "job_trainer_a:Mine", lab.trainer())
    assert component.ref.dist is None
    assert sys.path[-1] == str(lab.job_dir)


def test_a_missing_module_says_which_folder_was_searched(lab):
    error = lab.error(lambda: lab.load_selected(lab.select("trainer", "nowhere:T")), "plugin.import")
    assert f"no module 'nowhere', neither installed nor in {lab.job_dir}" in error.message


def test_an_instance_is_accepted_from_an_import_path(lab):
    component = lab.load_path("trainer", "job_trainer_b:mine", lab.trainer() + "\n\nmine = Mine()\nmine.tag = 7\n")
    assert component.instance.tag == 7


def test_an_instance_is_not_accepted_from_an_entry_point(lab):
    source = lab.trainer() + "\n\nMine = Mine()\n"
    error = lab.error(lambda: lab.load("trainer", source), "plugin.not_a_class")
    assert "is an instance of Mine, not a class" in error.message


@pytest.mark.parametrize(
    ("source", "found"),
    [("def Mine(): ...", "a function"), ("import json as Mine", "a module"), ("Mine = len", "a function")],
)
def test_something_else_than_a_class_says_what_it_is(lab, source, found):
    error = lab.error(lambda: lab.load("trainer", source), "plugin.not_a_class")
    assert f"is {found}, not a class" in error.message


@pytest.mark.parametrize("name", ["TRAINER", "Trainer", "trainer"])
def test_module_alone_guesses_the_conventional_names(lab, name):
    source = lab.trainer() + f"\n\nclass Other(Mine): ...\n\n{name} = Other\n"
    component = lab.load_path("trainer", f"guess_{name}_{len(name)}:", source)
    assert type(component.instance).__name__ == "Other"


def test_module_alone_takes_the_one_class_with_all_required_methods(lab):
    source = "from hostcore_hookspecs import Trainer\n" + lab.trainer() + "\n\nclass Helper: ...\n"
    assert type(lab.load_path("trainer", "guess_one:", source).instance).__name__ == "Mine"


def test_module_alone_with_several_candidates_lists_them(lab):
    source = lab.trainer() + "\n\nclass Other(Mine): ...\n"
    error = lab.error(lambda: lab.load_path("trainer", "guess_two:", source), "plugin.symbol")
    assert "more than one trainer: Mine, Other" in error.message
    assert "guess_two:Mine or guess_two:Other" in error.hint


def test_module_alone_without_candidates_says_what_was_looked_for(lab):
    error = lab.error(lambda: lab.load_path("trainer", "guess_none:", "class Helper: ..."), "plugin.symbol")
    assert "nothing called TRAINER, Trainer or trainer" in error.message
    assert "the methods configure, prepare_batch, train_step" in error.message


# Settings

HYPERPARAMS = """
    @attrs.frozen
    class {name}:
        lr: float
        sizes: tuple[int, ...] = ()
        data: Path | None = None
"""


def _with_settings(lab, name):
    return "from pathlib import Path\n" + lab.trainer(HYPERPARAMS.format(name=name))


def test_hyperparams_are_structured_strictly_and_not_passed_to_the_constructor(lab):
    source = _with_settings(lab, "Hyperparams")
    component = lab.load("trainer", source, {"lr": 0.5, "sizes": [1, 2], "data": "x"})
    assert component.settings == type(component.instance).Hyperparams(0.5, (1, 2), lab.job_dir / "x")


def test_all_errors_in_hyperparams_come_at_once_with_pointers_in_the_job(lab):
    with pytest.raises(Errors) as raised:
        lab.load("trainer", _with_settings(lab, "Hyperparams"), {"lr": "0.5", "sizes": [1, "2"], "dta": 1})
    assert {error.pointer for error in raised.value.errors} == {"/x/lr", "/x/sizes/1", "/x/dta"}


def test_assigned_settings_are_passed_to_the_constructor_of_other_kinds(lab):
    source = lab.component("""
        @attrs.frozen
        class Settings:
            decay: float = 0.9
        def __init__(self, settings): self.given = settings
        def on_train_end(self): ...
    """)
    for given, decay in (({"decay": 0.5}, 0.5), ({}, 0.9)):
        assert lab.load("callback", source, given).instance.given.decay == decay


def test_settings_for_a_component_without_the_class_are_an_error(lab):
    error = lab.error(lambda: lab.load("callback", lab.component("pass"), {"a": 1}), "plugin.no_settings")
    assert "takes no settings, found: 'a'" in error.message
    assert error.pointer == "/x"
    source = lab.component("@attrs.frozen\nclass Hyperparams:\n    a: int = 1\n")
    assert "is called Settings" in lab.error(lambda: lab.load("callback", source, {"a": 1}), "plugin.no_settings").hint


@pytest.mark.parametrize("declared", ["class Hyperparams:\n    lr: float = 1", "Hyperparams = dict()"])
def test_a_settings_class_without_attrs_is_an_error(lab, declared):
    error = lab.error(lambda: lab.load("trainer", lab.trainer(declared)), "plugin.settings_class")
    assert "declares Hyperparams, but it is" in error.message


def test_a_class_with_settings_whose_constructor_does_not_take_them_is_told(lab):
    source = lab.component("@attrs.frozen\nclass Settings:\n    a: int = 1\ndef __init__(self): ...\n")
    error = lab.error(lambda: lab.load("callback", source), "plugin.construct")
    assert "the host passes the keyword argument settings" in error.message


def test_a_trainer_whose_constructor_needs_arguments_is_told_where_hyperparams_are(lab):
    error = lab.error(lambda: lab.load("trainer", lab.trainer("def __init__(self, lr): ...")), "plugin.construct")
    assert "missing a required argument: 'lr'; the host passes no arguments" in error.message
    assert "ctx.hyperparams" in error.hint


# Construction, capabilities


@pytest.mark.parametrize(
    ("statement", "says"),
    [("raise RuntimeError('no GPU')", "RuntimeError: no GPU"), ("raise SystemExit(3)", "SystemExit: 3")],
)
def test_a_constructor_that_raises_is_one_line_with_its_traceback(lab, statement, says):
    source = lab.trainer(f"def __init__(self):\n    {statement}")
    error = lab.error(lambda: lab.load("trainer", source), "plugin.construct")
    assert f"could not be constructed: {says} (" in error.message
    assert statement in error.traceback
    assert "component.py" not in error.traceback


def test_invalid_settings_from_a_constructor_point_into_the_job(lab):
    source = lab.component("""
        @attrs.frozen
        class Settings:
            low: int = 1
        def __init__(self, settings): raise InvalidSettings("/low", "low must be under high", hint="lower it")
    """)
    error = lab.error(lambda: lab.load("callback", source, {"low": 3}), "settings.invalid")
    assert isinstance(error, InvalidSettings)
    assert (error.pointer, error.message, error.hint) == ("/x/low", "low must be under high", "lower it")
    assert error.plugin == "mine-1 (dist-1 1.0)"


def test_a_constructor_may_tell_everything_that_is_wrong_at_once(lab):
    source = "from hostcore.errors import Errors\n" + lab.component("""
        @attrs.frozen
        class Settings:
            low: int = 1
        def __init__(self, settings):
            raise Errors([InvalidSettings("/low", "too low"), InvalidSettings("/high", "missing", hint="give it")])
    """)
    with pytest.raises(Errors) as caught:
        lab.load("callback", source)
    one, other = caught.value.errors
    assert (one.pointer, one.message, one.plugin) == ("/x/low", "too low", "mine-1 (dist-1 1.0)")
    assert (other.pointer, other.hint, other.plugin) == ("/x/high", "give it", "mine-1 (dist-1 1.0)")


def test_an_abstract_class_names_what_it_leaves_open(lab):
    source = "import abc\n" + lab.trainer(
        "@abc.abstractmethod\ndef b(self): ...\n@abc.abstractmethod\ndef a(self): ..."
    )
    source = source.replace("class Mine:", "class Mine(abc.ABC):")
    error = lab.error(lambda: lab.load("trainer", source), "plugin.construct")
    assert "Mine is abstract, without a, b" in error.message


@pytest.mark.parametrize("declared", ["{'accumulate': True}", "Capabilities", "Capabilities(precisions='fp16')"])
def test_capabilities_of_another_type_are_an_error(lab, declared):
    lab.error(lambda: lab.load("trainer", lab.trainer(f"CAPABILITIES = {declared}")), "plugin.capabilities")


def test_all_missing_methods_are_named(lab):
    error = lab.error(
        lambda: lab.load("trainer", lab.trainer(configure=None, state_dict=None)), "plugin.missing_methods"
    )
    assert "Mine lacks the required methods configure, state_dict" in error.message
    assert error.file.endswith("lab_plugin_1.py")


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("data_source", "def open_dataset(self, dataset, ctx): ..."),
        ("callback", "def on_batch_end(self, result): ..."),
        ("reporter", "def report_event(self, event): ..."),
        ("uploader", "def upload_artifact(self, artifact): ..."),
        ("resolver", "def resolve_ref(self, ref): ..."),
        ("policy", "def authorize_job(self, plan): ..."),
    ],
)
def test_every_kind_loads_with_its_required_methods(lab, kind, body):
    assert lab.load(kind, lab.component(body)).kind.name == kind
