"""What a row of the zoo says: how a model is built, what it is given for a size, and whether it trains.

Owns the value and the makers of inputs. Which models there are is told in `text`, `pictures` and `sounds`.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import torch

WORDS = 100  # in every vocabulary
Inputs = dict[str, torch.Tensor]

# What most configurations call the same thing; a class that does not know a word ignores it.
SMALL: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
# What many call otherwise: encoder-decoders, and those that came before the words were settled.
TWO_SIDED: dict[str, Any] = {
    "d_model": 32,
    "d_kv": 16,
    "d_ff": 64,
    "num_layers": 1,
    "num_heads": 2,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "decoder_start_token_id": 2,
}


@dataclasses.dataclass(frozen=True)
class Row:
    """An architecture of an installed library."""

    name: str
    model: str  # the class
    kind: str
    config: Mapping[str, Any]
    inputs: Callable[[int, int], Inputs]
    trains: bool = False  # not where a layer is dropped by a branch on a random number: such a model is no one graph
    unit: bool = True  # a length of 1 means something
    parts: Mapping[str, tuple[str, Mapping[str, Any]]] = dataclasses.field(default_factory=dict)
    library: str = "transformers"

    def build(self) -> torch.nn.Module:
        torch.manual_seed(0)
        if self.library == "timm":
            return importlib.import_module("timm").create_model(self.model, **self.config)
        if self.library == "diffusers":
            return getattr(importlib.import_module("diffusers"), self.model)(**self.config)
        import transformers

        made = {key: getattr(transformers, name)(**words) for key, (name, words) in self.parts.items()}
        cls = getattr(transformers, self.model)
        torch.manual_seed(0)
        return cls(cls.config_class(**{**self.config, **made}))


def generator(batch: int, length: int) -> torch.Generator:
    return torch.Generator().manual_seed(1000 * batch + length)


def tokens(batch: int, length: int) -> torch.Tensor:
    return torch.randint(3, WORDS, (batch, length), generator=generator(batch, length))


def text(batch: int, length: int) -> Inputs:
    return {"input_ids": tokens(batch, length)}


def padded_text(batch: int, length: int) -> Inputs:
    """With a mask whose rows end at different places."""
    kept = torch.arange(length)[None, :] < torch.clamp(length - torch.arange(batch)[:, None], min=1)
    return {"input_ids": tokens(batch, length), "attention_mask": kept.long()}


def text_to_text(batch: int, length: int) -> Inputs:
    return {"input_ids": tokens(batch, length), "decoder_input_ids": tokens(batch, max(length // 2, 1))}


def picture(step: int, least: int = 1) -> Callable[[int, int], Inputs]:
    """Square images whose side grows with the length by `step` pixels."""

    def inputs(batch: int, length: int) -> Inputs:
        side = step * max(length, least)
        return {"pixel_values": torch.randn(batch, 3, side, side, generator=generator(batch, length))}

    return inputs


def fixed_picture(side: int) -> Callable[[int, int], Inputs]:
    """For models whose positions are learnt for one side: only the batch varies."""
    return lambda batch, length: {"pixel_values": torch.randn(batch, 3, side, side, generator=generator(batch, 0))}


def wave(least: int, step: int) -> Callable[[int, int], Inputs]:
    """Samples of sound."""

    def inputs(batch: int, length: int) -> Inputs:
        return {"input_values": torch.randn(batch, least + step * length, generator=generator(batch, length))}

    return inputs


def spectrum(bins: int, frames: int, *, last: str = "frames") -> Callable[[int, int], Inputs]:
    """Features of sound of one length, and text of another."""

    def inputs(batch: int, length: int) -> Inputs:
        shape = (batch, bins, frames) if last == "frames" else (batch, frames, bins)
        features = torch.randn(*shape, generator=generator(batch, length))
        return {"input_features": features, "decoder_input_ids": tokens(batch, length)}

    return inputs


def picture_and_text(side: int) -> Callable[[int, int], Inputs]:
    return lambda batch, length: {**text(batch, length), **fixed_picture(side)(batch, length)}
