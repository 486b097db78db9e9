"""Real architectures, small and with random weights, beside stock `torch.compile`: `python -m benchmarks.zoo`."""
