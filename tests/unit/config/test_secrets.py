"""Which leaves are secret (preamble rule 11, design decision 7)."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gym_compose.config.secrets import has_url_credentials, is_secret_name, secret_paths

SECRET_NAMES = (
    "password db_password dbPassword DB_PASSWORD client_password passwd passphrase ssh_passphrase secret client_secret clientSecret token "
    "hf_token HF_TOKEN accessToken access-token credential credentials gcp_credentials authorization Authorization proxy_authorization "
    "apikey apiKey api_key OPENAI_API_KEY openai_api_key APIKey x-api-key key ssh_key signing_key api_keys access_keys passwords secrets "
    "wandb_api_key aws.secret.key mlflow_tracking_token"
)
PLAIN_NAMES = (
    "prompt_key answer_key sort_key routing_key cache_key primary_key group_key dict_key metric_key id_key label_key foreign_key promptKey "
    "max_output_tokens tokens max_tokens tokenizer token_id_capture control_auth_token_env keys metric_keys keyboard monkey turkey "
    "secretary password_hint tokens_per_second openai_base_url name type host port _delete_key passwordless credentials_file _ 42 -"
)


@pytest.mark.parametrize("name", SECRET_NAMES.split())
def test_a_name_that_ends_in_a_secret_word_is_secret(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", PLAIN_NAMES.split())
def test_a_name_that_only_holds_a_secret_word_is_not(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://user:pw@host/v1", True),
        ("https://user@host/v1", True),
        ("postgres://u:p@db:5432/x", True),
        ("see redis://:pw@cache/0 for it", True),
        ("https://host/v1?api_key=abc", True),
        ("https://host/v1?x=1&access_token=abc", True),
        ("https://host/v1?x=1;token=abc", True),
        ("https://host/v1?api_key=", False),
        ("https://host/v1?key_id=4", False),
        ("https://host/v1?sort_key=4", False),
        ("https://host/a@b", False),
        ("https://host/?mail=a@b", False),
        ("https://host:8000/v1", False),
        ("user:pw@host", False),
        ("http://[::1", False),
        ("", False),
    ],
)
def test_credentials_in_urls(text: str, expected: bool) -> None:
    assert has_url_credentials(text) is expected


def paths(resolved: dict[str, Any], merged: dict[str, Any] | None = None) -> set[str]:
    return {".".join(map(str, path)) for path in secret_paths(resolved, resolved if merged is None else merged)}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"policy_api_key": "sk-1", "policy_model_name": "m"}, {"policy_api_key"}),
        ({"policy_api_key": 123}, {"policy_api_key"}),
        ({"api_key": None, "use_token": True, "output_cost_per_token": 1.5e-6, "secret": "", "password": "???"}, set()),
        ({"password": ["a", "b"], "passwords": {"x": {"y": ["c"]}}}, {"password.0", "password.1", "passwords.x.y.0"}),
        ({"db": {"password": [{"value": "a"}]}}, {"db.password.0.value"}),
        ({"headers": {"X-Team": "a"}}, {"headers.X-Team"}),
        (
            {"openai_default_headers": {"Authorization": "Bearer x", "n": 1}},
            {"openai_default_headers.Authorization", "openai_default_headers.n"},
        ),
        ({"headers": [{"name": "a"}]}, {"headers.0.name"}),
        ({"headers": "none", "headers_only": {"a": "b"}}, set()),
        ({"urls": ["http://a/v1", "http://u:p@a/v1"]}, {"urls.1"}),
        ({"base": "http://a/v1?api-key=zz"}, {"base"}),
        ({"judges": [{"api_key": "a"}, {"api_key": "b", "model": "m"}]}, {"judges.0.api_key", "judges.1.api_key"}),
    ],
)
def test_leaves_by_key_and_by_url(config: dict[str, Any], expected: set[str]) -> None:
    assert paths(config) == expected


def test_names_of_servers_and_tasksets_are_not_keys() -> None:
    block = {"entrypoint": "app.py", "host": "h", "openai_api_key": "k"}
    config = {
        "guess_the_secret": {"resources_servers": {"find_the_key": dict(block)}},
        "environment_server_routes": {"hidden_token": "an_environment"},
        "agent_map": {"old_secret": "new_secret"},
    }
    assert paths(config) == {"guess_the_secret.resources_servers.find_the_key.openai_api_key"}


@pytest.mark.parametrize(
    ("merged", "resolved", "expected"),
    [
        pytest.param(
            {"k": {"api_key": "sk-1"}, "a": "${k.api_key}", "b": "${a}", "c": "x ${b} y"},
            {"k": {"api_key": "sk-1"}, "a": "sk-1", "b": "sk-1", "c": "x sk-1 y"},
            {"k.api_key", "a", "b", "c"},
            id="over several steps",
        ),
        pytest.param(
            {"m": {"x": {"token": "t", "copy": "${.token}", "up": {"deep": "${..token}"}}}},
            {"m": {"x": {"token": "t", "copy": "t", "up": {"deep": "t"}}}},
            {"m.x.token", "m.x.copy", "m.x.up.deep"},
            id="relative",
        ),
        pytest.param(
            {"l": {"password": ["a", "b"]}, "first": "${l.password[0]}", "second": "${l.password.1}", "third": "${l[password][1]}"},
            {"l": {"password": ["a", "b"]}, "first": "a", "second": "b", "third": "b"},
            {"l.password.0", "l.password.1", "first", "second", "third"},
            id="list items",
        ),
        pytest.param(
            {"s": {"secret": "a", "plain": "b"}, "whole": "${s}", "part": "${whole.secret}", "other": "${whole.plain}"},
            {"s": {"secret": "a", "plain": "b"}, "whole": {"secret": "a", "plain": "b"}, "part": "a", "other": "b"},
            {"s.secret", "whole.secret", "part"},
            id="through an interpolated mapping",
        ),
        pytest.param(
            {"a": "${oc.env:OPENAI_API_KEY}", "b": "${oc.env:HOME}", "c": "${oc.env:HF_TOKEN,none}"},
            {"a": "x", "b": "/root", "c": "y"},
            {"a", "c"},
            id="environment variables",
        ),
        pytest.param(
            {"api_key": "k1", "a": "${oc.select:api_key,none}", "b": "${oc.env:NAME,${api_key}}", "c": "${oc.decode:${api_key}}"},
            {"api_key": "k1", "a": "k1", "b": "k1", "c": "k1"},
            {"api_key", "a", "b", "c"},
            id="resolvers",
        ),
        pytest.param(
            {"api_key": "a-long-value", "name": "api_key", "a": "${${name}}", "b": "${name}"},
            {"api_key": "a-long-value", "name": "api_key", "a": "a-long-value", "b": "api_key"},
            {"api_key", "a"},
            id="a computed path, found by its value",
        ),
        pytest.param(
            {"list": ["${.1}", "${t.token}"], "t": {"token": "v"}},
            {"list": ["v", "v"], "t": {"token": "v"}},
            {"list.0", "list.1", "t.token"},
            id="inside a list",
        ),
        pytest.param({"a": "${b}", "b": "plain", "c": "${...x}"}, {"a": "plain", "b": "plain", "c": "q"}, set(), id="nothing secret"),
    ],
)
def test_a_leaf_that_interpolates_a_secret_is_secret(merged: dict[str, Any], resolved: dict[str, Any], expected: set[str]) -> None:
    assert paths(resolved, merged) == expected


SLOW_MACHINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
TEXTS = st.text(min_size=1).filter(lambda text: text != "???")
KEYS = st.text(string.ascii_letters + "_-.", min_size=1, max_size=12)
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=20), st.just("${a.b}"))
TREES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=12)


@SLOW_MACHINE
@given(st.dictionaries(KEYS, TREES, max_size=4))
def test_every_path_leads_to_a_leaf_of_the_config(config: dict[str, Any]) -> None:
    for path in secret_paths(config, config):
        node: Any = config
        for step in path:
            node = node[step]
        assert not isinstance(node, dict | list)
        assert node not in (None, "")


@SLOW_MACHINE
@given(
    st.dictionaries(KEYS, TREES, max_size=4), st.sampled_from(SECRET_NAMES.split()), st.text(min_size=1).filter(lambda text: text != "???")
)
def test_a_value_below_a_secret_key_is_always_found(config: dict[str, Any], name: str, value: str) -> None:
    tree = {"outer": {**config, name: {"list": [value]}}}
    assert ("outer", name, "list", 0) in secret_paths(tree, tree)


@SLOW_MACHINE
@given(KEYS, KEYS)
def test_words_before_the_last_one_do_not_make_a_name_secret(first: str, second: str) -> None:
    assert not is_secret_name(f"{first}_secret_{second}_path")
