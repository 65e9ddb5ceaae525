"""Every figure that the docs name, measured in one run and printed beside its target and the peer's figure: ``make bench``."""
