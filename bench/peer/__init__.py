"""NeMo Gym's shipped servers in our images: ``make peer`` (issue 5)."""
