"""Masking as ``gym env resolve`` does it: contract-config 2.5."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gym_compose.config.masking import is_masked_key, mask_overrides

if TYPE_CHECKING:
    from tests.unit.config.conftest import World


@pytest.mark.parametrize(
    ("tree", "masked"),
    [
        ({"api_key": "k", "x": 1}, {"api_key": "****", "x": 1}),
        ({"max_output_tokens": 5, "tokenizer": "t"}, {"max_output_tokens": "****", "tokenizer": "****"}),
        ({"password": "p", "OPENAI_API_KEY": "k", "url": "http://u:p@h"}, {"password": "p", "OPENAI_API_KEY": "k", "url": "http://u:p@h"}),
        ({"keys": ["a", {"b": 1}]}, {"keys": ["****", "****"]}),
        ({"headers": {"Authorization": "x", "api_key": "k"}}, {"headers": {"Authorization": "x", "api_key": "****"}}),
        ({"l": [{"key": 1}, [{"key": 2}]]}, {"l": [{"key": "****"}, [{"key": 2}]]}),
        ({"key": None, "other_key": "${x}", "x": 3}, {"key": "****", "other_key": "****", "x": 3}),
        (
            {"my_key": "s3cret", "url": "http://${my_key}@h", "copy": "${my_key}"},
            {"my_key": "****", "url": "http://****@h", "copy": "****"},
        ),
        ({"keys": "${d}", "d": {"key": 1, "y": 2}}, {"keys": {"key": "****", "y": 2}, "d": {"key": "****", "y": 2}}),
        ({"keys": "${l}", "l": [1, 2]}, {"keys": ["****", "****"], "l": [1, 2]}),
        ({5: {"key": 1}}, {5: {"key": "****"}}),
    ],
)
def test_masked_configs(world: World, tree: dict[Any, Any], masked: dict[Any, Any]) -> None:
    resolved = world.resolve(tree, hide_secrets=True)
    assert {key: resolved[key] for key in masked} == masked
    clear = world.resolve(tree)
    assert "****" not in str({key: clear[key] for key in masked})


@pytest.mark.parametrize(("key", "masked"), [("token", True), ("Token", False), ("monkey", True), ("header_x", True), (7, False)])
def test_masked_keys(key: Any, masked: bool) -> None:
    assert is_masked_key(key) is masked


def test_masked_overrides() -> None:
    tokens = ["+policy_api_key=k=1", "++a.key.x=1", "++a.x_key=1", "key=1", "~key", "+token=a\nb"]
    assert mask_overrides(tokens) == ["+policy_api_key=****", "++a.key.x=1", "++a.x_key=****", "key=1", "~key", "+token=****"]
