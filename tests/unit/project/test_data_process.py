"""Code about datasets in processes of its own: what it gets, what it may print, how it is bounded."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gym_compose.engine.errors import CommandTimeoutError
from gym_compose.project.data_process import DataProcesses
from gym_compose.tasks.download import Download
from gym_compose.tasks.errors import DownloadError, PrepareError, TaskCodeError
from gym_compose.tasks.preparation import preparations
from gym_compose.tasks.running_statistics import restored, rounded
from gym_compose.tasks.task_code import RowCheckRequest
from gym_compose.wire.settings import Settings

HOOK = """
import os, sys
print("hello", flush=True)
os.write(1, b"from below\\n")
def compute_task_metrics(task_input):
    return {"Value": %s}
"""


def processes(root: Path, lines: list[str] | None = None, **settings: Any) -> DataProcesses:
    environ = {**os.environ, "MY_API_KEY": "do-not-pass", "HF_HUB_OFFLINE": "1"}
    told = lines if lines is not None else []
    return DataProcesses(environ, replace(Settings(), **settings), root, told.append, token="hf_secret_token")


class TestRows:
    def ask(self, root: Path, value: str = "1", lines: list[str] | None = None, **settings: Any) -> Any:
        (root / "rows.jsonl").write_text('{"n": 1}\n{"n": 2}\n')
        (root / "dataset_metrics.py").write_text(HOOK % value)
        request = RowCheckRequest(rows=str(root / "rows.jsonl"), metrics_file=str(root / "dataset_metrics.py"), roots=[str(root)])
        return processes(root, lines, **settings).check_rows(request, "dataset 'd'")

    def test_the_answer_comes_back_and_prints_go_to_the_user(self, tmp_path: Path) -> None:
        lines: list[str] = []
        answer = self.ask(tmp_path, lines=lines)
        assert restored(answer.metrics["Value"]).summary()["Total # non-null values"] == 2
        assert sorted(lines) == ["from below", "hello"]

    def test_it_sees_no_secret_of_the_callers(self, tmp_path: Path) -> None:
        answer = self.ask(tmp_path, "[name in os.environ for name in ('MY_API_KEY', 'HF_TOKEN', 'PATH')]")
        assert restored(answer.metrics["Value"]).summary()["Average"] == rounded(1 / 3)

    def test_code_that_ends_its_process(self, tmp_path: Path) -> None:
        with pytest.raises(TaskCodeError, match=r"dataset_metrics.py: the process that checks rows with it ended \(exit code 7\)"):
            self.ask(tmp_path, "os._exit(7)")

    def test_code_that_does_not_end(self, tmp_path: Path) -> None:
        with pytest.raises(CommandTimeoutError, match="rows of dataset 'd' to be checked by"):
            self.ask(tmp_path, "[0 for _ in iter(int, 1)]", row_check_seconds=3.0, kill_grace_seconds=0.5)


class TestPrepare:
    def run(self, root: Path, body: str, lines: list[str] | None = None, *, place: str = "scripts/my-set", **arguments: Any) -> Path:
        script = root / place / "prepare.py"
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(f"import os, sys\nfrom pathlib import Path\nHERE = Path(__file__).parent\n{body}")
        entry = {"name": "d", "type": "benchmark", "jsonl_fpath": f"{place}/d.jsonl", "prepare_script": f"{place}/prepare.py"}
        config = {"a": {"responses_api_agents": {"x": {"datasets": [entry]}}}}
        [preparation] = preparations(config, [root])
        return processes(root, lines).prepare(preparation, [root], arguments)

    def test_it_makes_the_file_with_its_arguments_and_shows_what_it_prints(self, tmp_path: Path) -> None:
        (tmp_path / "scripts/my-set").mkdir(parents=True)
        (tmp_path / "scripts/shared.py").write_text("def rows(count):\n    return '{}\\n' * count\n")
        lines: list[str] = []
        body = """from scripts.shared import rows
def prepare(count=1):
    print("working", flush=True)
    (HERE / "d.jsonl").write_text(rows(count))
    return HERE / "d.jsonl"
"""
        assert self.run(tmp_path, body, lines, count=3) == tmp_path / "scripts/my-set/d.jsonl"
        assert (tmp_path / "scripts/my-set/d.jsonl").read_text() == "{}\n" * 3
        assert lines == ["d: working"]

    def test_it_gets_the_callers_environment_and_the_token(self, tmp_path: Path) -> None:
        body = """def prepare():
    assert os.environ["MY_API_KEY"] and os.environ["HF_TOKEN"]
    (HERE / "d.jsonl").write_text("{}")
    return "scripts/my-set/d.jsonl"
"""
        assert self.run(tmp_path, body).is_file()

    def test_a_directory_with_the_name_of_an_installed_package(self, tmp_path: Path) -> None:
        body = "def prepare():\n    (HERE / 'd.jsonl').write_text('{}')\n    return HERE / 'd.jsonl'\n"
        assert self.run(tmp_path, body, place="email").is_file()

    def test_what_stands_beside_it_and_which_file_is_wanted(self, tmp_path: Path) -> None:
        (tmp_path / "scripts/my-set").mkdir(parents=True)
        (tmp_path / "scripts/my-set/neighbour_of_a_script.py").write_text("TEXT = '{}'\n")
        body = """from neighbour_of_a_script import TEXT
def prepare(jsonl_fpath):
    Path(jsonl_fpath).write_text(TEXT)
    return jsonl_fpath
"""
        assert self.run(tmp_path, body) == tmp_path / "scripts/my-set/d.jsonl"

    @pytest.mark.parametrize(
        ("body", "told"),
        [
            ("def prepare():\n    raise KeyError('hf_secret_token')\n", r"the script failed: KeyError: '\*+"),
            ("def prepare():\n    return None\n", r"prepare\(\) returned None, not the path"),
            ("def prepare():\n    return HERE / 'other.jsonl'\n", r"prepare\(\) made .*other.jsonl, and the dataset's file is"),
            ("def prepare():\n    return HERE / 'd.jsonl'\n", "there is no such file"),
            ("def prepare():\n    os._exit(9)\n", r"its process ended \(exit code 9\)"),
            ("import nothing_of_that_name\ndef prepare(): ...\n", "ModuleNotFoundError"),
        ],
    )
    def test_a_script_that_fails(self, tmp_path: Path, body: str, told: str) -> None:
        with pytest.raises(PrepareError, match=told) as raised:
            self.run(tmp_path, body)
        assert raised.value.where == "scripts/my-set/prepare.py of dataset 'd' (benchmark) of a"
        assert "hf_secret_token" not in "".join((str(raised.value), *raised.value.details))

    def test_arguments_that_it_does_not_take(self, tmp_path: Path) -> None:
        with pytest.raises(PrepareError, match="unexpected keyword argument 'size'"):
            self.run(tmp_path, "def prepare(): ...\n", size=1)


class TestFetch:
    """With a stand-in for the library: nothing is fetched in tests."""

    def download(self, root: Path, **fields: Any) -> Download:
        return Download(label="dataset 'd'", repo_id="o/s", split="train", target=str(root / "data/d.jsonl"), **{"artifact": "f", **fields})

    def fetch(self, root: Path, library: str | None, download: Download, name: str = "huggingface_hub") -> None:
        (root / "lib").mkdir()
        # A module of that name that cannot be imported stands for one that is not installed, whatever this machine has.
        (root / "lib" / f"{name}.py").write_text(library if library is not None else "raise ImportError('not here')\n")
        made = processes(root)
        replace(made, environ={**made.environ, "PYTHONPATH": str(root / "lib")}).fetch(download)

    def test_a_file_of_the_repository(self, tmp_path: Path) -> None:
        library = """import os
def hf_hub_download(repo_id, filename, repo_type):
    assert os.environ["HF_TOKEN"] and repo_type == "dataset"
    open("cached", "w").write(f"{repo_id} {filename}")
    return "cached"
"""
        self.fetch(tmp_path, library, self.download(tmp_path))
        assert (tmp_path / "data/d.jsonl").read_text() == "o/s f"

    def test_a_split(self, tmp_path: Path) -> None:
        library = """class Set:
    def to_json(self, path):
        open(path, "w").write("rows")
def load_dataset(repo_id, split):
    return Set()
"""
        self.fetch(tmp_path, library, self.download(tmp_path, artifact=None), "datasets")
        assert (tmp_path / "data/d.jsonl").read_text() == "rows"

    @pytest.mark.parametrize(("artifact", "name"), [("f", "huggingface_hub"), (None, "datasets")])
    def test_without_the_library_it_says_what_to_install(self, tmp_path: Path, artifact: str | None, name: str) -> None:
        with pytest.raises(DownloadError, match=f"the package {name} is needed .*pip install {name}"):
            self.fetch(tmp_path, None, self.download(tmp_path, artifact=artifact), name)

    def test_what_the_library_says_is_told_without_the_token_and_nothing_is_left(self, tmp_path: Path) -> None:
        library = "def hf_hub_download(**fields):\n    raise RuntimeError('401 for hf_secret_token')\n"
        with pytest.raises(DownloadError, match=r"could not be fetched from o/s/f: RuntimeError: 401 for \*+") as raised:
            self.fetch(tmp_path, library, self.download(tmp_path))
        assert "hf_secret_token" not in str(raised.value)
        assert list((tmp_path / "data").iterdir()) == []
