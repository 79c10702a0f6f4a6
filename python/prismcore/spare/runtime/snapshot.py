"""State of a training as named tensors and the structure around them, and back.

Tensors are written and read by torch.distributed.checkpoint, in place where the running state has them.
All else (nested containers, plain values, objects of any kind) is one pickle for each entry of the state,
in which tensors are references. So what comes back is what was saved, also where the state that is loaded
into has not been built up yet: an optimizer that has made no step gets all of its moments.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import torch
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.tensor import DTensor

from prismcore.errors import CheckpointError

__all__ = ["Place", "Placed", "Snapshot", "Structure", "place", "put", "take"]


class Place(NamedTuple):
    """A tensor in a checkpoint."""

    key: str
    """Its name for torch.distributed.checkpoint."""
    shape: tuple[int, ...]
    """Elements, of all ranks together where it is sharded."""
    dtype: str
    sharded: bool


@dataclass(kw_only=True, slots=True)
class Structure:
    """What a rank saves beside tensors, for each entry of the state; plain values only."""

    pickles: dict[str, bytes] = field(default_factory=dict)
    places: dict[str, dict[str, Place]] = field(default_factory=dict)
    """Of the tensors of an entry, by name."""

    def to_plain(self) -> dict[str, Any]:
        """Of types that stay readable when this module changes."""
        places = {entry: {n: tuple(p) for n, p in named.items()} for entry, named in self.places.items()}
        return {"pickles": dict(self.pickles), "places": places}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Structure:
        places = {entry: {n: Place(*p) for n, p in named.items()} for entry, named in plain["places"].items()}
        return cls(pickles=plain["pickles"], places=places)


@dataclass(kw_only=True, slots=True)
class Snapshot:
    """Of one rank."""

    structure: Structure = field(default_factory=Structure)
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    """By :attr:`Place.key`; still those of the training, not copies."""


@dataclass(kw_only=True, slots=True)
class Placed:
    """Where what is to be loaded goes."""

    structure: Structure
    targets: dict[str, dict[str, torch.Tensor]] = field(default_factory=dict)
    """Of each entry, by name: the running state's own tensors, and new ones for what it has not."""

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """By :attr:`Place.key`."""
        return {
            self.structure.places[entry][name].key: tensor
            for entry, targets in self.targets.items()
            for name, tensor in targets.items()
        }

    def entry(self, name: str) -> Any:
        """As saved; its tensors are complete when they have been read."""
        return _Unpickler(io.BytesIO(self.structure.pickles[name]), self.targets[name]).load()


def take(state: Mapping[str, Any], rank: int, ranks: tuple[int, ...]) -> Snapshot:
    """The state of one of several ranks (``ranks``: their global numbers; ``rank``: an index into it).

    A distributed tensor goes under its name and is one, whoever holds a part; any other tensor or value is
    the rank's own, also where other ranks have one of the same name.

    Raises:
        CheckpointError: a key is not a string, two tensors have one name, or a value cannot be pickled.
    """
    snapshot = Snapshot()
    for entry, held in state.items():
        if not isinstance(entry, str):
            raise CheckpointError(f"state with key {entry!r} found, expected a string")
        try:
            value = held.state_dict() if isinstance(held, Stateful) else held
            stream = io.BytesIO()
            pickler = _Pickler(stream, entry, value)
            pickler.dump(value)
        except CheckpointError:
            raise
        except Exception as error:
            raise CheckpointError(f"state {entry!r} cannot be saved: {_words(error)}") from error
        places = snapshot.structure.places[entry] = {}
        for name, tensor in pickler.tensors.items():
            sharded, owner = _owner(tensor, rank, ranks)
            key = name if owner is None else f"rank-{owner}/{name}"
            if key in snapshot.tensors:
                raise CheckpointError(f"two tensors of name {name!r} found in the state: rename a key")
            places[name] = Place(key, tuple(tensor.shape), str(tensor.dtype), sharded)
            snapshot.tensors[key] = tensor.detach()
        snapshot.structure.pickles[entry] = stream.getvalue()
    return snapshot


def place(state: Mapping[str, Any], structure: Structure, where: str) -> Placed:
    """Where to read the tensors of ``state``'s entries to, with nothing changed yet.

    Raises:
        CheckpointError: the checkpoint at ``where`` is not of such a state: an entry or a tensor is missing
            on either side, or a shape or a type differs.
    """
    placed = Placed(structure=structure)
    for entry, held in state.items():
        if entry not in structure.pickles:
            raise CheckpointError(
                f"{where}: no state {entry!r} found; it has {', '.join(sorted(structure.pickles))}"
            )
        if not isinstance(held, (Stateful, dict, torch.Tensor)) and not isinstance(state, MutableMapping):
            raise CheckpointError(f"state {entry!r} is a plain value: to load it give a dict, not a Mapping")
        value = held.state_dict() if isinstance(held, Stateful) else held
        placed.targets[entry] = _targets(
            entry, held, dict(_named(entry, value)), structure.places[entry], where
        )
        try:
            placed.entry(entry)  # what cannot be unpickled must not come to light when tensors are changed
        except Exception as error:
            raise CheckpointError(f"{where}: state {entry!r} cannot be read: {_words(error)}") from error
    return placed


def put(state: Mapping[str, Any], placed: Placed) -> None:
    """Gives ``state`` what was loaded, once the tensors have been read.

    Raises:
        CheckpointError: a ``load_state_dict`` failed.
    """
    for entry in placed.targets:
        held = state[entry]
        try:
            loaded = placed.entry(entry)
            if isinstance(held, Stateful):
                held.load_state_dict(loaded)
            elif isinstance(held, dict) and isinstance(loaded, dict):
                held.clear()
                held.update(loaded)
            elif loaded is not held:  # a tensor was read in place
                cast("MutableMapping[str, Any]", state)[entry] = loaded
        except Exception as error:
            raise CheckpointError(f"state {entry!r} does not take what was saved: {_words(error)}") from error


class _Pickler(pickle.Pickler):
    """Leaves tensors out and names them."""

    def __init__(self, stream: io.BytesIO, entry: str, value: Any) -> None:
        super().__init__(stream, protocol=4)
        self.tensors: dict[str, torch.Tensor] = {}
        self._entry = entry
        self._names: dict[int, str] = {}
        for name, tensor in _named(entry, value):
            if name in self.tensors:
                raise CheckpointError(f"two tensors of name {name!r} found in the state: rename a key")
            self.tensors[name] = tensor
            self._names[id(tensor)] = name

    def persistent_id(self, value: Any) -> str | None:
        if not isinstance(value, torch.Tensor) or not _is_plain(value):
            return None
        name = self._names.get(id(value))
        if name is None:  # inside of an object
            name = f"{self._entry}.#{len(self.tensors)}"
            self.tensors[name] = value
            self._names[id(value)] = name
        return name

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and not _is_plain(value):
            stream = io.BytesIO()
            torch.save(value, stream)
            return _whole_tensor, (stream.getvalue(),)
        return NotImplemented


def _whole_tensor(saved: bytes) -> Any:
    return torch.load(io.BytesIO(saved), weights_only=True)


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, tensors: Mapping[str, torch.Tensor]) -> None:
        super().__init__(stream)
        self._tensors = tensors

    def persistent_load(self, name: Any) -> torch.Tensor:
        return self._tensors[name]


def _is_plain(tensor: torch.Tensor) -> bool:
    """Others (sparse, quantized) are pickled whole."""
    return isinstance(tensor, DTensor) or (tensor.layout is torch.strided and not tensor.is_quantized)


def _named(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors in nested dicts, lists and tuples, each object once, as ``model.layer.weight``."""
    seen: set[int] = set()
    waiting: list[tuple[str, Any]] = [(name, value)]
    while waiting:
        name, value = waiting.pop()
        if id(value) in seen:
            continue
        if isinstance(value, torch.Tensor):
            seen.add(id(value))
            if _is_plain(value):
                yield name, value
        elif isinstance(value, Mapping):
            seen.add(id(value))
            waiting.extend([(f"{name}.{key}", item) for key, item in value.items()][::-1])
        elif isinstance(value, (list, tuple)):
            seen.add(id(value))
            waiting.extend([(f"{name}.{index}", item) for index, item in enumerate(value)][::-1])


def _owner(tensor: torch.Tensor, rank: int, ranks: tuple[int, ...]) -> tuple[bool, int | None]:
    """Whether it is distributed, and whose it is: None for all ranks together. Of a mesh that is a part of
    them it is the first rank's, so that parts (of a pipeline) may use the same names."""
    if not isinstance(tensor, DTensor):
        return False, rank if len(ranks) > 1 else None
    if tensor.device_mesh.size() == len(ranks):
        return True, None
    members = tensor.device_mesh.mesh.flatten().tolist()
    if not set(members) <= set(ranks):
        raise CheckpointError(
            f"a tensor distributed over ranks {members} found, the group has {list(ranks)}: give `group` "
            "with all ranks that hold the state"
        )
    return True, min(map(ranks.index, members))


def _targets(
    entry: str, held: Any, current: dict[str, torch.Tensor], places: dict[str, Place], where: str
) -> dict[str, torch.Tensor]:
    grows = isinstance(held, torch.optim.Optimizer)  # its state comes with its first step
    missing = [name for name in current if name not in places]
    if missing and not grows:
        raise CheckpointError(f"{where}: {_some(missing)} not found in it, expected by state {entry!r}")
    more = [name for name in places if name not in current]
    if more and isinstance(held, torch.nn.Module):
        raise CheckpointError(f"{where}: {_some(more)} found in it, not in the module {entry!r}")
    targets = {}
    for name, saved in places.items():
        target = current.get(name)
        if target is None:
            target = _new(name, held, saved) if not saved.sharded or grows else None
            if target is None:
                raise CheckpointError(
                    f"{where}: sharded {name} found in it, not in state {entry!r}: build it before loading"
                )
        found = (tuple(target.shape), str(target.dtype), isinstance(target, DTensor))
        if found != saved[1:]:
            raise CheckpointError(
                f"{where}: {name} is {_kind(*saved[1:])} in it, {_kind(*found)} in state {entry!r}: it is a "
                "checkpoint of another model or layout"
            )
        targets[name] = target
    return targets


def _new(name: str, held: Any, saved: Place) -> torch.Tensor | None:
    dtype = getattr(torch, saved.dtype.removeprefix("torch."))
    if not saved.sharded:
        return torch.empty(saved.shape, dtype=dtype)
    # Of an optimizer: "entry.state.<number of the parameter>.<name>", distributed as the parameter is.
    number = name.rsplit(".", 2)[1]
    parameters = [p for group in held.param_groups for p in group["params"]]
    if not number.isdecimal() or int(number) >= len(parameters):
        return None
    parameter = parameters[int(number)]
    return torch.empty_like(parameter, dtype=dtype) if tuple(parameter.shape) == saved.shape else None


def _kind(shape: tuple[int, ...], dtype: str, sharded: bool) -> str:
    return f"{'a distributed' if sharded else 'a'} {dtype} of {list(shape)}"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(sorted(names)[:3]) + more


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
