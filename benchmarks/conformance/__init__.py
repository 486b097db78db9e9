"""PyTorch's own tests, run with `torch.compile` and with `anyshape.compile` in its place.

`make conformance PYTORCH=path` runs the test files named in `files.py` out of a checkout of the same version as the
installed torch, each test in both modes, and tells what stock passes and anyshape does not. `reviewed.toml` lists tests
that assert what stock itself says or counts, each with its reason. No file of PyTorch is kept here.
"""
