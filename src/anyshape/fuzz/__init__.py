"""Programs and sizes nobody thought of, with eager as the oracle.

This file is the index: what the fuzzer is made of, and where it lives.
"""
