"""What runs at each call: the way to its program, compiled modules, errors, the code around a graph."""
