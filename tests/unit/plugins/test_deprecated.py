"""Names of the contract that will go, and names that have gone: who uses one is told, and what to use instead."""

import warnings
from types import MappingProxyType

import pytest

import hostcore_hookspecs
from hostcore.plugins.contract import deprecated_uses, deprecation_warnings
from hostcore_hookspecs import API_VERSION, KINDS, deprecated
from hostcore_hookspecs.deprecated import Deprecation, RemovedName

ASKED = ("callback", "on_stop_requested", "requested_by")
STEP = ("trainer", "train_step", "ctx")


def going(instead: str = "take run_state.stop_requests") -> Deprecation:
    """A name that the installed contract still has."""
    return Deprecation(since=API_VERSION, removed_in="1.99.0", instead=instead)


def gone(instead: str = "take run_state.stop_requests") -> Deprecation:
    """A name that the installed contract has no more."""
    return Deprecation(since="0.8.0", removed_in=API_VERSION, instead=instead)


@pytest.fixture
def table(monkeypatch):
    """``table(HOOKS={…})``: the contract as if it had deprecated some names."""

    def put(**tables):
        for name, entries in tables.items():
            monkeypatch.setattr(deprecated, name, MappingProxyType(entries))

    monkeypatch.setattr(deprecated, "_importers", deprecated.defaultdict(set))
    return put


@pytest.mark.parametrize(
    ("installed", "is_removed"),
    [("1.1.0", False), ("1.2.9", False), ("1.3.0", True), ("1.3.0rc1", True), ("1.10.0", True), ("2.0.0", True)],
)
def test_a_name_is_gone_from_its_version_of_removal_on(monkeypatch, installed, is_removed):
    monkeypatch.setattr(deprecated, "API_VERSION", installed)
    assert Deprecation(since="1.1.0", removed_in="1.3.0", instead="x").is_removed is is_removed


def test_every_entry_leaves_two_minor_versions_and_says_what_to_use():
    entries = [*deprecated.HOOKS.values(), *deprecated.ARGUMENTS.values(), *deprecated.NAMES.values()]
    for entry in entries:
        since, removed = (tuple(map(int, version.split("."))) for version in (entry.since, entry.removed_in))
        assert removed >= (since[0], since[1] + 2, 0), entry
        assert entry.instead and not entry.instead.endswith("."), entry
    for (kind, hook), entry in deprecated.HOOKS.items():
        assert (hook in (*KINDS[kind].hooks, *KINDS[kind].own_methods)) is not entry.is_removed
    for (kind, hook, argument), entry in deprecated.ARGUMENTS.items():
        assert (argument in KINDS[kind].arguments(hook)) is not entry.is_removed


class TestThatWillGo:
    def test_an_argument_works_and_is_told(self, lab, table):
        table(ARGUMENTS={ASKED: going()})
        seen = "def on_stop_requested(self, requested_by): self.by = requested_by"
        component = lab.load("callback", lab.component(seen))
        (sentence,) = deprecation_warnings([(component.ref, component.implementations)])
        assert sentence == (
            f"the callback mine-1 (dist-1 1.0, lab_plugin_1:Mine) uses the argument 'requested_by' of the hook"
            f" on_stop_requested, which is deprecated since {API_VERSION} and will be removed in 1.99.0 of the"
            " contract: take run_state.stop_requests"
        )
        (found,) = component.implementations
        found.function("alice")
        assert component.instance.by == "alice"
        again = lab.load_selected(lab.select("callback", component.ref.name))
        assert len(deprecation_warnings((use.ref, use.implementations) for use in (component, again))) == 1
        other = lab.load("callback", lab.component("def on_stop_requested(self, reason): pass"))
        assert not deprecated_uses(other.ref, other.implementations)

    def test_a_hook_and_a_method_of_the_component_itself_are_told(self, lab, table):
        table(HOOKS={("callback", "on_test_begin"): going(), ("callback", "callback_state"): going()})
        body = "def on_test_begin(self): pass\ndef callback_state(self): return {}"
        component = lab.load("callback", lab.component(body))
        uses = deprecated_uses(component.ref, component.implementations)
        assert list(uses) == ["the callback hook on_test_begin", "the callback hook callback_state"]

    def test_a_wrapper_of_another_kind_is_told_of_that_kinds_names(self, lab, table):
        table(ARGUMENTS={STEP: going("take state")}, HOOKS={("data_source", "open_dataset"): going()})
        body = "@hookimpl(wrapper=True)\ndef train_step(self, ctx): return (yield)"
        component = lab.load("callback", lab.component(body))
        (what,) = deprecated_uses(component.ref, component.implementations)
        assert what == "the argument 'ctx' of the hook train_step"

    def test_each_kind_has_names_of_its_own_for_one_hook(self, lab, table):
        table(HOOKS={("uploader", "close"): going()})
        component = lab.load("reporter", lab.component("def report_event(self, event): pass\ndef close(self): pass"))
        assert not deprecated_uses(component.ref, component.implementations)


class TestThatHasGone:
    def test_an_argument_is_an_error_that_names_the_replacement(self, lab, table):
        table(ARGUMENTS={ASKED: gone()})
        body = lab.component("def on_stop_requested(self, reason, requested_by): pass")
        error = lab.error(lambda: lab.load("callback", body), "plugin.removed")
        assert "dist-1 1.0" in error.message
        assert f"the argument 'requested_by', which was removed from the contract in {API_VERSION}" in error.message
        assert error.hint == "In place of 'requested_by': take run_state.stop_requests."

    @pytest.mark.parametrize("marker", ["", "@hookimpl\n"])
    def test_a_hook_is_an_error_with_and_without_a_marker(self, lab, table, marker):
        table(HOOKS={("callback", "on_step"): gone("implement on_batch_end")})
        body = lab.component(f"{marker}def on_step(self): pass")
        error = lab.error(lambda: lab.load("callback", body), "plugin.removed")
        assert f"the callback hook on_step was removed from the contract in {API_VERSION}" in error.message
        assert error.hint.startswith("Implement on_batch_end.")

    def test_a_hook_of_another_kind_is_found_by_its_wrapper(self, lab, table):
        table(HOOKS={("trainer", "optimize"): gone("wrap train_step")})
        body = lab.component('@hookimpl(wrapper=True, specname="optimize")\ndef around(self): return (yield)')
        error = lab.error(lambda: lab.load("callback", body), "plugin.removed")
        assert "around is marked as the hook optimize, which was removed" in error.message

    def test_an_optional_hook_may_stay_for_older_contracts(self, lab, table):
        table(HOOKS={("callback", "on_step"): gone("implement on_batch_end")})
        body = lab.component("@hookimpl(optionalhook=True)\ndef on_step(self): pass")
        assert lab.load("callback", body).implementations == ()

    def test_a_required_method_under_its_old_name_is_told_with_the_new_one(self, lab, table):
        table(HOOKS={("trainer", "step"): gone("call it train_step")})
        source = lab.trainer(train_step="def step(self, prepared_batch): pass")
        errors = lab.errors(lambda: lab.load("trainer", source))
        assert errors["plugin.removed"].hint.startswith("Call it train_step.")


class TestAPublicName:
    IMPORTS = "from hostcore_hookspecs import Finished\n"

    @pytest.fixture
    def finished(self, table):
        return lambda entry: table(NAMES={"Finished": entry})

    def test_that_will_go_is_there_with_a_warning_and_whoever_imports_it_is_told(self, lab, finished):
        finished(Deprecation(since=API_VERSION, removed_in="1.99.0", instead="use Checkpoint", module="run_state"))
        # What it was called at the place that still has it.
        hostcore_hookspecs.run_state.Finished = hostcore_hookspecs.run_state.Checkpoint
        try:
            with pytest.warns(DeprecationWarning, match="hostcore_hookspecs.Finished is deprecated") as caught:
                component = lab.load("callback", self.IMPORTS + lab.component("was = Finished"))
        finally:
            del hostcore_hookspecs.run_state.Finished
        assert component.instance.was is hostcore_hookspecs.Checkpoint
        assert {warning.filename.rpartition("/")[2] for warning in caught} == {"lab_plugin_1.py"}
        (sentence,) = deprecation_warnings([(component.ref, component.implementations)])
        assert "uses hostcore_hookspecs.Finished, which is deprecated" in sentence
        assert sentence.endswith(": use Checkpoint")
        other = lab.load("callback", lab.component("def on_test_begin(self): pass"))
        assert not deprecated_uses(other.ref, other.implementations)

    def test_that_has_gone_cannot_be_imported_and_the_error_names_the_replacement(self, lab, finished):
        finished(gone("use Checkpoint"))
        source = self.IMPORTS + lab.component("pass")
        error = lab.error(lambda: lab.load("callback", source), "plugin.import")
        assert f"hostcore_hookspecs.Finished was removed from the contract in {API_VERSION}" in error.message
        assert "use Checkpoint" in error.message
        with pytest.raises(RemovedName):
            hostcore_hookspecs.Finished  # noqa: B018 - asking for it is what is tested

    def test_that_never_was_is_an_attribute_error_without_a_warning(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert not hasattr(hostcore_hookspecs, "Nonsense")
            with pytest.raises(ImportError, match="cannot import name 'Nonsense'"):
                exec("from hostcore_hookspecs import Nonsense")
