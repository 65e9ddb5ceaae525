"""Skills of a run: a directory of skill directories, stamped on flat rows as ``skills_ref`` (contract-data 1.4 step 6)."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import yaml

from gym_compose.tasks.errors import DatasetError

_FILE = "SKILL.md"
_HASH_LENGTH = 12


def skills_reference(directory: Path, path: str) -> dict[str, Any]:
    """``{path, hash, skills: [{name, description, version}]}`` of the skills below ``directory``; ``path`` as the user gave it.

    The hash covers sorted relative paths and bytes, so a renamed file is another set of skills. Raises DatasetError.
    """
    if not directory.is_dir():
        raise DatasetError("skills.path is not a directory of skill directories", where=str(directory))
    skills = [_metadata(child / _FILE) for child in sorted(directory.iterdir()) if child.is_dir()]
    if not skills:
        raise DatasetError(f"holds no skills: each is a directory with a {_FILE}", where=str(directory))
    digest = hashlib.sha256()
    for file in sorted(child for child in directory.rglob("*") if child.is_file()):
        digest.update(file.relative_to(directory).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return {"path": path, "hash": digest.hexdigest()[:_HASH_LENGTH], "skills": skills}


def _metadata(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise DatasetError(f"a skill cannot be read: {error.strerror}", where=str(file)) from None
    lines = text.splitlines()
    marks = [number for number, line in enumerate(lines) if line.strip() == "---"][:2]
    if len(marks) < 2 or marks[0] != 0:
        raise DatasetError("a skill starts with YAML front matter between two lines `---`", where=str(file))
    try:
        fields = yaml.load("\n".join(lines[1 : marks[1]]), Loader=yaml.CSafeLoader)
    except yaml.YAMLError as error:
        raise DatasetError(f"its front matter is not valid YAML: {error}", where=str(file)) from None
    if not isinstance(fields, dict) or not fields.get("name"):
        raise DatasetError("its front matter has no `name`", where=str(file))
    metadata = fields.get("metadata")
    version = metadata.get("version") if isinstance(metadata, dict) else None
    return {"name": str(fields["name"]), "description": fields.get("description"), "version": None if version is None else str(version)}
