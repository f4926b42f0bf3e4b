"""That importing a plugin does nothing but define it."""

from typing import Final

from hostcore_conformance.check import check
from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.process.probing import HEAVY, Effect, Import, ask, observed_import
from hostcore_conformance.subject import Subject

#: The time that a plugin's own modules may take, in seconds: some tens of what defining classes takes.
BUDGET_SECONDS: Final = 1.0
#: So bad that it counts whichever code did it, also a library that the plugin imports.
_WHOEVER_DID_IT: Final = frozenset({"network", "cuda", "signals", "working_directory"})
#: Of the host, what plugins and their authors' tests may import.
_PUBLIC: Final = ("hostcore.in_process", "hostcore.runs.result", "hostcore_conformance")
_MOST_SHOWN: Final = 3

_EXPECTED: Final = {
    "threads": "starts no thread",
    "processes": "starts no process, and leaves to others how processes are started",
    "files": "writes no file",
    "network": "opens no connection",
    "random": "leaves the global random generators alone",
    "cuda": "does not touch a GPU",
    "torch": "leaves the global settings of torch alone",
    "signals": "installs no signal handler",
    "working_directory": "stays in the working directory",
    "logging": "leaves the root logger alone",
    "environment": "leaves the environment alone",
    "module_path": "leaves sys.path alone",
    "warnings": "leaves the filters of warnings alone",
    "output": "prints nothing",
}
_FIXES: Final = {
    "threads": "Start the thread where it is needed: in open() or setup(), not when the module is imported.",
    "processes": "Call it where its answer is needed; for the start method of multiprocessing use get_context().",
    "files": "Write in open() or setup(), below the run directory that the host passes in.",
    "network": "Connect in open() or setup(); import a library that connects by itself in the method that uses it.",
    "random": "Draw from a generator of the plugin's own (random.Random, numpy.random.default_rng, torch.Generator); "
    "the seeds are the host's.",
    "cuda": "Touch no GPU before setup(ctx): use ctx.device there. A process that has touched one cannot fork.",
    "torch": "Set it in setup(ctx), or leave it to the job: threads, precision and determinism are its own settings.",
    "signals": "Remove the handler: the host has its own, and writes a checkpoint on SIGTERM. Ask ctx.is_canceled().",
    "working_directory": "Use absolute paths: the host passes only such.",
    "logging": "Use logging.getLogger(__name__), and leave level and handlers of the root logger to the program.",
    "environment": "Set it in setup() or open(), and import what reads it after that; or tell users to set it.",
    "module_path": "Make it a package, and import its modules by their full names.",
    "warnings": "Use `with warnings.catch_warnings():` around the call that warns.",
    "output": "Use logging.getLogger(__name__), or ctx.warn() in a run.",
}


@check("plugin.imports_alone", requires=("plugin.resolves",))
def imports_alone(subject: Subject) -> None:
    """The plugin can be imported as the first thing in a new process.

    Its module is imported by a process that has imported nothing of the host's but its start, with the same
    sys.path. A plugin passes in a test and fails in production when it relies on what happened to be imported before
    it: a submodule (`import xml` and then xml.etree), a variable of the environment that a test sets, a circular import
    that works in one order only. An import that ends the process, or waits for ever, fails as well.
    """
    observed_import(subject)


@check(
    "plugin.import_quiet",
    requires=("plugin.imports_alone",),
    variants=(
        *("threads", "processes", "files", "network", "random", "cuda", "torch"),
        *("signals", "working_directory", "logging"),
    ),
)
def import_quiet(subject: Subject, effect: str) -> None:
    """Importing the plugin starts, writes and seeds nothing.

    The plugin is imported in a new process by `hostcore validate`, `hostcore schema` and `hostcore plugins show`, too,
    and in a run beside all others. What its modules do while they are imported happens there each time, in whatever
    order. So an import may only define things. The kit imports the plugin in a process of its own and looks at threads,
    child processes, files opened for writing, connections, the global random generators, CUDA, global settings of
    torch, signal handlers, the working directory, and level and handlers of the root logger. Each is a variant of this
    check.

    What counts is what the plugin's own package does, calls of libraries included. What a library does while it is
    itself being imported is not counted, since its users cannot mend it; except for connections, CUDA, signal handlers
    and the working directory, which harm the run whichever code did it: import such a library in the method that uses
    it. Bytecode in __pycache__ is not counted, nor are handlers and levels of a package's own logger.
    """
    seen = observed_import(subject)
    _require_none(effect, seen, seen.effects, "importing it")


@check(
    "plugin.import_unnoticed",
    level="should",
    requires=("plugin.imports_alone",),
    variants=("environment", "module_path", "warnings", "output"),
)
def import_unnoticed(subject: Subject, effect: str) -> None:
    """Importing the plugin leaves the environment, sys.path and warning filters as they are, and prints nothing.

    These are shared by everything in the process, and inherited by what it starts. A filter that hides the warnings of
    one library hides them for all others; a folder in front of sys.path lets a utils.py in it stand for everybody's; a
    variable set at import is set for other plugins, or not, depending on the order. Each is a variant of this check,
    judged like those of plugin.import_quiet: by what the plugin's own package does.

    Printed text goes between the lines of the program that imports the plugin. A warning that a library prints because
    of how the plugin calls it, while it is imported, counts as well.
    """
    seen = observed_import(subject)
    _require_none(effect, seen, seen.effects, "importing it")


@check(
    "plugin.constructor_quiet",
    level="should",
    requires=("plugin.imports_alone", "plugin.constructs"),
    variants=("threads", "processes", "files", "network"),
)
def constructor_quiet(subject: Subject, effect: str) -> None:
    """The constructor starts, writes and contacts nothing.

    `hostcore validate` constructs every plugin of a job to see whether its settings are right, and opens or closes
    none. A constructor that connects makes validation fail on a laptop without a network; a file or a thread that it
    leaves behind is never closed. The constructor is for looking at the settings; a reporter and an uploader begin
    in open(), a trainer in setup() and configure(), a data source in open_dataset().

    The plugin is constructed with the settings of its example, in a process of its own.
    """
    seen = observed_import(subject)
    if seen.not_constructed is not None:
        raise ConformanceError(
            expected="that the plugin can be constructed in a process of its own, with the settings of its example",
            got=seen.not_constructed,
            fix="It must not depend on what else the process has imported or done before.",
        )
    _require_none(effect, seen, seen.construction, "constructing it")


@check("plugin.import_time", level="should", requires=("plugin.imports_alone",))
def import_time(subject: Subject) -> None:
    """The plugin's own modules are imported in less than a second.

    Only modules of the plugin's own package count, without what they import: the weight of torch or transformers is not
    the plugin's. What takes longer than a second in a plugin's own code is a computation, a download or a large table
    that belongs into setup() or open(), since every validation and every worker process pays for it. A slow machine is
    given a second try, and the better of the two counts.
    """
    own = observed_import(subject).own_seconds
    if sum(own.values()) > BUDGET_SECONDS:
        own = min((own, ask(subject).own_seconds), key=lambda seconds: sum(seconds.values()))
    if sum(own.values()) > BUDGET_SECONDS:
        slowest = ", ".join(f"{module} {seconds:.2f} s" for module, seconds in list(own.items())[:_MOST_SHOWN])
        raise ConformanceError(
            expected=f"at most {BUDGET_SECONDS:g} s in the plugin's own modules",
            got=f"{sum(own.values()):.2f} s: {slowest}",
            fix="Move what they compute or load into setup() or open(), or behind functools.cache.",
        )


def _runs_in_supervisor(subject: Subject) -> str | None:
    return None if subject.kind.room == "supervisor" else "it runs in the worker, which imports torch anyway"


@check("plugin.import_light", level="should", requires=("plugin.imports_alone",), capability=_runs_in_supervisor)
def import_light(subject: Subject) -> None:
    """A plugin of the supervisor imports no deep-learning framework.

    Reporters, uploaders, launchers, resolvers and policies live in the supervisor, which never imports torch: it starts
    in a tenth of a second and stays small beside a worker that needs the memory. One plugin that imports torch,
    tensorflow, jax, transformers or lightning when it is imported adds seconds to the start of every run and hundreds
    of megabytes to its end. Import it in the method that uses it; often a helper of a library does it unasked.
    """
    heavy = observed_import(subject).heavy
    if heavy:
        raise ConformanceError(
            expected=f"none of {', '.join(HEAVY)} in the supervisor's process",
            got=f"importing it imports {', '.join(heavy)}",
            fix=f"Import {heavy[0]} inside the method that uses it. `python -X importtime -c 'import "
            f"{subject.ref.value.partition(':')[0]}'` shows who imports it.",
        )


@check("plugin.imports_contract", level="should", requires=("plugin.imports_alone",))
def imports_contract(subject: Subject) -> None:
    """Of hostcore, the plugin's modules import the contract and the toolkit alone.

    Only hostcore_hookspecs has a version that a plugin can require, and names that are deprecated before they go. The
    modules of the host itself change from one release to the next without notice; what `import hostcore` itself offers
    is the exception. Inspects the names in the plugin's modules once it is imported: a name of hostcore.job.spec was
    imported from there. If the contract lacks something that a plugin needs, report it to its authors.
    """
    found = [name for name in observed_import(subject).host_names if not name.source.startswith(_PUBLIC)]
    if found:
        raise ConformanceError(
            expected="names of hostcore_hookspecs and hostcore_toolkit",
            got=", ".join(f"{one.name} of {one.source} in {one.module}" for one in found[:_MOST_SHOWN]),
            fix="Import from hostcore_hookspecs what is there, and keep a copy of what is not.",
        )


def _require_none(effect: str, seen: Import, effects: tuple[Effect, ...], doing: str) -> None:
    counted = [
        one for one in effects if one.effect == effect and (effect in _WHOEVER_DID_IT or seen.is_own(one.module))
    ]
    if not counted:
        return
    shown = "; ".join(map(str, counted[:_MOST_SHOWN]))
    more = f"; and {len(counted) - _MOST_SHOWN} more" if len(counted) > _MOST_SHOWN else ""
    raise ConformanceError(expected=f"that {doing} {_EXPECTED[effect]}", got=f"{shown}{more}", fix=_FIXES[effect])
