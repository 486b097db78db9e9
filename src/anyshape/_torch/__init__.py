"""The one door to torch's private names; behind it nothing is imported before the version of torch was checked."""

from anyshape._torch import versions as _versions

_versions.check()
