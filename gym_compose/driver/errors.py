"""Errors of a run.

    GymComposeError
    ├── AggregationError                            no metrics from an environment server
    ├── NotReadyError
    │   └── HeadError                               the head server does not answer, or is not ready
    ├── InvalidInputError
    │   ├── OutputExistsError                       the output is there already
    │   └── RoutingError                            rows that cannot be routed in this deployment
    │       ├── AgentWithoutEnvironmentServerError  no environment server fronts the agent
    │       └── AmbiguousEnvironmentServerError     several do
    ├── PrerequisiteError
    │   ├── OutputLockedError                       another driver writes to the output
    │   └── OutputFailedError                       disk full, directory not writable
    └── IncompleteError
        └── ServerSilentError                       an environment server stopped answering in mid-run

The two about environment servers have the contract's names (contract-data 1.5).
"""

from __future__ import annotations

from gym_compose.wire.errors import GymComposeError, IncompleteError, InvalidInputError, NotReadyError, PrerequisiteError


class HeadError(NotReadyError):
    """The head server cannot be asked, or says that the deployment is not ready."""


class RoutingError(InvalidInputError):
    """Rows name agents, environment servers or tasksets that this deployment does not have."""


class AgentWithoutEnvironmentServerError(RoutingError):
    """No environment server fronts an agent that rows name."""


class AmbiguousEnvironmentServerError(RoutingError):
    """Several environment servers front an agent that rows name."""


class OutputExistsError(InvalidInputError):
    """The output of an earlier run is there; it is never deleted unasked."""


class OutputLockedError(PrerequisiteError):
    """Another driver writes to this output."""


class OutputFailedError(PrerequisiteError):
    """A result file cannot be written."""


class ServerSilentError(IncompleteError):
    """An environment server stopped answering, so the rest of the run has no one to go to."""


class AggregationError(GymComposeError):
    """An environment server did not give metrics. The rollouts are on disk all the same."""
