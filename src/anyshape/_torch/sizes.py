"""Sizes of a plain tensor, for compiled code: looked up by name, so that they are here and apart from all compilers."""

from __future__ import annotations

import torch

size = torch.Tensor.size
stride = torch.Tensor.stride
storage_offset = torch.Tensor.storage_offset
