"""`import anyshape.auto` turns on what `anyshape.toml` declares.

The file is the one named by `ANYSHAPE_SPEC`, or the nearest `anyshape.toml` from the working directory up to
the root of the project.
"""

from __future__ import annotations

import warnings

from anyshape import hooks
from anyshape.declaration import spec_file

hook = hooks.install()
if hook is None:
    warnings.warn(f"no {spec_file.FILE_NAME} was found, and {spec_file.VARIABLE} is not set", stacklevel=2)
