"""Objects that settings name by import path: found like plugins, and checked with the other settings."""

import pickle
import sys
import textwrap
from typing import Any

import pytest

from hostcore.errors import Errors
from hostcore.plugins.load import load_component
from hostcore_hookspecs import ImportPath

HYPERPARAMS = """
    @attrs.frozen(kw_only=True)
    class Hyperparams:
        module: {form}
        more: tuple[ImportPath[type], ...] = ()
        maybe: ImportPath[type] | Literal["auto"] | None = None
"""
HEAD = """
from collections.abc import Callable
from typing import Literal, Protocol, runtime_checkable

from hostcore_hookspecs import ImportPath

@runtime_checkable
class Named(Protocol):
    name: str

@runtime_checkable
class Closes(Protocol):
    def close(self) -> None: ...

"""
MODELS = """
class Auto:
    name = "auto"
    class Nested: ...

def build(): ...

auto = Auto()
"""


@pytest.fixture
def given(lab: Any) -> Any:
    """``given(settings, form)``: a trainer that takes them, with ``lit_models`` in the job's folder."""
    (lab.job_dir / "lit_models.py").write_text(MODELS)
    (lab.job_dir / "lit_broken.py").write_text("x = 1\n1 / 0\n")
    (lab.job_dir / "lit_needy.py").write_text("import no_such_dependency\n")

    def select(settings: Any, form: str = "ImportPath[type]") -> Any:
        extra = textwrap.dedent(HYPERPARAMS).format(form=form)
        selected = lab.install("trainer", HEAD + lab.trainer(extra))
        return lab.select("trainer", selected.ref.name, settings)

    return select


@pytest.mark.parametrize(
    ("form", "path"),
    [
        *(("ImportPath", "lit_models:auto"), ("ImportPath[object]", "lit_models:build")),
        *(("ImportPath[type]", "lit_models:Auto"), ("ImportPath[type]", "lit_models:Auto.Nested")),
        *(("ImportPath[type[dict]]", "collections:OrderedDict"), ("ImportPath[str]", "string:digits")),
        *(("ImportPath[Callable[..., object]]", "lit_models:build"), ("ImportPath[Callable]", "lit_models:Auto")),
        *(("ImportPath[Named]", "lit_models:Auto"), ("ImportPath[type[Closes]]", "io:StringIO")),
    ],
)
def test_a_setting_is_what_the_job_wrote_and_loads_what_it_names(lab: Any, given: Any, form: str, path: str) -> None:
    module = lab.load_selected(given({"module": path}, form)).settings.module
    assert (str(module), module) == (path, ImportPath(path))
    found: Any = sys.modules[path.partition(":")[0]]
    for name in path.partition(":")[2].split("."):
        found = getattr(found, name)
    assert module.load() is found
    assert pickle.loads(pickle.dumps(module)).load() is found


@pytest.mark.parametrize(
    ("path", "form", "code", "says"),
    [
        ("lit_models", "ImportPath[type]", "value.range", 'expected an import path "module:symbol" of a class, found'),
        ("lit_models:", "ImportPath[type]", "value.range", 'found "lit_models:"'),
        ("./lit_models.py", "ImportPath", "value.range", 'expected an import path "module:symbol" of an object'),
        (3, "ImportPath[type]", "value.type", "found 3"),
        (None, "ImportPath[type]", "value.type", "found null"),
        ("lit_modles:Auto", "ImportPath[type]", "object.import", "there is no module 'lit_modles', neither installed"),
        ("lit_models.sub:Auto", "ImportPath[type]", "object.import", "'lit_models.sub'"),
        ("lit_models:Atuo", "ImportPath[type]", "object.symbol", "lit_models has no 'Atuo'; did you mean 'Auto'?"),
        ("lit_models:Auto.Netsed", "ImportPath[type]", "object.symbol", "lit_models has no 'Auto.Netsed'"),
        ("lit_broken:Auto", "ImportPath[type]", "object.import", "lit_broken:Auto could not be imported: ZeroDivision"),
        ("lit_needy:Auto", "ImportPath[type]", "object.import", "No module named 'no_such_dependency'"),
        ("lit_models:build", "ImportPath[type]", "object.kind", "lit_models:build is a function; expected a class"),
        ("lit_models:auto", "ImportPath[type]", "object.kind", "is an instance of Auto; expected a class"),
        ("lit_models:auto", "ImportPath[Callable[[], object]]", "object.kind", "expected something that can be called"),
        ("lit_models:Auto", "ImportPath[type[dict]]", "object.kind", "expected a subclass of dict"),
        ("lit_models:Auto", "ImportPath[str]", "object.kind", "the class lit_models.Auto; expected an instance of str"),
        ("lit_models:Auto", "ImportPath[int | str]", "settings.class", "ImportPath[int | str] asks for what cannot be"),
        ("lit_models:Auto", "ImportPath[type[Named]]", "settings.class", "asks for what cannot be checked"),
    ],
)
def test_what_is_wrong_with_a_path_is_one_error_with_its_place(
    lab: Any, given: Any, path: Any, form: str, code: str, says: str
) -> None:
    error = lab.error(lambda: lab.load_selected(given({"module": path}, form)), code)
    assert error.pointer == "/x/module"
    assert says in error.message
    assert "\n" not in error.message
    if "ZeroDivision" in says:
        file = lab.job_dir / "lit_broken.py"
        assert error.message.endswith(f"ZeroDivisionError: division by zero ({file}:2)")
        assert (error.file, "importlib" in error.traceback) == (str(file), False)


def test_paths_inside_of_lists_and_unions_are_checked_too(lab: Any, given: Any) -> None:
    settings = {"module": "lit_models:Auto", "more": ["lit_models:Auto", "lit_models:build"], "maybe": "lit_models:X"}
    errors = lab.errors(lambda: lab.load_selected(given(settings)))
    assert {code: error.pointer for code, error in errors.items()} == {
        "object.kind": "/x/more/1",
        "object.symbol": "/x/maybe",
    }
    found = lab.load_selected(given({"module": "lit_models:Auto", "maybe": "auto"})).settings
    assert found.maybe == "auto"


def test_a_secret_names_no_code(lab: Any, given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIDDEN_CODE", "lit_models:Auto")
    selected = given({"module": {"$secret": "env:HIDDEN_CODE"}})
    error = lab.error(lambda: lab.load_selected(selected), "value.type")
    assert (error.pointer, "lit_models" in error.message) == ("/x/module", False)


def test_a_process_that_transforms_batches_imports_an_object_when_it_needs_it(lab: Any, given: Any) -> None:
    selected = given({"module": "lit_models:Auto"})
    settings = load_component(selected, job_dir=lab.job_dir, import_paths=True, check_objects=False).settings
    assert "lit_models" not in sys.modules
    sys.path.append(str(lab.job_dir))  # it has that of the worker
    assert settings.module.load().__name__ == "Auto"


def test_outside_of_the_worker_no_setting_names_code(lab: Any) -> None:
    source = lab.component("""
        @attrs.frozen(kw_only=True)
        class Settings:
            renderer: ImportPath[type]

        def __init__(self, settings): ...
        def report_event(self, event): ...
    """)
    (lab.job_dir / "lit_models.py").write_text(MODELS)
    selected = lab.install("reporter", "from hostcore_hookspecs import ImportPath\n" + source)
    selected = lab.select("reporter", selected.ref.name, {"renderer": "lit_models:Auto"})
    error = lab.error(lambda: lab.load_selected(selected), "settings.class")
    assert error.pointer == "/x/renderer"
    assert "it runs outside the worker" in error.message
    assert "lit_models" not in sys.modules


def test_where_no_import_path_may_name_code_none_is_imported(lab: Any, given: Any) -> None:
    (lab.job_dir / "lit_noted.py").write_text("class Auto: ...\n")
    with pytest.raises(Errors) as caught:
        load_component(given({"module": "lit_noted:Auto"}), job_dir=lab.job_dir, import_paths=False)
    (error,) = caught.value.errors
    assert (error.code, error.pointer) == ("job.import_paths", "/x/module")
    assert "lit_noted" not in sys.modules
