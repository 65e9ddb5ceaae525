"""What is going to run: rows for people (``gym compose plan``), ``plan.json`` for later comparison. No secret value in either."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gym_compose.compiler.deployment import Deployment

PLAN_FORMAT = 1


@dataclass(frozen=True)
class PlanRow:
    """One service of the plan table. ``secrets`` are dotted names."""

    instance: str
    service: str
    server_type: str
    implementation: str
    runtime: str
    image: str
    address: str
    references: tuple[str, ...]
    networks: tuple[str, ...]
    published: bool
    secrets: tuple[str, ...]
    notes: tuple[str, ...]


def plan_rows(deployment: Deployment) -> tuple[PlanRow, ...]:
    """A row for each service in start order, the head server first."""
    secrets = dict(deployment.secrets)
    rows = []
    for service in deployment.services:
        public = service.slice
        rows.append(
            PlanRow(
                instance=service.instance or service.name,
                service=service.name,
                server_type=public.server_type if public else service.role,
                implementation=public.implementation if public else "",
                runtime=public.runtime if public else "gym-compose",
                image=service.image,
                address=f"{service.host}:{service.port}" if service.host else "",
                references=service.references,
                networks=tuple(attachment.network for attachment in service.attachments),
                published=bool(service.ports),
                secrets=secrets.get(service.instance or "", ()),
                notes=tuple(text for instance, text in deployment.notes if instance and instance == service.instance),
            )
        )
    return tuple(rows)


def plan_document(deployment: Deployment) -> dict[str, Any]:
    """``plan.json``: services, the inputs of each image, the digests of slices and datasets."""
    return {
        "format": PLAN_FORMAT,
        "gym_compose": deployment.version,
        "project": deployment.project,
        "engine": deployment.target,
        "services": [
            {
                "service": row.service,
                "instance": service.instance,
                "type": row.server_type,
                "implementation": row.implementation,
                "runtime": row.runtime,
                "image": row.image,
                "address": row.address,
                "references": list(row.references),
                "networks": list(row.networks),
                "published": row.published,
                "secrets": list(row.secrets),
                "slice_sha256": service.slice_sha256,
                "memory": service.memory,
                "cpus": service.cpus,
            }
            for row, service in zip(plan_rows(deployment), deployment.services, strict=True)
        ],
        "images": [
            {
                "name": image.name,
                "kind": image.kind,
                "key": image.key,
                "inputs": [[name, value] for name, value in image.inputs],
                "lock": {"name": image.lock_name, "locked": image.lock is not None} if image.lock_name else None,
            }
            for image in deployment.images
        ],
        "networks": [
            {"name": network.name, "internal": network.internal, "driver_opts": dict(network.driver_opts)}
            for network in deployment.networks
        ],
        "datasets": [
            {"instance": dataset.instance, "name": dataset.name, "type": dataset.type, "path": dataset.path, "sha256": dataset.sha256}
            for dataset in deployment.datasets
        ],
        "warnings": list(deployment.warnings),
        "notes": [[instance, text] for instance, text in deployment.notes],
    }
