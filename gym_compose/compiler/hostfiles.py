"""Files of the host that a config names: which, and under which names a container sees them.

Which they are is decided here from data alone (``wanted_files``); the caller finds and digests them (``assets.read_host_files``) and
hands them to ``compile`` in its options.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from gym_compose.compiler import document as doc
from gym_compose.compiler.deployment import DatasetInput, Mount
from gym_compose.compiler.errors import HostFileError, dotted
from gym_compose.compiler.extension import ServerOptions, parse_extension
from gym_compose.compiler.options import CompileOptions, HostFile
from gym_compose.config.model import GymConfig, KeyPath, ServerInstance, ServerSource
from gym_compose.wire.names import CONTAINER_FILES

Sources = Mapping[tuple[str, str], ServerSource]


def wanted_files(config: GymConfig, sources: Sources) -> tuple[str, ...]:
    """Paths, as the config writes them, that ``compile`` wants to know: manifest files, mounts, datasets. Sorted, without repeats.

    Raises ExtensionError for a ``compose`` key that cannot be read.
    """
    extension = parse_extension(config.extension, [instance.name for instance in config.instances])
    wanted: set[str] = set()
    for instance in config.instances:
        source = sources.get((instance.server_type, instance.implementation))
        block = doc.plain(instance.block)
        if source is not None:
            wanted.update(text for _, text in manifest_values(block, source))
        wanted.update(mount.source for mount in extension.server(instance.name).mounts)
        wanted.update(dataset["jsonl_fpath"] for dataset in _datasets(block))
    return tuple(sorted(wanted))


def manifest_values(block: Any, source: ServerSource) -> Iterator[tuple[KeyPath, str]]:
    """(path in the block, file name) of what the manifest's ``files`` fields hold, one name or a list; absent ones are skipped."""
    for field in source.manifest.files:
        path = doc.find(block, field)
        if path is None:
            continue
        for below, value in doc.walk(doc.get(block, path), path):
            if isinstance(value, str) and value:
                yield below, value


def mount_files(
    instance: ServerInstance, source: ServerSource | None, block: Any, options: CompileOptions, server: ServerOptions
) -> tuple[tuple[Mount, ...], tuple[str, ...]]:
    """Mounts of one server and the digests of what they bring; rewrites the manifest's fields in ``block`` (its own slice's copy).

    In the process target fields become absolute host paths and nothing is mounted. Raises HostFileError for what was not found.
    """
    mounts: list[Mount] = []
    digests: list[str] = []
    if source is not None:
        for number, (path, text) in enumerate(manifest_values(block, source)):
            found = _found(instance.name, dotted(path), text, options)
            digests.append(f"{text} {found.sha256 or ''}")
            if options.target == "process":
                doc.put(block, path, found.path)
                continue
            target = f"{CONTAINER_FILES}/{number}/{PurePosixPath(found.path).name}"
            mounts.append(Mount(found.path, target))
            doc.put(block, path, target)
    if options.target == "docker":
        for mount in server.mounts:
            found = _found(instance.name, "mounts", mount.source, options)
            mounts.append(Mount(found.path, mount.target, mount.read_only))
            if mount.read_only:
                digests.append(f"{mount.source} {found.sha256 or ''}")
    return tuple(mounts), tuple(digests)


def dataset_inputs(config: GymConfig, options: CompileOptions) -> tuple[DatasetInput, ...]:
    """Every dataset that an instance declares, in the config's order."""
    found: list[DatasetInput] = []
    for instance in config.instances:
        for dataset in _datasets(doc.plain(instance.block)):
            text = dataset["jsonl_fpath"]
            file = options.files.get(text)
            found.append(
                DatasetInput(
                    instance=instance.name,
                    name=str(dataset.get("name", "")),
                    type=str(dataset.get("type", "")),
                    path=file.path if file else text,
                    sha256=file.sha256 if file else None,
                )
            )
    return tuple(found)


def _found(instance: str, field: str, text: str, options: CompileOptions) -> HostFile:
    found = options.files.get(text)
    if found is None:
        raise HostFileError(instance, field, text)
    return found


def _datasets(block: Any) -> Iterator[dict[str, Any]]:
    datasets = block.get("datasets")
    for dataset in datasets if isinstance(datasets, list) else ():
        if isinstance(dataset, dict) and isinstance(dataset.get("jsonl_fpath"), str):
            yield dataset
