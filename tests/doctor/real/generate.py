"""A generation loop over a growing cache, as people write it: prompts of several lengths, one and more at a time."""

import torch
import transformers

torch.manual_seed(0)
config = transformers.LlamaConfig(
    vocab_size=64,
    hidden_size=16,
    intermediate_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=2,
    max_position_embeddings=128,
    use_cache=True,
)
model = transformers.LlamaForCausalLM(config).eval()


def step(ids, keys, values):
    cache = transformers.DynamicCache()
    if keys is not None:
        cache.update(keys, values, 0)
    out = model(input_ids=ids, past_key_values=cache, use_cache=True)
    layer = out.past_key_values.layers[0]
    return out.logits[:, -1].argmax(-1, keepdim=True), layer.keys, layer.values


torch._dynamo.config.recompile_limit = 32  # the default hides what follows behind eager calls
step = torch.compile(step, backend="aot_eager", dynamic=False)
with torch.no_grad():
    for batch, length in ((2, 5), (2, 7), (3, 4)):
        ids = torch.randint(0, 64, (batch, length))
        keys = values = None
        for _ in range(5):
            ids, keys, values = step(ids, keys, values)
        print(ids.flatten().tolist())
