from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_compose.compiler.errors import ExtensionError
from gym_compose.compiler.extension import memory_bytes, parse_extension

NAMES = ("policy_model", "math")


def test_the_designs_example_is_read() -> None:
    found = parse_extension(
        {
            "defaults": {"memory": "1g", "cpus": 1.0},
            "servers": {
                "policy_model": {"egress": True},
                "math": {"image": "registry.example/judge:3", "memory": "4g", "gpus": 1, "environment": {"OMP_NUM_THREADS": 2, "X": True}},
            },
        },
        NAMES,
    )
    assert found.defaults.cpus == "1.0"
    assert found.server("policy_model").egress is True
    assert found.server("math").environment == {"OMP_NUM_THREADS": "2", "X": "true"}
    assert found.server("other").egress is None


@pytest.mark.parametrize(
    ("value", "where", "says"),
    [
        ({"server": {}}, "compose.server", "servers"),
        ({"servers": {"math": {"memroy": "1g"}}}, "compose.servers.math.memroy", "memory"),
        ({"servers": {"mth": {}}}, "compose.servers.mth", "math"),
        ({"defaults": {"egress": True}}, "compose.defaults.egress", "unknown key"),
        ({"servers": {"math": {"memory": "lots"}}}, "compose.servers.math.memory", "512m"),
        ({"servers": {"math": {"memory": True}}}, "compose.servers.math.memory", "512m"),
        ({"servers": {"math": {"memory": "1m"}}}, "compose.servers.math.memory", "6m"),
        ({"servers": {"math": {"cpus": 0}}}, "compose.servers.math.cpus", "above 0"),
        ({"servers": {"math": {"cpus": "x"}}}, "compose.servers.math.cpus", "number"),
        ({"servers": {"math": {"cpus": float("inf")}}}, "compose.servers.math.cpus", "above 0"),
        ({"servers": {"math": {"gpus": 0}}}, "compose.servers.math.gpus", "greater than 0"),
        ({"servers": {"math": {"environment": {"A=B": "x"}}}}, "compose.servers.math.environment", "A=B"),
        ({"servers": {"math": {"environment": {"A": None}}}}, "compose.servers.math.environment.A", "text"),
        ({"servers": {"math": {"mounts": [{"source": "/a", "target": "b"}]}}}, "compose.servers.math.mounts.0.target", "match"),
        ({"servers": []}, "compose.servers", "mapping"),
        ({"publish": ["nobody"]}, "compose.publish", "nobody"),
        ({"publish": {"servers": ["nobody"]}}, "compose.publish", "nobody"),
        ({"publish": {"adress": "10.0.0.5"}}, "compose.publish.adress", "address"),
        ({"publish": {"address": "0.0.0.0"}}, "compose.publish.address", "give that of the interface"),
        ({"publish": {"address": "gpu7"}}, "compose.publish.address", "IPv4"),
        ({"servers": {"math": {"idempotent_episodes": 2}}}, "compose.servers.math.idempotent_episodes", "true or false"),
        ({"host_relay": "maybe"}, "compose.host_relay", "true or false"),
        ({"servers": {"math": None}}, "compose.servers.math", "mapping"),
        ({"servers": {"math": {"apt": "git"}}}, "compose.servers.math.apt", "list"),
        ({"servers": {"math": {"apt": ["-y"]}}}, "compose.servers.math.apt.0", "Debian package"),
        ({"servers": {"math": {"image": "-q"}}}, "compose.servers.math.image", "name of an image"),
        ({"servers": {"math": {"image": "a b"}}}, "compose.servers.math.image", "name of an image"),
        ({"servers": {"math": {"mounts": [{"source": "a"}]}}}, "compose.servers.math.mounts.0.target", "is missing"),
        ({"servers": {"math": {"mounts": [{"source": "a", "target": "/x/.."}]}}}, "compose.servers.math.mounts.0.target", "no place"),
        ({"servers": {"math": {"mounts": [{"source": "a", "target": "/x:ro"}]}}}, "compose.servers.math.mounts.0.target", "no place"),
        ({"servers": {"math": {"mounts": [{"source": "a", "target": "/x/../run/gym"}]}}}, "compose.servers.math.mounts.0.target", "taken"),
        ({"servers": {"math": {"mounts": [{"source": "a", "target": "/run"}]}}}, "compose.servers.math.mounts.0.target", "taken"),
        (
            {"servers": {"math": {"mounts": [{"source": "a", "target": "/x"}, {"source": "b", "target": "/x/"}]}}},
            "compose.servers.math.mounts",
            "/x is the target of two mounts",
        ),
        ({"nemo_gym": {"versoin": "0.7.0"}}, "compose.nemo_gym.versoin", "version"),
        ({"nemo_gym": {"version": "0..7"}}, "compose.nemo_gym.version", "not a release"),
        ({"nemo_gym": "0.7.0"}, "compose.nemo_gym", "mapping"),
        ({"ray": "on"}, "compose.ray", "off"),
    ],
)
def test_each_wrong_key_is_named_with_what_would_be_right(value: dict[str, Any], where: str, says: str) -> None:
    with pytest.raises(ExtensionError) as caught:
        parse_extension(value, NAMES)
    assert caught.value.where == where
    assert says in str(caught.value)


def test_what_yaml_makes_of_a_word_is_understood() -> None:
    assert parse_extension({"ray": False}, NAMES).ray == "off"  # the bare word off
    assert parse_extension({"nemo_gym": {"version": "v00.7.0"}}, NAMES).nemo_gym.version == "0.7.0"


def test_a_wrong_environment_value_is_not_shown() -> None:
    with pytest.raises(ExtensionError) as caught:
        parse_extension({"servers": {"math": {"environment": {"API_KEY": ["MARKER"]}}}}, NAMES)
    assert "MARKER" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"), [("512m", 512 * 2**20), ("2g", 2**31), ("1.5GB", 3 * 2**29), ("7000000", 7_000_000), ("8192k", 2**23)]
)
def test_amounts_of_memory(text: str, expected: int) -> None:
    assert memory_bytes(text) == expected
    found = parse_extension({"defaults": {"memory": text}}, ())
    assert found.defaults.memory == text.lower()


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x), max_leaves=8)
)
def test_any_value_is_read_or_refused_with_the_key(value: Any) -> None:
    try:
        found = parse_extension({"servers": value, "defaults": value}, NAMES)
    except ExtensionError as error:
        where = error.where or ""
    else:
        where = "compose." if found.servers.keys() <= set(NAMES) else ""
    assert where.startswith("compose.")
