"""All that anyshape changes in torch: the registry, and the repairs by the part of torch that they are in."""
