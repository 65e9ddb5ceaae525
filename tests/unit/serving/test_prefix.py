"""The rollout prefix of paths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_compose.serving.prefix import rollout_of, rollout_path, split_prefix


@pytest.mark.parametrize(
    ("path", "prefix", "rest"),
    [
        ("/verify", "", "/verify"),
        ("/ng-rollout/0-0/verify", "/ng-rollout/0-0", "/verify"),
        ("/ng-rollout/0-0-a2/v1/responses", "/ng-rollout/0-0-a2", "/v1/responses"),
        ("/ng-rollout/x/training-token-capture/v1/responses", "/ng-rollout/x/training-token-capture", "/v1/responses"),
        ("/ng-rollout/x/", "/ng-rollout/x", "/"),
        ("/ng-rollout/x", "", "/ng-rollout/x"),
        ("/ng-rollout//verify", "", "/ng-rollout//verify"),
        ("/ng-rollout/.x/verify", "", "/ng-rollout/.x/verify"),
        ("/ng-rollout/a b/verify", "", "/ng-rollout/a b/verify"),
        ("/ng-rolloutx/a/verify", "", "/ng-rolloutx/a/verify"),
        ("/a/ng-rollout/x/verify", "", "/a/ng-rollout/x/verify"),
    ],
)
def test_split(path: str, prefix: str, rest: str) -> None:
    assert split_prefix(path) == (prefix, rest)


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]*", fullmatch=True), st.booleans(), st.sampled_from(["/v1/responses", "/verify", "/a/b"]))
def test_what_is_put_on_comes_off(rollout: str, capture: bool, path: str) -> None:
    prefix, rest = split_prefix(rollout_path(rollout, path, token_capture=capture))
    assert (rollout_of(prefix), rest) == (rollout, path)


@given(st.text(max_size=60))
def test_nothing_is_lost(text: str) -> None:
    path = "/ng-rollout/" + text
    assert "".join(split_prefix(path)) == path
