"""Repairs of Python numbers in a graph: SymInt, SymFloat, sympy, float arguments of kernels."""
