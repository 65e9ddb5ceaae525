"""Who stands on which image: what is shared, and by whom."""

from __future__ import annotations

from gym_compose.compiler.deployment import Deployment


def users(deployment: Deployment) -> dict[str, tuple[str, ...]]:
    """Image name to the instances whose image is this one or is built from it, in the config's order.

    The head server and the driver are not counted; an image that only builds use (a compiler) has the instances that it is used for.
    """
    parents = {image.name: image.depends_on for image in deployment.images}
    found: dict[str, dict[str, None]] = {image.name: {} for image in deployment.images}
    for service in deployment.services:
        if service.instance is None or service.image not in parents:
            continue
        waiting, seen = [service.image], {service.image}
        while waiting:
            name = waiting.pop()
            found[name][service.instance] = None
            for parent in parents[name]:
                if parent in parents and parent not in seen:
                    seen.add(parent)
                    waiting.append(parent)
    return {name: tuple(instances) for name, instances in found.items()}
