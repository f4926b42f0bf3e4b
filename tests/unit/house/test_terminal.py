"""What commands print goes through one module, which shows control characters instead of passing them on."""

import ast
from collections.abc import Iterator
from pathlib import Path

#: What writes to a terminal past it.
WRITES = {
    *("print", "click.echo", "click.secho", "click.style", "click.echo_via_pager", "sys.stdout.write"),
    *("sys.stderr.write", "traceback.print_exc", "Console"),
}
#: Where it may all the same, and why.
ALLOWED = {
    "hostcore/cli/output.py": "it is the module",
    "hostcore_conformance/cli/check_lines.py": "draws with rich; what it shows comes from output.shown()",
    "hostcore/cli/commands/replay.py": "draws with rich",
    "hostcore/cli/uploading.py": "draws with rich",
    "hostcore_builtin_plugins/stores/get.py": "draws with rich",
    "hostcore/in_process.py": "is no command; escapes by itself",
    "hostcore_service/server.py": "its own address",
    "hostcore_inspect/doctor/disk_probe.py": "an answer to the process that has asked",
    "hostcore/worker/__main__.py": "its own usage",
    "hostcore/probe.py": "into the pipe of the process that has asked",
    "hostcore_builtin_plugins/terminal.py": "draws with rich; escapes by itself",
    "hostcore_engines/keeper/keeping.py": "into the log of its engine, read by hostcore logs",
    "hostcore_sweeps/display.py": "draws with rich; escapes by itself",
    "hostcore_engines/ray/driver.py": "into the log of its engine, read by hostcore logs",
}


def writes(folder: Path) -> Iterator[tuple[str, str]]:
    """Module and call."""
    for file in sorted(folder.rglob("*.py")):
        name = str(file.relative_to(folder.parent))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and (called := ast.unparse(node.func)) in WRITES:
                yield name, f"{name}:{node.lineno} calls {called}"


def test_nothing_is_printed_past_the_module_that_escapes(packages: dict[str, Path]) -> None:
    found = {
        module: call
        for name in packages
        for module, call in writes(packages[name])
        # The checks print into the process that makes them.
        if not module.startswith("hostcore_conformance/") or module.startswith("hostcore_conformance/cli/")
    }
    assert [call for module, call in found.items() if module not in ALLOWED] == []
    assert sorted(ALLOWED.keys() - found.keys()) == []
