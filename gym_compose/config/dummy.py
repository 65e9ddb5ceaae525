"""``dummy_model``: the stand-in policy server of commands that need no model (contract-config 1.5, 1.7)."""

from __future__ import annotations

from typing import Any, Final

from gym_compose.config.interpolation import MISSING, Tree
from gym_compose.config.merge import merge_fragment

MODELS = "responses_api_models"
DUMMY = "dummy_model"
NO_MODEL: Final[dict[str, Any]] = {
    "policy_base_url": "",
    "policy_api_key": "",
    "policy_model_name": "",
    "policy_model": {MODELS: {DUMMY: {"entrypoint": "app.py"}}},
}
"""The initial config of a command that works without a model: listing, preparing, collating, static validation."""


def fold_dummy_models(tree: Tree) -> None:
    """Where a real model stands beside ``dummy_model``, merge the dummy's block under it and drop the dummy."""
    for _, place in list(tree.fields(())):
        instance = place.value
        if not isinstance(instance, dict) or instance.get(MODELS, MISSING) == MISSING:
            continue
        models = instance[MODELS]
        if not isinstance(models, dict) or models.get(DUMMY, MISSING) == MISSING or (len(instance) == 1 and len(models) == 1):
            continue
        real = next((name for name in models if name != DUMMY), None)
        if real is None:
            continue
        dummy = models.pop(DUMMY)
        if isinstance(dummy, dict) and isinstance(models[real], dict):
            models[real] = merge_fragment(dummy, models[real], tree)
        tree.changed()
