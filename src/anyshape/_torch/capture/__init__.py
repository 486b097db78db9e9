"""Capturing with Dynamo: the scope, nodes and their questions, calls that are traced otherwise."""
