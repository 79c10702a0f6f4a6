"""Reads a TOML profile into a dataclass and refuses what cannot be.

A profile is a dataclass (``kw_only``, ``slots``). Its fields say what a figure may be::

    @dataclass(kw_only=True, slots=True)
    class Link:
        gbps: Annotated[float, Range(above=0, maximum=1e5, unit="GB/s")]
        latency_us: Annotated[float, Range(maximum=1e4, unit="us")] = 0.0

Understood: ``int``, ``float`` (takes integers too), ``bool``, ``str``, ``Literal`` of strings,
``T | None``, ``list[T]``, ``tuple[T, ...]``, ``dict[str, T]`` and nested dataclasses (tables). A field
without a default must stand in the file. NaN and infinities are never figures, texts are never empty and
never more than one line. A dataclass may check fields against each other in ``__post_init__`` and raise
:func:`problem`.

Every refusal is a :class:`~prismcore.errors.ProfileError` of one line: file, key, what was found,
what was expected.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import os
import sys
import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from prismcore.errors import ProfileError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = [
    "Range",
    "known_profiles",
    "problem",
    "profile_files",
    "profile_table",
    "read_file",
    "read_mapping",
    "read_profile",
    "read_text",
]

T = TypeVar("T")

LARGEST_FILE_BYTES = 1 << 20  # the shipped profiles have 4 KiB


@dataclass(frozen=True, kw_only=True, slots=True)
class Range:
    """What a figure may be: ``minimum <= figure <= maximum``, and ``figure > above`` where given."""

    minimum: float = 0.0
    maximum: float = math.inf
    above: float | None = None
    unit: str = ""

    def __contains__(self, figure: float) -> bool:
        return self.minimum <= figure <= self.maximum and (self.above is None or figure > self.above)

    def describe(self, noun: str) -> str:
        low = f"above {self.above:g}" if self.above is not None else f"at least {self.minimum:g}"
        if self.above is None and self.minimum == -math.inf:
            low = ""
        high = f"at most {self.maximum:g}" if self.maximum != math.inf else ""
        limits = " and ".join(part for part in (low, high) if part)
        return " ".join(part for part in (noun, limits, f"({self.unit})" if self.unit else "") if part)


def problem(key: str, found: str, expected: str) -> ProfileError:
    """The error of one figure; the reader puts the file's name and the table in front."""
    return ProfileError(f"{key}: found {found}, expected {expected}")


def known_profiles(folder: Path) -> list[str]:
    """Names of the profiles that ship in ``folder``, sorted."""
    return sorted(path.stem for path in folder.glob("*.toml"))


def read_profile(cls: type[T], name_or_path: str | os.PathLike[str], folder: Path, *, kind: str) -> T:
    """Reads a shipped profile by name, or a file by path (anything with a slash or ``.toml``).

    Args:
        cls: dataclass of the profile.
        name_or_path: ``"h100"``, ``"my/own.toml"`` or a ``Path``.
        folder: where the shipped profiles of this kind lie.
        kind: ``"cluster"`` or ``"device"``; stands in messages.

    Raises:
        ProfileError: no such profile (the message lists the known ones), one that extends itself, or
            :func:`read_file`'s.
    """
    source, table = profile_table(name_or_path, folder, kind=kind)
    return read_mapping(cls, table, source)


def profile_table(
    name_or_path: str | os.PathLike[str], folder: Path, *, kind: str
) -> tuple[str, dict[str, Any]]:
    """What messages call a profile, and its figures: with ``base = NAME|FILE`` those of the base, but
    for those that the file has itself. A base's ``table`` comes with its full path.

    Raises ProfileError as :func:`read_profile` does.
    """
    path, source = _file_of(name_or_path, folder, kind)
    return source, _extended(path, source, folder, kind, passed=(path.resolve(),))


def profile_files(name_or_path: str | os.PathLike[str], folder: Path, *, kind: str) -> list[Path]:
    """The files that a profile is read from: its own, those that it extends, and the tables they name.

    Raises ProfileError as :func:`read_profile` does where they cannot be read.
    """
    path, source = _file_of(name_or_path, folder, kind)
    files: list[Path] = []
    _extended(path, source, folder, kind, passed=(path.resolve(),), files=files)
    return files


def _file_of(name_or_path: str | os.PathLike[str], folder: Path, kind: str) -> tuple[Path, str]:
    text = os.fspath(name_or_path)
    if not isinstance(name_or_path, str) or text.endswith(".toml") or os.sep in text:
        return Path(text), text
    path = folder / f"{text}.toml"
    if not path.is_file():
        known = known_profiles(folder)
        raise ProfileError(
            f"{kind} profile: found {text!r}, expected one of {', '.join(known)},"
            f" or the path of a .toml file{_suggestion(text, known)}"
        )
    return path, path.name


def _extended(
    path: Path,
    source: str,
    folder: Path,
    kind: str,
    *,
    passed: tuple[Path, ...],
    files: list[Path] | None = None,
) -> dict[str, Any]:
    own = _table_of(_text_of(path, source), source)
    if files is not None:
        files.append(path)
        if isinstance(own.get("table"), str):
            files.append(path.parent / own["table"])
    if "base" not in own:
        return own
    named = own.pop("base")
    if not isinstance(named, str) or not named.strip() or not named.isprintable():
        raise ProfileError(f"{source}: base: found {_found(named)}, expected the name or file of a profile")
    if named.endswith(".toml") or os.sep in named:
        named = path.parent / named
    try:
        base_path, base_source = _file_of(named, folder, kind)
    except ProfileError as error:
        raise ProfileError(f"{source}: base: {error}") from None
    if base_path.resolve() in passed:
        raise ProfileError(f"{source}: base: found {base_source}, which extends this profile itself")
    base = _extended(base_path, base_source, folder, kind, passed=(*passed, base_path.resolve()), files=files)
    if isinstance(base.get("table"), str):
        base["table"] = str(base_path.parent.absolute() / base["table"])
    return _merged(base, own)


def _merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(base)
    for key, value in own.items():
        under = base.get(key)
        both = isinstance(value, Mapping) and isinstance(under, Mapping)
        out[key] = _merged(under, value) if both and under is not None else value
    return out


def read_file(cls: type[T], path: Path, *, source: str | None = None) -> T:
    """Reads ``path``; ``source`` is what messages call it (default: the path).

    Raises:
        ProfileError: unreadable, not UTF-8, not TOML, or a figure is missing, unknown or out of range.
    """
    source = str(path) if source is None else source
    return read_text(cls, _text_of(path, source), source)


def _text_of(path: Path, source: str) -> str:
    try:
        with path.open("rb") as stream:
            data = stream.read(LARGEST_FILE_BYTES + 1)
        if len(data) > LARGEST_FILE_BYTES:
            raise ProfileError(
                f"{source}: found more than {LARGEST_FILE_BYTES >> 20} MiB, expected a profile in TOML"
            )
        return data.decode("utf-8")
    except OSError as error:
        raise ProfileError(f"{source}: found {error.strerror}, expected a readable TOML file") from error
    except UnicodeDecodeError as error:
        raise ProfileError(f"{source}: found bytes that are not UTF-8, expected TOML text") from error


def _table_of(text: str, source: str) -> dict[str, Any]:
    try:
        table: dict[str, Any] = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # not only TOMLDecodeError: integers of 5,000 digits
        raise ProfileError(f"{source}: found {error}, expected valid TOML") from error
    return table


def read_text(cls: type[T], text: str, source: str) -> T:
    """Reads TOML text (a file's, or what a graph's metadata holds)."""
    return read_mapping(cls, _table_of(text, source), source)


def read_mapping(cls: type[T], table: Mapping[str, Any], source: str) -> T:
    """Checks a parsed table and makes the dataclass; ``source`` stands in messages."""
    try:
        made: T = _record(cls, table, "")
    except ProfileError as error:
        raise ProfileError(f"{source}: {error}") from error.__cause__
    return made


def _suggestion(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _found(value: object) -> str:
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list):
        return "a list"
    text = repr(value) if not isinstance(value, bool) else str(value).lower()
    return text if len(text) <= 80 else text[:77] + "..."


def _record(cls: Any, table: object, prefix: str) -> Any:
    if not isinstance(table, Mapping):
        raise problem(prefix.rstrip("."), _found(table), "a table")
    hints = get_type_hints(cls, include_extras=True)
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    for key in table:
        if key not in fields:
            names = sorted(fields)
            raise problem(
                prefix + str(key),
                "an unknown key",
                f"one of {', '.join(names)}{_suggestion(str(key), names)}",
            )
    values = {}
    for name, field in fields.items():
        if name in table:
            values[name] = _value(hints[name], table[name], prefix + name)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise problem(prefix + name, "nothing", _expected(hints[name]))
    try:
        return cls(**values)
    except ProfileError as error:
        raise ProfileError(f"{prefix}{error}") from error.__cause__


def _split(hint: Any) -> tuple[Any, Range | None]:
    if get_origin(hint) is Annotated:
        inner, *notes = get_args(hint)
        return inner, next((note for note in notes if isinstance(note, Range)), None)
    return hint, None


def _options(hint: Any) -> tuple[Any, ...]:
    """Members of ``T | None`` without the None; empty for other hints."""
    if get_origin(hint) in (Union, types.UnionType):
        return tuple(part for part in get_args(hint) if part is not type(None))
    return ()


def _expected(hint: Any) -> str:
    kind, bounds = _split(hint)
    options = _options(kind)
    if options:
        return _expected(Annotated[options[0], bounds] if bounds else options[0])
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(repr, get_args(kind)))}"
    if kind in (int, float):
        noun = "an integer" if kind is int else "a number"
        return bounds.describe(noun) if bounds else noun
    names = {
        bool: "true or false",
        str: "a text of one line",
        list: "a list",
        tuple: "a list",
        dict: "a table",
    }
    return names.get(get_origin(kind) or kind, "a table")


def _value(hint: Any, value: Any, key: str) -> Any:
    kind, bounds = _split(hint)
    options = _options(kind)
    if options:  # TOML has no null: the value is of the one other type
        return _value(Annotated[options[0], bounds] if bounds else options[0], value, key)
    origin = get_origin(kind)
    if origin is Literal:
        accepted = isinstance(value, str) and value in get_args(kind)
    elif kind is bool:
        accepted = isinstance(value, bool)
    elif kind is str:
        accepted = isinstance(value, str) and bool(value.strip()) and value.isprintable()
    elif kind in (int, float):
        accepted = isinstance(value, int if kind is int else (int, float)) and not isinstance(value, bool)
        accepted = accepted and abs(value) < 2**63 and (bounds is None or value in bounds)  # NaN is not
        value = kind(value) if accepted else value
    elif origin in (list, tuple):
        accepted = isinstance(value, list)
        if accepted:
            item = get_args(kind)[0]
            value = origin(_value(item, part, f"{key}[{i}]") for i, part in enumerate(value))
    elif origin is dict:
        accepted = isinstance(value, Mapping)
        if accepted:
            item = get_args(kind)[1]
            value = {str(name): _value(item, part, f"{key}.{name}") for name, part in value.items()}
    elif dataclasses.is_dataclass(kind):
        return _record(kind, value, f"{key}.")
    else:
        raise TypeError(f"{key}: a profile field cannot be a {kind!r}")
    if not accepted:
        raise problem(key, _found(value), _expected(hint))
    return value
