"""Malformed declarations: each is refused at the entry, with a code and a marked place, and nothing but a DeclarationError."""

from __future__ import annotations

import inspect
import itertools
import warnings

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import anyshape
from anyshape._torch.capture import capture_scope
from anyshape.declaration import Declaration, DeclarationWarning, MalformedError
from anyshape.errors import CODES, DeclarationError


def forward(x, mask=None, *, cfg=None):
    pass


SIGNATURE = inspect.signature(forward)

SHAPE_TEXTS = [
    "", " ", "\t\n", "batch, seq", "batch,seq", "batch; seq", "(batch seq)", "[batch, seq]", "batch seq 1.5", "1e3", ".5",
    "2.0*seq", "-1", "-512", "batch -1", "batch - 1", "batch + 1", "batch +1", "2 * seq", "batch*", "*batch", "**", "batch**2",
    "seq/8", "seq // 8", "seq%8", "seq % 8", "seq//0", "seq//-2", "seq//(1-1)", "(seq", "seq)", "((seq)", "()seq", "seq()",
    "max(a,b)", "min(batch)", "ceil(seq)", "len(x)", "... ...", "... batch ...", "....", "..", "batch...", "...batch", "batch!!",
    "512!", "!batch", "!", "batch+1!", "batch ! seq", "class", "lambda seq", "if", "None", "True 3", "batch for", "import", "self",
    "args seq", "shape", "__", "__init__", "___ 4", "batch=4", "batch:4", "batch==4", "batch<8", "batch>=8", "a and b", "not a",
    "x.shape[0]", "batch.seq", "batch[0]", "'batch' seq", '"batch"', "#batch", "?batch", "batch?", "$n", "batch@2", "a&b", "a|b",
    "a^b", "~a", "a\\b", "`a`", "{n}", "2seq", "1_", "0x10", "007", "1__0", "99999999999999999999", "9" * 5000, "seq-seq",
    "0*seq", "seq*0+3", "seq//seq", "-seq", "+seq", "seq//8", "batch*seq", "n²", "½", "٣", "\x00", "a\x00b", "a+" * 400 + "a",
    "(" * 300 + "a" + ")" * 300, " ".join(["a"] * 65), "a++", "a+*b", "a//", "(a+)", "()+a", "a b+ c", "é-", "🙂", "n:=3",
    "a if b else c", "yield", "a->b", "1-2", "1_.5", "1e999",
]  # fmt: skip

CLAUSES = [
    "", "  ", "batch", "seq % 8", "batch + seq", "3", "1 <= 2", "1 == 1", "batch = 4", "batch === 4", "batch =< 4", "batch => 4",
    "batch <> 4", "batch < 1.5", "batch < 1e9", "batch ** 2 < 4", "batch / 2 == 4", "batch < 4 or batch > 8", "not batch < 4",
    "batch in (1, 2)", "batch is 4", "batch if seq else 3", "lambda: 3", "batch < ", "< batch", "batch < < 4", "batch batch < 4",
    "(batch < 4", "batch < 4)", "()", "batch < ()", "batch <", "min(batch, seq) < 4", "Mod(batch, 8) == 0", "abs(batch) > 1",
    "x.shape[0] > 8", "x.size(0) > 8", "x[0] > 3", "batch[0] > 3", "batch < 'a'", 'batch < "4"', "batch % 0 == 0", "batch // 0 > 1",
    "batch % -8 == 0", "_ > 3", "... > 3", "batch! > 3", "batch, seq", "batch < 4, seq < 4", "batch < 4; seq < 4", "heads > 3",
    "Batch > 3", "batc > 3", "batch && seq > 3", "batch & 1 == 0", "batch | 8", "batch ^ 2 > 3", "~batch > 3", "batch := 3",
    "(batch < 4) < seq", "(batch < 4) + 1 > 2", "batch < 4 and", "and batch < 4", "batch < 4 and seq", "True", "None",
    "batch > None", "class > 3", "__import__('os')", "self > 3", "batch < 99999999999999999999", "batch > 007", "2batch > 3",
    "batch > 0x10", "batch <= 4 <= ", "8 | batch", "batch\x00 > 3", "batch > 3" + " " * 2000, "-" * 300 + "batch > 3",
    "[n for n in x]", "{batch}", "f'{batch}'", "batch.real > 3", "print(batch)", "batch!=", "seq %% 8 == 0", "batch > 3 # small",
]  # fmt: skip

CONTRADICTIONS = [
    ["batch < 0"], ["batch > 4", "batch < 4"], ["batch == 3", "batch % 2 == 0"], ["batch < seq", "seq < batch"],
    ["batch % 8 == 9"], ["2*batch == 5"], ["seq == batch+1", "seq == batch"], ["batch*batch == 2"], ["batch != batch"],
    ["batch // 8 == 2", "batch < 16"], ["1 <= batch <= 64", "seq % 8 == 0", "batch > 100"], ["seq % 4 == 1", "seq % 8 == 0"],
]  # fmt: skip

PATHS = [
    "", " ", "1x", "x.", "x..y", ".x", "x[", "x]", "x[]", "x[a]", "x[-1]", "x[1.5]", "x['a]", "x[0", "x()", "x.f()", "x y", "x-y",
    "x,y", "x:y", "class", "self", "args", "kwargs", "args['x']", "args.x", "args[7]", "kwargs[0]", "hidden", "X", "msk", "L['x']",
    "x[0:2]", "x[0,1]", "x.0", "*args", "cfg.1", "🙂", "x\x00", "kwargs['hidden']", "config.ids",
]  # fmt: skip

WHOLE = [
    {"shapes": "batch seq"}, {"shapes": ["batch seq"]}, {"shapes": 3}, {"shapes": {"x": 512}}, {"shapes": {"x": ("batch", 512)}},
    {"shapes": {"x": None}}, {"shapes": {"x": ["batch"]}}, {"shapes": {0: "batch"}}, {"shapes": {None: "batch"}},
    {"shapes": {"x": b"batch"}}, {"shapes": {"x": {"a": "b"}}}, {"shapes": {"x": "n", "args[0]": "n"}},
    {"shapes": {"x": "n", "kwargs['x']": "n"}}, {"shapes": {"cfg['a']": "n", 'cfg["a"]': "n"}}, {"shapes": {"x": "n", "x[0]": "n"}},
    {"shapes": {"x.a": "n", "x": "n"}}, {"shapes": {"x": "n", " x": "n"}},
    {"where": "batch > 3"}, {"where": 3}, {"where": {"batch": 3}}, {"where": [3]}, {"where": [None]}, {"where": [["batch > 3"]]},
    {"where": {"batch > 3"}}, {"where": ["batch > 3"]}, {"where": True},
    {"hints": 3}, {"hints": [3]}, {"hints": "batch"}, {"hints": {"batch": "3"}}, {"hints": {"batch": 1.5}},
    {"hints": {"batch": True}}, {"hints": {"batch": None}}, {"hints": {"batch": -1}}, {"hints": {"batch": []}},
    {"hints": {"batch": [1, 1]}}, {"hints": {"batch": [1, "2"]}}, {"hints": {"batch": 2**63}}, {"hints": {"heads": 3}},
    {"hints": {"batc": 3}}, {"hints": {"": 3}}, {"hints": {3: 3}}, {"hints": {"batch": {"a": 1}}}, {"hints": {"batch": [[1]]}},
    {"layout": "strided"}, {"layout": ""}, {"layout": "Contiguous"}, {"layout": 3}, {"layout": ["any"]}, {"layout": {"x": "foo"}},
    {"layout": {"x": 3}}, {"layout": {"x": None}}, {"layout": {"y": "any"}}, {"layout": {"": "any"}}, {"layout": {3: "any"}},
    {"layout": {"x": "any", "args[0]": "any"}}, {"layout": "channels_last"},
    {"specialize": "cold"}, {"specialize": ""}, {"specialize": "batch == 1"}, {"specialize": 3}, {"specialize": ["hot"]},
    {"specialize": [1]}, {"specialize": ["heads == 1"]}, {"specialize": ["batch"]}, {"specialize": ["batch < 0"]},
    {"specialize": {"batch": 1}}, {"specialize": False},
    {"semantics": "Eager"}, {"semantics": None}, {"semantics": 3}, {"semantics": ""}, {"semantics": "size-oblivious"},
    {"on_new_behavior": "raise"}, {"on_new_behavior": None}, {"on_new_behavior": True}, {"on_new_behavior": ""},
]  # fmt: skip

HINTS = [
    (["batch % 8 == 0"], {"batch": 7}), (["batch > 8"], {"batch": 8}), (["batch > 8"], {"batch": [9, 8]}),
    (["batch < seq"], {"batch": 8, "seq": 8}), (["1 <= batch <= 64"], {"batch": 0}), (["batch * seq < 100"], {"batch": 10, "seq": 10}),
    (["batch == 2*seq"], {"batch": [4, 5], "seq": [2, 3]}),
]  # fmt: skip


def _cases():
    base = {"shapes": {"x": "batch seq 512"}}
    for text in SHAPE_TEXTS:
        yield {"shapes": {"x": text}}
    for text in CLAUSES:
        yield {**base, "where": [text]}
    for clauses in CONTRADICTIONS:
        yield {**base, "where": clauses}
    for path in PATHS:
        yield {"shapes": {path: "batch seq"}}
    for options in WHOLE:
        yield options if options.get("where") == ["batch > 3"] else {**base, **options}
    for clauses, hints in HINTS:
        yield {**base, "where": clauses, "hints": hints}
    # A good declaration with one bad character put in.
    good = "batch 2*seq+1 _ 512"
    for position, character in itertools.product((0, 7, 9, len(good)), "$@;&="):
        yield {"shapes": {"x": good[:position] + character + good[position:], "mask": "seq"}}
    for position, character in itertools.product((0, 5, 12), "$@;?~"):
        clause = "batch % 8 == 0"
        yield {**base, "where": ["seq > 3", clause[:position] + character + clause[position:]]}


CASES = list(_cases())


def test_there_are_enough():
    assert len(CASES) >= 200


@pytest.mark.parametrize("options", CASES, ids=lambda o: ascii(o)[:70])
def test_refused_with_a_code_and_a_marked_place(options):
    with pytest.raises(DeclarationError) as caught:
        Declaration.parse(**options, signature=SIGNATURE)
    _check(caught.value)


@pytest.mark.parametrize("options", CASES, ids=lambda o: ascii(o)[:70])
def test_none_reaches_torch(options, monkeypatch):
    def reached(*args, **kwargs):
        pytest.fail("torch was asked to compile")

    monkeypatch.setattr(capture_scope, "install", reached)
    words = {name: value for name, value in options.items() if name != "signature"}
    with pytest.raises(DeclarationError) as caught:
        anyshape.compile(forward, **words)
    assert caught.value.code in CODES


def _check(error: DeclarationError) -> None:
    assert error.code in CODES
    assert error.fix, "no fix"
    lines = str(error.where).splitlines()
    assert len(lines) >= 2 and len(lines) % 2 == 0
    # Each line is followed by carets under a part of it; the first one is printed after the word "where: ".
    for i in range(0, len(lines), 2):
        line = lines[i] if i else " " * 9 + lines[i]
        mark = lines[i + 1]
        assert set(mark.strip()) == {"^"}
        assert len(mark) <= len(line) + 1
    if isinstance(error, MalformedError):
        assert error.place is not None
        start, end = error.span
        assert 0 <= start <= end


@pytest.mark.parametrize(
    "text",
    [
        "batch seq 1.5",
        "-1",
        "batch, seq",
        "2seq",
        "007",
        "class",
        "self",
        "batch!!",
        "512!",
        "... ...",
        "a)",
        "seq-seq",
        "__",
    ],
)
def test_the_fix_of_a_shape_can_be_pasted(text):
    with pytest.raises(DeclarationError) as caught:
        Declaration.parse({"x": text})
    fix = eval(f"dict({caught.value.fix})")
    Declaration.parse(**fix)


@pytest.mark.parametrize(
    "clause",
    ["batch = 4", "batch =< 4", "batch <> 4", "batch < 1.5", "batch / 2 == 4", "batch", "batch % 8", "(batch < 4"],
)
def test_the_fix_of_a_clause_can_be_pasted(clause):
    with pytest.raises(DeclarationError) as caught:
        Declaration.parse({"x": "batch"}, [clause])
    fix = eval(f"dict({caught.value.fix})")
    Declaration.parse({"x": "batch"}, **fix)


@pytest.mark.parametrize("text", SHAPE_TEXTS, ids=lambda t: ascii(t)[:40])
def test_following_the_fixes_ends_in_a_declaration(text):
    for _ in range(8):
        try:
            Declaration.parse({"x": text, "other": "a b n seq batch"})
        except MalformedError as error:
            if error.corrected is None:
                return  # advice in words
            assert error.corrected != text
            text = error.corrected
        else:
            return
    pytest.fail(f"still malformed: {text}")


def test_two_clauses_in_one_text():
    with pytest.raises(DeclarationError) as caught:
        Declaration.parse({"x": "batch seq"}, ["batch < 4, seq < 4"])
    assert caught.value.fix == 'where=["batch < 4", " seq < 4"]'


_WORDS = st.sampled_from(
    ["batch", "seq", "_", "...", "512", "1.5", "-", "+", "*", "//", "%", "(", ")", "<", "<=", "==", "=", "and", "or", "!", " ", ",", "x.y", "[0]", "class"]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(
        st.text(max_size=20), st.lists(_WORDS, max_size=8).map("".join), st.lists(_WORDS, max_size=8).map(" ".join)
    )
)
@example("é+1.5")
@example("\u2028")
@example("\u2029batch")
def test_any_text_is_read_or_refused(text):
    for options in (
        {"shapes": {"x": text}},
        {"shapes": {text: "batch"}},
        {"shapes": {"x": "batch seq"}, "where": [text]},
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeclarationWarning)
            try:
                declaration = Declaration.parse(**options)
            except DeclarationError as error:
                _check(error)
            else:
                assert Declaration.parse(**declaration.json()) == declaration


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(["shapes", "where", "hints", "layout", "specialize", "semantics", "on_new_behavior"]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=2)
        ),
        max_leaves=4,
    ),
)
@example("shapes", {"": "\x1e"})  # a character that ends a line
def test_any_value_is_read_or_refused(option, value):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeclarationWarning)
        try:
            Declaration.parse(**{option: value})
        except DeclarationError as error:
            _check(error)
