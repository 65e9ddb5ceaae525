"""Hydra overrides without Hydra's run: contract-config 2.1, E15, E16, E72. Hydra's own compose is the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hydra import compose, initialize
from hypothesis import example, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from gym_compose.config.errors import ConfigPathNotFoundError, OverrideError
from gym_compose.config.overrides import compose_overrides, parse_override

if TYPE_CHECKING:
    from tests.unit.config.conftest import World

ACCEPTED: list[tuple[list[str], dict[str, Any]]] = [
    ([], {}),
    (["+k=1"], {"k": 1}),
    (["++k=1"], {"k": 1}),
    (["++k=1", "++k=2"], {"k": 2}),
    (["+k=1", "k=2"], {"k": 2}),
    (["+a.b.c=1"], {"a": {"b": {"c": 1}}}),
    (["+l=[1,2,{a: 1}]"], {"l": [1, 2, {"a": 1}]}),
    (["+d={}"], {"d": {}}),
    (["+x=null", "+y=true", "+z=1e3"], {"x": None, "y": True, "z": 1000.0}),
    (['+s="quoted"'], {"s": "quoted"}),
    (["+n='1'"], {"n": "1"}),
    (["+x=${oc.env:HOME}"], {"x": "${oc.env:HOME}"}),
    (["+p=a b/y.yaml:1_x.-z"], {"p": "a b/y.yaml:1_x.-z"}),
    (["+a=1", "+a.b=2"], {"a": {"b": 2}}),
    (["+a={b: 1}", "+a={c: 2}"], {"a": {"b": 1, "c": 2}}),
    (["+a=[1]", "+a=[2]"], {"a": [2]}),
    (["+a=[1]", "++a.0=2"], {"a": [2]}),
    (["+a=1", "~a"], {}),
    (["+a.b=1", "~a.b"], {"a": {}}),
    (["+a=1", "~a=1"], {}),
    (["+a=null", "+a=1"], {"a": 1}),
    (["+a=???"], {"a": "???"}),
    (["+a/b=1"], {"a/b": 1}),
    (["hydra.run.dir=x", "+a=1"], {"a": 1}),
    (["+policy_api_key=123"], {"policy_api_key": 123}),
    (["+k=int(3.2)", "+s=str(1)"], {"k": 3, "s": "1"}),
    (["+k="], {"k": ""}),
    (["+config_paths=['a(b).yaml']"], {"config_paths": ["a(b).yaml"]}),
    (["+k=a@b"], {"k": "a@b"}),
]
REFUSED: list[tuple[list[str], str]] = [
    (["foo=1"], "not in struct"),
    (["+x=1", "+x=2"], "earlier override"),
    (["~pm"], "cannot be removed"),
    (["+a=1", "~a=2"], "its value is another one"),
    (["+k=a,b"], "comma"),
    (["+k=choice(1,2)"], "sweep"),
    (["+k=range(1,3)"], "sweep"),
    (["+k=glob(*)"], "sweep"),
    (["+k=a=b"], "quotes"),
    (["+k=a(b)"], "quotes"),
    (["+k=p#1"], "quotes"),
    (["+k=a!b"], "quotes"),
    (["+config_paths=[a(b).yaml]"], "quotes"),
    (["+a@b=1"], "group"),
    (["+a=[1]", "+a.x=2"], "cannot be merged"),
    (["+a=[1]", "++a.7=2"], "cannot be merged"),
    (["+a=[1]", "+a={b: 1}"], "cannot be merged"),
    (["+a={}", "a.b=1"], "not in struct"),
    (["+=1"], "key is missing"),
    (["+k=${"], "+k=${"),
    (["--flag"], "--flag"),
    ([""], "override"),
    (["=1"], "override"),
    (["+k=[1"], "+k=[1"),
    (["+k=int(x)"], "+k=int(x)"),
    (["+a=" + "[" * 500 + "]" * 500], "override"),
    (["x y=1"], "x y=1"),
]


@pytest.mark.parametrize(("tokens", "tree"), ACCEPTED, ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "")
def test_accepted_overrides(tokens: list[str], tree: dict[str, Any]) -> None:
    assert compose_overrides(tokens) == tree
    assert hydras(tokens) == tree


@pytest.mark.parametrize(("tokens", "words"), REFUSED, ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "")
def test_refused_overrides_name_the_token_and_the_reason(tokens: list[str], words: str) -> None:
    with pytest.raises(OverrideError) as caught:
        compose_overrides(tokens)
    text = str(caught.value)
    assert caught.value.token == tokens[-1]
    assert f"override '{tokens[-1]}'" in text
    assert words in text
    assert "\n" not in text
    assert isinstance(hydras(tokens), Exception)


def hydras(tokens: list[str]) -> Any:
    """What Hydra makes of the tokens: the tree, or the exception."""
    try:
        with initialize(version_base=None, config_path=None):
            return OmegaConf.to_container(compose(overrides=list(tokens)), resolve=False)
    except Exception as error:  # noqa: BLE001 - the model: any failure of it
        return error


def ours(tokens: list[str]) -> Any:
    """What we make of them: the tree, or the error."""
    try:
        return compose_overrides(tokens)
    except OverrideError as error:
        return error


KEYS = st.sampled_from(["a", "b", "a.b", "a.b.c", "a.0", "b.a", "c"])
VALUES = st.sampled_from(
    ["1", "null", "true", "x", "[1,2]", "[]", "{}", "{b: 1}", "{b: {c: 2}}", "[{a: 1}]", "'q'", "???", "${b}", "1.5", "", "a b", "{0: 1}"]
)
TOKENS = st.builds(lambda sign, key, value: f"{sign}{key}={value}", st.sampled_from(["", "+", "++", "~"]), KEYS, VALUES) | st.builds(
    lambda key: f"~{key}", KEYS
)


@settings(deadline=None, max_examples=60)  # one compose of Hydra takes 80 ms
@given(st.lists(TOKENS, max_size=4))
@example(["+a=${b}", "+a=2"])
@example(["+a=[1]", "~a.0"])
def test_lists_of_overrides_compose_as_hydra_composes_them(tokens: list[str]) -> None:
    expected = hydras(tokens)
    actual = ours(tokens)
    if isinstance(expected, Exception):
        assert isinstance(actual, OverrideError), (expected, actual)
        assert actual.token in tokens
    else:
        assert actual == expected


@settings(deadline=None)
@given(st.text(alphabet="+~ab.=[]{}:,'\"\\$ ()1#@!?x\n\t/-*", max_size=14) | st.text(max_size=20))
@example("+a=shuffle(1,2)")
@example("+a=extend_list(1)")
def test_any_text_parses_as_hydras_parser_says_or_names_the_token(token: str) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        expected: Any = OverridesParser.create().parse_override(token)
        value: Any = expected.value()
    except HydraException:
        expected = None
    actual: Any
    try:
        actual = parse_override(token)
    except OverrideError as error:
        actual = error
    if isinstance(actual, OverrideError):
        assert actual.token == token
        assert "\n" not in actual.message
        assert expected is None or expected.is_sweep_override() or not expected.key_or_group
        return
    assert expected is not None
    assert (actual.type, actual.key_or_group, actual.package) == (expected.type, expected.key_or_group, expected.package)
    assert actual.value() == value or value != value


@settings(deadline=None)
@given(st.text(alphabet="+~ab.=[]{}:,'\"\\$ ()1#@!?\n", max_size=14))
def test_any_text_composes_or_is_a_config_error(token: str) -> None:
    result = ours([token])
    assert isinstance(result, dict) or token.replace("\n", "\\n") in str(result)


def test_a_parsed_override_is_not_shared_between_calls() -> None:
    first = compose_overrides(["+l=[1,{a: 2}]"])
    first["l"][1]["a"] = 9
    assert compose_overrides(["+l=[1,{a: 2}]"]) == {"l": [1, {"a": 2}]}


def test_a_mapping_stands_for_itself() -> None:
    given_tree = {"a": {"b": (1, 2)}, "c": "${a.b}", "d": None}
    assert compose_overrides(given_tree) == {"a": {"b": [1, 2]}, "c": "${a.b}", "d": None}
    with pytest.raises(OverrideError):
        compose_overrides({"a": object()})


def test_config_files_from_the_command_line(world: World) -> None:  # E15, E16
    world.write({"a b/y.yaml": {"x": 1}, "m.yaml": {"x": "m"}, "n.yaml": {"x": "n", "y": 1}})
    assert world.resolve(["+config_paths=[a b/y.yaml]"])["x"] == 1
    assert world.resolve(["+config_paths=[m.yaml,n.yaml]"])["x"] == "n"
    merged = world.resolve(["+config_paths=[m.yaml]", "++config_paths=[n.yaml]"])
    assert merged["config_paths"] == ["n.yaml"]
    with pytest.raises(ConfigPathNotFoundError):
        world.resolve(["+config_paths=[o.yaml]"])


def test_nothing_is_written_into_the_working_directory(world: World) -> None:
    world.resolve(["+policy_api_key=k", "hydra.run.dir=out"])
    assert list(world.cwd.iterdir()) == []


@pytest.mark.parametrize(
    "token",
    [
        "++policy_api_key=sk-(hidden",
        "++policy_api_key=sk,hidden",
        '++policy_api_key=sk-"hidden=',
        "++model={api_key: sk-(hidden}",
        "++model.headers.authorization=Bearer hidden=",
        "++url=http://user:hidden@host/v1?a=(b",
        "+policy_api_key=hidden",
        "~policy_api_key=hidden",
        "new_secret=hidden",
    ],
)
def test_a_secret_is_in_no_error(token: str) -> None:
    with pytest.raises(OverrideError) as caught:
        compose_overrides(["+policy_api_key=concealed", token])
    shown = f"{caught.value} {caught.value.token} {caught.value.details}"
    assert "hidden" not in shown
    assert "concealed" not in shown
    assert token.partition("=")[0] + "=****" in shown
