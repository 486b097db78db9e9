"""What `out=` means to each kind of operator: resize, cast, reduction.

Owns the few facts about ops that their schemas do not tell. Knows names, not torch.
"""

from __future__ import annotations

# The result's dtype and device come from `out` where the call does not name them.
FACTORIES = frozenset(
    ("arange", "eye", "full", "linspace", "logspace", "ones", "rand", "randint", "randn", "randperm", "range", "zeros")
)

# The call gives back its buffer as it is.
CONTENT_FREE = frozenset(("empty",))

# Eager gives back None, not the buffers.
RETURN_NOTHING = frozenset(("split_copy", "split_with_sizes_copy", "unbind_copy"))
