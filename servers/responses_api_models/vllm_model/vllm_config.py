"""The config block of vllm_model: the peer's fields (contract-servers 4.4)."""

from __future__ import annotations

import os
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from gym_compose.serving import ModelServerConfig

ReasoningField = Literal["both", "reasoning", "reasoning_content"]
_PEER = "NeMo Gym's own server does: compose: {runtime: nemo-gym}"


def _reasoning_field() -> str:
    return os.environ.get("NEMO_GYM_REASONING_FIELD", "").strip() or "both"


class VLLMModelConfig(ModelServerConfig):
    """``base_url`` is a list in the server, text or list in the config; seconds where a name ends in ``_s``."""

    base_url: list[str] = Field(min_length=1)
    api_key: str = Field(repr=False)
    model: str = Field(min_length=1)
    return_token_id_information: bool
    request_prompt_and_generation_token_ids: bool = False
    propagate_context_overflow_errors: bool = False
    uses_reasoning_parser: bool
    uses_interleaved_reasoning: bool = True
    reasoning_field: ReasoningField = Field(default_factory=_reasoning_field, validate_default=True)
    preserve_reasoning_in_assistant_content: bool = False
    replace_developer_role_with_system: bool = False
    sequential_reasoning_allowed: bool = True
    supply_prefix_token_ids: bool = False
    is_responses_native: bool = False
    chat_template_kwargs: dict[str, Any] | None = None
    forward_request_chat_template_kwargs: bool = False
    continue_final_assistant_message: bool = False
    sampling_overrides: dict[str, Any] | None = None
    extra_body: dict[str, Any] | None = None
    default_headers: dict[str, str] = Field(default_factory=dict, repr=False)
    endpoint_file: str | None = None
    endpoint_stale_grace_s: float = 300.0
    endpoint_connection_retries: int | None = 8
    endpoint_check_interval_s: float = 10.0
    forward_session_id_as_conversation_id: bool = False
    audio_root: str | None = None
    use_completions_api: bool = False
    render_chat_template: bool = False
    tokenizer: str | None = None

    @field_validator("base_url", mode="before")
    @classmethod
    def _as_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _consistent(self) -> VLLMModelConfig:
        if self.supply_prefix_token_ids:
            raise ValueError(f"supply_prefix_token_ids needs the record of a rollout's calls, which this server does not keep. {_PEER}")
        if self.is_responses_native:
            unfit = {
                "return_token_id_information": self.return_token_id_information,
                "replace_developer_role_with_system": self.replace_developer_role_with_system,
                "sequential_reasoning_allowed: false": not self.sequential_reasoning_allowed,
            }
            named = [name for name, is_set in unfit.items() if is_set]
            if named:
                raise ValueError(f"is_responses_native does not go with {', '.join(named)}")
        return self
