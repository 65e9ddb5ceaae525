"""`gym compose doctor`: is everything here that a deployment needs, and does each server of a config build, import and answer.

``check`` is what is found, ``host`` and ``docker`` look at the machine, ``servers`` tries a config. Import those: the package itself loads
nothing, since `gym --help` reaches it.
"""
