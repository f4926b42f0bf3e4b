"""Calls: order, wrappers, isolation of uses, and the plain bound method wherever nobody wraps."""

import pytest

from hostcore.plugins.hooks import Hooks

TELLS = """
    def on_batch_end(self, result, run_state, ctx): result.append({name!r})
"""
WRAPS = """
    @hookimpl(wrapper=True)
    def train_step(self, state):
        state.append("{name} in")
        result = yield
        state.append("{name} out")
        return result + ["{name}"]
"""


@pytest.fixture
def callback(lab):
    return lambda body, **names: lab.load("callback", lab.component(body.format(**names) if names else body))


@pytest.fixture
def trainer(lab):
    def make(train_step="def train_step(self, prepared_batch, state, ctx): return [prepared_batch, ctx]", extra=""):
        return lab.load("trainer", lab.trainer(extra, train_step=train_step))

    return make


def test_without_wrappers_the_bound_method_itself_is_called(trainer, callback):
    one, other = trainer(), callback(TELLS, name="a")
    assert Hooks([one]).bind("train_step", of=one) == one.instance.train_step
    assert Hooks([other]).bind("on_batch_end") == other.instance.on_batch_end
    assert Hooks([one]).bind("on_batch_end") is None


@pytest.mark.parametrize(
    "method",
    [
        "def train_step(self, ctx, prepared_batch): return [prepared_batch, ctx]",
        "def train_step(self, *, ctx, state, prepared_batch): return [prepared_batch, ctx]",
        "def train_step(self, prepared_batch, *, ctx=None): return [prepared_batch, ctx]",
        "@staticmethod\ndef train_step(prepared_batch, ctx=7): return [prepared_batch, ctx]",
        "@classmethod\ndef train_step(cls, *, prepared_batch, ctx): return [prepared_batch, ctx]",
        "train_step = functools.partial(lambda lr, prepared_batch, ctx: [prepared_batch, ctx], 1)",
    ],
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_method_gets_the_arguments_it_names_with_and_without_wrappers(trainer, callback, method, wrapped):
    one = trainer(method)
    wrappers = [callback("@hookimpl(wrapper=True)\ndef train_step(self): return (yield)")] if wrapped else []
    assert Hooks([one, *wrappers]).bind("train_step", of=one)("batch", "state", "ctx") == ["batch", "ctx"]


def test_wrappers_are_called_in_the_order_of_the_list_the_first_outermost(trainer, callback):
    one, first, second = trainer(), callback(WRAPS, name="first"), callback(WRAPS, name="second")
    seen = []
    result = Hooks([one, first, second]).bind("train_step", of=one)("batch", seen, "ctx")
    assert seen == ["first in", "second in", "second out", "first out"]
    assert result == ["batch", "ctx", "second", "first"]


def test_wrappers_marked_when_recorded_are_left_out_where_nothing_is_recorded(trainer, callback):
    one, marked = trainer(), WRAPS.replace("def train_step", "@when_recorded\n    def train_step")
    seldom, always = callback(marked, name="seldom"), callback(WRAPS, name="always")
    hooks = Hooks([one, seldom, always])
    assert hooks.is_wrapped_when_recorded("train_step")
    assert hooks.bind("train_step", of=one)("batch", [], "ctx")[2:] == ["always", "seldom"]
    assert hooks.bind("train_step", of=one, recorded=False)("batch", [], "ctx")[2:] == ["always"]
    assert Hooks([one, seldom]).bind("train_step", of=one, recorded=False) == one.instance.train_step
    assert not Hooks([one, always]).is_wrapped_when_recorded("train_step")


@pytest.mark.parametrize(
    "wrapper",
    [
        "def train_step(self, *, ctx, state): {body}",
        "def train_step(self, ctx=None, state=None): {body}",
        "@staticmethod\ndef train_step(state, ctx): {body}",
    ],
)
def test_a_wrapper_gets_the_arguments_it_names_in_any_form(trainer, callback, wrapper):
    one, seen = trainer(), []
    body = "state.append(ctx); return (yield)"
    wrapping = callback("@hookimpl(wrapper=True)\n" + wrapper.format(body=body))
    assert Hooks([one, wrapping]).bind("train_step", of=one)("batch", seen, "ctx") == ["batch", "ctx"]
    assert seen == ["ctx"]


@pytest.mark.parametrize("signature", ["self", "self, *, state"])
def test_a_wrapper_sees_the_exception_and_can_turn_it_into_a_result(trainer, callback, signature):
    one = trainer("def train_step(self): raise ValueError('bad batch')")
    saves = callback(f"""
        @hookimpl(wrapper=True)
        def train_step({signature}):
            try:
                return (yield)
            except ValueError as error:
                return str(error)
    """)
    assert Hooks([one, saves]).bind("train_step", of=one)("batch", "state", "ctx") == "bad batch"
    passes_on = callback(f"@hookimpl(wrapper=True)\ndef train_step({signature}): return (yield)")
    with pytest.raises(ValueError, match="bad batch"):
        Hooks([one, passes_on]).bind("train_step", of=one)("batch", "state", "ctx")


def test_a_trainer_can_wrap_its_own_method_under_another_name(trainer):
    one = trainer(
        extra="""
        @hookimpl(wrapper=True, specname="train_step")
        def doubled(self): return (yield) * 2
    """
    )
    assert Hooks([one]).bind("train_step", of=one)("batch", "state", "ctx") == ["batch", "ctx"] * 2


def test_a_component_without_the_method_binds_to_none_even_when_others_wrap_it(trainer, callback):
    one = trainer()
    wrapping = callback("@hookimpl(wrapper=True)\ndef validate_step(self): return (yield)")
    assert Hooks([one, wrapping]).bind("validate_step", of=one) is None


def test_the_default_of_a_method_that_the_trainer_lacks_is_inside_all_wrappers(lab, callback):
    one = lab.load("trainer", lab.trainer(state_dict=None, load_state_dict=None, setup=None))
    wrapping = callback("@hookimpl(wrapper=True)\ndef state_dict(self): return {**(yield), 'around': 1}")
    hooks = Hooks([one, wrapping])
    assert hooks.bind("setup", of=one)("ctx") is None
    assert hooks.bind("state_dict", of=one)({"step": 3}) == {"step": 3, "around": 1}
    state = {"step": 0}
    hooks.bind("load_state_dict", of=one)(state, {"step": 3}, "ctx")
    assert state == {"step": 3}


def test_a_component_of_another_room_is_refused(lab):
    reporter = lab.load("reporter", lab.component("def report_event(self, event): ..."))
    with pytest.raises(ValueError, match="is a reporter, whose hooks are not here"):
        Hooks([reporter])


def test_each_of_two_data_sources_answers_for_itself(lab, callback):
    source = "def open_dataset(self, dataset, ctx): return {name!r}"
    sources = [lab.load("data_source", lab.component(source.format(name=name))) for name in ("train", "validation")]
    wrapping = callback("@hookimpl(wrapper=True)\ndef open_dataset(self): return (yield).upper()")
    for components, expected in ([sources, ["train", "validation"]], [[*sources, wrapping], ["TRAIN", "VALIDATION"]]):
        hooks = Hooks(components)
        assert [hooks.bind("open_dataset", of=source)({}, None) for source in sources] == expected


def test_two_uses_of_one_plugin_are_two_components(lab):
    selected = lab.install("callback", lab.component(TELLS.format(name="twice")))
    hooks = Hooks([lab.load_selected(selected), lab.load_selected(selected)])
    seen = []
    hooks.bind("on_batch_end")(seen, None, None)
    assert seen == ["twice", "twice"]


# Lifecycle hooks


@pytest.mark.parametrize("wrapped", [False, True])
def test_callbacks_are_called_in_the_order_of_the_list(callback, wrapped):
    components = [callback(TELLS, name=name) for name in "abc"]
    if wrapped:
        components.append(callback("@hookimpl(wrapper=True)\ndef on_batch_end(self): return (yield)"))
    seen = []
    Hooks(components).bind("on_batch_end")(seen, None, None)
    assert seen == ["a", "b", "c"]


def test_a_lifecycle_hook_that_is_only_wrapped_is_called(callback):
    seen = []
    one = callback(
        "@hookimpl(wrapper=True)\ndef on_batch_end(self, result):\n    result.append('in')\n    return (yield)"
    )
    Hooks([one]).bind("on_batch_end")(seen, None, None)
    assert seen == ["in"]


@pytest.mark.parametrize("wrapped", [False, True])
def test_select_device_stops_at_the_first_result(callback, wrapped):
    bodies = ["def select_device(self): ...", "def select_device(self, available): return available[1]"]
    components = [callback(body) for body in [*bodies, "def select_device(self): return 'never asked'"]]
    if wrapped:
        components.append(callback("@hookimpl(wrapper=True)\ndef select_device(self): return (yield)"))
    assert Hooks(components).bind("select_device")(None, ["cuda:0", "cpu"], 0) == "cpu"
    without = [components[0], *components[3:]]
    assert Hooks(without).bind("select_device")(None, ["cuda:0", "cpu"], 0) is None


def test_a_callbacks_state_methods_are_bound_to_it_alone(callback):
    one = callback(
        "def callback_state(self): return {'a': 1}\ndef load_callback_state(self, *, payload): self.got = payload"
    )
    other = callback("pass")
    hooks = Hooks([one, other])
    assert hooks.bind("callback_state", of=one)() == {"a": 1}
    hooks.bind("load_callback_state", of=one)({"a": 2})
    assert one.instance.got == {"a": 2}
    assert hooks.bind("callback_state", of=other) is None


# Rooms


def test_a_kind_of_the_supervisor_has_its_own_manager(lab):
    one = lab.load(
        "reporter", lab.component("def report_event(self, event): return event\ndef open(self, ctx): return ctx")
    )
    hooks = Hooks([one], kinds=("reporter",))
    assert hooks.bind("open", of=one)("ctx") == "ctx"
    assert hooks.bind("close", of=one) is None
    with pytest.raises(KeyError):
        hooks.bind("train_step")


def test_kinds_that_share_a_hook_cannot_share_a_manager():
    with pytest.raises(ValueError, match="uploader and reporter both have a hook open"):
        Hooks([], kinds=("reporter", "uploader"))


@pytest.mark.parametrize("wrapped", [False, True])
def test_each_policy_answers_with_its_own_denial(lab, wrapped):
    bodies = ["def authorize_job(self, plan): return 'denied ' + plan", "def authorize_job(self): ..."]
    if wrapped:
        bodies[1] += "\n@hookimpl(wrapper=True, specname='authorize_job')\ndef log(self): return (yield)"
    policies = [lab.load("policy", lab.component(body)) for body in bodies]
    hooks = Hooks(policies, kinds=("policy",))
    assert [hooks.bind("authorize_job", of=one)("plan", None, None) for one in policies] == ["denied plan", None]


@pytest.mark.parametrize("decorator", ["@attrs.define(eq=True)", "@attrs.define(eq=True, slots=True)"])
def test_components_that_compare_equal_and_cannot_be_hashed_stay_apart(lab, decorator):
    source = lab.component("def on_batch_end(self, result): result.append(id(self))").replace(
        "class Mine", f"{decorator}\nclass Mine"
    )
    components = [lab.load("callback", source), lab.load("callback", source)]
    components.append(lab.load("callback", lab.component("@hookimpl(wrapper=True)\ndef on_batch_end(self): yield")))
    seen = []
    Hooks(components).bind("on_batch_end")(seen, None, None)
    assert seen == [id(component.instance) for component in components[:2]]
