"""Single nodes run on fake tensors of exact sizes, and what is compared with the capture."""
