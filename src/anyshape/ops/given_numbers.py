"""Rules for symbolic numbers given to plain int and float arguments of C++: a program for each (torch 2.11 to 2.15).

These rules hold where such a number is symbolic, and only there. They say the same in calls that take a tensor, or ask
what the kernel asks: which way a picture is turned, and not how often.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

_EXACT = (torch.float32, torch.float64)


# -- ints, and numbers of either kind --------------------------------------------------------------------------


def rot90(input: Any, k: Any = 1, dims: Any = (0, 1)) -> Any:
    quarters = k % 4
    for turns in range(4):
        if quarters == turns:
            return torch.rot90(input, turns, dims)
    return torch.rot90(input, k, dims)


def round_(input: Any, *, decimals: Any = 0) -> Any:
    if input.dtype not in _EXACT or isinstance(decimals, bool) or not -22 <= decimals <= 22:
        return torch.round(input, decimals=decimals)
    if decimals == 0:
        return torch.round(input)
    ten = torch.full((), 10.0, dtype=torch.float64, device=input.device)
    if decimals > 0:
        power = torch.pow(ten, decimals).to(input.dtype)
        return torch.round(input * power) / power
    power = torch.pow(ten, -decimals).to(input.dtype)
    return torch.round(input / power) * power


def _variance(input: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    kind = input.dtype if input.dtype in _EXACT else torch.float32
    given = [dim] if isinstance(dim, int) else dim
    count = math.prod([input.shape[d] for d in given]) if given else input.numel()
    freedom = torch.full((), count, dtype=kind, device=input.device) - correction
    spread = torch.var(input.to(kind), dim, correction=0, keepdim=keepdim)
    return spread * count / torch.where(freedom > 0, freedom, 0)  # of nan there is none, too


def var(input: Any, dim: Any = None, *rest: Any, **options: Any) -> Any:
    correction = options.get("correction")
    if rest or correction is None or isinstance(correction, bool) or not input.is_floating_point():
        return torch.var(input, dim, *rest, **options)
    return _variance(input, dim, correction, options.get("keepdim", False)).to(input.dtype)


def std(input: Any, dim: Any = None, *rest: Any, **options: Any) -> Any:
    correction = options.get("correction")
    plain = not rest and correction is not None and not isinstance(correction, bool)
    if not plain or not input.is_floating_point() or input.requires_grad:  # the gradient of no deviation is 0
        return torch.std(input, dim, *rest, **options)
    return _variance(input, dim, correction, options.get("keepdim", False)).sqrt().to(input.dtype)


def _diagonal(input: Any, offset: Any, dim1: Any, dim2: Any) -> Any:
    rows, columns = input.shape[dim1], input.shape[dim2]
    if offset >= 0:
        if offset < columns:
            return input.narrow(dim2, offset, columns - offset).diagonal(0, dim1, dim2)
    elif -offset < rows:
        return input.narrow(dim1, -offset, rows + offset).diagonal(0, dim1, dim2)
    return input.narrow(dim2, 0, 0).diagonal(0, dim1, dim2)


def diagonal(input: Any, offset: Any = 0, dim1: Any = 0, dim2: Any = 1) -> Any:
    dims = input.dim()
    if isinstance(offset, bool) or not (-dims <= dim1 < dims and -dims <= dim2 < dims) or dim1 % dims == dim2 % dims:
        return torch.diagonal(input, offset, dim1, dim2)  # eager's own error
    return _diagonal(input, offset, dim1, dim2)


def diag(input: Any, diagonal: Any = 0) -> Any:
    if input.dim() != 2 or isinstance(diagonal, bool):
        return torch.diag(input, diagonal)
    return _diagonal(input, diagonal, 0, 1).clone()


# -- floats ----------------------------------------------------------------------------------------------------


def _widened(input: Any) -> Any:
    return input if input.dtype in _EXACT else input.to(torch.float32)


def _is_computed_in(input: Any) -> bool:
    """Whether a norm of it has its dtype: autocast gives back floats of 32 bits for halves."""
    return input.is_floating_point() and (input.dtype in _EXACT or not torch.is_autocast_enabled(input.device.type))


def _has_shape(tensor: Any, shape: Any) -> bool:
    """Whether a tensor has as many dims; that they are as long is insisted on."""
    if len(tensor.shape) != len(shape):
        return False
    for size, wanted in zip(tensor.shape, shape):  # noqa: B905 (Dynamo knows no `strict`)
        torch._check(size == wanted)
    return True


def layer_norm(input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: Any = 1e-5) -> Any:
    count = len(normalized_shape)
    fits = 0 < count <= input.dim() and _is_computed_in(input)
    if not fits or not all(t is None or len(t.shape) == count for t in (weight, bias)):
        return F.layer_norm(input, normalized_shape, weight, bias, eps)  # eager's own error
    for size, wanted in zip(input.shape[-count:], normalized_shape):  # noqa: B905
        torch._check(size == wanted)
    x = _widened(input)
    dims = tuple(range(-count, 0))
    mean = x.mean(dims, keepdim=True)
    result = (x - mean) * torch.rsqrt(torch.var(x, dims, correction=0, keepdim=True) + eps)
    if weight is not None and _has_shape(weight, normalized_shape):
        result = result * weight
    if bias is not None and _has_shape(bias, normalized_shape):
        result = result + bias
    return result.to(input.dtype).contiguous()


def rms_norm(input: Any, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Any:
    count = len(normalized_shape)
    fits = 0 < count <= input.dim() and _is_computed_in(input) and (weight is None or len(weight.shape) == count)
    if not fits or eps is None:
        return F.rms_norm(input, normalized_shape, weight, eps)
    for size, wanted in zip(input.shape[-count:], normalized_shape):  # noqa: B905
        torch._check(size == wanted)
    x = _widened(input)
    result = x * torch.rsqrt((x * x).mean(tuple(range(-count, 0)), keepdim=True) + eps)
    if weight is not None and _has_shape(weight, normalized_shape):
        result = result * weight
    return result.to(input.dtype)


def group_norm(input: Any, num_groups: Any, weight: Any = None, bias: Any = None, eps: Any = 1e-5) -> Any:
    plain = input.dim() >= 2 and input.dtype in _EXACT and num_groups > 0 and input.is_contiguous()
    plain = plain and all(t is None or len(t.shape) == 1 for t in (weight, bias))
    if not plain or input.numel() == num_groups:  # one value in a group is refused
        return F.group_norm(input, num_groups, weight, bias, eps)
    rows, channels, *rest = input.shape
    torch._check(channels % num_groups == 0)
    if rows * channels // num_groups * math.prod(rest) == 1:
        return F.group_norm(input, num_groups, weight, bias, eps)  # eager's own error
    x = input.reshape(rows, num_groups, channels // num_groups * math.prod(rest))
    mean, spread = x.mean(-1, keepdim=True), torch.var(x, -1, correction=0, keepdim=True)
    result = ((x - mean) * torch.rsqrt(spread + eps)).reshape(input.shape)
    return _of_channels(result, weight, bias)


def _of_channels(result: Any, weight: Any, bias: Any) -> Any:
    along = (-1,) + (1,) * (result.dim() - 2)
    if weight is not None and _has_shape(weight, result.shape[1:2]):
        result = result * weight.reshape(along)
    if bias is not None and _has_shape(bias, result.shape[1:2]):
        result = result + bias.reshape(along)
    return result


def batch_norm(
    input: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: Any = 0.1,
    eps: Any = 1e-5,
) -> Any:
    given = (running_mean, running_var, weight, bias)
    plain = input.dim() >= 2 and input.dtype in _EXACT and all(t is None or len(t.shape) == 1 for t in given)
    if not plain or not input.is_contiguous() or (not training and (running_mean is None or running_var is None)):
        return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    if training and input.numel() == input.shape[1]:  # one value in a channel is refused
        return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    mean, spread = running_mean, running_var
    if training:
        dims = [d for d in range(input.dim()) if d != 1]
        count = math.prod([input.shape[d] for d in dims])
        if count == 1:
            return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
        mean, spread = input.mean(dims), torch.var(input, dims, correction=0)
        if running_mean is not None and _has_shape(running_mean, input.shape[1:2]):
            running_mean.copy_(running_mean * (1 - momentum) + mean.detach() * momentum)
        if running_var is not None and _has_shape(running_var, input.shape[1:2]):
            running_var.copy_(running_var * (1 - momentum) + spread.detach() * count / (count - 1) * momentum)
    along = (-1,) + (1,) * (input.dim() - 2)
    result = (input - mean.reshape(along)) * torch.rsqrt(spread + eps).reshape(along)
    return _of_channels(result, weight, bias)


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: Any = 0.0,
    is_causal: bool = False,
    scale: Any = None,
    enable_gqa: bool = False,
) -> Any:
    if scale is not None and query.dtype in _EXACT:
        query, scale = query * scale, 1.0
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


def float_power(input: Any, exponent: Any) -> Any:
    if not isinstance(input, torch.Tensor) or isinstance(exponent, torch.Tensor) or input.is_complex():
        return torch.float_power(input, exponent)
    return torch.pow(input.to(torch.float64), exponent)


def logit(input: Any, eps: Any = None) -> Any:
    if input.dtype not in _EXACT or eps is None or eps < 0:
        return torch.logit(input, eps)
    inside = torch.where(input < eps, eps, torch.where(input > 1 - eps, 1 - eps, input))
    return torch.log(inside / (1 - inside))


def nan_to_num(input: Any, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Any:
    if not input.is_floating_point():
        return torch.nan_to_num(input, nan, posinf, neginf)
    most = torch.finfo(input.dtype).max if posinf is None else posinf
    least = torch.finfo(input.dtype).min if neginf is None else neginf
    finite = torch.where(input == math.inf, most, torch.where(input == -math.inf, least, input))
    return torch.where(input.isnan(), 0.0 if nan is None else nan, finite)


def celu(input: Any, alpha: Any = 1.0, inplace: bool = False) -> Any:
    if inplace or input.dtype not in _EXACT or alpha == 0:
        return F.celu(input, alpha, inplace)
    return torch.where(input > 0, input, torch.expm1(input / alpha) * alpha)


def _reduced(loss: Any, reduction: str) -> Any:
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


_REDUCTIONS = ("none", "mean", "sum")


def huber_loss(input: Any, target: Any, reduction: str = "mean", delta: Any = 1.0, weight: Any = None) -> Any:
    plain = weight is None and reduction in _REDUCTIONS and input.dtype in _EXACT and input.dtype is target.dtype
    if not plain or target.size() != input.size() or delta <= 0:
        return F.huber_loss(input, target, reduction, delta, *([] if weight is None else [weight]))
    apart = (input - target).abs()
    return _reduced(torch.where(apart <= delta, 0.5 * apart * apart, (apart - delta * 0.5) * delta), reduction)


def smooth_l1_loss(
    input: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean", beta: Any = 1.0
) -> Any:
    plain = size_average is None and reduce is None and reduction in _REDUCTIONS
    plain = plain and input.dtype in _EXACT and input.dtype is target.dtype
    if not plain or target.size() != input.size() or beta <= 0:
        return F.smooth_l1_loss(input, target, size_average, reduce, reduction, beta)
    apart = (input - target).abs()
    return _reduced(torch.where(apart < beta, 0.5 * apart * apart / beta, apart - beta * 0.5), reduction)


def margin_ranking_loss(
    input1: Any,
    input2: Any,
    target: Any,
    margin: Any = 0,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Any:
    alike = input1.dim() == input2.dim() == target.dim() and input1.dtype in _EXACT
    if size_average is not None or reduce is not None or reduction not in _REDUCTIONS or not alike:
        return F.margin_ranking_loss(input1, input2, target, margin, size_average, reduce, reduction)
    return _reduced((-target * (input1 - input2) + margin).clamp_min(0), reduction)


def cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: Any = 1e-8) -> Any:
    plain = x1.dtype in _EXACT and x1.dtype is x2.dtype and not x1.requires_grad and not x2.requires_grad
    if not plain:
        return F.cosine_similarity(x1, x2, dim, eps)
    x1, x2 = torch.broadcast_tensors(x1, x2)
    left = x1 / torch.linalg.vector_norm(x1, 2, dim, keepdim=True).clamp_min(eps)
    right = x2 / torch.linalg.vector_norm(x2, 2, dim, keepdim=True).clamp_min(eps)
    return (left * right).sum(dim)


def cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: Any = 0.0,
) -> Any:
    given = (weight, size_average, ignore_index, reduce, reduction)
    if not 0 < label_smoothing <= 1:
        return F.cross_entropy(input, target, *given, label_smoothing)
    sharp, smooth = F.cross_entropy(input, target, *given, 0.0), F.cross_entropy(input, target, *given, 1.0)
    return sharp * (1 - label_smoothing) + smooth * label_smoothing  # it is linear in that


def isclose(input: Any, other: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Any:
    if input.dtype not in _EXACT or input.dtype is not other.dtype or rtol < 0 or atol < 0:
        return torch.isclose(input, other, rtol, atol, equal_nan)
    apart = (input - other).abs()
    close = (input == other) | (apart.isfinite() & (apart <= (other * rtol).abs() + atol))
    return close | (input.isnan() & other.isnan()) if equal_nan else close


def _quantile(stock: Callable[..., Any]) -> Callable[..., Any]:
    def quantile(input: Any, q: Any, *args: Any, **options: Any) -> Any:
        if isinstance(q, torch.Tensor) or input.dtype not in _EXACT or not 0 <= q <= 1:
            return stock(input, q, *args, **options)
        return stock(input, torch.full((), q, dtype=input.dtype, device=input.device), *args, **options)

    return quantile


def pad(input: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    if mode != "constant" or value is None or input.dtype not in _EXACT:
        return F.pad(input, pad, mode, value)
    return torch.constant_pad_nd(input, pad, value)


RULES: dict[Any, Callable[..., Any]] = {
    torch.rot90: rot90,
    torch.round: round_,
    torch.var: var,
    torch.std: std,
    torch.diagonal: diagonal,
    torch.diag: diag,
}
OF_FLOATS: dict[Any, Callable[..., Any]] = {
    F.layer_norm: layer_norm,
    F.rms_norm: rms_norm,
    F.group_norm: group_norm,
    F.batch_norm: batch_norm,
    F.scaled_dot_product_attention: scaled_dot_product_attention,
    torch.float_power: float_power,
    torch.logit: logit,
    torch.nan_to_num: nan_to_num,
    F.celu: celu,
    F.huber_loss: huber_loss,
    F.smooth_l1_loss: smooth_l1_loss,
    F.margin_ranking_loss: margin_ranking_loss,
    F.cosine_similarity: cosine_similarity,
    F.cross_entropy: cross_entropy,
    torch.isclose: isclose,
    torch.quantile: _quantile(torch.quantile),
    torch.nanquantile: _quantile(torch.nanquantile),
    F.pad: pad,
}
