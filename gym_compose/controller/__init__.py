"""The head server of a deployment: discovery, readiness and liveness by probe. Run as ``python -m gym_compose.controller``."""
