"""Arguments without effect at the sizes of a call, for comparing graphs.

Owns when two calls that differ in an argument are one computation all the same. A rule is given the arguments by name
and the sizes of those that are tensors, and gives the arguments that the call might as well have had.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Sizes = Callable[[str], tuple[Any, ...] | None]


def attention(args: Mapping[str, Any], sizes: Sizes) -> Mapping[str, Any]:
    """One query sees one key, whether or not it may see later ones."""
    query, key = sizes("query"), sizes("key")
    alone = query is not None and key is not None and query[-2] == 1 and key[-2] == 1
    return {**args, "is_causal": False} if alone and args.get("is_causal") is True else args


RULES: dict[str, Callable[[Mapping[str, Any], Sizes], Mapping[str, Any]]] = {
    "aten._scaled_dot_product_flash_attention_for_cpu.default": attention,
    "aten._scaled_dot_product_flash_attention.default": attention,
    "aten._scaled_dot_product_efficient_attention.default": attention,
    "aten._scaled_dot_product_cudnn_attention.default": attention,
    "aten._scaled_dot_product_attention_math_for_mps.default": attention,
    "aten.scaled_dot_product_attention.default": attention,
}
