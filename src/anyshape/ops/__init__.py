"""Facts about ops that torch does not tell."""
