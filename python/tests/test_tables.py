"""The types of ``tandem_sched.tables`` have the keys that the binary accepts, and no other."""

from __future__ import annotations

import re
from typing import get_args, get_type_hints

import pytest

from tandem_sched import Refused, Scenario, tables

HOST = '[host]\ncores_per_llc = 2\n[[vm]]\nname = "a"\nvcpus = 1\n'
LISTS = ["Vm", "Pool", "HostTask", "Change", "Offline", "Realtime", "Profile"]
SECTIONS = ["Host", "Hardware", "Numa", "Expect", "Lab"]


def snake(name: str) -> str:
    return re.sub(r"(?<=.)([A-Z])", r"_\1", name).lower()


def accepted(text: str) -> set[str]:
    """Return the keys that the binary names when it refuses one that there is not."""
    with pytest.raises(Refused) as refused:
        Scenario("wrong", text).check()
    message = str(refused.value)
    assert refused.value.exit_code == 3
    assert "no_such_key" in message, message
    return set(re.findall(r"`(\w+)`", message.split("expected")[1]))


@pytest.mark.parametrize("name", [*LISTS, *SECTIONS])
def test_a_table_has_the_keys_of_the_binary(name: str) -> None:
    form = "[[{}]]" if name in LISTS else "[{}]"
    text = f"{form.format(snake(name))}\nno_such_key = 1\n"
    text = text if name in ("Host", "Vm") else text + HOST
    assert set(get_type_hints(getattr(tables, name))) == accepted(text)


def test_the_file_has_the_keys_of_the_binary() -> None:
    # What a document has published is in the files of the repository alone.
    published = {"published", "less_work"}
    assert set(get_type_hints(tables.Tables)) | published == accepted("no_such_key = 1\n" + HOST)


def test_the_keys_of_workloads_are_those_of_all_kinds() -> None:
    hints = get_type_hints(tables.Workload)
    kinds = get_args(hints["kind"])
    wrong = HOST + 'workload = { kind = "no_such_key" }\n'
    assert set(kinds) == accepted(wrong)
    keys = set()
    for kind in kinds:
        text = HOST + f'workload = {{ kind = "{kind}", no_such_key = 1 }}\n'
        if kind not in ("burn", "idle"):
            keys |= accepted(text)
    assert set(hints) == keys | {"kind"}


def test_a_key_of_run_is_known() -> None:
    with pytest.raises(Refused, match="allowed label and set"):
        Scenario("wrong", HOST + '[[run]]\nlabel = "a"\nsets = {}\n').check()
    assert set(get_type_hints(tables.Run)) == {"label", "set"}
