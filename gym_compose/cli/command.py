"""What a command is, and the flags that several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from gym_compose.cli.flags import Component, ConfigFiles, Flag, Json, Local, Positional, Special, StrictList, Switch, Value

Tokens = Sequence[str]


@dataclass(frozen=True)
class Native:
    """Done here. ``handler`` is ``module:function`` below ``gym_compose.cli``."""

    handler: str
    note: str = ""


@dataclass(frozen=True)
class Handed:
    """Left to NeMo Gym's CLI where it is installed; refused with ``reason`` where it is not."""

    reason: str


@dataclass(frozen=True)
class Refused:
    """Not done, here or there, and why."""

    reason: str


Place = Native | Handed | Refused
Exits = Literal["contract", "compose"]


@dataclass(frozen=True)
class Command:
    """One command. ``target`` names the function that NeMo Gym's CLI ends in, or decides it from the parsed flags and tokens.

    ``parses``: it merges a config, so ``resolve_command`` has one to give. ``lead``: tokens before all others.
    """

    summary: str
    place: Place
    target: str | Callable[[argparse.Namespace, Tokens], str]
    flags: tuple[Flag, ...] = ()
    parses: bool = False
    lead: tuple[str, ...] | Callable[[argparse.Namespace], tuple[str, ...]] = ()
    examples: tuple[str, ...] = ()
    exits: Exits = "contract"


def entrypoint_tokens(args: argparse.Namespace) -> list[str]:
    return [f"+entrypoint=resources_servers/{args.resources_server}"] if args.resources_server else []


CONFIG = ConfigFiles("config", "config file; repeatable", metavar="PATH")
BENCHMARK = Component("benchmark", "config of a benchmark; repeatable", metavar="NAME", repeatable=True)
ENVIRONMENT = Component("environment", "config of an environment; repeatable", metavar="NAME", repeatable=True)
RESOURCES_CONFIG = Component("resources-server", "config of a resources server; repeatable", metavar="NAME", repeatable=True)
MODEL_TYPE = Component("model-type", "config of a model server (NAME or NAME/FLAVOR)", metavar="NAME")
AGENT_TYPE = Component("agent-type", "agent that takes the place of the config's own (NAME or NAME/FLAVOR)", metavar="NAME")
PAIRING = Switch(
    "allow-unsupported-pairing", "run although the resources server does not list this agent or model", key="allow_unsupported_pairing"
)
SEARCH_DIR = Local("search-dir", "further root to look for components in; repeatable", metavar="DIR", options=(("action", "append"),))
MODEL = Value("model", "model name at the endpoint", aliases=("-m",), key="policy_model_name")
MODEL_URL = Value("model-url", "base URL of the model endpoint", key="policy_base_url")
MODEL_API_KEY = Value("model-api-key", "API key of the endpoint (better: policy_api_key in env.yaml)", key="policy_api_key")
JSON = Json("json", "print JSON")
NAME = Positional("name", "show one component", metavar="NAME", key="component_name", verbatim=True)
LISTED = Positional("name", "show one benchmark", metavar="NAME", key="component_name")
WORKLOAD = Positional("onboarding_name", "workload with a manifest", metavar="NAME", key="onboarding_name", quoted=True)
KIND = Value("kind", "environment or benchmark", key="catalog_kind", choices=("environment", "benchmark"))
SERVER = Special("resources-server", "name of a resources server", metavar="NAME", tokens=entrypoint_tokens)
OUTPUT = Value("output", "rollouts file to write", aliases=("-o",), key="output_jsonl_fpath")
INPUT = Value("input", "JSONL file of task rows", aliases=("-i",), key="input_jsonl_fpath")
STORAGE = Local("storage", "where the dataset lives (default: hf)", options=(("choices", ("hf", "gitlab")), ("default", "hf")))
HEALTH = (
    Switch("no-health-check", "skip the health check of the rollouts", key="disable_health_check"),
    Value("health-check-workers", "processes of the health check", key="health_check_workers"),
    StrictList("health-check-ignore", "checks that do not count", metavar="A[,B…]", key="health_check_ignored_checks"),
)

ENGINE = Local(
    "engine",
    "where servers run (default: auto, Docker when it answers)",
    ours=True,
    options=(("choices", ("auto", "docker", "process")), ("default", "auto")),
)
PROJECT = Local(
    "project",
    "project name (default: from the config)",
    aliases=("-p", "--project-name"),
    metavar="NAME",
    ours=True,
    # SUPPRESS: `gym compose -p NAME down` gives it before the command.
    options=(("default", argparse.SUPPRESS),),
)
PUBLISH = Local(
    "publish",
    "instance with a port on 127.0.0.1, or environment for all environment servers; repeatable",
    metavar="NAME",
    ours=True,
    options=(("action", "append"), ("default", [])),
)
DRY_RUN = Local("dry-run", "show what would be done, do nothing", ours=True, options=(("action", "store_true"),))

SELECTORS = (CONFIG, BENCHMARK, ENVIRONMENT, RESOURCES_CONFIG, MODEL_TYPE, AGENT_TYPE, PAIRING, SEARCH_DIR)
START = (*SELECTORS, MODEL, MODEL_URL, MODEL_API_KEY)
COMPOSE = (*START, PUBLISH, PROJECT, ENGINE)
RUNNING = (PROJECT, ENGINE)
