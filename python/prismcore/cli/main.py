"""Entry point of ``prism``: parse, dispatch, and turn failures into one line and an exit code."""

from __future__ import annotations

import argparse
import errno
import os
import re
import shlex
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import prismcore
from prismcore.cli import (
    calibrate,
    check,
    collect,
    doctor,
    emulate,
    export,
    import_,
    info,
    output,
    profile,
    replay,
    spare,
    stragglers,
)
from prismcore.cli.usage import UsageError
from prismcore.errors import PrismError

COMMANDS = (
    collect,
    import_,
    info,
    check,
    replay,
    emulate,
    export,
    stragglers,
    calibrate,
    profile,
    spare,
    doctor,
)

_OF_THE_GRAPH = ("--world-size", "--device", "--cluster", "--host", "--iterations", "--ranks", "--slots")
"""Flags of collect that people give emulate too."""

_ROOM = "free some where outputs and temporary files (TMPDIR) are written"
_REFUSED = {
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EFBIG: "the limit for the size of a file (ulimit -f), or that of its file system, is too low",
    errno.EIO: "a disk or device failed; the system's log (dmesg) says which",
    errno.EROFS: "a file system can only be read; write to another one",
    errno.EMFILE: "raise the limit for open files (ulimit -n)",
    errno.ENFILE: "the whole system has too many files open",
    errno.ENOMEM: "this machine's memory does not suffice",
    errno.EAGAIN: "processes or memory are used up; see ulimit -u",
    errno.ESTALE: "a file on a network file system has gone",
}
"""What the system may refuse without naming a file, and what to do: no fault of ours."""

INTERRUPTED_S = 1.0

EXIT_OK = 0
EXIT_USER_ERROR = 1
EXIT_USAGE = 2
EXIT_STUCK = 3  # deadlock, mismatch or divergence found
EXIT_NO_MEMORY = 4

EXIT_CODES = """\
exit codes:
  0  ok
  1  user error: a file, a profile, a script or a rank that failed; also Ctrl-C
  2  usage: this command line cannot be
  3  deadlock, mismatch or divergence found
  4  a rank does not fit into its device's memory
"""


class _Parser(argparse.ArgumentParser):
    """argparse with one-line usage errors and no abbreviated flags."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        kwargs.setdefault("allow_abbrev", False)
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        # No flag begins so: -1s is a value that is wrong, and not the next flag.
        self._negative_number_matcher = re.compile(r"-\.?\d")

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"prism: error: {message} (see {self.prog} --help)\n")

    def _print_message(self, message: str, file: object = None) -> None:
        # argparse's own takes a text that nobody got for printed
        if file is sys.stdout:
            output.write(message)
        else:
            output.complain(message)


def build_parser() -> argparse.ArgumentParser:
    """The whole command line. Importing what a command needs is left to its ``run``."""
    parser = _Parser(
        prog="prism",
        description="Map a training job without its GPUs, replay it, rehearse chosen ranks of it.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,  # keeps the list a list
    )
    parser.add_argument("--version", action="version", version=f"prism {prismcore.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(commands)
    return parser


def split_program(argv: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """Arguments of prism, and the untouched ones after the first ``--`` (None: no ``--``)."""
    if "--" not in argv:
        return list(argv), None
    at = list(argv).index("--")
    return list(argv[:at]), list(argv[at + 1 :])


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``prism`` with `argv` (default: of this process). Returns the exit code."""
    if sys.stdout is None:  # the caller has closed it
        return _fail("stdout is closed, expected a place for the results", EXIT_USER_ERROR)
    try:
        args = _parse(sys.argv[1:] if argv is None else argv)
        return args if isinstance(args, int) else _run(args)
    except KeyboardInterrupt:
        # What ranks wrote may have filled a pipe that nobody reads.
        output.note("error: interrupted", patience_s=INTERRUPTED_S)
        return EXIT_USER_ERROR
    except output.StdoutError as error:
        if error.errno == errno.EPIPE:  # the reader (head, less) has gone: not worth a word
            return EXIT_USER_ERROR
        return _fail(f"the results cannot be written to stdout: {error}", EXIT_USER_ERROR)
    except Exception:
        return _bug()


def _parse(argv: Sequence[str]) -> argparse.Namespace | int:
    """What `argv` says; an exit code where it is done with that: --help, --version, usage."""
    ours, program = split_program(argv)
    parser = build_parser()
    try:
        args, odd = parser.parse_known_args(ours)
        if odd:
            raise UsageError(_unknown(odd, args, program))
        if program is not None and not hasattr(args, "program"):
            parser.error(f"found -- with arguments after it, but {args.command} runs no program")
    except UsageError as error:
        return _fail(f"{error} (see prism {_command_of(args)} --help)", EXIT_USAGE)
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else EXIT_USAGE
    if hasattr(args, "program"):
        args.program = program or []
    return args


def _command_of(args: argparse.Namespace) -> str:
    return " ".join(filter(None, (args.command, getattr(args, "subcommand", None))))


def _unknown(odd: list[str], args: argparse.Namespace, program: list[str] | None) -> str:
    """Of arguments that no flag of the command takes."""
    told = f"unrecognized arguments: {' '.join(odd)}"
    first, _, _ = odd[0].partition("=")
    if args.command == "emulate" and first in _OF_THE_GRAPH:
        return f"{told}; {first} is that of the collection, which the graph holds"
    if hasattr(args, "program") and program is None and not first.startswith("-"):
        return f"{told}; put -- before the program: prism {args.command} ... -- {shlex.join(odd)}"
    return told


def _run(args: argparse.Namespace) -> int:
    try:
        return int(args.run(args))
    except PrismError as error:
        return _fail(str(error), error.exit_code)
    except UsageError as error:
        return _fail(f"{error} (see prism {_command_of(args)} --help)", EXIT_USAGE)
    except OSError as error:
        if isinstance(error.filename, (str, bytes)):
            return _fail(f"{os.fsdecode(error.filename)}: {error.strerror}", EXIT_USER_ERROR)
        if error.errno not in _REFUSED:
            raise
        return _fail(f"{error.strerror} (no file is named): {_REFUSED[error.errno]}", EXIT_USER_ERROR)
    except ImportError as error:
        if "_core" not in str(error):  # found where it is not, or not loadable where it is
            raise
        return _fail(
            f"the compiled core cannot be loaded ({error}); install prismcore again (make install)",
            EXIT_USER_ERROR,
        )


def _fail(message: str, code: int) -> int:
    output.note(f"error: {output.escaped(message, lines=True)}")
    return code


def _bug() -> int:
    output.complain(traceback.format_exc())
    return _fail(
        "the above is a bug in prismcore, not in your input; please report it with the command line",
        EXIT_USER_ERROR,
    )
