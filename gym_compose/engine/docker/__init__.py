"""Docker Compose: verbs through its CLI, facts through the Docker SDK, labels the only state."""
