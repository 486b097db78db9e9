"""What every other part may use: limits, signals, files of others, types of options. Knows nothing of torch."""
