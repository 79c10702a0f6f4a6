"""Runs the command line, in a process of its own or in this one."""

import argparse
import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

import prismcore
from prismcore.cli.main import main

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(prismcore.__file__).resolve().parents[1])}


def prism(*args, **kwargs):
    return subprocess.run(
        [sys.executable, "-m", "prismcore", *map(str, args)],
        capture_output=True,
        text=True,
        timeout=240,  # less than the silence after which an emulation gives a rank up
        check=False,
        **{"env": ENVIRONMENT, **kwargs},
    )


def inside(*args):
    """As :func:`prism`, in this process: the same path without the start of an interpreter."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(a) for a in args])
    return subprocess.CompletedProcess(args, code, out.getvalue(), err.getvalue())


def commands(parser, prefix=()):
    """Every command of a parser with its own flags."""
    subs = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not subs:
        yield " ".join(prefix), parser
    for action in subs:
        for name, sub in action.choices.items():
            yield from commands(sub, (*prefix, name))
