"""Custom operators that generated code calls: convolution gradients, adaptive pooling, dropout.

Owns gradients, of convolutions and of `adaptive_max_pool2d`, with results that lie as the trace has them: eager's
kernels lay them out by what they find, an empty batch or a single channel say, as no fake kernel tells (torch 2.11 to
2.15). And dropout: of nothing, eager's kernel gives back its input, and for a mask what is no bool. Knows nothing that
compiles: code that comes out of an artifact calls them too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_ATEN = torch.ops.aten.convolution_backward.default
_GIVEN = "Tensor grad_output, Tensor input, Tensor weight, SymInt[]? bias_sizes, SymInt[] stride, SymInt[] padding"
_GIVEN += ", SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups, bool[3] output_mask"

_library = torch.library.Library("anyshape", "FRAGMENT")
_library.define(f"convolution_backward({_GIVEN}, SymInt[]? of_input, SymInt[]? of_weight) -> (Tensor, Tensor, Tensor)")


def _convolution_backward(*args: Any) -> tuple[Any, Any, Any]:
    *given, of_input, of_weight = args
    for_input, for_weight, for_bias = _ATEN(*given)
    return _laid_out(for_input, of_input), _laid_out(for_weight, of_weight), for_bias


def _laid_out(result: torch.Tensor | None, strides: Sequence[int] | None) -> torch.Tensor | None:
    if result is None or strides is None or result.stride() == tuple(strides):
        return result
    return result.new_empty_strided(result.shape, tuple(strides)).copy_(result)


def _fake_convolution_backward(*args: Any) -> tuple[Any, Any, Any]:
    *given, of_input, of_weight = args
    for_input, for_weight, for_bias = _ATEN(*given)
    return _lying(for_input, of_input), _lying(for_weight, of_weight), for_bias


def _lying(result: torch.Tensor | None, strides: Sequence[int] | None) -> torch.Tensor | None:
    return None if result is None or strides is None else result.new_empty_strided(result.shape, tuple(strides))


_library.define(
    "adaptive_max_pool2d_backward(Tensor grad_output, Tensor input, Tensor indices, SymInt[] of_input) -> Tensor"
)


def _adaptive_max_pool2d_backward(grad_output: Any, input: Any, indices: Any, of_input: Sequence[int]) -> Any:
    return _laid_out(torch.ops.aten.adaptive_max_pool2d_backward.default(grad_output, input, indices), of_input)


def _fake_adaptive_max_pool2d_backward(grad_output: Any, input: Any, indices: Any, of_input: Sequence[int]) -> Any:
    return input.new_empty_strided(input.shape, tuple(of_input))


_library.define(
    "native_dropout(Tensor input, float p, bool? train) -> (Tensor, Tensor)", tags=torch.Tag.nondeterministic_seeded
)


def _native_dropout(input: torch.Tensor, p: float, train: bool | None) -> tuple[torch.Tensor, torch.Tensor]:
    result, mask = torch.ops.aten.native_dropout.default(input, p, train)
    return (result.clone() if result is input else result), mask.to(torch.bool)


def _fake_native_dropout(input: torch.Tensor, p: float, train: bool | None) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(input), torch.empty_like(input, dtype=torch.bool)


_library.impl("convolution_backward", _convolution_backward, "CompositeExplicitAutograd")
torch.library.register_fake("anyshape::convolution_backward", _fake_convolution_backward, lib=_library)
_library.impl("adaptive_max_pool2d_backward", _adaptive_max_pool2d_backward, "CompositeExplicitAutograd")
torch.library.register_fake("anyshape::adaptive_max_pool2d_backward", _fake_adaptive_max_pool2d_backward, lib=_library)
adaptive_max_pool2d_backward = torch.ops.anyshape.adaptive_max_pool2d_backward.default
convolution_backward = torch.ops.anyshape.convolution_backward.default
_library.impl("native_dropout", _native_dropout, "CompositeExplicitAutograd")
torch.library.register_fake("anyshape::native_dropout", _fake_native_dropout, lib=_library)
native_dropout = torch.ops.anyshape.native_dropout.default
