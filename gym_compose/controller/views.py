"""What the head server says to whom: the view from inside the network, and the one for the host (design decision 15)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import orjson
import yaml

from gym_compose.controller.document import reveal
from gym_compose.wire.head import HeadDocument, HeadSecret, InstanceRecord
from gym_compose.wire.references import server_blocks

_HEAD_KEY = "head_server"

# OmegaConf, which the peer's clients read this with, takes more plain scalars for numbers than YAML 1.1 does (1e3, 1_0e5, .5e+1);
# a string that looks like one has to be quoted.
_FLOAT_LIKE = re.compile(r"[-+]?(?:\d[\d_]*(?:\.[\d_]*)?|\.[\d_]+)(?:[eE][-+]?\d+)?")


class _ConfigDumper(yaml.CSafeDumper):
    """Safe dumper that also writes tuples as lists, never uses anchors, and quotes what OmegaConf would read as a number."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  the base class names it
        return True


def _represent_text(dumper: _ConfigDumper, text: str) -> yaml.ScalarNode:
    # The config is resolved, so "${" in it is text; a reader with interpolations must not see one (OmegaConf escapes it by \).
    text = re.sub(r"(\\*)\$\{", lambda match: match[1] * 2 + "\\${", text)
    style = "'" if _FLOAT_LIKE.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_ConfigDumper.add_representer(str, _represent_text)


def config_text(config: Mapping[str, Any]) -> str:
    """The YAML of a resolved config, key order kept, block style."""
    return yaml.dump(dict(config), Dumper=_ConfigDumper, sort_keys=False, allow_unicode=True, default_flow_style=False)


class View(Protocol):
    """One listener's answers. ``asked_at`` is the request's own ``host:port``."""

    def config(self, asked_at: str | None) -> bytes:
        """JSON string that holds the YAML of the config (contract-config 3.1)."""

    def instances(self, unreachable: Mapping[str, float]) -> bytes:
        """JSON list (contract-config 3.3)."""


class InnerView:
    """For the servers and the driver: in-network addresses; secrets only where the secret file gives them."""

    def __init__(self, document: HeadDocument, secret: HeadSecret, started: float) -> None:
        self._records = [_started(record, started) for record in document.instances]
        self._config = orjson.dumps(config_text(reveal(document.config, secret.values)))

    def config(self, asked_at: str | None) -> bytes:  # noqa: ARG002  the answer inside is the same for everybody
        return self._config

    def instances(self, unreachable: Mapping[str, float]) -> bytes:
        return _answer(self._records, unreachable)


class PublishedView:
    """For the host: secrets masked, addresses of what is published there; of what is not, no address.

    The file of addresses is read on every request, because it is written after the controller has started.
    """

    def __init__(self, document: HeadDocument, started: float) -> None:
        self._document = document
        self._records = [_started(record, started) for record in document.instances]
        self._file = None if document.published_file is None else Path(document.published_file)
        self._kept: tuple[tuple[bytes, str | None], bytes] | None = None

    def config(self, asked_at: str | None) -> bytes:
        raw = self._read()
        if self._kept is None or self._kept[0] != (raw, asked_at):
            rewritten = _readdressed(self._document.config, _addresses(raw), asked_at)
            self._kept = ((raw, asked_at), orjson.dumps(config_text(rewritten)))
        return self._kept[1]

    def instances(self, unreachable: Mapping[str, float]) -> bytes:
        addresses = _addresses(self._read())
        moved = []
        for record in self._records:
            host, port = addresses.get(record.process_name, (None, None))
            moved.append(record.model_copy(update={"host": host, "port": port, "url": None if host is None else f"http://{host}:{port}"}))
        return _answer(moved, unreachable)

    def _read(self) -> bytes:
        if self._file is None:
            return b"{}"
        try:
            return self._file.read_bytes()
        except FileNotFoundError:
            return b"{}"  # not written yet: nothing is published


def _started(record: InstanceRecord, started: float) -> InstanceRecord:
    # The peer's status command computes with start_time, so null would break it.
    return record if record.start_time is not None else record.model_copy(update={"start_time": started})


def _answer(records: list[InstanceRecord], unreachable: Mapping[str, float]) -> bytes:
    answer = []
    for record in records:
        element = record.model_dump(exclude={"unreachable_since"})
        if record.process_name in unreachable:
            element["status"] = "unreachable"
            element["unreachable_since"] = unreachable[record.process_name]
        answer.append(element)
    return orjson.dumps(answer)


def _addresses(raw: bytes) -> dict[str, tuple[str, int]]:
    found = {}
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return {}
    for name, address in document.items() if isinstance(document, dict) else ():
        split = _split(address)
        if split is not None:
            found[str(name)] = split
    return found


def _split(address: object) -> tuple[str, int] | None:
    if not isinstance(address, str):
        return None
    host, _, port = address.rpartition(":")
    return (host, int(port)) if host and port.isascii() and port.isdigit() else None


def _readdressed(config: Mapping[str, Any], addresses: Mapping[str, tuple[str, int]], asked_at: str | None) -> dict[str, Any]:
    moved = dict(config)
    for block in server_blocks(config):
        fields = {key: value for key, value in block.fields.items() if key not in ("host", "port")}
        if block.instance in addresses:
            fields["host"], fields["port"] = addresses[block.instance]
        top = dict(moved[block.instance])
        top[block.server_type] = {**top[block.server_type], block.implementation: fields}
        moved[block.instance] = top
    if isinstance(config.get(_HEAD_KEY), Mapping):
        head = {key: value for key, value in config[_HEAD_KEY].items() if key not in ("host", "port")}
        own = _split(asked_at)
        if own is not None:
            head["host"], head["port"] = own
        moved[_HEAD_KEY] = head
    return moved
