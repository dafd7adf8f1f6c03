"""The models, the binary's schema and real documents agree."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from pydantic.json_schema import models_json_schema

from conftest import ROOT
from tandem_sched import Binary, Document, Scenario, run
from tandem_sched.models import RESULT_VERSION

EVERYTHING = """
duration = "2s"
warmup = "100ms"
[host]
sockets = 2
llcs_per_node = 2
cores_per_llc = 1
threads_per_core = 2
[hardware]
[numa]
period = "500ms"
[[pool]]
name = "capped"
limit = "150%"
[[vm]]
name = "locks"
vcpus = 4
pool = "capped"
workload = { kind = "spinlock", think = "50us", hold = "5us" }
[[vm]]
name = "sleeper"
vcpus = 2
llc = "spread"
workload = { kind = "periodic", period = "10ms", work = "1ms" }
[[vm]]
name = "talkers"
count = 2
vcpus = 1
workload = { kind = "pipe", work = "500us" }
[[vm]]
name = "shell"
vcpus = 2
[vm.guest]
[[vm.task]]
name = "execl"
does = { kind = "exec", work = "1ms" }
[[host_task]]
name = "pair"
count = 2
workload = { kind = "pipe", work = "5us" }
[[realtime]]
name = "packets"
pcpus = "0-1"
work = "1ms"
period = "10ms"
"""
"""A scenario whose result has every field but those of real kernels."""

KERNELS = {
    "CpuStat.kernel_ns",
    "CpuStat.used_ns",
    "CpuStat.kernel_delay_ns",
    "CpuStat.delay_ns",
    "CpuStat.waits",
    "Vm.cpu_stat",
    "NumaClient.notes",
}
"""Fields that only a real kernel fills in."""


def fields(schema: dict[str, Any]) -> dict[str, Any]:
    """Return each field as type.name with what it holds and whether it is always there."""
    types = {schema.get("title", "").split(" ")[0]: schema, **schema["$defs"]}
    types = {name: ty for name, ty in types.items() if "properties" in ty}
    return {
        f"{ty_name if ty is not schema else 'Document'}.{name}": (
            kind(schema, field),
            name in ty.get("required", []),
        )
        for ty_name, ty in types.items()
        for name, field in ty["properties"].items()
    }


def kind(schema: dict[str, Any], field: dict[str, Any]) -> Any:
    """Return what a field holds, whatever way it is written in."""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        target = schema["$defs"][name]
        return kind(schema, target) if "properties" not in target else name
    if "anyOf" in field:
        return sorted(str(kind(schema, each)) for each in field["anyOf"])
    if "oneOf" in field:
        return ["enum", *sorted(each["const"] for each in field["oneOf"])]
    if "enum" in field:
        return ["enum", *sorted(field["enum"])]
    if isinstance(field["type"], list):
        rest = {key: value for key, value in field.items() if key != "type"}
        return sorted(str(kind(schema, {**rest, "type": each})) for each in field["type"])
    if field["type"] == "array":
        return "array", kind(schema, field["items"])
    if field["type"] == "object":
        return "map", kind(schema, field["additionalProperties"])
    if field["type"] == "integer":
        return "integer", field.get("minimum")
    return field["type"]


def test_models_have_the_fields_of_the_schema_with_their_types(binary: Binary) -> None:
    _, models = models_json_schema([(Document, "serialization")])
    document = models["$defs"].pop("Document")
    ours = fields({**document, "title": "Document", "$defs": models["$defs"]})
    theirs = fields(binary.schema())
    assert len(theirs) > 90
    assert set(ours) == set(theirs)
    assert {name: ours[name][0] for name in ours} == {name: theirs[name][0] for name in theirs}


def test_a_field_that_the_models_require_is_always_there(binary: Binary) -> None:
    _, models = models_json_schema([(Document, "validation")])
    document = models["$defs"].pop("Document")
    ours = fields({**document, "title": "Document", "$defs": models["$defs"]})
    theirs = fields(binary.schema())
    optional = {name for name in ours if not ours[name][1]}
    assert {name for name in theirs if not theirs[name][1]} <= optional
    assert "Vm.guest" in optional
    assert "Vm.name" not in optional


def test_the_schema_of_the_version_is_in_the_documents_folder(binary: Binary) -> None:
    file = ROOT / f"docs/schema/result-{RESULT_VERSION}.json"
    assert json.loads(file.read_text()) == binary.schema()
    assert binary.schema()["$id"] == f"urn:tandem:result:{RESULT_VERSION}"


def seen(value: Any, schema: dict[str, Any], root: dict[str, Any], name: str) -> set[str]:
    """Return the fields of the schema that a document has."""
    out: set[str] = set()
    for each in (schema, *schema.get("anyOf", [])):
        if "$ref" in each:
            name = each["$ref"].rpartition("/")[2]
            out |= seen(value, root["$defs"][name], root, name)
    if isinstance(value, list):
        for each in value:
            out |= seen(each, schema.get("items", {}), root, name)
    if isinstance(value, dict):
        for key, field in schema.get("properties", {}).items():
            if key in value:
                out |= {f"{name}.{key}"} | seen(value[key], field, root, name)
    return out


def test_documents_are_valid_and_the_scenario_of_this_test_has_every_field(binary: Binary) -> None:
    schema = binary.schema()
    validator = jsonschema.Draft202012Validator(schema)
    result = run(Scenario("everything", EVERYTHING), on_failure="return")
    assert result.document is not None
    document = json.loads(result.document.model_dump_json(exclude_unset=True))
    validator.validate(document)
    assert seen(document, schema, schema, "Document") == set(fields(schema)) - KERNELS
    del document["runs"][0]["vms"][0]["used_ns"]
    with pytest.raises(jsonschema.ValidationError, match="'used_ns' is a required property"):
        validator.validate(document)


@pytest.mark.parametrize("name", ["pool-limit", "wakeup-latency", "pools-nested", "locality"])
def test_documents_of_scenarios_are_valid(
    name: str, binary: Binary, tmp_path_factory: pytest.TempPathFactory
) -> None:
    scenario = Scenario.load(ROOT / "scenarios" / name)
    scenario = scenario.only(scenario.labels[0])
    file = tmp_path_factory.mktemp(name) / "result.json"
    only = ["--run", scenario.label] if scenario.label else []
    at = str(ROOT / "scenarios" / name)
    binary.ask("sim", at, *only, "--json", str(file))
    document = json.loads(file.read_text())
    jsonschema.Draft202012Validator(binary.schema()).validate(document)
    parsed = Document.model_validate(document)
    assert parsed.model_dump(mode="json", exclude_unset=True) == document
