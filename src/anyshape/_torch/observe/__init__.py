"""Watching every compilation, stock torch's and anyshape's, without changing any."""
