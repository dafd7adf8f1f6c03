"""Scenarios as objects: a name and the text of a scenario file (docs/scenarios.md).

An object is made without a check: the binary judges the text, when it runs or by ``check``.
"""

from __future__ import annotations

import copy
import hashlib
import os
import re
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import tomli_w

from tandem_sched.binary import Binary
from tandem_sched.errors import Refused, TandemError
from tandem_sched.execute import Order, lay
from tandem_sched.tables import Tables

SECTIONS = ("host", "hardware", "numa", "knobs", "expect", "lab")
"""Tables that ``with_`` reaches by their own name."""

KINDS = ("vm", "host_task", "pool", "profile")
"""Lists whose entries ``with_`` reaches by their ``name``."""


@dataclass(frozen=True)
class Scenario:
    """A scenario: its name, the text of its file, and the label of one run, or None for all."""

    name: str
    text: str
    label: str | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\w[\w.,+=@ -]*", self.name):
            raise Refused(
                f"scenario {self.name!r}: cannot use this name: allowed letters, digits and any of "
                "'_.,+=@ -', a letter or digit first; give another"
            )

    @staticmethod
    def load(name: str | os.PathLike[str]) -> Scenario:
        """Read a TOML file, a folder with ``scenario.toml``, or a name below ``scenarios/``.

        The folder ``scenarios`` is that of the current folder, of one above it, or of the checkout
        that this package is in.
        """
        given = Path(name)
        here = Path.cwd()
        places = (here, *here.parents, *Path(__file__).parents)
        named = [place / "scenarios" / given / "scenario.toml" for place in places]
        for file in (given, given / "scenario.toml", *named):
            if file.is_file():
                at = file.resolve()
                stem = at.parent.name if at.name == "scenario.toml" else at.stem
                try:
                    text = at.read_text(encoding="utf-8")
                except (OSError, UnicodeDecodeError) as e:
                    raise Refused(
                        f"scenario {given}: cannot read {at}: {e}; name a TOML file"
                    ) from e
                return Scenario(stem, text)
        raise Refused(
            f"scenario {given}: cannot find it: seen no such file, allowed a TOML file, a folder "
            f"with scenario.toml or the name of a folder below scenarios/; 'tandem sim' lists those"
        )

    @staticmethod
    def of(name: str, /, **tables: Unpack[Tables]) -> Scenario:
        """Make a scenario from tables (``tandem_sched.tables``, or plain dicts).

        >>> Scenario.of("two", host=Host(cores_per_llc=2), vm=[Vm(name="a", vcpus=2)])
        """
        return Scenario(name, _written(name, dict(tables)))

    def tables(self) -> dict[str, Any]:
        """Return the tables of the file, as ``tomllib`` reads them."""
        try:
            return tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as e:
            raise Refused(f"scenario {self.name}: cannot read the text: {e}; correct it") from e

    def with_(self, settings: Mapping[str, Any]) -> Scenario:
        """Return the scenario with other values, by the keys of ``[[run]]``'s ``set``.

        ``{"a.shares": 300, "host.sockets": 2, "a.workload.sleep": "5ms", "duration": "10s"}``: a
        name and a key, or a key at the top. What a ``[[run]]`` of the file sets stays as it is.
        """
        tables = self.tables()
        for key, value in settings.items():
            _written(self.name, {key: value})  # names the value
            holder, last = self._place(tables, key)
            holder[last] = copy.deepcopy(value)
        return replace(self, text=_written(self.name, tables))

    def _place(self, tables: dict[str, Any], key: str) -> tuple[dict[str, Any], str]:
        first, *rest = key.split(".")
        if not rest:
            return tables, first
        if first in SECTIONS:
            at = tables.setdefault(first, {})
        else:
            entries = [entry for kind in KINDS for entry in tables.get(kind, [])]
            named = {entry.get("name"): entry for entry in reversed(entries)}
            if first not in named:
                there = ", ".join(sorted(str(n) for n in named))
                raise Refused(
                    f"scenario {self.name}: cannot set '{key}': seen no '{first}', allowed "
                    f"{there}, a section ({', '.join(SECTIONS)}) or a key at the top"
                )
            at = named[first]
        for part in rest[:-1]:
            at = at.get(part) if isinstance(at, dict) else None
        if not isinstance(at, dict):
            raise Refused(
                f"scenario {self.name}: cannot set '{key}': seen no table "
                f"'{key.rpartition('.')[0]}'; set that as a whole"
            )
        return at, rest[-1]

    def renamed(self, name: str) -> Scenario:
        """Return the same scenario by another name."""
        return replace(self, name=name)

    def only(self, label: str) -> Scenario:
        """Return the scenario with the run of this label alone."""
        if label not in self.labels:
            there = ", ".join(f"'{one}'" for one in self.labels)
            raise Refused(f"scenario {self.name}: cannot find run '{label}': allowed {there}")
        return replace(self, label=label)

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of its runs; one empty label where the file has no ``[[run]]``."""
        runs = self.tables().get("run")
        tables = [run for run in runs if isinstance(run, dict)] if isinstance(runs, list) else []
        return tuple(str(run.get("label", "")) for run in tables) or ("",)

    @property
    def digest(self) -> str:
        """SHA-256 of name and text."""
        return hashlib.sha256(f"{self.name}\n{self.text}".encode()).hexdigest()

    def order(self, arguments: tuple[str, ...] = ()) -> Order:
        """Return what runs it."""
        only = () if self.label is None else ("--run", self.label)
        return Order(self.name, self.text, self.digest[:16], (*only, *arguments))

    def check(self, binary: Binary | None = None) -> None:
        """Raise ``Refused`` with every reason for which the binary refuses the file."""
        with tempfile.TemporaryDirectory(prefix="tandem-") as folder:
            at = lay(Path(folder), self.order())
            (binary or Binary.find()).ask("plan", "--scenario", self.name, "--json", cwd=at)

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the text to a file that ``tandem sim`` runs."""
        try:
            Path(file).write_text(self.text, encoding="utf-8")
        except OSError as e:
            raise TandemError(
                f"scenario {self.name}: cannot write {os.fspath(file)}: {e.strerror or e}; name a "
                "file in a folder that is there"
            ) from e


def _written(name: str, tables: Mapping[str, Any]) -> str:
    """Return tables as the text of a file; a value that TOML does not have is refused."""
    for key, value in tables.items():
        try:
            tomli_w.dumps({key: value})
        except (TypeError, ValueError, AttributeError) as e:
            raise Refused(
                f"scenario {name}: cannot set '{key}': {e}; allowed text, numbers, True, False, "
                "lists and dicts; leave out what is to be by default"
            ) from e
    return tomli_w.dumps(tables)
