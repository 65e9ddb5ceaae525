"""What is done with rollouts once they are on disk: ``gym eval aggregate``, ``profile``, ``reverify`` and ``view``.

Files are read as streams (``reader``); figures and reports need no running server, aggregation and verifying again do.
"""
