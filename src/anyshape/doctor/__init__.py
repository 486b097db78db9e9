"""The doctor: from events to findings, remedies and a report.

Knows nothing of torch; `_torch/observe/compilation_hooks` makes the events.
"""
