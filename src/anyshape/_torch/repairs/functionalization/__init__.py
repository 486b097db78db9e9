"""Repairs of functionalization and AOTAutograd: aliases, mutated views, saved tensors."""
