"""Contract methods: what is accepted, and what is refused because it would never be called, or called wrongly."""

import pytest


@pytest.fixture
def refused(lab):
    """What goes wrong with a trainer that has these methods."""
    return lambda code, extra="", **methods: lab.error(lambda: lab.load("trainer", lab.trainer(extra, **methods)), code)


POLITE = """
def _polite(function):
    @functools.wraps(function)
    def call(*args, **kwargs): return function(*args, **kwargs)
    return call
@_polite
def train_step(self, state): ...
"""


@pytest.mark.parametrize(
    "method",
    [
        "def train_step(self, state): ...",
        "def train_step(self): ...",
        "def train_step(self, *, ctx, state, prepared_batch): ...",
        "def train_step(self, ctx, prepared_batch=None, *, state=None): ...",
        "@staticmethod\ndef train_step(prepared_batch, state): ...",
        "@classmethod\ndef train_step(cls, prepared_batch, state): ...",
        "train_step = functools.partial(lambda state, lr: None, lr=1)",
        "train_step = functools.partialmethod(lambda self, state, lr: None, lr=1)",
        "@functools.lru_cache\ndef train_step(self, state): ...",
        "@hookimpl\ndef train_step(self, state): ...",
        "@hookimpl\n@staticmethod\ndef train_step(state): ...",
        "@hookimpl(specname='train_step')\ndef one_step(self, state): ...",
        "train_step = type('F', (), {'__call__': lambda self, state: None})()",
        "def __init__(self): self.train_step = lambda state: None",
        POLITE,
    ],
)
def test_a_subset_of_the_documented_arguments_in_any_form_is_accepted(lab, method):
    assert "train_step" in lab.load("trainer", lab.trainer(train_step=method)).hook_names


def test_wrong_argument_names_say_distribution_version_entry_point_expected_and_found(refused):
    error = refused("plugin.signature", train_step="def train_step(self, batch, state, ctx): ...")
    assert error.message == (
        "the trainer mine-1 (dist-1 1.0, lab_plugin_1:Mine): train_step takes 'batch', which the hook train_step does"
        " not have; expected any of (prepared_batch, state, ctx), found (batch, state, ctx)"
    )
    assert "Did you mean 'prepared_batch'?" in error.hint


@pytest.mark.parametrize(
    ("method", "says"),
    [
        (
            "def train_step(self, *args): ...",
            "takes *args; expected any of (prepared_batch, state, ctx), found (*args)",
        ),
        ("def train_step(self, state, **kwargs): ...", "takes **kwargs"),
        ("def train_step(self, prepared_batch, stat=None): ...", "takes 'stat'"),
        ("def train_step(self, state, /): ...", "takes 'state' by position only"),
        ("async def train_step(self, state): ...", "train_step is async"),
        ("async def train_step(self, state): yield", "train_step is async"),
        ("def train_step(self, state): yield", "is a generator"),
        ("def train_step(prepared_batch, state, ctx): ...", "takes 'prepared_batch' where a method takes 'self'"),
        ("train_step = 3", "is a value of type int, not a method"),
        ("class train_step: ...", "is a class, not a method"),
        (
            "@property\ndef train_step(self): raise OSError('gone')",
            "reading the attribute train_step raises OSError: gone",
        ),
        ("train_step = min", "train_step"),
    ],
)
def test_a_method_that_cannot_be_called_as_documented_is_refused(refused, method, says):
    assert says in refused("plugin.signature", train_step=method).message


def test_all_that_is_wrong_comes_at_once(lab):
    source = lab.trainer(
        configure=None, train_step="def train_step(self, x): ...", state_dict="async def state_dict(self): ..."
    )
    errors = lab.errors(lambda: lab.load("trainer", source))
    assert set(errors) == {"plugin.signature", "plugin.missing_methods"}
    assert errors["plugin.missing_methods"].message.endswith("lacks the required method configure")


def test_none_takes_an_inherited_optional_method_away(lab):
    source = (
        lab.trainer("def save_checkpoint(self, state): ...") + "\n\nclass Mine(Mine):\n    save_checkpoint = None\n"
    )
    assert "save_checkpoint" not in lab.load("trainer", source).hook_names


@pytest.mark.parametrize("decorator", ["@attrs.define", "@attrs.define(eq=True, slots=True)", "@attrs.frozen"])
def test_attrs_classes_with_eq_and_slots_are_accepted(lab, decorator):
    source = lab.trainer("count: int = 0").replace("class Mine", f"{decorator}\nclass Mine")
    assert "train_step" in lab.load("trainer", source).hook_names


def test_a_getattr_on_the_class_changes_nothing(lab):
    source = lab.trainer().replace(
        "class Mine:",
        "class Magic(type):\n    def __getattr__(cls, name): return name\n\n\nclass Mine(metaclass=Magic):",
    )
    component = lab.load("trainer", source, {"lr": 1})
    assert component.settings == {"lr": 1}
    assert "save_checkpoint" not in component.hook_names


# Near misses


@pytest.mark.parametrize(
    ("name", "meant"),
    [("validate_stp", "validate_step"), ("save_checkpoints", "save_checkpoint"), ("tear_down", "teardown")],
)
def test_a_near_miss_is_refused_with_the_name_that_was_meant(refused, name, meant):
    error = refused("plugin.near_miss", f"def {name}(self): ...")
    assert f"{name} is not a hook and is never called; did you mean {meant!r}?" in error.message
    assert "@not_a_hook" in error.hint


def test_a_typo_in_a_required_method_is_told_once(lab):
    source = lab.trainer(train_step="def train_stpe(self, state): ...")
    assert set(lab.errors(lambda: lab.load("trainer", source))) == {"plugin.near_miss"}


@pytest.mark.parametrize(
    "extra",
    [
        "@not_a_hook\ndef validate_stp(self): ...",
        "@staticmethod\n@not_a_hook\ndef validate_stp(): ...",
        "@not_a_hook\n@staticmethod\ndef validate_stp(): ...",
        "def _validate_stp(self): ...",
        "def validate_stp(self): ...\ndef validate_step(self, state): ...",
        "validate_stp = 3",
        "def evaluate(self): ...",
    ],
)
def test_what_is_marked_private_or_not_near_is_no_near_miss(lab, extra):
    lab.load("trainer", lab.trainer(extra))


def test_a_near_miss_inherited_from_another_module_is_not_the_authors(lab):
    lab.site.install("base", modules={"base_lib.py": "class Base:\n    def validate_stp(self): ..."}, entry_points={})
    lab.load("trainer", "from base_lib import Base\n" + lab.trainer().replace("class Mine:", "class Mine(Base):"))


def test_a_hook_of_another_kind_of_the_supervisor_is_refused(lab):
    source = lab.component("def report_event(self, event): ...\n@hookimpl(wrapper=True)\ndef poll(self, handle): yield")
    error = lab.error(lambda: lab.load("reporter", source), "plugin.wrong_room")
    assert "belongs to launchers and is called on them alone" in error.message


WRAPPER = "@hookimpl(wrapper=True, specname='{hook}')\ndef around(self): return (yield)"


def test_an_uploader_may_be_nothing_but_wrappers_around_the_others(lab):
    component = lab.load("uploader", lab.component(WRAPPER.format(hook="upload_artifact")))
    assert component.hook_names == ()
    lab.error(lambda: lab.load("uploader", lab.component("label = 'mine'")), "plugin.missing_methods")
    reporter = lab.component(WRAPPER.format(hook="report_event"))
    lab.error(lambda: lab.load("reporter", reporter), "plugin.missing_methods")


@pytest.mark.parametrize(
    ("code", "body", "says"),
    [
        ("plugin.near_miss", "def on_fit_start(self): ...", "on_fit_start is not a lifecycle hook"),
        ("plugin.near_miss", "def calback_state(self): ...", "'callback_state'"),
        ("plugin.signature", "def load_callback_state(self, state): ...", "expected any of (payload), found (state)"),
        ("plugin.unmarked", "def train_step(self, state): ...", "a hook of trainers"),
        ("plugin.unmarked", "def train_step(self, state): ...", "Mark it @hookimpl(wrapper=True)"),
        ("plugin.not_selected", "@hookimpl\ndef train_step(self): ...", "only the trainer that the job selected"),
        (
            "plugin.wrong_room",
            "@hookimpl\ndef report_event(self): ...",
            "belongs to reporters in the supervisor; a callback",
        ),
        ("plugin.wrong_room", "@hookimpl\ndef report_event(self): ...", "hostcore.reporters"),
        ("plugin.unknown_hook", "@hookimpl\ndef on_bach_end(self): ...", "did you mean 'on_batch_end'?"),
        ("plugin.old_wrapper", "@hookimpl(hookwrapper=True)\ndef train_step(self): yield", ""),
        ("plugin.order", "@hookimpl(tryfirst=True)\ndef on_batch_end(self): ...", ""),
        ("plugin.order", "@hookimpl(wrapper=True, trylast=True)\ndef train_step(self): yield", ""),
        ("plugin.signature", "@hookimpl(wrapper=True)\ndef train_step(self): ...", ""),
        ("plugin.signature", "@hookimpl(wrapper=True)\n@when_recorded\ndef train_step(self): ...", ""),
        ("plugin.when_recorded", "@hookimpl(wrapper=True)\n@when_recorded\ndef prepare_batch(self): yield", ""),
        ("plugin.when_recorded", "@when_recorded\ndef on_batch_end(self): ...", ""),
        ("plugin.when_recorded", "@when_recorded\ndef own_method(self): ...", ""),
        ("plugin.signature", "@hookimpl(wrapper=True)\ndef train_step(self, batch): yield", ""),
        ("plugin.twice", "def on_batch_end(self): ...\n@hookimpl(specname='on_batch_end')\ndef again(self): ...", ""),
    ],
)
def test_a_callback_whose_methods_would_never_be_called_or_called_wrongly_is_refused(lab, code, body, says):
    error = lab.error(lambda: lab.load("callback", lab.component(body)), code)
    assert says in f"{error.message}\n{error.hint}"


NAIVE = """
def _naive(function):
    return lambda *args, **kwargs: function(*args, **kwargs)
@_naive
def train_step(self, state): ...
"""


@pytest.mark.parametrize(
    ("code", "extra", "methods", "says"),
    [
        ("plugin.signature", "", {"train_step": NAIVE}, "functools.wraps"),
        ("plugin.unmarked", "def on_batch_end(self): ...", {}, "Mark it @hookimpl,"),
        (
            "plugin.wraps_itself",
            "",
            {"train_step": "@hookimpl(wrapper=True)\ndef train_step(self): return (yield)"},
            'specname="train_step"',
        ),
        (
            "plugin.missing_methods",
            "def __getattr__(self, name): return lambda *args: None",
            {"train_step": None},
            "__getattr__",
        ),
    ],
)
def test_the_remedy_is_in_the_hint(refused, code, extra, methods, says):
    assert says in refused(code, extra, **methods).hint


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("trainer", "@hookimpl\ndef on_batch_end(self): ..."),
        ("callback", "@hookimpl(optionalhook=True)\ndef on_hook_of_the_future(self): ..."),
    ],
)
def test_a_marker_lets_a_hook_stand_where_none_is_expected(lab, kind, body):
    lab.load(kind, lab.trainer(body) if kind == "trainer" else lab.component(body))
