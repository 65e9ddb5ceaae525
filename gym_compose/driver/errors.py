"""Errors of a run.

    GymComposeError
    ├── AggregationError                            no metrics from an environment server
    ├── CollectionError                             library call: the run ended with an error
    ├── VerifyFailedError                           a verifier that cannot be asked; strict: one that fails
    ├── RolloutFailedError                          strict compatibility: one failed rollout ends the run
    ├── NotReadyError
    │   └── HeadError                               the head server does not answer, or is not ready
    ├── InvalidInputError
    │   ├── OutputExistsError                       the output is there already
    │   ├── UnsafeReverificationError               a verifier that may judge otherwise the second time
    │   ├── ResumeError                             what is there cannot be gone on with
    │   └── RoutingError                            rows that cannot be routed in this deployment
    │       ├── AgentWithoutEnvironmentServerError  no environment server fronts the agent
    │       └── AmbiguousEnvironmentServerError     several do
    ├── PrerequisiteError
    │   ├── OutputLockedError                       another driver writes to the output
    │   └── OutputFailedError                       disk full, directory not writable
    └── IncompleteError
        ├── ServerDeadError                         no connection to an environment server in mid-run
        ├── ServerSilentError                       an environment server stopped answering in mid-run
        └── TooManyFailuresError                    more rollouts failed than max_failures

The two about environment servers have the contract's names (contract-data 1.5).
"""

from __future__ import annotations

from gym_compose.wire.errors import GymComposeError, IncompleteError, InvalidInputError, NotReadyError, PrerequisiteError
from gym_compose.wire.run import RunSummary


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


class ResumeError(InvalidInputError):
    """The files of an earlier run cannot be gone on with: input or config changed, a line is damaged, a file is missing."""


class OutputLockedError(PrerequisiteError):
    """Another driver writes to this output."""


class OutputFailedError(PrerequisiteError):
    """A result file cannot be written."""


class ServerSilentError(IncompleteError):
    """An environment server stopped answering, so the rest of the run has no one to go to."""


class ServerDeadError(IncompleteError):
    """No connection to an environment server can be made any more."""


class TooManyFailuresError(IncompleteError):
    """More rollouts failed than ``max_failures`` allows."""


class RolloutFailedError(GymComposeError):
    """A rollout failed under ``strict_compatibility``, where that ends the run."""


class CollectionError(GymComposeError):
    """A run that was called as a library ended with an error. ``summary`` accounts for its rows; its exit code is that of the cause."""

    def __init__(self, summary: RunSummary) -> None:
        super().__init__(summary.error or "the run was interrupted")
        self.summary = summary
        self.exit_code = summary.exit_code


class AggregationError(GymComposeError):
    """An environment server did not give metrics. The rollouts are on disk all the same."""


class UnsafeReverificationError(InvalidInputError):
    """A resources server that is to verify again says that it needs more than the rollout for that, or does not say."""


class VerifyFailedError(GymComposeError):
    """A resources server cannot be asked; with strict compatibility, one rollout could not be verified."""
