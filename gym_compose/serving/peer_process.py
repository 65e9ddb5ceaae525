"""What each process of a NeMo Gym server finds in place before its code runs: the config of its slice, and whether Ray is wanted.

The peer hands a config on in the environment, as one string. Linux refuses to execute anything with a string of 128 KiB and more in its
environment, so a larger config would keep uvicorn's workers, and every other child, from starting (field-notes F1). Here the config comes
from the slice's files in every process: the launcher prepares its own, and ``peer_site/sitecustomize.py`` those that it starts. In the
environment it stands besides where it fits, for children that are no Python of ours.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson

from gym_compose.serving.on_import import on_import
from gym_compose.serving.ray_client import patient
from gym_compose.serving.slice_files import merge, read_slice
from gym_compose.serving.withheld import Withheld
from gym_compose.wire.names import CONFIG_DICT_VARIABLE, SECRET_VARIABLE, SLICE_VARIABLE
from gym_compose.wire.slice import PublicSlice, SecretSlice

RUNTIME = "nemo-gym"
LONGEST_VARIABLE = 131_071
"""Bytes of ``NAME=value`` that Linux executes a program with (MAX_ARG_STRLEN less the closing zero byte)."""
SITE = Path(__file__).with_name("peer_site")
"""On PYTHONPATH of the server's children: holds the sitecustomize.py that prepares them."""


def fits_environment(name: str, value: str) -> bool:
    """Whether programs can be executed with this variable in the environment."""
    return len(name.encode()) + 1 + len(value.encode()) <= LONGEST_VARIABLE


@dataclass
class PeerProcess:
    """One process. ``config`` is the slice's, secrets in it."""

    public: PublicSlice
    config: dict[str, Any]
    withheld: Withheld = field(init=False)

    def __post_init__(self) -> None:
        self.withheld = Withheld(self.public.instance, self.public.withheld)

    @classmethod
    def of_environment(cls, environ: MutableMapping[str, str]) -> PeerProcess:
        """The process that a launcher's child is. Raises InvalidInputError when the slice's files cannot be read."""
        public = read_slice(Path(environ[SLICE_VARIABLE]), PublicSlice)
        secret = read_slice(Path(environ[SECRET_VARIABLE]), SecretSlice) if environ.get(SECRET_VARIABLE) else None
        return cls(public, merge(public, secret))

    @property
    def in_environment(self) -> bool:
        """Whether the config is small enough to stand there too."""
        return fits_environment(CONFIG_DICT_VARIABLE, orjson.dumps(self.config).decode())

    def install(self) -> None:
        """From now on this process's NeMo Gym, imported or not yet, has the config and the rule for Ray."""
        on_import("nemo_gym.global_config", self._give_config)
        on_import("nemo_gym.server_utils", self._adapt_servers)
        on_import("ray", patient)

    def _give_config(self, module: ModuleType) -> None:
        # The cache that the peer fills from the environment at first use (contract-config 5.1).
        config = import_module("omegaconf").OmegaConf.create(self.config)
        self.withheld.watch(config, self.config)
        module._GLOBAL_CONFIG_DICT = config  # type: ignore[attr-defined]
        verbosity = getattr(module, "_apply_verbosity", None)
        if verbosity is not None:
            verbosity(config)

    def _adapt_servers(self, module: ModuleType) -> None:
        if self.public.ray == "off":
            # A class that does not say whether it wants Ray counts as wanting it there, and starts a cluster to relay a request
            # (contract-servers 7.6). Here undeclared is off; a class that says True still gets Ray.
            module.SimpleServer.ray_enabled = False
        if not self.in_environment:
            # The variable alone tells the peer that this is a server; without it a client would ask the head, whose answer hides secrets.
            module._has_injected_global_config_env = lambda: True  # type: ignore[attr-defined]


def prepare_child(environ: MutableMapping[str, str]) -> None:
    """Prepare a process that a launcher's child started: the files are read only when it imports NeMo Gym."""
    prepared: list[PeerProcess] = []

    def process() -> PeerProcess:
        if not prepared:
            prepared.append(PeerProcess.of_environment(environ))
        return prepared[0]

    on_import("nemo_gym.global_config", lambda module: process()._give_config(module))
    on_import("nemo_gym.server_utils", lambda module: process()._adapt_servers(module))
    on_import("ray", patient)


def child_environment(environ: MutableMapping[str, str], slice_file: Path, secret_file: Path | None) -> None:
    """What this process's children are prepared by: the paths of the slice's files, and our sitecustomize.py behind the server's own."""
    environ[SLICE_VARIABLE] = str(slice_file.resolve())
    if secret_file is not None:
        environ[SECRET_VARIABLE] = str(secret_file.resolve())
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, [environ.get("PYTHONPATH"), str(SITE)]))
