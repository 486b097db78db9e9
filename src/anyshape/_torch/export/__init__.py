"""Tracing for torch.export, and exported programs in symbols of stock torch."""
