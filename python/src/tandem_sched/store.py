"""Where a sweep keeps its results: one file of JSON lines, which a killed sweep goes on from.

Promise: a result that ``append`` has returned for is there after a kill and after a loss of power;
one that was being written is there whole or not at all, and is run again then.

The first line says which sweep it is; it is there before the file has its name. Each further line
is a result with the key of its point. A last line without its end is a write that was cut: it is
taken away. Any other line that cannot be read is damage, and is refused. One process at a time
writes to a store.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_core import from_json, to_json

from tandem_sched.errors import StoreError

FORMAT = 1
"""Version of the file's format, in its first line."""

_LOCK_WAIT_S = 2
"""How long a lock that may be a killed sweep's is waited for."""


@dataclass(frozen=True)
class Record:
    """A result as it is kept; ``document`` is the result document, empty if there is none."""

    key: str
    exit_code: int
    message: str
    seconds: float
    document: bytes

    def line(self) -> bytes:
        """Return the line of the file."""
        document = from_json(self.document) if self.document else None
        fields = {
            "key": self.key,
            "exit_code": self.exit_code,
            "message": self.message,
            "seconds": round(self.seconds, 6),
            "document": document,
        }
        return to_json(fields) + b"\n"

    @staticmethod
    def read(line: bytes) -> Record:
        """Return the record of a line; ``ValueError``, ``KeyError`` or ``TypeError`` if none."""
        fields = from_json(line)
        document = fields["document"]
        return Record(
            str(fields["key"]),
            int(fields["exit_code"]),
            str(fields["message"]),
            float(fields["seconds"]),
            b"" if document is None else to_json(document),
        )


class Memory:
    """Results of a sweep without a file."""

    def __init__(self) -> None:
        self._lines: dict[str, bytes] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._lines

    def append(self, records: Iterable[Record]) -> None:
        """Keep results."""
        self._lines |= {record.key: record.line() for record in records}

    def read(self, key: str) -> Record:
        """Return the result of a point."""
        return Record.read(self._lines[key])

    def release(self) -> None:
        """Do nothing: no other process has it."""


class Store:
    """Results of a sweep in a file. ``sweep`` is what the first line says, a value of JSON."""

    def __init__(self, path: Path, sweep: Mapping[str, Any]) -> None:
        self.path = path
        self._places: dict[str, tuple[int, int]] = {}
        with _said(path):
            if not path.exists():
                _create(path, json.dumps({"tandem_sweep": FORMAT, **sweep}).encode() + b"\n")
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._file)
        self._lock()
        try:
            with _said(path):
                self._size = self._scan(sweep)
                os.ftruncate(self._file, self._size)
        except BaseException:
            self.release()
            raise

    def __contains__(self, key: str) -> bool:
        return key in self._places

    def append(self, records: Iterable[Record]) -> None:
        """Keep results durably: they are on the disk when this returns."""
        with _said(self.path):
            text = b""
            for record in records:
                line = record.line()
                self._places[record.key] = (self._size + len(text), len(line))
                text += line
            left = memoryview(text)
            while left:
                left = left[os.write(self._file, left) :]
            os.fdatasync(self._file)
            self._size += len(text)

    def read(self, key: str) -> Record:
        """Return the result of a point."""
        at, length = self._places[key]
        with _said(self.path):
            return Record.read(os.pread(self._file, length, at))

    def release(self) -> None:
        """Let other sweeps write; results can still be read."""
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def _lock(self) -> None:
        # A run that a killed sweep was about to start has its lock until it executes the binary.
        end = time.monotonic() + _LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as e:
                if time.monotonic() < end:
                    time.sleep(0.02)
                    continue
                raise StoreError(
                    f"store {self.path}: cannot use it: another sweep is writing to it; wait for "
                    "its end, or name another file"
                ) from e
            return

    def _scan(self, sweep: Mapping[str, Any]) -> int:
        """Find the results that are there; return the size up to a line that was cut."""
        size = 0
        with self.path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                whole = line.endswith(b"\n")
                if number == 1:
                    self._belongs(line, sweep)
                elif whole:
                    self._places[self._key(line, number)] = (size, len(line))
                else:
                    break
                size += len(line)
        return size

    def _key(self, line: bytes, number: int) -> str:
        try:
            return Record.read(line).key
        except (ValueError, KeyError, TypeError) as e:
            raise StoreError(
                f"store {self.path}: cannot read line {number}: seen {line[:40]!r}, allowed a "
                "result; delete the line, and the run is done again"
            ) from e

    def _belongs(self, line: bytes, sweep: Mapping[str, Any]) -> None:
        """Refuse a file of another sweep, with what differs."""
        try:
            there = json.loads(line)
            known = there.pop("tandem_sweep") == FORMAT
        except (ValueError, KeyError, TypeError, AttributeError):
            known = False
        if not known:
            raise StoreError(
                f"store {self.path}: cannot use it: seen {line[:40]!r}, allowed the store of a "
                f"sweep, format {FORMAT}; name another file"
            )
        want = json.loads(json.dumps(sweep))
        differ = [name for name in {**want, **there} if there.get(name) != want.get(name)]
        if differ:
            seen = "; ".join(f"{n} {_short(there.get(n))}" for n in differ)
            allowed = "; ".join(f"{n} {_short(want.get(n))}" for n in differ)
            raise StoreError(
                f"store {self.path}: cannot go on: it belongs to another sweep: seen {seen}, "
                f"allowed {allowed}; name another file, or make the sweep as it was"
            )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:50]} … {text[-25:]}"


@contextlib.contextmanager
def _said(path: Path) -> Iterator[None]:
    """Turn an error of the system into one that names the store."""
    try:
        yield
    except OSError as e:
        raise StoreError(
            f"store {path}: cannot be written: {e.strerror}; name a file that can be written"
        ) from e


def _create(path: Path, first: bytes) -> None:
    """Make the file with its first line: it has its name when the line is on the disk."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with draft.open("wb") as file:
            file.write(first)
            file.flush()
            os.fsync(file.fileno())
        # Where another process has made the file meanwhile, that one is used.
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
