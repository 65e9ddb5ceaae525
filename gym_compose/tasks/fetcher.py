"""``python -m gym_compose.tasks.fetcher``: fetches one dataset with ``huggingface_hub``, or ``datasets`` where no file is named.

Both are optional. Reads a Download from stdin, writes one line, a DownloadAnswer, to stdout. A token is read by the libraries from
``HF_TOKEN``. The file appears whole or not at all.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from pathlib import Path

from gym_compose.tasks.download import Download, DownloadAnswer


def fetch(download: Download) -> None:
    """Make the download's file. Raises what the libraries raise, ImportError without them."""
    target = Path(download.target)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    try:
        if download.artifact is not None:
            hub = importlib.import_module("huggingface_hub")
            shutil.copyfile(hub.hf_hub_download(repo_id=download.repo_id, filename=download.artifact, repo_type="dataset"), part)
        else:
            library = importlib.import_module("datasets")
            library.load_dataset(download.repo_id, split=download.split).to_json(str(part))
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def main() -> int:
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    download = Download.model_validate_json(sys.stdin.read())
    answer = DownloadAnswer()
    try:
        fetch(download)
    except ImportError as error:
        needed = "huggingface_hub" if download.artifact is not None else "datasets"
        answer.error = f"the package {needed} is needed to fetch it ({error}); install it beside gym-compose: pip install {needed}"
    except Exception as error:  # noqa: BLE001  whatever the library or the network has to say
        answer.error = f"{type(error).__name__}: {error}"
    print(answer.model_dump_json(), file=out, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
