"""That what a launched command printed can be read: all of it, once, in order."""

from typing import Final

from hostcore_conformance.check import check
from hostcore_conformance.checks.launcher.stage import Instructions, Launched, launched
from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.subject import Subject

_NEEDED: Final = ("launcher.launches",)
_LINES: Final = "".join(f"line {number}: Übung, 日本語, 🚀\n" for number in range(200))
#: What the engine itself prints around it is its own business.
_BEGIN, _END = "--- begin ---\n", "--- end ---\n"


def _between(log: str) -> str:
    """Return the program's output, as far as it is there."""
    return log.partition(_BEGIN)[2].partition(_END)[0]


@check("launcher.logs_after_end", requires=_NEEDED)
def logs_after_end(subject: Subject) -> None:
    """The command's output can be read after its end, standard error too, whatever bytes it was.

    The program prints 200 lines with several scripts, a line on standard error, and bytes that are no UTF-8 between two
    words. After its end, read_logs must give the lines as they were, the line on standard error, and both words.

    The last words of a run that failed are what its owner needs. A log that is read from a process, instead of a file
    or the engine, is gone with it; a strict decoder raises at the first stray byte.
    """
    prints = [
        (1, (_BEGIN + _LINES + _END).encode(), ""),
        (2, b"on standard error\n", ""),
        (1, b"left \xff\xfe\x80 right\n", ""),
    ]
    one = launched(subject, Instructions(prints=prints))
    one.over()
    log, _ = one.launcher.read_all(one.handle)
    _require_same(_between(log), _LINES, "Decode it as UTF-8, and leave out nothing.")
    for text, what in (
        ("on standard error\n", "standard error"),
        ("left ", "bytes before"),
        (" right\n", "bytes after"),
    ):
        if text not in log:
            raise ConformanceError(
                expected=f"{text!r} in the log ({what})",
                got=f"a log that ends with {log[-200:]!r}",
                fix="Send standard error where standard output goes; decode with errors='replace'.",
            )


@check("launcher.logs_resume", requires=_NEEDED)
def logs_resume(subject: Subject) -> None:
    """Reading on from `next` repeats nothing and leaves out nothing, also in the middle of a character.

    The program prints half of its lines, up to the middle of a character of three bytes, and waits. What is there is
    read to its end; then the program prints the rest, and read_logs is asked from the last `next` on. The pieces
    together must be what it printed. Asked once more at the end, read_logs gives an empty text; asked from the
    beginning, all of it.

    A client that follows a log does this for hours. Offsets in characters instead of bytes, and decoders that are begun
    anew with each chunk, garble the text around the seam.
    """
    data = (_BEGIN + _LINES + _END).encode()
    cut = data.index("日".encode(), len(data) // 2) + 1
    one = launched(subject, Instructions(prints=[(1, data[:cut], "go"), (1, data[cut:], "")]))
    one.started()
    wanted = data[: cut - 1].decode()
    first, since = _read_until(one, wanted)
    one.open_gate("go")
    one.over()
    rest, at = one.launcher.read_all(one.handle, since)
    fix = "Count bytes, and leave half a character at the end for the next chunk (codecs.getincrementaldecoder)."
    _require_same(_between(first + rest), _LINES, fix)
    again, _ = one.launcher.read_all(one.handle, at)
    if again:
        raise ConformanceError(
            expected="an empty text at the end of the log",
            got=f"{again[:100]!r} from next {at!r} on",
            fix="Read from since on; at the end give an empty text, and since again as next.",
        )
    whole, _ = one.launcher.read_all(one.handle)
    _require_same(_between(whole), _LINES, "An empty since is the beginning of the log.")


def _read_until(one: Launched, wanted: str) -> tuple[str, str]:
    """The log up to where all of a text is there, and the place after it."""
    texts, place = [""], [""]

    def complete() -> bool:
        text, place[0] = one.launcher.read_all(one.handle, place[0])
        texts.append(text)
        return wanted in "".join(texts)

    if not one.until(complete):
        one.open_gate("go")
        raise ConformanceError(
            expected="to read what the program has printed while it runs",
            got=f"{len(''.join(texts)):,} of {len(wanted):,} characters after {one.patience_seconds:g} s,"
            f" at the end {''.join(texts)[-60:]!r}",
            fix="Read the file that its output goes to; nothing may hold it back until the end.",
        )
    return "".join(texts), place[0]


def _require_same(got: str, wanted: str, fix: str) -> None:
    if got == wanted:
        return
    at = next((i for i, (a, b) in enumerate(zip(got, wanted, strict=False)) if a != b), min(len(got), len(wanted)))
    raise ConformanceError(
        expected=f"{len(wanted):,} characters as they were printed, {wanted[at : at + 40]!r} at character {at:,}",
        got=f"{len(got):,} characters, there {got[at : at + 40]!r}",
        fix=fix,
    )
