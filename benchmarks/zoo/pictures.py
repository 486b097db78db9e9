"""Models of images, and of images with text."""

from __future__ import annotations

from typing import Any

from benchmarks.zoo.rows import SMALL, Row, fixed_picture, picture, picture_and_text

SIDES = {k: v for k, v in SMALL.items() if k.startswith(("hidden", "intermediate", "num"))}
PATCHES = {"image_size": 32, "patch_size": 8}
STAGES = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}


def _fixed(name: str, model: str, *, trains: bool = False, **config: Any) -> Row:
    return Row(name, model, "vision", {**SIDES, **PATCHES, **config}, fixed_picture(32), trains, unit=False)


def _any_side(name: str, model: str, *, step: int = 4, least: int = 8, trains: bool = False, **config: Any) -> Row:
    return Row(name, model, "vision", config, picture(step, least), trains, unit=False)


TOWERS = {
    "text_config": {**SMALL, "projection_dim": 16},
    "vision_config": {**SIDES, **PATCHES, "projection_dim": 16},
    "projection_dim": 16,
}

ROWS = [
    _fixed("vit", "ViTModel", trains=True),
    _fixed("deit", "DeiTModel"),
    _fixed("beit", "BeitModel"),
    _fixed("dinov2", "Dinov2Model", trains=True),
    _fixed("vit-mae", "ViTMAEModel", mask_ratio=0.0),
    _fixed("ijepa", "IJepaModel"),
    _any_side("swin", "SwinModel", step=8, image_size=64, patch_size=4, embed_dim=8, depths=[1, 1], num_heads=[1, 2], window_size=4),
    _any_side("convnext", "ConvNextModel", trains=True, num_stages=2, hidden_sizes=[8, 16], depths=[1, 1]),
    _any_side("convnextv2", "ConvNextV2Model", num_stages=2, hidden_sizes=[8, 16], depths=[1, 1]),
    _any_side("resnet", "ResNetModel", trains=True, **STAGES),
    _any_side("regnet", "RegNetModel", embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], groups_width=4),
    _any_side("mobilenet-v1", "MobileNetV1Model", depth_multiplier=0.125),
    _any_side("mobilenet-v2", "MobileNetV2Model", trains=True, depth_multiplier=0.1),
    _any_side("segformer", "SegformerModel", num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[8, 16], num_attention_heads=[1, 2], patch_sizes=[7, 3], strides=[4, 2], mlp_ratios=[2, 2]),
    _any_side("poolformer", "PoolFormerModel", num_encoder_blocks=2, depths=[1, 1], hidden_sizes=[8, 16], patch_sizes=[7, 3], strides=[4, 2], padding=[2, 1]),
    _any_side("efficientnet", "EfficientNetModel", width_coefficient=0.25, depth_coefficient=0.1, image_size=32, hidden_dim=320),
    _any_side("focalnet", "FocalNetModel", step=8, image_size=64, embed_dim=8, depths=[1, 1], focal_levels=[1, 1], focal_windows=[3, 3], hidden_sizes=[8, 16]),
    Row("clip", "CLIPModel", "multimodal", TOWERS, picture_and_text(32), True),
    Row("siglip", "SiglipModel", "multimodal", TOWERS, picture_and_text(32)),
    Row("blip", "BlipModel", "multimodal", {**TOWERS, "text_config": {**TOWERS["text_config"], "encoder_hidden_size": 32}}, picture_and_text(32)),
    Row("vilt", "ViltModel", "multimodal", {**SMALL, **PATCHES, "max_image_length": -1}, picture_and_text(32)),
]  # fmt: skip
