"""The driver's program with a job in place of a run."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import orjson
import pytest

from gym_compose.driver.__main__ import main, read_request
from gym_compose.wire.errors import InvalidInputError
from gym_compose.wire.jobs import AggregateJob, ReverifyJob
from gym_compose.wire.run import RunRequest

AGGREGATE = {"job": "aggregate", "run_id": "r", "head_url": "http://127.0.0.1:9", "shards": ["a"], "output_jsonl_fpath": "o"}
REVERIFY = {
    "job": "reverify",
    "run_id": "r",
    "head_url": "h",
    "materialized_inputs_jsonl_fpath": "i",
    "rollouts_jsonl_fpath": "r",
    "output_jsonl_fpath": "o",
}
RUN = {"run_id": "r", "head_url": "h", "input_jsonl_fpath": "i", "output_jsonl_fpath": "o"}


@pytest.mark.parametrize(
    ("document", "kind"),
    [(AGGREGATE, AggregateJob), (REVERIFY, ReverifyJob), ({**RUN, "responses_create_params": {"metadata": {"job": "x"}}}, RunRequest)],
)
def test_what_a_request_asks_for(document: dict[str, Any], kind: type, tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    file.write_bytes(orjson.dumps(document))
    assert isinstance(read_request(file), kind)


@pytest.mark.parametrize("text", [b"{", b'{"job":"dance"}', b'{"job":"aggregate"}', b"[]"])
def test_a_request_that_is_none(text: bytes, tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    file.write_bytes(text)
    with pytest.raises(InvalidInputError, match=r"request\.json"):
        read_request(file)


def test_an_error_of_a_job_is_its_last_event(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shard = tmp_path / "a.jsonl"
    shard.write_bytes(b"")
    (tmp_path / "all.jsonl").write_bytes(b"{}\n")
    file = tmp_path / "request.json"
    file.write_bytes(orjson.dumps({**AGGREGATE, "shards": [str(shard)], "output_jsonl_fpath": str(tmp_path / "all.jsonl")}))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    assert main(["--request", str(file)]) == 3
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    event = orjson.loads(capfd.readouterr().out.splitlines()[-1])
    assert event["event"] == "error"
    assert "the merged file is there already" in event["message"]
