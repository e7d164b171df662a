"""Writes the files of a rendered pod to a directory, so that a program can run here as in the pod."""

import base64
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from support.kubernetes.helm_charts import Manifest

Object = dict[str, Any]
_DEFAULT_MODE = 0o644


class PodCommand(NamedTuple):
    """The command and environment of a container, with every mounted path below the directory."""

    environment: dict[str, str]
    arguments: list[str]


def write_pod_files(
    pod: Object, manifests: Iterable[Manifest], secrets: Mapping[str, Object], directory: Path
) -> PodCommand:
    """Write the files of a pod's first container. ``secrets`` has Secrets that the chart does not create, by name."""
    texts = {(each.kind, each.name): _texts(each.body) for each in manifests if each.kind in {"ConfigMap", "Secret"}}
    texts |= {("Secret", name): dict(keys) for name, keys in secrets.items()}
    container = pod["spec"]["containers"][0]
    mounts = {each["mountPath"]: each for each in container.get("volumeMounts", [])}
    volumes = {each["name"]: each for each in pod["spec"].get("volumes", [])}
    for path, mount in mounts.items():
        _write(_files(volumes[mount["name"]], texts), mount, directory / path.lstrip("/"))
    found = _environment(container, texts)
    moved = {name: _moved(value, mounts, directory) for name, value in found.items()}
    for path in (each for each in directory.rglob("*") if each.is_file()):
        path.write_text(_moved(path.read_text(), mounts, directory))
    arguments = [*container.get("command", []), *container.get("args", [])]
    return PodCommand(moved, [_moved(each, mounts, directory) for each in arguments])


def _texts(body: Object) -> dict[str, str]:
    if body["kind"] == "ConfigMap":
        return dict(body.get("data", {}))
    coded = {name: base64.b64decode(value).decode() for name, value in body.get("data", {}).items()}
    return {**coded, **body.get("stringData", {})}


def _files(volume: Object, texts: Mapping[tuple[str, str], Mapping[str, str]]) -> dict[str, str]:
    if "projected" in volume:
        sources = [_files(each, texts) for each in volume["projected"]["sources"]]
        return {path: text for each in sources for path, text in each.items()}
    if "configMap" in volume:
        source, kind, name = volume["configMap"], "ConfigMap", volume["configMap"]["name"]
    elif "secret" in volume:
        source, kind = volume["secret"], "Secret"
        name = source["name"] if "name" in source else source["secretName"]  # a source of a projected volume has a name
    else:
        return {}
    held = texts[kind, name]
    items = source.get("items")
    return {each["path"]: held[each["key"]] for each in items} if items else dict(held)


def _write(files: Mapping[str, str], mount: Object, place: Path) -> None:
    if "subPath" in mount and files:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(files[mount["subPath"]])
        return
    place.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (place / name).write_text(text)
        (place / name).chmod(_DEFAULT_MODE)


def _environment(container: Object, texts: Mapping[tuple[str, str], Mapping[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in container.get("envFrom", []):
        kind = "ConfigMap" if "configMapRef" in each else "Secret"
        found |= texts[kind, next(iter(each.values()))["name"]]
    for each in container.get("env", []):
        value = each["value"] if "value" in each else _referred(each["valueFrom"], texts)
        if value is not None:
            found[each["name"]] = re.sub(r"\$\((\w+)\)", lambda name: found.get(name[1], name[0]), value)
    return found


def _referred(source: Object, texts: Mapping[tuple[str, str], Mapping[str, str]]) -> str | None:
    """Return the value of a key, or None if an optional key is missing. A missing required key is a ``KeyError``.

    The value of a pod field is the path of the field.
    """
    [(kind, asked)] = source.items()
    if kind == "fieldRef":
        return str(asked["fieldPath"])
    held = texts.get(("Secret" if kind == "secretKeyRef" else "ConfigMap", asked["name"]), {})
    return held.get(asked["key"]) if asked.get("optional") else held[asked["key"]]


def _moved(text: str, mounts: Iterable[str], directory: Path) -> str:
    """Return a text with mounted paths, and their parents, replaced by the paths on this machine."""
    roots = sorted({"/" + path.split("/")[1] for path in mounts})
    return re.sub(rf"(?<![\w./-])({'|'.join(map(re.escape, roots))})(?=/|$|\")", rf"{directory}\1", text)
