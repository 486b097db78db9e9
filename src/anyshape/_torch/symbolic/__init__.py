"""Free sizes as symbols: the ShapeEnv, marks on dims, expressions as Python code."""
