"""A directory for PYTHONPATH: Python runs the ``sitecustomize.py`` in it whenever it starts."""
