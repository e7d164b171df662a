"""Validates Kubernetes objects against the schemas of several releases and of the operators."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft7Validator, Draft202012Validator
from kubernetes_validate.utils import all_versions, schema_contents
from referencing import Registry, Resource

MINORS = tuple(all_versions()[-4:])
"""The four newest minor releases whose schemas are installed."""

_CRDS = Path(__file__).resolve().parents[2] / "data" / "crds"

Object = dict[str, Any]


def read_crds() -> list[Object]:
    """Return the custom resource definitions for the charts: ``tests/data/crds``."""
    return [json.loads(path.read_text()) for path in sorted(_CRDS.glob("*.json"))]


def schema_errors(body: Object) -> list[str]:
    """Return the errors of an object in any of the releases."""
    return _faults(json.dumps(body, sort_keys=True))


@cache
def _faults(text: str) -> list[str]:
    """Return the errors of an object, cached because many shapes have the same Service."""
    body = json.loads(text)
    custom = _custom(body["apiVersion"], body["kind"])
    if custom is not None:
        return [f"{error.json_path}: {error.message}" for error in Draft7Validator(custom).iter_errors(body)]
    return [
        f"{minor}: {error.json_path}: {error.message}"
        for minor in MINORS
        for error in _core(body["apiVersion"], body["kind"], minor).iter_errors(body)
    ]


@cache
def _core(version: str, kind: str, minor: str) -> Draft202012Validator:
    """Validate like ``kubernetes_validate.validate``, which reads a megabyte of definitions for every object."""
    group, _, number = version.rpartition("/")
    name = "-".join(filter(None, (kind.lower(), group.partition(".")[0], number)))
    schema = schema_contents(f"kubernetes-json-schema/v{minor}-local-strict/{name}.json", minor)
    return Draft202012Validator(schema, registry=Resource.from_contents(schema) @ _definitions(minor))


@cache
def _definitions(minor: str) -> "Registry[Any]":
    found = schema_contents(f"kubernetes-json-schema/v{minor}-local-strict/_definitions.json", minor)
    return Resource.from_contents(found) @ Registry()


@cache
def _custom(version: str, kind: str) -> Object | None:
    for crd in read_crds():
        spec = crd["spec"]
        if spec["names"]["kind"] == kind and f"{spec['group']}/{spec['versions'][0]['name']}" == version:
            schema = _strict(spec["versions"][0]["schema"]["openAPIV3Schema"])
            return {**schema, "properties": {**schema["properties"], "metadata": {"type": "object"}}}
    return None


def _strict(schema: Any) -> Any:
    """Make a schema strict like the server's field validation: no unknown names, int-or-string where allowed."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {name: _strict(value) for name, value in schema.items()}
    if "properties" in schema and "additionalProperties" not in schema and schema.get("type") == "object":
        strict["additionalProperties"] = False
    if schema.get("x-kubernetes-int-or-string"):
        strict = {"type": ["integer", "string"]}
    return strict
