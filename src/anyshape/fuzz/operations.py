"""The operations that cases are made of.

Owns the table: for each operation its family, a template of Python, what it may be given and which attributes are
drawn. Knows nothing of torch: templates are text. A row reads `name: template | operands | attributes`.

An operand is a set of kinds (`f` floating, `c` complex, `i` integer, `b` bool, `n` a Python number), the least and
perhaps the greatest rank, and for all but the first how it goes with the first: `=` the same shape, `~` one that
broadcasts, `@` a matrix to multiply with. An attribute is `name:draw`; see `generate` for the draws.
"""

from __future__ import annotations

import dataclasses
import re
from types import MappingProxyType
from typing import Final


@dataclasses.dataclass(frozen=True)
class Operand:
    """What may stand in one place of an operation."""

    kinds: str
    least: int
    most: int
    goes_with: str  # "", "=", "~" or "@"


@dataclasses.dataclass(frozen=True)
class Operation:
    """A row of the table."""

    name: str
    family: str
    template: str
    operands: tuple[Operand, ...]
    attributes: tuple[tuple[str, str], ...]


_TABLE: Final = {
    "pointwise": r"""
        unary: {t} = {0}.{f}() | fc0 | f:abs,exp,sin,cos,tanh,sigmoid,neg,square,sqrt,rsqrt,reciprocal
        rounding: {t} = {0}.{f}() | f0 | f:floor,ceil,round,trunc,frac,sign,erf,log1p,isnan,isfinite,signbit,sgn
        activation: {t} = F.{f}({0}) | f0 | f:relu,gelu,silu,softplus,elu,hardswish,leaky_relu,mish,logsigmoid,selu
        clamp: {t} = {0}.clamp(min={a}, max={b}) | fi0 | a:int:-2:1 b:int:0:3
        add: {t} = {0} + {1} | fcib0 fcib0~
        sub: {t} = {0} - {1} | fci0 fci0~
        mul: {t} = {0} * {1} | fcib0 fcib0~
        div: {t} = {0} / {1} | fci0 fci0~
        binary: {t} = torch.{f}({0}, {1}) | fi0 fi0~ | f:maximum,minimum,fmod,remainder,floor_divide,fmax
        atan2: {t} = torch.{f}({0}, {1}) | f0 f0~ | f:atan2,hypot,copysign,logaddexp,heaviside
        compare: {t} = {0} {f} {1} | fib0 fib0~ | f:<,<=,>,>=,==,!=
        pow: {t} = {0} ** {k} | fi0 | k:int:0:3
        scalar: {t} = {0} * {k} + 1 | fci0 | k:int:-1:3
        scalar_float: {t} = {0} - {k}.5 | fci0 | k:int:0:3
        number: {t} = {0} + {1} | fi0 n0
        number_mul: {t} = {1} * {0} | fci0 n0
        where: {t} = torch.where({0}, {1}, {2}) | b0 fi0~ fi0~
        where_scalar: {t} = torch.where({0} > 0, {0}, {k}) | fi0 | k:int:-1:2
        lerp: {t} = torch.lerp({0}, {1}, 0.25) | f0 f0=
        addcmul: {t} = torch.addcmul({0}, {1}, {1}, value=2) | f0 f0~
        logical: {t} = torch.logical_{f}({0}, {1}) | fib0 fib0~ | f:and,or,xor
        bitwise: {t} = {0} {f} {1} | ib0 ib0~ | f:&,|,^
        invert: {t} = ~{0} | ib0
        nan_to_num: {t} = torch.nan_to_num({0}) | f0
        cast: {t} = {0}.to(torch.{f}) | fib0 | f:float64,float32,bfloat16,int64,int32,bool
        type_as: {t} = {0}.type_as({1}) | fib0 fi0
        complex: {t} = torch.complex({0}, {0}) | f0
        view_as_real: {t} = torch.view_as_real({0}) | c0
        conj: {t} = {0}.conj() | c0
        real: {t} = {0}.{f} | c0 | f:real,imag
    """,
    "reduction": r"""
        sum: {t} = {0}.sum({dim}, keepdim={keep}) | fcib1 | dim:dim keep:bool
        mean: {t} = {0}.mean({dim}, keepdim={keep}) | fc1 | dim:dim keep:bool
        reduce: {t} = {0}.{f}({dim}) | fi1 | f:amax,amin,argmax,argmin,cumsum,cumprod,prod,logcumsumexp dim:dim
        reduce_all: {t} = {0}.{f}() | fi0 | f:sum,prod,max,min,any,all,argmax,amax,count_nonzero,median
        max_dim: {t}_0, {t}_1 = {0}.{f}({dim}, keepdim={keep}) | fi1 | f:max,min,median,mode dim:dim keep:bool
        cummax: {t}_0, {t}_1 = {0}.{f}({dim}) | fi1 | f:cummax,cummin dim:dim
        any: {t} = {0}.{f}({dim}) | fib1 | f:any,all,count_nonzero dim:dim
        var: {t} = {0}.{f}({dim}, correction={c}, keepdim={keep}) | f1 | f:var,std dim:dim c:int:0:1 keep:bool
        var_mean: {t}_0, {t}_1 = torch.var_mean({0}) | f1
        norm: {t} = torch.linalg.vector_norm({0}, {p}, dim={dim}) | f1 | p:pick:1,2,0,float('inf') dim:dim
        logsumexp: {t} = torch.logsumexp({0}, dim={dim}, keepdim={keep}) | f1 | dim:dim keep:bool
        softmax: {t} = torch.{f}({0}, dim={dim}) | f1 | f:softmax,log_softmax dim:dim
        sum_dims: {t} = {0}.sum(dim=({d1}, {d2})) | fi2 | d1:const:0 d2:const:-1
        mean_all: {t} = {0}.mean() | f0
        aminmax: {t}_0, {t}_1 = torch.aminmax({0}, dim={dim}) | f1 | dim:dim
        quantile: {t} = torch.quantile({0}.float(), 0.5, dim={dim}) | f1 | dim:dim
        nansum: {t} = torch.nansum({0}, {dim}) | f1 | dim:dim
        diff: {t} = torch.diff({0}, dim={dim}) | fi1 | dim:dim
        trapezoid: {t} = torch.trapezoid({0}, dim={dim}) | f1 | dim:dim
        cdist: {t} = torch.cdist({0}, {0}) | f2-3
        cosine: {t} = F.cosine_similarity({0}, {1}, dim={dim}) | f1 f1= | dim:dim
        loss: {t} = F.{f}({0}, {1}) | f1 f1= | f:mse_loss,l1_loss,smooth_l1_loss,huber_loss
        cross_entropy: {t} = F.cross_entropy({0}, torch.zeros({0}.shape[0], dtype=torch.int64)) | f2-2
    """,
    "view": r"""
        transpose: {t} = {0}.transpose({dim}, {e}) | fcib1 | dim:dim e:dim
        mT: {t} = {0}.mT | fcib2
        permute: {t} = {0}.permute({p}) | fcib1 | p:perm
        unsqueeze: {t} = {0}.unsqueeze({dim}) | fcib0 | dim:dim_new
        squeeze_dim: {t} = {0}.squeeze({dim}) | fcib1 | dim:dim
        squeeze: {t} = {0}.squeeze() | fcib1
        flatten: {t} = {0}.flatten() | fcib1
        flatten_from: {t} = {0}.flatten({k}) | fcib2 | k:int:0:1
        ravel: {t} = {0}.ravel() | fcib1
        reshape: {t} = {0}.reshape(-1) | fcib1
        view: {t} = {0}.view(-1) | fcib1
        reshape_merge: {t} = {0}.reshape({0}.shape[0] * {0}.shape[1], *{0}.shape[2:]) | fcib2
        view_merge: {t} = {0}.view({0}.shape[0] * {0}.shape[1], *{0}.shape[2:]) | fcib2
        reshape_swap: {t} = {0}.reshape({0}.shape[1], {0}.shape[0], *{0}.shape[2:]) | fcib2
        reshape_two: {t} = {0}.reshape({0}.shape[0], -1) | fcib2
        reshape_ones: {t} = {0}.reshape(*{0}.shape, 1) | fcib1
        unflatten: {t} = {0}.unflatten({dim}, (-1, 2)) | fcib1 | dim:dim
        unflatten_one: {t} = {0}.unflatten({dim}, (1, -1)) | fcib1 | dim:dim
        expand: {t} = {0}.expand({k}, *{0}.shape) | fcib0 | k:int:0:3
        expand_as: {t} = {0}.expand_as({1}) | fcib0 fcib0~
        broadcast_to: {t} = torch.broadcast_to({0}, {1}.shape) | fcib0 fcib0~
        movedim: {t} = {0}.movedim({dim}, {e}) | fcib1 | dim:dim e:dim
        diagonal: {t} = {0}.diagonal({k}) | fcib2 | k:int:-1:1
        unfold: {t} = {0}.unfold({dim}, {k}, {s}) | fcib1 | dim:dim k:int:1:2 s:int:1:2
        flip: {t} = {0}.flip({dim}) | fcib1 | dim:dim
        roll: {t} = {0}.roll({k}, {dim}) | fcib1 | k:int:-2:2 dim:dim
        rot90: {t} = torch.rot90({0}, {k}, (0, 1)) | fib2 | k:int:1:3
        contiguous: {t} = {0}.contiguous() | fcib1
        clone: {t} = {0}.clone() | fcib0
        detach: {t} = {0}.detach() | fcib0
        view_as: {t} = {0}.view_as({1}) | fcib1 fcib1=
        repeat: {t} = {0}.repeat({k}, *[1] * {0}.dim()) | fcib1 | k:int:0:2
        tile: {t} = {0}.tile({k}) | fcib1 | k:int:1:2
        repeat_interleave: {t} = {0}.repeat_interleave({k}, dim={dim}) | fcib1 | k:int:0:2 dim:dim
        tril: {t} = {0}.{f}({k}) | fib2 | f:tril,triu k:int:-1:1
        diag_embed: {t} = torch.diag_embed({0}) | fi1
        atleast: {t} = torch.atleast_{k}d({0}) | fcib0 | k:int:1:3
        as_strided: {t} = {0}.contiguous().as_strided({0}.shape, {0}.contiguous().stride()) | fi1
        memory_format: {t} = {0}.contiguous(memory_format=torch.channels_last) | f4-4
    """,
    "slicing": r"""
        select: {t} = {0}.select({dim}, {i}) | fcib1 | dim:dim i:index
        first: {t} = {0}[{i}] | fcib1 | i:index0
        last: {t} = {0}[..., -1] | fcib1
        tail: {t} = {0}[{a}:] | fcib1 | a:int:-2:3
        head: {t} = {0}[:{b}] | fcib1 | b:int:-2:3
        window: {t} = {0}[..., {a}:{b}] | fcib1 | a:int:-3:2 b:int:-1:5
        step: {t} = {0}[::{k}] | fcib1 | k:int:1:3
        step_last: {t} = {0}[..., {a}::{k}] | fcib1 | a:int:0:2 k:int:1:3
        newaxis: {t} = {0}[None, ..., None] | fcib0
        half: {t} = {0}[: {0}.shape[0] // 2] | fcib1
        split_half: {t} = {0}[..., {0}.shape[-1] // 2 :] | fcib1
        by_other: {t} = {0}[: {1}.shape[0]] | fcib1 fcib1
        by_number: {t} = {0}[:{1}] | fcib1 n0
        narrow: {t} = {0}.narrow({dim}, {i}, {k}) | fcib1 | dim:dim i:index k:int:0:1
        drop_ends: {t} = {0}[1:-1] | fcib1
        index: {t} = {0}[{1}.long().clamp(min=0)] | fcib1 i0
        index_arange: {t} = {0}[torch.arange({0}.shape[0]).flip(0)] | fcib1
        index_list: {t} = {0}[[0, -1]] | fcib1
        index_two: {t} = {0}[torch.arange({0}.shape[0]), 0] | fcib2
        mask: {t} = {0}[{0} > 0] | fi1
        mask_first: {t} = {0}[{1}] | fcib1 b1-1
        index_select: {t} = {0}.index_select({dim}, torch.arange({0}.shape[{dim}]).flip(0)) | fcib1 | dim:dim
        gather: {t} = {0}.gather({dim}, {0}.argsort({dim})) | fi1 | dim:dim
        take_along: {t} = torch.take_along_dim({0}, {0}.argsort({dim}), {dim}) | fi1 | dim:dim
        take: {t} = {0}.take(torch.zeros(2, dtype=torch.int64)) | fi1
        masked_select: {t} = torch.masked_select({0}, {0} > 0) | fi1
        masked_fill: {t} = {0}.masked_fill({1}, 2) | fi0 b0~
        scatter: {t} = {0}.scatter({dim}, {0}.argsort({dim}), {0}) | fi1 | dim:dim
        scatter_add: {t} = {0}.scatter_add({dim}, torch.zeros_like({0}, dtype=torch.int64), {0}) | fi1 | dim:dim
        scatter_reduce: {t} = {0}.scatter_reduce(0, torch.zeros_like({0}, dtype=torch.int64), {0}, "amax") | fi1
        index_add: {t} = {0}.index_add({dim}, torch.arange({0}.shape[{dim}]), {0}) | fi1 | dim:dim
        index_copy: {t} = {0}.index_copy({dim}, torch.arange({0}.shape[{dim}]).flip(0), {0}) | fi1 | dim:dim
        index_fill: {t} = {0}.index_fill({dim}, torch.zeros(1, dtype=torch.int64), 1) | fi1 | dim:dim
        index_put: {t} = {0}.index_put(({0} > 0,), torch.ones((), dtype={0}.dtype)) | fi1
        select_scatter: {t} = torch.select_scatter({0}, {0}.select({dim}, 0), {dim}, -1) | fi1 | dim:dim
        embedding: {t} = F.embedding({0}.long().clamp(0, 4), torch.ones(5, 3)) | fi0
        one_hot: {t} = F.one_hot({0}.long().clamp(0, 4), 5) | fib0
    """,
    "joining": r"""
        cat: {t} = torch.cat([{0}, {1}], dim={dim}) | fcib1 fcib1= | dim:dim
        cat_last: {t} = torch.cat([{0}, {0}[..., :1]], dim=-1) | fcib1
        cat_any: {t} = torch.cat([{0}, {1}]) | fi1 fi1
        stack: {t} = torch.stack([{0}, {1}], dim={dim}) | fcib0 fcib0= | dim:dim_new
        hstack: {t} = torch.{f}([{0}, {0}]) | fcib0 | f:hstack,vstack,dstack
        split: {t}_0, *{t}_rest = {0}.split({k}, dim={dim}) | fcib1 | k:int:1:3 dim:dim
        split_sizes: {t}_0, {t}_1 = {0}.split([{k}, {0}.shape[{dim}] - {k}], dim={dim}) | fcib1 | dim:dim k:int:0:2
        chunk: {t} = {0}.chunk({k}, dim={dim})[-1] | fcib1 | k:int:1:3 dim:dim
        chunk_two: {t}_0, {t}_1 = {0}.chunk(2, dim={dim}) | fcib1 | dim:dim
        tensor_split: {t} = torch.tensor_split({0}, {k}, dim={dim})[0] | fcib1 | k:int:1:3 dim:dim
        unbind: {t} = {0}.unbind({dim})[0] | fcib1 | dim:dim
        reverse_chunks: {t} = torch.cat({0}.chunk({k}, dim={dim})[::-1], dim={dim}) | fcib1 | k:int:1:3 dim:dim
        restack: {t} = torch.stack({0}.unbind({dim}), dim=0) | fcib1 | dim:dim
        meshgrid: {t}_0, {t}_1 = torch.meshgrid({0}, {0}, indexing="ij") | fi1-1
        block_diag: {t} = torch.block_diag({0}, {0}) | fi1-2
        pad: {t} = F.pad({0}, ({a}, {b})) | fi1 | a:int:-1:2 b:int:0:2
        pad_mode: {t} = F.pad({0}, (1, 1), mode="{f}") | f2-3 | f:reflect,replicate,circular
        combinations: {t} = torch.cartesian_prod({0}, {0}) | fi1-1
    """,
    "matmul": r"""
        matmul: {t} = {0} @ {1} | f1 f1@
        mm: {t} = torch.mm({0}, {1}) | f2-2 f2-2@
        bmm: {t} = torch.bmm({0}, {1}) | f3-3 f3-3@
        gram: {t} = {0} @ {0}.mT | f2
        linear: {t} = F.linear({0}, torch.full((3, {0}.shape[-1]), 0.5, dtype={0}.dtype), torch.ones(3, dtype={0}.dtype)) | f1
        einsum: {t} = torch.einsum("...i,...j->...ij", {0}, {1}) | f1 f1=
        einsum_sum: {t} = torch.einsum("...ij,...ij->...i", {0}, {0}) | f2
        outer: {t} = torch.outer({0}, {1}) | f1-1 f1-1
        dot: {t} = torch.dot({0}, {1}) | f1-1 f1-1=
        addmm: {t} = torch.addmm({0}, {0}, torch.eye({0}.shape[-1], dtype={0}.dtype)) | f2-2
        baddbmm: {t} = torch.baddbmm({0}, {0}, torch.zeros({0}.shape[0], {0}.shape[2], {0}.shape[2], dtype={0}.dtype)) | f3-3
        tensordot: {t} = torch.tensordot({0}, {1}, dims=1) | f1 f1@
        kron: {t} = torch.kron({0}, {0}) | f1-2
        mv: {t} = torch.mv({0}, torch.ones({0}.shape[1], dtype={0}.dtype)) | f2-2
        vecdot: {t} = torch.linalg.vecdot({0}, {1}) | f1 f1=
    """,
    "conv": r"""
        conv1d: {t} = F.conv1d({0}, torch.ones(2, {0}.shape[-2], {k}, dtype={0}.dtype), padding={p}, stride={s}) | f2-3 | k:int:1:3 p:int:0:1 s:int:1:2
        conv2d: {t} = F.conv2d({0}, torch.ones(2, {0}.shape[-3], {k}, 1, dtype={0}.dtype), padding={p}) | f3-4 | k:int:1:2 p:int:0:1
        conv_t: {t} = F.conv_transpose1d({0}, torch.ones({0}.shape[-2], 2, 2, dtype={0}.dtype), stride={s}) | f2-3 | s:int:1:2
        depthwise: {t} = F.conv1d({0}, torch.ones({0}.shape[1], 1, 2, dtype={0}.dtype), groups={0}.shape[1], padding=1) | f3-3
        max_pool: {t} = F.max_pool1d({0}, {k}, padding={p}) | f2-3 | k:int:2:3 p:int:0:1
        avg_pool: {t} = F.avg_pool1d({0}, {k}, ceil_mode={c}) | f2-3 | k:int:1:3 c:bool
        adaptive: {t} = F.adaptive_{f}_pool1d({0}, {k}) | f2-3 | f:avg,max k:int:1:3
        adaptive_2d: {t} = F.adaptive_avg_pool2d({0}, ({k}, 1)) | f3-4 | k:int:1:2
        interpolate: {t} = F.interpolate({0}, scale_factor={k}, mode="{f}") | f3-3 | k:pick:2,0.5,1.5 f:nearest,linear
        interpolate_to: {t} = F.interpolate({0}, size={k}, mode="nearest") | f3-3 | k:int:1:4
        unfold_2d: {t} = F.unfold({0}, (1, 2)) | f4-4
        pixel_shuffle: {t} = F.pixel_unshuffle({0}, 1) | f3-4
    """,
    "normalisation": r"""
        layer_norm: {t} = F.layer_norm({0}, {0}.shape[-1:]) | f1
        rms_norm: {t} = F.rms_norm({0}, {0}.shape[-1:]) | f1
        batch_norm: {t} = F.batch_norm({0}, None, None, training=True) | f2-4
        instance_norm: {t} = F.instance_norm({0}) | f3-4
        group_norm: {t} = F.group_norm({0}, 1) | f2-4
        normalize: {t} = F.normalize({0}, dim={dim}) | f1 | dim:dim
        renorm: {t} = torch.renorm({0}, 2, 0, 1.0) | f2
        glu: {t} = F.glu({0}, dim={dim}) | f1 | dim:dim
        dropout: {t} = F.dropout({0}, 0.5) | f0
    """,
    "attention": r"""
        sdpa: {t} = F.scaled_dot_product_attention({0}, {0}, {0}) | f3-4
        sdpa_causal: {t} = F.scaled_dot_product_attention({0}, {0}, {0}, is_causal={c}) | f3-4 | c:bool
        sdpa_cross: {t} = F.scaled_dot_product_attention({0}, {1}, {1}) | f3-4 f3-4
        sdpa_length: {t} = F.scaled_dot_product_attention({0}, {0}, {0}, is_causal={0}.shape[-2] > 1) | f3-4
        by_hand: {t} = torch.softmax({0} @ {0}.mT / {0}.shape[-1] ** 0.5, -1) @ {0} | f2
        heads: {t} = {0}.view(*{0}.shape[:-1], {0}.shape[-1] // {k}, {k}).transpose(-2, -3) | f2 | k:int:1:2
        causal_mask: {t} = {0}.masked_fill(torch.ones({0}.shape[-2], {0}.shape[-1]).tril() == 0, -1) | f2
    """,
    "sorting": r"""
        sort: {t}_0, {t}_1 = {0}.sort(dim={dim}, stable=True) | fi1 | dim:dim
        argsort: {t} = {0}.argsort(dim={dim}, stable=True) | fi1 | dim:dim
        topk: {t} = {0}.topk({k}, dim={dim})[0] | fi1 | k:int:0:2 dim:dim
        kthvalue: {t} = {0}.kthvalue({k}, dim={dim})[0] | fi1 | k:int:1:2 dim:dim
        msort: {t} = torch.msort({0}) | fi1
        searchsorted: {t} = torch.searchsorted({0}.sort().values, {0}) | fi1
        bucketize: {t} = torch.bucketize({0}, torch.tensor([0.0, 1.0])) | fi0
        unique: {t} = torch.unique({0}) | fi1
        bincount: {t} = torch.bincount({0}.long().clamp(0, 4)) | fi1-1
        histc: {t} = torch.histc({0}.float(), 4, -2, 2) | f1
    """,
    "fourier": r"""
        fft: {t} = torch.fft.{f}({0}, dim={dim}) | fc1 | f:fft,ifft dim:dim
        rfft: {t} = torch.fft.rfft({0}, dim={dim}) | f1 | dim:dim
        irfft: {t} = torch.fft.irfft({0}, dim={dim}) | fc1 | dim:dim
        fft2: {t} = torch.fft.fft2({0}) | fc2
        fftshift: {t} = torch.fft.fftshift({0}, dim={dim}) | fc1 | dim:dim
        fftfreq: {t} = torch.fft.fftfreq({0}.shape[0]) | f1
    """,
    "linalg": r"""
        inv: {t} = torch.linalg.{f}({0} @ {0}.mT + 9 * torch.eye({0}.shape[-2], dtype={0}.dtype)) | f2 | f:inv,cholesky,det,eigvalsh
        solve: {t} = torch.linalg.solve({0} @ {0}.mT + 9 * torch.eye({0}.shape[-2], dtype={0}.dtype), {0}) | f2
        matrix_power: {t} = torch.linalg.matrix_power({0} @ {0}.mT, {k}) | f2 | k:int:0:2
        matrix_norm: {t} = torch.linalg.matrix_norm({0}, "{f}") | f2 | f:fro,nuc
        svdvals: {t} = torch.linalg.svdvals({0}) | f2
        trace: {t} = torch.trace({0}) | f2-2
        cross: {t} = torch.linalg.cross({0}, {1}) | f1 f1=
        cov: {t} = torch.cov({0}) | f1-2
        vander: {t} = torch.linalg.vander({0}) | f1
    """,
    "out": r"""
        out_add: {t} = torch.empty_like({0})\ntorch.add({0}, {1}, out={t}) | fi0 fi0=
        out_into: torch.{f}({0}, {1}, out={1})\n{t} = {1} | f0 f0= | f:add,mul,maximum,sub
        out_unary: torch.{f}({0}, out={1})\n{t} = {1} | f0 f0= | f:sin,exp,neg,abs
        out_fresh: {t} = torch.empty(0, dtype={0}.dtype)\ntorch.{f}({0}, out={t}) | f1 | f:sin,relu,neg
        out_other: torch.mul({0}, 2, out={1})\n{t} = {1} | f0 f0
        out_sum: {t} = torch.empty({0}.sum({dim}).shape, dtype={0}.dtype)\ntorch.sum({0}, {dim}, out={t}) | f1 | dim:dim
        out_mm: {t} = torch.empty({0}.shape[0], {1}.shape[1], dtype={0}.dtype)\ntorch.mm({0}, {1}, out={t}) | f2-2 f2-2@
        out_cat: {t} = torch.empty(0, dtype={0}.dtype)\ntorch.cat([{0}, {0}], out={t}) | f1
        out_topk: {t}_0 = torch.empty_like({0}[..., :1])\n{t}_1 = torch.empty({t}_0.shape, dtype=torch.int64)\ntorch.topk({0}, 1, out=({t}_0, {t}_1)) | f1
        out_max: {t}_0 = {0}[0].clone()\n{t}_1 = torch.empty({t}_0.shape, dtype=torch.int64)\ntorch.max({0}, 0, out=({t}_0, {t}_1)) | f1
        out_slice: {t} = torch.zeros(2, *{0}.shape, dtype={0}.dtype)\ntorch.mul({0}, 2, out={t}[0]) | f0
        out_cast: {t} = torch.empty({0}.shape, dtype=torch.float64)\ntorch.add({0}, 1, out={t}) | fi0
    """,
    "inplace": r"""
        add_: {0}.add_({1})\n{t} = {0} | fcib0 fcib0~
        iadd: {t} = {0}\n{t} += {k} | fcib0 | k:pick:1,2,0.5,True,1j
        unary_: {t} = {0}.{f}() | f0 | f:relu_,sin_,zero_,neg_,square_
        mul_: {0}.mul_({k})\n{t} = {0} | fcib0 | k:pick:-1,0,2,1.5,False
        clamp_: {t} = {0}.clamp_(-1, 1) | fi0
        copy_: {t} = {0}.copy_({1}) | fcib0 fcib0~
        fill_view: {0}[..., -1:].fill_({k})\n{t} = {0} | fi1 | k:int:0:3
        setitem: {0}[0] = {k}\n{t} = {0} | fcib1 | k:pick:0,3,-1.5,True,2j
        setitem_slice: {0}[1:] = {0}[:-1].clone()\n{t} = {0} | fi1
        setitem_mask: {0}[{0} > 0] = {k}\n{t} = {0} | fi1 | k:pick:0,3,-1.5,True,2j
        setitem_index: {0}[torch.arange({0}.shape[0])] = {k}\n{t} = {0} | fi1 | k:int:0:3
        view_write: {0}.view(-1).add_(1)\n{t} = {0} | fi1
        reshape_write: {0}.reshape(-1).add_(1)\n{t} = {0} | fi1
        row_write: {0}.select({dim}, 0).mul_(2)\n{t} = {0} | fi1 | dim:dim
        squeeze_: {t} = {0}.clone().squeeze_() | fi1
        unsqueeze_: {t} = {0}.clone().unsqueeze_(0) | fi0
        transpose_: {t} = {0}.clone().transpose_(0, -1) | fi1
        masked_fill_: {t} = {0}.masked_fill_({1}, 1) | fi0 b0~
        resize: {t} = {0}.clone().resize_({0}.shape[0]) | fi1-1
        flatten_write: {t} = {0}.flatten()\n{t}.mul_(2) | fi1
        diagonal_write: {0}.diagonal().zero_()\n{t} = {0} | fi2
        contiguous_write: {t} = {0}.contiguous()\n{t}.add_(1) | fi1
    """,
    "data": r"""
        nonzero: {t} = {0}.nonzero() | fib0
        nonzero_count: {t} = {0}.nonzero().shape[0] | fib1
        item: {t} = {0}.sum().item() | i0
        item_size: {t} = torch.ones({0}.abs().sum().clamp(max=5).long().item()) | i0
        branch_value: {t} = {0} * 2 if {0}.sum() > 0 else {0} - 1 | fi0
        any_value: {t} = {0} + 1 if bool(({0} > 1).any()) else {0} | fi0
        tolist: {t} = torch.tensor({0}.tolist()) | i1-1
        where_index: {t} = torch.where({0} > 0)[0] | fi1
        argwhere: {t} = torch.argwhere({0}) | fi1
        mask_sum: {t} = {0}[{0} > 0].sum() | fi1
        masked_mean: {t} = ({0} * ({0} > 0)).sum() / ({0} > 0).sum().clamp(min=1) | f0
    """,
    "sizes": r"""
        if_greater: {t} = {0} + 1 if {0}.shape[{dim}] > {k} else {0} * 2 | fi1 | dim:dim k:int:0:8
        if_zero: {t} = torch.zeros(3) if {0}.shape[{dim}] == 0 else {0} | f1 | dim:dim
        if_one: {t} = {0}.squeeze({dim}) if {0}.shape[{dim}] == 1 else {0} | fi1 | dim:dim
        if_equal: {t} = {0} + 1 if {0}.shape[0] == {0}.shape[-1] else {0} - 1 | fi2
        if_even: {t} = {0} if {0}.shape[{dim}] % 2 == 0 else {0}[..., :-1] | fi1 | dim:dim
        if_numel: {t} = {0}.sum() if {0}.numel() > {k} else {0} | fi0 | k:int:0:12
        if_contiguous: {t} = {0} + 1 if {0}.is_contiguous() else {0} - 1 | fi0
        if_same_shape: {t} = {0} + 1 if {0}.shape == {1}.shape else {0} - 1 | fi0 fi0
        if_dim: {t} = {0}.sum(0) if {0}.dim() > 1 else {0} | fi1
        raise_if: {t} = {0}\nif {0}.shape[{dim}] == {k}:\n    raise ValueError("size") | fi1 | dim:dim k:int:0:3
        assert_if: assert {0}.shape[{dim}] != {k}\n{t} = {0} | fi1 | dim:dim k:int:0:3
        try_mm: try:\n    {t} = {0} @ {1}\nexcept RuntimeError:\n    {t} = {0} | f2-2 f2-2
        loop: {t} = {0}\nfor i in range(min({0}.shape[{dim}], 3)):\n    {t} = {t} + i | fi1 | dim:dim
        loop_rows: {t} = 0\nfor row in {0}[:3]:\n    {t} = {t} + row | fi1
        while_halves: {t} = {0}\nwhile {t}.shape[0] > 2:\n    {t} = {t}[::2] | fi1
        size: {t} = {0}.shape[{dim}] | fcib1 | dim:dim
        numel: {t} = {0}.numel() | fcib0
        length: {t} = len({0}) + 1 | fcib1
        times_size: {t} = {0} * {0}.shape[{dim}] | fi1 | dim:dim
        over_size: {t} = {0} / max({0}.shape[{dim}], 1) | fi1 | dim:dim
        by_numel: {t} = {0}.sum() / {0}.numel() | f0
        arange: {t} = torch.arange({0}.shape[{dim}]) | fcib1 | dim:dim
        arange_float: {t} = torch.arange({0}.shape[{dim}], dtype=torch.float32) / 2 | fcib1 | dim:dim
        linspace: {t} = torch.linspace(0, 1, {0}.shape[{dim}]) | fcib1 | dim:dim
        eye: {t} = torch.eye({0}.shape[{dim}]) | fcib1 | dim:dim
        zeros: {t} = torch.zeros({0}.shape[{dim}], {k}) | fcib1 | dim:dim k:int:0:3
        full: {t} = torch.full(({0}.shape[{dim}],), {0}.shape[0]) | fcib1 | dim:dim
        like: {t} = torch.{f}_like({0}) | fcib0 | f:zeros,ones
        new_ones: {t} = {0}.new_ones({0}.shape[-1], {0}.shape[0]) | fi1
        rand_like: {t} = torch.rand_like({0}) | f0
        randperm: {t} = {0}[torch.randperm({0}.shape[0])] | fi1
        number_arith: {t} = {0} * 2 + 1 | n0
        number_min: {t} = min({0}, {1}.shape[0]) | n0 fcib1
        number_div: {t} = {0} // 2 | n0
        number_arange: {t} = torch.arange({0}) | n0
        number_tensor: {t} = torch.full(({0}, 2), 1.5) | n0
        number_if: {t} = {1} + 1 if {0} > {k} else {1} | n0 fi0 | k:int:0:5
        check: torch._check({0}.shape[{dim}] <= {k})\n{t} = {0} | fi1 | dim:dim k:int:5:40
    """,
    "containers": r"""
        dict: {t} = {{"a": {0}, "b": [{1}, {0} + 1]}}["b"][1] | fi0 fcib0
        comprehension: {t} = sum([{0} * k for k in range(3)]) | fi0
        zip_chunks: {t} = [a + b for a, b in zip({0}.chunk(2), {0}.chunk(2))][0] | fi1
        unpack: {t}_0, {t}_1 = ({0}, {1})[::-1] | fcib0 fcib0
        closure: {t} = (lambda y: y + {1})({0}) | fi0 fi0~
        shape_tuple: {t} = {0}.reshape(tuple(reversed({0}.shape))) | fcib1
        shape_star: {t} = torch.zeros(*{0}.shape[1:]) | fcib1
        enumerate: {t} = 0\nfor i, part in enumerate({0}[:5].split(2)):\n    {t} = {t} + part.sum() * i | fi1
        sorted_sizes: {t} = {0}.reshape(sorted({0}.shape)) | fi1
        max_size: {t} = max({0}.shape) | fcib1
    """,
}

_OPERAND = re.compile(r"([fcibn]+)(\d)(?:-(\d))?([=~@]?)")


def _operation(family: str, row: str) -> Operation:
    name, _, rest = row.partition(": ")
    template, _, rest = rest.partition(" | ")
    # An operator `|` inside a template is written without spaces around it in a choice, so this split is safe.
    given, _, drawn = rest.partition(" | ")
    operands = []
    for text in given.split():
        match = _OPERAND.fullmatch(text)
        assert match, f"{name}: {text!r} is no operand"
        kinds, least, most, goes = match.groups()
        operands.append(Operand(kinds, int(least), int(most or 5), goes))
    pairs = tuple((a, d) for a, _, d in (item.partition(":") for item in drawn.split()))
    return Operation(name, family, template.replace("\\n", "\n"), tuple(operands), pairs)


OPERATIONS: Final = MappingProxyType(
    {
        operation.name: operation
        for family, rows in _TABLE.items()
        for operation in (_operation(family, row.strip()) for row in rows.strip().splitlines())
    }
)
FAMILIES: Final = tuple(_TABLE)
