"""Declarations: named dims, invariants, layouts, hints and semantics, in words.

The index of the part. It imports no torch; z3 is imported when invariants need it.
"""

from anyshape.declaration.checker import Binding as Binding
from anyshape.declaration.expression import Clause as Clause
from anyshape.declaration.expression import Comparison as Comparison
from anyshape.declaration.expression import Expression as Expression
from anyshape.declaration.expression import evaluate as evaluate
from anyshape.declaration.path import Path as Path
from anyshape.declaration.place import MalformedError as MalformedError
from anyshape.declaration.shape import Dim as Dim
from anyshape.declaration.shape import Shape as Shape
from anyshape.declaration.spec import Declaration as Declaration
from anyshape.declaration.spec import DeclarationWarning as DeclarationWarning
