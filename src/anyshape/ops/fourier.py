"""Fourier transforms.

Of a given length: the C++ code slices or pads its input to it, or does neither, which are three programs for one call.
Doing both, with the length that is left over, is one program for every size. Of nothing: MKL raises (torch 2.13) or
does not, by the strides that nothing has, which are other ones in Inductor's code; such a call is eager's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def _raises_for_nothing() -> bool:
    try:
        torch.fft.fft(torch.zeros(0, 2, device="cpu"))
    except RuntimeError:
        return True
    return False


_OF_SOMETHING = _raises_for_nothing()


def _insist(input: Any) -> None:
    if _OF_SOMETHING and input.device.type == "cpu":
        torch._check(input.numel() != 0)


def _fit(x: Any, dim: Any, length: Any) -> Any:
    """`x` cut or padded with zeros to `length` along `dim`."""
    axis = dim + x.dim() if dim < 0 else dim
    kept = torch.sym_min(x.shape[axis], length)
    return torch.nn.functional.pad(x.narrow(axis, 0, kept), [0, 0] * (x.dim() - 1 - axis) + [0, length - kept])


def _one_dim(transform: Callable[..., Any], half: bool) -> Callable[..., Any]:
    def rule(input: Any, n: Any = None, dim: Any = -1, norm: Any = None) -> Any:
        _insist(input)
        if n is None or n < 1:
            return transform(input, n, dim, norm)
        return transform(_fit(input, dim, n // 2 + 1 if half else n), n, dim, norm)

    return rule


def _many_dims(transform: Callable[..., Any], half: bool, default: Any) -> Callable[..., Any]:
    def rule(input: Any, s: Any = None, dim: Any = default, norm: Any = None) -> Any:
        _insist(input)
        if s is None:
            return transform(input, s, dim, norm)
        axes = list(range(input.dim() - len(s), input.dim())) if dim is None else list(dim)
        if len(axes) != len(s):
            return transform(input, s, dim, norm)
        for position, axis in enumerate(axes):
            length = s[position]
            if length < 1:
                return transform(input, s, dim, norm)
            last = position == len(axes) - 1
            input = _fit(input, axis, length // 2 + 1 if half and last else length)
        return transform(input, s, dim, norm)

    return rule


def _fftfreq(n: Any, d: Any = 1.0, **options: Any) -> Any:
    # Eager divides by a float of this very length, which is one program for every length.
    if n < 1:
        return torch.fft.fftfreq(n, d, **options)
    place = torch.arange(n, **{"dtype": torch.get_default_dtype(), **options})
    return torch.where(place < (n + 1) // 2, place, place - n) * (1.0 / (n * d))


def _rfftfreq(n: Any, d: Any = 1.0, **options: Any) -> Any:
    if n < 1:
        return torch.fft.rfftfreq(n, d, **options)
    return torch.arange(n // 2 + 1, **{"dtype": torch.get_default_dtype(), **options}) * (1.0 / (n * d))


_ONE = {torch.fft.fft: False, torch.fft.ifft: False, torch.fft.rfft: False, torch.fft.ihfft: False}
_ONE_FROM_HALF = {torch.fft.irfft: True, torch.fft.hfft: True}
_TWO = {torch.fft.fft2: False, torch.fft.ifft2: False, torch.fft.rfft2: False, torch.fft.ihfft2: False}
_TWO_FROM_HALF = {torch.fft.irfft2: True, torch.fft.hfft2: True}
_ALL = {torch.fft.fftn: False, torch.fft.ifftn: False, torch.fft.rfftn: False, torch.fft.ihfftn: False}
_ALL_FROM_HALF = {torch.fft.irfftn: True, torch.fft.hfftn: True}

RULES: dict[Any, Callable[..., Any]] = {
    **{f: _one_dim(f, half) for f, half in (_ONE | _ONE_FROM_HALF).items()},
    **{f: _many_dims(f, half, (-2, -1)) for f, half in (_TWO | _TWO_FROM_HALF).items()},
    **{f: _many_dims(f, half, None) for f, half in (_ALL | _ALL_FROM_HALF).items()},
    torch.fft.fftfreq: _fftfreq,
    torch.fft.rfftfreq: _rfftfreq,
}
