"""Named selectors to files (contract-config 2.3, 1.13)."""

from __future__ import annotations

from pathlib import Path

import pytest

from gym_compose.config.selectors import SELECTORS, SelectorError, select


def put(root: Path, *names: str, text: str = "a: 1\n") -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize(
    ("flag", "value", "file"),
    [
        ("benchmark", "aime", "benchmarks/aime/config.yaml"),
        ("benchmark", "aime/hard", "benchmarks/aime/hard.yaml"),
        ("benchmark", "aime/sub", "benchmarks/aime/sub/config.yaml"),
        ("benchmark", "aime/sub/config", "benchmarks/aime/sub/config.yaml"),
        ("environment", "web", "environments/web/config.yaml"),
        ("environment", "web/fast", "environments/web/fast.yaml"),
        ("resources-server", "math", "resources_servers/math/configs/math.yaml"),
        ("resources-server", "math/judge", "resources_servers/math/configs/judge.yaml"),
        ("model-type", "vllm", "responses_api_models/vllm/configs/vllm.yaml"),
        ("model-type", "vllm/deep/r1", "responses_api_models/vllm/configs/deep/r1.yaml"),
        ("agent-type", "hermes", "responses_api_agents/hermes/configs/hermes.yaml"),
    ],
)
def test_a_selector_stands_for_one_file(tmp_path: Path, flag: str, value: str, file: str) -> None:
    put(tmp_path, file)
    assert select(flag, value, [tmp_path]).path == str(tmp_path / file)


def test_the_categories_stand_in_the_order_in_which_they_win() -> None:
    assert list(SELECTORS) == ["benchmark", "environment", "resources-server", "model-type", "agent-type"]


def test_a_directory_of_the_flavors_name_wins_over_a_file(tmp_path: Path) -> None:
    put(tmp_path, "benchmarks/a/b/config.yaml", "benchmarks/a/b.yaml")
    assert select("benchmark", "a/b", [tmp_path]).path.endswith("a/b/config.yaml")


def test_the_first_root_wins_and_the_shadowed_files_are_named(tmp_path: Path) -> None:
    roots = [tmp_path / "first", tmp_path / "second"]
    for root in roots:
        put(root, "environments/web/config.yaml")
    selected = select("environment", "web", roots)
    assert selected.path == str(roots[0] / "environments/web/config.yaml")
    assert [str(roots[1]) in warning for warning in selected.warnings] == [True]


def test_two_roots_that_are_one_directory_are_no_shadowing(tmp_path: Path) -> None:
    put(tmp_path / "real", "environments/web/config.yaml")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    selected = select("environment", "web", [tmp_path / "link", tmp_path / "real"])
    assert (selected.path, selected.warnings) == (str(tmp_path / "real/environments/web/config.yaml"), ())


@pytest.mark.parametrize(
    ("flag", "value", "file", "warning"),
    [
        ("environment", "reasoning_gym_hermes", "environments/hermes_reasoning_gym/config.yaml", "use --environment hermes_reasoning_gym"),
        ("agent-type", "tau2/tau2_agent", "responses_api_agents/tau2/configs/tau2.yaml", "configs/tau2.yaml"),
        (
            "agent-type",
            "stirrup_agent/stirrup_gdpval",
            "responses_api_agents/stirrup_agent/configs/stirrup_agent.yaml",
            "stirrup_agent.yaml",
        ),
    ],
)
def test_old_names_still_work_with_a_warning(tmp_path: Path, flag: str, value: str, file: str, warning: str) -> None:
    put(tmp_path, file)
    selected = select(flag, value, [tmp_path])
    assert selected.path == str(tmp_path / file)
    assert len(selected.warnings) == 1
    assert "deprecated" in selected.warnings[0]
    assert warning in selected.warnings[0]


def test_an_old_name_is_not_used_while_its_own_file_exists(tmp_path: Path) -> None:
    put(tmp_path, "environments/reasoning_gym_hermes/config.yaml", "environments/hermes_reasoning_gym/config.yaml")
    selected = select("environment", "reasoning_gym_hermes", [tmp_path])
    assert selected.path.endswith("reasoning_gym_hermes/config.yaml")
    assert selected.warnings == ()


@pytest.mark.parametrize(
    ("flag", "value", "hint"),
    [
        ("resources-server", "maht", "Did you mean 'math'?"),
        ("resources-server", "math/juge", "Did you mean 'judge'?"),
        ("resources-server", "only_flavors", "It has: only_flavors/one."),
        ("benchmark", "group", "Did you mean 'group/v5/config'?"),
        ("benchmark", "aimee", "Did you mean 'aime'?"),
        ("environment", "zzzz", "Searched: "),
    ],
)
def test_what_is_not_there_is_an_error_with_a_suggestion(tmp_path: Path, flag: str, value: str, hint: str) -> None:
    put(tmp_path, "resources_servers/math/configs/math.yaml", "resources_servers/math/configs/judge.yaml")
    put(tmp_path, "resources_servers/only_flavors/configs/one.yaml", "environments/web/config.yaml")
    put(tmp_path, "benchmarks/group/v5/config.yaml", "benchmarks/aime/config.yaml", text="x: [{type: benchmark}]\n")
    put(tmp_path, "benchmarks/aime/manifest.yaml", text="type: benchmark\n")
    with pytest.raises(SelectorError) as caught:
        select(flag, value, [tmp_path])
    text = str(caught.value)
    assert f"--{flag} {value} implies the config " in text
    assert hint in text
    assert str(tmp_path) in text
    assert caught.value.exit_code == 2


def test_no_tree_at_all(tmp_path: Path) -> None:
    with pytest.raises(SelectorError, match="no search root has such a tree"):
        select("benchmark", "aime", [tmp_path])
