"""Which test files are run: those whose tests call `torch.compile` as users do."""

from __future__ import annotations

FILES = (
    "dynamo/test_misc.py",
    "dynamo/test_repros.py",
    "dynamo/test_functions.py",
    "dynamo/test_modules.py",
    "dynamo/test_unspec.py",
    "dynamo/test_dynamic_shapes.py",
    "dynamo/test_decorators.py",
    "dynamo/test_subclasses.py",
    "dynamo/test_hooks.py",
    "dynamo/test_autograd_function.py",
    "dynamo/test_ctx_manager.py",
    "dynamo/test_higher_order_ops.py",
    "dynamo/test_aot_autograd.py",
    "inductor/test_unbacked_symints.py",
    "inductor/test_torchinductor_dynamic_shapes.py",
    "inductor/test_torchinductor.py",
    "test_dynamic_shapes.py",
)

# Of a file that has a class for each device, the one for this machine's.
ONLY = {
    "inductor/test_torchinductor.py": "CpuTests",
    "inductor/test_torchinductor_dynamic_shapes.py": "not GPU",
}
