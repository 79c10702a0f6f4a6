"""The bytes of a checkpoint: torch.distributed.checkpoint's files, summed as they are written."""

from __future__ import annotations

import contextlib
import io
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystem
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult

from prismcore.spare.runtime.checkpoint_folder import FileSum

__all__ = ["SummingWriter", "read"]


class _Results(list[WriteResult]):
    """What a rank wrote, and the sums of its files; goes to the first rank."""

    sums: dict[str, FileSum]


class SummingWriter(dcp.FileSystemWriter):  # type: ignore[misc]
    """Sums what it writes, and completes the checkpoint where torch would end it: an error of that is known
    to all ranks."""

    def __init__(self, path: Path, complete: Callable[[dict[str, FileSum]], None]) -> None:
        # Nothing is on a GPU any more: copying ahead would only make a CUDA context in this thread.
        super().__init__(path, per_thread_copy_ahead=0, overwrite=False)
        self.fs = _SummingFiles()
        self._complete = complete

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> torch.futures.Future[list[WriteResult]]:
        results = _Results(super().write_data(plan, planner).wait())
        results.sums = dict(self.fs.sums)
        done: torch.futures.Future[list[WriteResult]] = torch.futures.Future()
        done.set_result(results)
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        super().finish(metadata, results)
        files = dict(self.fs.sums)
        for result in results:
            assert isinstance(result, _Results)
            files |= result.sums
        self._complete(files)


class _SummingFiles(FileSystem):  # type: ignore[misc]
    def __init__(self) -> None:
        self.sums: dict[str, FileSum] = {}

    @contextlib.contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[_SummingStream]:
        with super().create_stream(path, mode) as stream:
            summing = _SummingStream(stream)
            try:
                yield summing
            except Exception as error:
                cause = summing.failed or (error if isinstance(error, OSError) else None)
                if cause is None:
                    raise
                raise OSError(cause.errno, cause.strerror, f"{path}") from error
        self.sums[Path(path).name] = FileSum(summing.bytes, summing.crc32)

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        super().rename(path, new_path)
        self.sums[Path(new_path).name] = self.sums.pop(Path(path).name)


class _SummingStream(io.RawIOBase):
    """What is written, before it reaches the disk."""

    def __init__(self, stream: io.BufferedWriter) -> None:
        self._stream = stream
        self.bytes = 0
        self.crc32 = 0
        self.failed: OSError | None = None
        """Torch's own writer reports something else."""

    def write(self, data: Any, /) -> int:
        try:
            self._stream.write(data)  # buffered: all of it
        except OSError as error:
            self.failed = error
            raise
        self.crc32 = zlib.crc32(data, self.crc32)
        size = memoryview(data).nbytes
        self.bytes += size
        return size

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.bytes

    def flush(self) -> None:
        if not self._stream.closed:
            self._stream.flush()

    def fileno(self) -> int:
        return self._stream.fileno()

    def close(self) -> None:
        self._stream.close()
        super().close()


def read(path: Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """Tensors in place. Each rank for itself: nothing is to be agreed on."""
    if wanted:
        dcp.load(
            wanted,
            storage_reader=dcp.FileSystemReader(path),
            planner=DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False),
            no_dist=True,
        )
    return wanted
