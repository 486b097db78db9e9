from anyshape.compiler import compile as compile
