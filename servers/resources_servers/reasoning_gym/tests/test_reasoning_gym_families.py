from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed")

from reasoning_gym_families import Families, UnknownFamilyError, find_modules

HERE = Path(__file__).resolve().parents[1]
ROOT = HERE.parents[2]


def _python(code: str, *, seed: str = "0") -> str:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join((str(HERE), str(ROOT))), "PYTHONHASHSEED": seed}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_families_are_found_without_an_import() -> None:
    out = _python("import sys; from reasoning_gym_families import Families; print(len(list(Families())), 'sympy' in sys.modules)")
    count, heavy = out.split()
    assert int(count) >= 100
    assert heavy == "False"


def test_one_family_imports_no_other_and_stays_small() -> None:
    code = """
import sys
from reasoning_gym_families import Families
families = Families()
entry = families.create('chain_sum', size=1, seed=1)[0]
assert families.score('chain_sum', entry['answer'], entry) == 1.0
from reasoning_gym.factory import DATASETS
print(sorted(DATASETS), [name for name in ('sympy', 'numpy', 'matplotlib') if name in sys.modules])
"""
    assert _python(code).strip() == "['chain_sum', 'composite'] []"


@pytest.mark.parametrize("family", ["gsm_symbolic", "arc_agi", "acre", "knights_knaves", "graph_color", "countdown"])
def test_every_category_can_be_entered(family: str) -> None:
    code = f"""
import logging
logging.basicConfig(level='WARNING')
from reasoning_gym_families import Families
families = Families()
entry = families.create({family!r}, size=1, seed=1)[0]
print(entry['metadata']['source_dataset'], families.score({family!r}, 'no answer at all', entry) <= 1.0)
"""
    assert _python(code).split() == [family, "True"]


def test_the_whole_package_serves_where_one_module_cannot_be_imported_alone(tmp_path: Path) -> None:
    package = tmp_path / "reasoning_gym"
    for name in ("coaching", "games"):
        (package / name).mkdir(parents=True)
    (package / "__init__.py").write_text("SIZE = 3\nfrom . import games\n")
    (package / "coaching" / "__init__.py").write_text("")
    (package / "games" / "__init__.py").write_text("from . import dice\n")
    (package / "games" / "dice.py").write_text(
        "from reasoning_gym import SIZE\nfrom ..factory import register_dataset\nregister_dataset('dice', SIZE)\n".replace("'", '"')
    )
    (package / "factory.py").write_text(
        "class D:\n    def score_answer(self, answer, entry): return 0.5\n"
        "names = {}\ndef register_dataset(name, size): names[name] = size\ndef create_dataset(name, **o): names[name]; return D()\n"
    )
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from pathlib import Path
from reasoning_gym_families import Families
families = Families(Path({str(package)!r}))
print(list(families), families.score('dice', 'a', {{}}), sys.modules['reasoning_gym'].SIZE)
"""
    assert _python(code).split("\n")[0] == "['dice'] 0.5 3"


def test_an_unknown_family_is_named_with_what_there_is() -> None:
    with pytest.raises(UnknownFamilyError, match=r"no family 'chess'.*letter_counting"):
        Families().score("chess", "a", {})


def test_modules_are_read_from_both_forms_of_registration(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.py").write_text('DATASET_NAME = "one"\nregister_dataset(DATASET_NAME, A, B)\n')
    (tmp_path / "a" / "two.py").write_text('register_dataset(\n    "two", A, B)\n')
    (tmp_path / "a" / "three.py").write_text("def register_dataset(name): ...\n")
    assert find_modules(tmp_path) == {"one": "reasoning_gym.a.one", "two": "reasoning_gym.a.two"}


def _prepare(*arguments: str, seed: str = "0") -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed}
    command = [sys.executable, str(HERE / "prepare.py"), *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=120)


def _demo(directory: Path, seed: str = "0") -> dict[str, bytes]:
    done = _prepare("--demo", "--output", str(directory), seed=seed)
    assert done.returncode == 0, done.stderr
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def test_prepare_gives_equal_bytes_for_equal_arguments(tmp_path: Path) -> None:
    first, second = _demo(tmp_path / "a", "1"), _demo(tmp_path / "b", "2")
    assert first == second
    assert sorted(first) == [
        "answers.jsonl",
        "chain_sum.jsonl",
        "chain_sum_flat.jsonl",
        "letter_counting.jsonl",
        "letter_counting_flat.jsonl",
    ]


def test_prepare_makes_the_file_that_is_wanted_and_leaves_the_demo_whole(tmp_path: Path) -> None:
    whole = _demo(tmp_path / "demo")
    for wanted in ("letter_counting", "chain_sum_flat"):
        made = _python(f"from prepare import prepare; print(prepare(jsonl_fpath='data/{wanted}.jsonl', output={str(tmp_path / wanted)!r}))")
        assert made.strip() == str(tmp_path / wanted / f"{wanted}.jsonl")
        assert {path.name: path.read_bytes() for path in sorted((tmp_path / wanted).iterdir())} == whole
    assert _python(f"from prepare import prepare; print(prepare('gcd', size=2, output={str(tmp_path)!r}))").strip() == str(
        tmp_path / "gcd.jsonl"
    )


def test_rows_are_whole_unique_and_the_same_tasks_in_both_forms(tmp_path: Path) -> None:
    files = {name: [orjson.loads(line) for line in content.splitlines()] for name, content in _demo(tmp_path).items()}
    families = Families()
    ids = []
    for family in ("chain_sum", "letter_counting"):
        rows, flat = files[f"{family}.jsonl"], files[f"{family}_flat.jsonl"]
        assert len(rows) == len(flat) == 50
        for row, flat_row in zip(rows, flat, strict=True):
            assert list(row) == ["task_id", "task_input"]
            assert row["task_id"]["taskset"] == row["task_input"]["task_data"]["metadata"]["source_dataset"] == family
            ids.append(row["task_id"]["task_id"])
            data = row["task_input"]["task_data"]
            assert {"responses_create_params": row["task_input"]["responses_create_params"], **data} == flat_row
            assert list(flat_row) == ["responses_create_params", "question", "answer", "metadata"]
            assert families.score(family, data["answer"], data) == 1.0
            for wrong in ("?", "~", ""):
                assert families.score(family, wrong, data) == 0.0
    assert len(set(ids)) == 100
    assert [row["answer"] for row in files["answers.jsonl"]] == [
        row["answer"] for family in ("chain_sum", "letter_counting") for row in files[f"{family}_flat.jsonl"]
    ]


def test_a_task_keeps_its_id_when_the_dataset_grows(tmp_path: Path) -> None:
    for size in ("3", "6"):
        assert _prepare("--family", "gcd", "--size", size, "--output", str(tmp_path / size)).returncode == 0
    small, large = ((tmp_path / size / "gcd.jsonl").read_bytes().splitlines() for size in ("3", "6"))
    assert len(large) == 6
    assert large[:3] == small


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--family", "chess"), 3, "reasoning-gym has no family 'chess'"),
        ((), 2, "name at least one --family"),
        (("--family", "gcd", "--size", "0"), 2, "not a positive number"),
        (("--family", "gcd", "--size", "1", "--output", "/proc/nowhere"), 3, "cannot write the dataset"),
        (("--family", "coin_flip", "--size", "5000"), 3, "different questions"),
    ],
)
def test_prepare_says_in_one_line_what_is_wrong(arguments: tuple[str, ...], code: int, message: str) -> None:
    done = _prepare(*arguments)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_prepare_lists_the_families() -> None:
    done = _prepare("--list")
    assert done.returncode == 0
    assert "letter_counting" in done.stdout.splitlines()
