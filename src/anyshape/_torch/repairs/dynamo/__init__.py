"""Repairs of Dynamo's tracing: graph breaks, loops, lazy modules, random state."""
