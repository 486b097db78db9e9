"""Pytrees: nested lists, tuples, dicts and dataclasses of tensors.

Owns nothing but the names: torch has no public module for trees that all of its versions share.
"""

from __future__ import annotations

from torch.utils import _pytree as pytree

flatten = pytree.tree_flatten
leaves = pytree.tree_leaves
map_leaves = pytree.tree_map
