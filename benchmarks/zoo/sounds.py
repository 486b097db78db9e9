"""Models of sound and of time series."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.zoo.rows import SMALL, TWO_SIDED, Row, spectrum, wave

CONVOLUTIONS = {
    **SMALL, "conv_dim": [16, 16], "conv_kernel": [10, 3], "conv_stride": [5, 2], "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2, "num_feat_extract_layers": 2, "mask_time_prob": 0.0, "layerdrop": 0.0,
}  # fmt: skip
SPEECH = {**SMALL, **TWO_SIDED, "num_mel_bins": 16, "max_source_positions": 64, "max_target_positions": 64}


def _wave(name: str, model: str, *, trains: bool = False, **config: Any) -> Row:
    return Row(name, model, "audio", {**CONVOLUTIONS, **config}, wave(400, 40), trains, unit=False)


def _series(channels: int) -> Any:
    def inputs(batch: int, length: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(batch)
        return {"past_values": torch.randn(batch, 32, channels, generator=generator)}

    return inputs


def _patched_sound(batch: int, length: int) -> dict[str, torch.Tensor]:
    return {"input_values": torch.randn(batch, 64, 16, generator=torch.Generator().manual_seed(batch))}


ROWS = [
    Row("whisper", "WhisperForConditionalGeneration", "audio", SPEECH, spectrum(16, 128)),
    Row("speech-to-text", "Speech2TextForConditionalGeneration", "audio", {**SPEECH, "input_feat_per_channel": 16, "conv_channels": 32, "num_conv_layers": 2, "conv_kernel_sizes": [5, 5]}, spectrum(16, 128, last="bins")),
    _wave("wav2vec2", "Wav2Vec2Model"),
    _wave("hubert", "HubertModel"),
    _wave("wavlm", "WavLMModel"),
    _wave("unispeech", "UniSpeechModel"),
    _wave("data2vec-audio", "Data2VecAudioModel"),
    Row("audio-spectrogram", "ASTModel", "audio", {**SMALL, "max_length": 64, "num_mel_bins": 16, "patch_size": 8, "frequency_stride": 8, "time_stride": 8}, _patched_sound, True, unit=False),
    Row("patchtst", "PatchTSTForPrediction", "time series", {**TWO_SIDED, "num_input_channels": 3, "context_length": 32, "patch_length": 8, "patch_stride": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "ffn_dim": 64, "prediction_length": 8}, _series(3), True, unit=False),
    Row("patchtsmixer", "PatchTSMixerForPrediction", "time series", {"num_input_channels": 3, "context_length": 32, "patch_length": 8, "patch_stride": 8, "d_model": 16, "num_layers": 1, "prediction_length": 8}, _series(3), True, unit=False),
]  # fmt: skip
