"""Verdicts of the PyPI package ``reasoning-gym``: the family that made a task scores its answers."""

from __future__ import annotations

import asyncio
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pydantic import Field
from reasoning_gym_families import Families, UnknownFamilyError

from gym_compose.serving import Call, ResourcesServer, ResourcesServerConfig, Verdict, VerifyRequest

_log = logging.getLogger(__name__)

_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_BOXED = re.compile(r"\\boxed\{([^}]+)\}")


class ReasoningGymConfig(ResourcesServerConfig):
    families: list[str] = Field(default_factory=list)
    """Loaded at start, so that no verdict waits for an import; every other family is loaded by the first row that names it."""


class ReasoningGymVerifyRequest(VerifyRequest):
    question: str
    answer: str | None
    metadata: dict[str, Any]

    def row_fields(self) -> dict[str, Any]:
        """Nothing of the row comes back, as with the peer."""
        return {}


def extract_answer(text: str) -> str:
    """The last ``<answer>``, else the first ``\\boxed{}``, else all of the text; without blanks around it."""
    tagged = _ANSWER.findall(text)
    if tagged:
        return str(tagged[-1]).strip()
    boxed = _BOXED.search(text)
    return (boxed[1] if boxed else text).strip()


class ReasoningGymResourcesServer(ResourcesServer):
    """Stateless. Scorers run in one thread beside the event loop: some take seconds, and none was written for two at a time."""

    config: ReasoningGymConfig
    verify_model = ReasoningGymVerifyRequest
    reverify_mode = "stateless"

    def setup(self) -> None:
        self._families = Families()
        for family in self.config.families:
            self._families.load(family)
        self._scorer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="scorer")

    async def stop(self) -> None:
        self._scorer.shutdown(wait=False, cancel_futures=True)

    async def verify(self, body: ReasoningGymVerifyRequest, call: Call) -> Verdict:  # noqa: ARG002 - stateless
        family = body.metadata.get("source_dataset")
        if not isinstance(family, str) or not family:
            raise ValueError("metadata.source_dataset must name the family of the task")
        answer = extract_answer(body.response.output_text())
        entry = {"question": body.question, "answer": body.answer, "metadata": body.metadata}
        score = await asyncio.get_running_loop().run_in_executor(self._scorer, self._score, family, answer, entry)
        return Verdict(reward=score, details={"task_name": family, "score": score, "extracted_answer": answer})

    def _score(self, family: str, answer: str, entry: dict[str, Any]) -> float:
        try:
            return self._families.score(family, answer, entry)
        except UnknownFamilyError as error:
            _log.error("%s", error)
        except Exception:  # noqa: BLE001 - third-party scorers raise anything at all on odd answers; the peer gives 0.0 as well
            _log.exception("the scorer of %s failed", family)
        return 0.0


if __name__ == "__main__":
    ReasoningGymResourcesServer.run_webserver()
