"""Repairs of fake kernels, meta functions and decompositions: what they fail to check or ask needlessly."""
