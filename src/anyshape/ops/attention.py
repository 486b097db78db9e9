"""Rules for scaled dot-product attention where a length or the number of heads is 0.

Eager has zeros where a length or the number of heads is 0; the fused CPU kernel that it takes otherwise does not
survive it (a division by zero in native code, torch 2.11 to 2.15). Which kernel a graph holds is therefore a
question about these sizes. An empty batch is nothing special to either; what has three dims has no heads, but for torch
2.15, which takes its first dim for them and the fused kernel.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F


def _fused_dims() -> int:
    """The fewest dims of a query with which eager takes the fused kernel: its gradient says which it took."""
    with torch.inference_mode(False), torch.enable_grad():
        query = torch.ones(1, 1, 1, device="cpu", requires_grad=True)
        last = F.scaled_dot_product_attention(query, query, query).grad_fn
        nodes = [] if last is None else [last, *(n for n, _ in last.next_functions if n is not None)]
    return 3 if any("FlashAttention" in n.name() for n in nodes) else 4


def _refuses_both() -> bool:
    """Whether eager refuses a mask with `is_causal` over nothing too: torch 2.15 does."""
    nothing = torch.ones(1, 0, 1, device="cpu")
    try:
        F.scaled_dot_product_attention(nothing, nothing, nothing, torch.ones(0, 0, device="cpu"), is_causal=True)
    except RuntimeError:
        return True
    return False


FUSED_DIMS = _fused_dims()
_REFUSES_BOTH = _refuses_both()


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Any = None,
    enable_gqa: bool = False,
) -> Any:
    heads = query.dim() >= FUSED_DIMS
    # Of unlike ranks they are multiplied as any tensors are; unlike dtypes are refused.
    alike = query.dim() == key.dim() == value.dim() and query.dtype == key.dtype == value.dtype
    fits = attn_mask is None or attn_mask.dtype in (torch.bool, torch.float32, query.dtype)
    if alike and fits and (query.shape[-2] == 0 or key.shape[-2] == 0 or (heads and query.shape[-3] == 0)):
        return _over_nothing(query, key, value, attn_mask, is_causal)
    if query.device.type != "cpu":  # the fused kernels of a GPU refuse heads of size 0, for which eager has another
        torch._check(query.shape[-1] != 0)
        torch._check(value.shape[-1] != 0)
    is_causal = True if is_causal else False  # noqa: SIM210 - a comparison of sizes, which is no bool to the kernel
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


def _over_nothing(query: Any, key: Any, value: Any, attn_mask: Any, is_causal: bool) -> Any:
    """Zeros of the query's shape, whatever the others broadcast to; NaN where one of them has it."""
    empty = query.shape[-2] == 0 or value.numel() == 0
    if is_causal and attn_mask is not None and (_REFUSES_BOTH or not empty):
        raise RuntimeError("a mask cannot be given with is_causal=True")
    if empty:
        return query.new_zeros(*query.shape[:-1], value.shape[-1]) + (query.sum() + key.sum() + value.sum()) * 0
    scores = query @ key.transpose(-2, -1)  # these broadcast, and are refused, as any factors are
    return (scores if attn_mask is None else scores * attn_mask) @ value


# To torch's tracer this is one call, with attention unseen inside it; a function of the same code is traced through.
_traced_through = types.FunctionType(
    F.multi_head_attention_forward.__code__, vars(F), argdefs=F.multi_head_attention_forward.__defaults__
)


def multi_head_attention_forward(query: Any, key: Any, *args: Any, **kwargs: Any) -> Any:
    if not kwargs.get("need_weights") and (query.shape[0] == 0 or key.shape[0] == 0):
        return _traced_through(query, key, *args, **kwargs)
    return F.multi_head_attention_forward(query, key, *args, **kwargs)


RULES: dict[Any, Callable[..., Any]] = {
    F.scaled_dot_product_attention: scaled_dot_product_attention,
    F.multi_head_attention_forward: multi_head_attention_forward,
}
