"""Compiled code, frames and recordings as bytes, and the way back without a compiler."""
