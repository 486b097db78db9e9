"""The texts of errors about declarations, as people read them."""

from __future__ import annotations

import inspect
import textwrap

import pytest

from anyshape.declaration import Declaration
from anyshape.errors import DeclarationError, InvariantError


def forward(hidden_states, attention_mask=None):
    pass


def message(error: BaseException) -> str:
    """Without the last line, which is the same for all."""
    return "\n".join(str(error).splitlines()[:-1])


REFUSALS = {
    "unknown argument": (
        {"shapes": {"hidden_state": "batch seq"}},
        """\
        AS011: the function has no argument 'hidden_state'; it takes hidden_states, attention_mask
          where: shapes["hidden_state"] = "batch seq"
                         ^^^^^^^^^^^^
          fix:   shapes={"hidden_states": "batch seq"}""",
    ),
    "float": (
        {"shapes": {"hidden_states": "batch seq 1.5"}},
        """\
        AS010: 1.5 is no whole number, and sizes are
          where: shapes["hidden_states"] = "batch seq 1.5"
                                                      ^^^
          fix:   shapes={"hidden_states": "batch seq 1"}""",
    ),
    "commas": (
        {"shapes": {"hidden_states": "batch, seq"}},
        """\
        AS010: dims are separated by spaces
          where: shapes["hidden_states"] = "batch, seq"
                                                 ^
          fix:   shapes={"hidden_states": "batch seq"}""",
    ),
    "spaces in a derived size": (
        {"shapes": {"hidden_states": "batch 2 * seq"}},
        """\
        AS010: a derived size is written without spaces
          where: shapes["hidden_states"] = "batch 2 * seq"
                                                    ^
          fix:   shapes={"hidden_states": "batch 2*seq"}""",
    ),
    "a name that nothing tells": (
        {"shapes": {"hidden_states": "batch seq//8"}},
        """\
        AS010: no dim tells the value of seq: it stands only in seq//8
          where: shapes["hidden_states"] = "batch seq//8"
                                                  ^^^^^^
          fix:   let seq stand alone, or as seq+1 or 2*seq, in a dim of another tensor""",
    ),
    "unknown name": (
        {"shapes": {"hidden_states": "batch seq"}, "where": ["1 <= batch", "sequence % 8 == 0"]},
        """\
        AS011: no dim is called 'sequence'; shapes names batch, seq
          where: where[1] = "sequence % 8 == 0"
                             ^^^^^^^^
          fix:   where=["seq % 8 == 0"]""",
    ),
    "assignment": (
        {"shapes": {"hidden_states": "batch seq"}, "where": ["batch = 4"]},
        """\
        AS010: '=' is not part of declarations
          where: where[0] = "batch = 4"
                                   ^
          fix:   where=["batch == 4"]""",
    ),
    "a size and no fact": (
        {"shapes": {"hidden_states": "batch seq"}, "where": ["seq % 8"]},
        """\
        AS010: this is a size, not a fact about one
          where: where[0] = "seq % 8"
                             ^^^^^^^
          fix:   where=["seq % 8 == 0"]""",
    ),
    "a tensor in a clause": (
        {"shapes": {"hidden_states": "batch seq"}, "where": ["hidden_states.shape[0] > 8"]},
        """\
        AS010: 'hidden_states.shape[0]' is not the name of a size
          where: where[0] = "hidden_states.shape[0] > 8"
                             ^^^^^^^^^^^^^^^^^^^^^^
          fix:   name that dim: shapes={"hidden_states": "n ..."}, and write n here""",
    ),
    "contradiction": (
        {"shapes": {"hidden_states": "batch seq"}, "where": ["1 <= batch <= 64", "seq % 8 == 0", "batch > 100"]},
        """\
        AS012: no sizes satisfy these 2 invariants together
          where: where: "1 <= batch <= 64"
                         ^^^^^^^^^^^^^^^^
                 where: "batch > 100"
                         ^^^^^^^^^^^
          fix:   take one out: "batch > 100\"""",
    ),
    "hint": (
        {"shapes": {"hidden_states": "batch seq"}, "where": ["seq % 8 == 0"], "hints": {"seq": 1001}},
        """\
        AS012: the hint seq = 1001 breaks 'seq % 8 == 0'
          where: hints["seq"] = 1001
                                ^^^^
          fix:   hints={"seq": 1000}""",
    ),
    "layout": (
        {"layout": {"hidden_states": "contigous"}},
        """\
        AS007: 'contigous' is none of "contiguous", "dense", "example", "any"
          where: layout["hidden_states"] = "contigous"
                                            ^^^^^^^^^
          fix:   layout={"hidden_states": "contiguous"}""",
    ),
    "a tuple": (
        {"shapes": {"hidden_states": ("batch", 512)}},
        """\
        AS010: a shape is a text, and this is a tuple
          where: shapes["hidden_states"] = ('batch', 512)
                                           ^^^^^^^^^^^^^^
          fix:   shapes={"hidden_states": "batch 512"}""",
    ),
}

VIOLATIONS = {
    "two sizes": (
        {"x": (2, 16, 512), "mask": (2, 17)},
        """\
        AS021: seq is two sizes: 16 in x.shape[1], and 17 in mask.shape[1]
          where: mask has shape (2, 17), declared as shapes["mask"] = "batch seq"
                                                                             ^^^
          value: 17 (before: 16)
          fix:   shapes={"mask": "batch seq_mask"}""",
    ),
    "rank": (
        {"x": (2, 16)},
        """\
        AS021: x has 2 dims, and 3 are declared
          where: x has shape (2, 16), declared as shapes["x"] = "batch seq 512"
                                                                 ^^^^^^^^^^^^^
          value: (2, 16)
          fix:   shapes={"x": "seq 512"}""",
    ),
    "static": (
        {"x": (2, 16, 511)},
        """\
        AS021: x.shape[2] is 511, and 512 is declared
          where: x has shape (2, 16, 511), declared as shapes["x"] = "batch seq 512"
                                                                                ^^^
          value: 511
          fix:   shapes={"x": "batch seq _"}""",
    ),
    "derived": (
        {"x": (2, 16, 512), "next": (2, 16)},
        """\
        AS021: next.shape[1] is 16, but seq+1 is 17 with seq = 16 (x.shape[1])
          where: next has shape (2, 16), declared as shapes["next"] = "... seq+1"
                                                                           ^^^^^
          value: 16
          fix:   shapes={"next": "... _"}""",
    ),
    "invariant": (
        {"x": (2, 17, 512)},
        """\
        AS020: seq % 8 == 0 does not hold
          where: x.shape[1]
          value: seq = 17 (x.shape[1])
          fix:   pass sizes for which it holds, or take "seq % 8 == 0" out of where=[...] to allow this size""",
    ),
    "ordering": (
        {"x": (32, 16, 512)},
        """\
        AS020: batch <= seq does not hold
          where: x.shape[0], x.shape[1]
          value: batch = 32 (x.shape[0]), seq = 16 (x.shape[1])
          fix:   pass sizes for which it holds, or take "batch <= seq" out of where=[...] to allow these sizes""",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refused_declaration(case: str) -> None:
    options, text = REFUSALS[case]
    with pytest.raises(DeclarationError) as caught:
        Declaration.parse(**options, signature=inspect.signature(forward))
    assert message(caught.value) == textwrap.dedent(text)


@pytest.mark.parametrize("case", VIOLATIONS)
def test_a_call_that_breaks_a_declaration(case: str) -> None:
    tensors, text = VIOLATIONS[case]
    declaration = Declaration.parse(
        {"x": "batch seq 512", "mask": "batch seq", "next": "... seq+1"}, ["seq % 8 == 0", "batch <= seq"]
    )
    with pytest.raises(InvariantError) as caught:
        declaration.bind(tensors)
    assert message(caught.value) == textwrap.dedent(text)
