"""Compiled code that only computes, served without Inductor.

Owns the form of code that a process can serve without a compiler's modules, whose import takes longer than all else
that loading does: Inductor's own text for the CPU, without what it imports from Inductor, and its kernels as machine
code. Code that writes to its inputs, gives back views of them, differentiates or runs elsewhere is not plain.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import hashlib
import importlib.machinery
import importlib.util
import multiprocessing.util
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from anyshape._torch.bundle import light_externs
from anyshape.errors import ArtifactError

_ENTRY = "call"  # the function in Inductor's text
_COMPILER = "async_compile"  # what hands out kernels there
_FRESH = ("non_alias", "unsafe_view_alias", "custom_function_view")  # outputs that share no memory with an input
_ADDRESS = "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"  # where a kernel's module finds a function of torch's


@dataclasses.dataclass(frozen=True)
class Plain:
    """Python text that defines `call`, and the tensors that it takes for constants."""

    text: str
    constants: Mapping[str, torch.Tensor]

    def run(self, kernels: Mapping[str, bytes]) -> Callable[..., Any]:
        """The code, ready to be called. It has to be trusted."""

        def kernel(key: str) -> Any:
            if key not in kernels:
                raise incomplete(f"kernel {key[:16]}")
            return load_kernel(key, kernels[key])

        scope = {**_NAMES, "kernel": kernel, **self.constants}
        exec(compile(self.text, "<anyshape>", "exec"), scope)
        return functools.partial(_without_autograd, scope[_ENTRY])


def _assert_tensor_metadata(tensor: Any, size: Any, stride: Any, dtype: torch.dtype, op: str | None = None) -> None:
    """Inductor's check of what an operator gave back (2.15)."""
    if tensor is None:
        return
    if tensor.dtype != dtype:
        raise RuntimeError(f"expected dtype {dtype} but got {tensor.dtype} of {op}")
    torch._C._dynamo.guards.assert_size_stride(tensor, size, stride, op)  # type: ignore[attr-defined]


# What Inductor's text imports from Inductor, and is here instead.
_NAMES = {"extern_kernels": light_externs.extern_kernels, "assert_tensor_metadata": _assert_tensor_metadata}


def _without_autograd(call: Callable[[list[Any]], Any], *args: Any) -> Any:
    """As AOTAutograd calls code without a backward: no gradients and no autocast inside."""
    before = torch.is_grad_enabled()
    if before:
        torch._C._set_grad_enabled(False)
    try:
        if torch._C._is_any_autocast_enabled():
            with torch._C._DisableAutocast():
                return call(list(args))
        return call(list(args))
    finally:
        if before:
            torch._C._set_grad_enabled(True)


# -- from a compiled graph -----------------------------------------------------------------------------------------


def plain(entry: Any) -> Plain | None:
    """AOTAutograd's result as plain code; None where it is more than that."""
    result: Any = getattr(entry.compiled_fw, "result", None)
    text = getattr(result, "source_code", None)
    if text is None or not _only_computes(entry) or not _only_on_the_cpu(result):
        return None
    made = _text(text)
    return None if made is None else Plain(made, dict(result.constants))


def _only_computes(entry: Any) -> bool:
    meta = entry.runtime_metadata
    writes = any(i.mutates_data or i.mutates_metadata or i.mutates_storage_metadata for i in meta.input_info)
    fresh = all(o.output_type.name in _FRESH for o in meta.output_info)
    more = (
        entry.compiled_bw,
        entry.maybe_subclass_meta,
        entry.indices_of_inps_to_detach,
        meta.tokens,
        meta.num_intermediate_bases,
        meta.is_rng_op_functionalized,
    )
    return fresh and not writes and not any(more) and not any(w.needs_post_compile for w in entry.dispatch_wrappers)


def _only_on_the_cpu(result: Any) -> bool:
    words = ("frozen_param_names", "torchbind_constants", "opaque_value_type_classes", "partition_maps")
    more = [getattr(result, word, None) for word in (*words, "inputs_to_check", "mutated_input_idxs")]
    more.append(getattr(result, "_wrap_compiled_regions", False))
    return set(result.device_types) <= {"cpu"} and not any(more)


def _text(source: str) -> str | None:
    """Inductor's text without its imports, kernels by digest; None where it needs more of Inductor than that."""
    body = [node for node in ast.parse(source).body if not _for_benchmarks(node)]
    code = [node for node in body if not isinstance(node, (ast.Import, ast.ImportFrom))]
    made = [_Kernels().visit(node) for node in code if not _about_the_compiler(node)]
    used = {n.id for node in made for n in ast.walk(node) if isinstance(n, ast.Name)}
    kept = [node for node in body if isinstance(node, (ast.Import, ast.ImportFrom)) and not _of_inductor(node)]
    lost = {a.asname or a.name for n in body if isinstance(n, ast.ImportFrom) and _of_inductor(n) for a in n.names}
    made = [node for node in made if not _names_an_unused_operator(node, made)]
    if used & lost - _NAMES.keys() or _COMPILER in used or not all(map(_is_known, _attributes(made))):
        return None
    return ast.unparse(ast.Module([*kept, *made], []))


def _for_benchmarks(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) or getattr(node, "name", "") in ("benchmark_compiled_module", "get_args")


def _of_inductor(node: ast.stmt) -> bool:
    modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in getattr(node, "names", ())]
    return any(m.startswith(("torch._inductor", "torch._dynamo", "torch._functorch")) for m in modules)


def _about_the_compiler(node: ast.stmt) -> bool:
    """`async_compile = AsyncCompile()`, `async_compile.wait(globals())`, `del async_compile`."""
    if isinstance(node, ast.Assign):
        return [ast.unparse(t) for t in node.targets] == [_COMPILER]
    return ast.unparse(node) in (f"{_COMPILER}.wait(globals())", f"del {_COMPILER}")


class _Kernels(ast.NodeTransformer):
    """`async_compile.cpp_pybinding(types, code)` becomes `kernel(digest)`."""

    def visit_Call(self, node: ast.Call) -> Any:
        if ast.unparse(node.func) != f"{_COMPILER}.cpp_pybinding" or node.keywords or len(node.args) != 2:
            return self.generic_visit(node)
        types, code = map(ast.literal_eval, node.args)
        return ast.Call(ast.Name("kernel", ast.Load()), [ast.Constant(kernel_key(types, code, None))], [])


def _names_an_unused_operator(node: ast.stmt, body: Iterable[ast.stmt]) -> bool:
    """Inductor gives short names to operators whether or not it uses them."""
    if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
        return False
    name = node.targets[0].id
    others = (n for other in body if other is not node for n in ast.walk(other))
    return not any(isinstance(n, ast.Name) and n.id == name for n in others) and name != _ENTRY


def _attributes(body: Iterable[ast.stmt]) -> Iterable[str]:
    return (ast.unparse(n) for node in body for n in ast.walk(node) if isinstance(n, ast.Attribute))


def _is_known(attribute: str) -> bool:
    """Operators of torch's own are there without Inductor; others may be its own or the user's."""
    if attribute.startswith("torch.ops."):
        return attribute.startswith("torch.ops.aten")
    return not attribute.startswith(("torch._inductor", "torch._dynamo", "torch._functorch"))


# -- kernels -------------------------------------------------------------------------------------------------------


def kernel_key(argtypes: Sequence[str], code: str, more: str | None) -> str:
    return hashlib.sha256(repr((list(argtypes), code, more or "")).encode()).hexdigest()


_mapped: dict[tuple[str, bytes], Any] = {}  # kernels, by their source and their machine code; code stays mapped


def load_kernel(key: str, code: bytes) -> Any:
    """A kernel from its machine code: mapped, once in a process, from a file that is gone when it has been."""
    digest = key, hashlib.sha256(code).digest()
    found = _mapped.get(digest)
    # No lock, which a fork might find taken for ever: threads that come at once map it each, and one of them is kept.
    return found if found is not None else _mapped.setdefault(digest, _map_kernel(key, code))


def _map_kernel(key: str, code: bytes) -> Any:
    """From a file with a name of its own: nobody writes to, or removes, what another thread is about to map."""
    try:
        handle, path = tempfile.mkstemp(suffix=".so", dir=directory())
        try:
            with open(handle, "wb") as file:
                file.write(code)
            return _imported(key, path)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(path)
    except (OSError, ImportError):  # the disk is full, or nothing may be executed from there
        if not hasattr(os, "memfd_create"):
            raise
        handle = os.memfd_create(key[:16])
        with open(handle, "wb", closefd=False) as file:  # stays open: the name means this one for ever
            file.write(code)
        return _imported(key, f"/proc/self/fd/{handle}")


def _imported(key: str, path: str) -> Any:
    address = str(torch._C._dynamo.guards._torchinductor_pyobject_tensor_data_ptr)  # type: ignore[attr-defined]
    if os.environ.get(_ADDRESS) != address:
        os.environ[_ADDRESS] = address
    loader = importlib.machinery.ExtensionFileLoader(f"{key}.kernel", path)
    spec = importlib.util.spec_from_file_location(f"{key}.kernel", path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return getattr(module, "kernel")  # noqa: B009


_directories: dict[int, str] = {}  # by process: a forked one has its own


def directory() -> str:
    """Where code lies while this process runs; nobody else can write there."""
    found = _directories.get(os.getpid())
    if found is not None and os.path.isdir(found):  # what sweeps temporary files may have taken it
        return found
    made = tempfile.mkdtemp(prefix="anyshape-")
    # Unlike atexit, it is heard by a process that multiprocessing forked; and by no other than this one.
    multiprocessing.util.Finalize(None, shutil.rmtree, (made,), {"ignore_errors": True}, exitpriority=0)
    _directories[os.getpid()] = made
    return made


def incomplete(what: str) -> ArtifactError:
    return ArtifactError(
        "the artifact lacks something that its program needs, and loading compiles nothing",
        value=what,
        fix="precompile it again",
        code="AS050",
    )
