"""Errors of the config language, by the contract's class names (contract-config 1.17).

    wire.errors.InvalidInputError
    └── ConfigError                             (ValueError as well, except where another base is named)
        ├── ConfigFileError                     a file that cannot be read or parsed; names line and column
        ├── ConfigPathNotFoundError             FileNotFoundError as well
        ├── MalformedConfigPathsError
        ├── OverrideError                       an override that Hydra's grammar or compose rules refuse; names the token
        ├── MergeConflictError                  mapping against list
        ├── DirectiveError                      a merge directive that cannot be carried out
        ├── InheritPathNotFoundError
        ├── AmbiguousAgentRenameError
        ├── AgentCompositionError
        ├── UnsupportedAgentPairingError
        ├── UnsupportedModelPairingError
        ├── UnsupportedAgentOverrideError
        ├── ConfigMissingValuesError
        ├── ConfigInterpolationError
        ├── AgentWithoutEnvironmentServerError
        ├── AmbiguousEnvironmentServerError
        ├── AlmostServerError
        ├── ServerRefNotFoundError
        ├── NoServerInstancesError
        ├── PortAllocationError
        ├── ManifestError                       a manifest.yaml that cannot be read or is no valid one
        └── EnvironmentValidationError          a manifest that is not true of its config, or data that cannot be run

ConfigFileError, OverrideError, MergeConflictError, DirectiveError and PortAllocationError are ours: there the peer shows a traceback of
YAML, Hydra or OmegaConf, or another exception that is no ConfigError.
"""

from __future__ import annotations

from gym_compose.wire.errors import InvalidInputError


class ConfigError(InvalidInputError):
    """The configuration that the user gave cannot be used."""


class ConfigFileError(ConfigError, ValueError):
    """A config file that cannot be read, is not text, is not YAML or is not a mapping."""


class ConfigPathNotFoundError(ConfigError, FileNotFoundError):
    """An entry of ``config_paths`` is in none of the search roots."""


class MalformedConfigPathsError(ConfigError, ValueError):
    """``config_paths`` is not a list of strings."""


class OverrideError(ConfigError, ValueError):
    """An override that Hydra's grammar or its compose rules refuse. ``token`` is the text as given."""

    def __init__(self, message: str, *, token: str, hint: str | None = None, details: tuple[str, ...] = ()) -> None:
        shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in token)
        super().__init__(message, where=f"override '{shown}'", hint=hint, details=details)
        self.token = token


class MergeConflictError(ConfigError, ValueError):
    """Two sources give one key values that cannot be merged: a mapping and a list."""


class DirectiveError(ConfigError, ValueError):
    """``_inherit_from``, ``_copy`` or ``_delete_key`` cannot be carried out."""


class InheritPathNotFoundError(ConfigError, ValueError):
    """The path of ``_inherit_from`` or ``_copy`` is not in the merged config."""


class AmbiguousAgentRenameError(ConfigError, ValueError):
    """An environment server names an agent that was moved to several new names."""


class AgentCompositionError(ConfigError, ValueError):
    """An unbound agent cannot take the place of the agents of the config."""


class UnsupportedAgentPairingError(ConfigError, ValueError):
    """A resources server does not list the agent type that would drive it."""


class UnsupportedModelPairingError(ConfigError, ValueError):
    """A resources server does not list the model type that its agent is bound to."""


class UnsupportedAgentOverrideError(ConfigError, ValueError):
    """An override names an agent instance that composition did not make."""


class ConfigMissingValuesError(ConfigError, ValueError):
    """Values that are still ``???`` after everything was merged."""


class ConfigInterpolationError(ConfigError, ValueError):
    """An interpolation that cannot be resolved."""


class AgentWithoutEnvironmentServerError(ConfigError, ValueError):
    """Agents that no environment server names, with ``error_on_agent_without_environment_server`` set."""


class AmbiguousEnvironmentServerError(ConfigError, ValueError):
    """Rows are routed by an agent that several environment servers name."""


class AlmostServerError(ConfigError, ValueError):
    """Blocks that look like servers and do not validate."""


class ServerRefNotFoundError(ConfigError, ValueError):
    """A server reference names no instance of that type."""


class NoServerInstancesError(ConfigError, ValueError):
    """A start was asked for and the config holds no server."""


class PortAllocationError(ConfigError, ValueError):
    """No port could be allocated in the configured range."""


class ManifestError(ConfigError, ValueError):
    """An environment manifest that cannot be read or is no valid one (contract-data 3.9)."""


class EnvironmentValidationError(ConfigError, ValueError):
    """A workload whose manifest is not true of its config, or whose data cannot be run (contract-data 3.9)."""
