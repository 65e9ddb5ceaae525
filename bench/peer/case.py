"""One shipped server and what its config needs to start without secrets: a row of ``servers.csv``.

The list is the servers that were seen to start offline, unmodified, outside of containers. Columns: type and name; ``configs``;
``instance``; ``values`` (config keys without which it does not parse: given a dummy, or ``KEY=VALUE``); ``files`` (``KEY=CONTENT``:
likewise, the path of a mounted file with this content); ``environment`` (variables, likewise); ``define`` (``model NAME`` or
``resources NAME IMPLEMENTATION``: instances that the config refers to and does not have); ``rows`` (whose data/example.jsonl gives the
task, empty for none); ``rollout`` (whether one was seen to complete); ``writable`` (instances that write into their own file system);
``without`` (servers of its config that take gigabytes and a GPU: it is started by itself).
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

SERVERS = Path(__file__).with_name("servers.csv")
EXAMPLE = "resources_servers/example_single_tool_call/configs/example_single_tool_call.yaml"
DUMMY = "dummy"
MOUNTED = "/run/gym/given"


@dataclass(frozen=True)
class Case:
    """See the module."""

    server_type: str
    name: str
    configs: tuple[str, ...]
    instance: str
    values: tuple[str, ...]
    files: tuple[tuple[str, str], ...]
    environment: tuple[str, ...]
    define: tuple[str, ...]
    rows: str
    rollout: bool
    writable: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return f"{self.server_type}/{self.name}"

    def config(self, url: str, configs: Sequence[str] = ()) -> str:
        """A config that starts it, with the model endpoint at ``url``. ``configs`` instead of its own."""
        document: dict[str, Any] = {
            "config_paths": list(configs or self.configs),
            "policy_base_url": url,
            "policy_api_key": DUMMY,
            "policy_model_name": "mock",
            # Many configs leave their judge to these three, unset.
            "judge_base_url": url,
            "judge_api_key": DUMMY,
            "judge_model_name": "mock",
            "compose": {"runtime": "nemo-gym"},
        }
        servers: dict[str, dict[str, Any]] = {name: {"writable": True} for name in self.writable}
        if self.files:
            mounts = [{"source": f"{key}.file", "target": f"{MOUNTED}/{key}"} for key, _ in self.files]
            servers.setdefault(self.instance, {})["mounts"] = mounts
        if servers:
            document["compose"]["servers"] = servers
        document.update({key: f"{MOUNTED}/{key}" for key, _ in self.files})
        for line in self.define:
            kind, name, *implementation = line.split()
            if kind == "model":
                block = {"entrypoint": "app.py", "openai_base_url": url, "openai_api_key": DUMMY, "openai_model": "mock"}
                document[name] = {"responses_api_models": {"openai_model": block}}
            else:
                document[name] = {"resources_servers": {implementation[0]: {"entrypoint": "app.py", "domain": "other"}}}
        return yaml.safe_dump(document, sort_keys=False)

    def overrides(self, url: str) -> list[str]:
        """Hydra overrides for the values that the config asks for."""
        return [f"++{value}" if "=" in value else f"++{value}={url if value.endswith('base_url') else DUMMY}" for value in self.values]


def read_cases(file: Path = SERVERS) -> tuple[Case, ...]:
    """All rows, in order."""
    with file.open(encoding="utf-8", newline="") as stream:
        return tuple(
            Case(
                server_type=row["type"],
                name=row["name"],
                configs=_list(row["configs"]),
                instance=row["instance"],
                values=_list(row["values"]),
                files=tuple((key, content) for key, _, content in (text.partition("=") for text in _list(row["files"]))),
                environment=_list(row["environment"]),
                define=_list(row["define"]),
                rows=row["rows"],
                rollout=row["rollout"] == "yes",
                writable=_list(row["writable"]),
                without=_list(row["without"]),
            )
            for row in csv.DictReader(stream)
        )


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(";") if part.strip())
