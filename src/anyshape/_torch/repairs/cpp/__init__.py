"""Repairs of the C++ text of Inductor's CPU kernels."""
