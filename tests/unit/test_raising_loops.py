"""What is thrown in a parallel loop, as text of C++; that it compiles is in tests/e2e."""

from __future__ import annotations

from anyshape._torch.repairs.cpp.raising_loops import with_errors_kept

KERNEL = """
extern "C" void kernel(const long* in_ptr0)
{
    #pragma omp parallel num_threads(2)
    {
        int tid = omp_get_thread_num();
        {
            #pragma omp for collapse(2)
            for(long x0=0; x0<n; x0+=1)
            {
                for(long x1=0; x1<n; x1+=1)
                {
                    TORCH_CHECK(in_ptr0[x0] < 5, "index out of bounds");
                }
            }
        }
        {
            #pragma omp for
            for(long x0=0; x0<n; x0+=1)
            {
                out_ptr0[x0] = 1;
            }
        }
    }
}
"""


def test_only_what_throws_is_caught_and_thrown_after_the_loop() -> None:
    lines = [line.strip() for line in with_errors_kept(KERNEL).splitlines()]
    assert lines.count("try {") == 1 and lines.count("} catch (...) {") == 1
    assert lines.index("try {") == lines.index("for(long x1=0; x1<n; x1+=1)") + 2
    assert lines.index("} catch (...) {") == lines.index('TORCH_CHECK(in_ptr0[x0] < 5, "index out of bounds");') + 1
    declared = lines.index("std::exception_ptr anyshape_thrown;")
    assert lines[declared - 1 : declared + 2] == ["{", lines[declared], "#pragma omp parallel num_threads(2)"]
    assert lines[-4:-1] == ["}", "if (anyshape_thrown) std::rethrow_exception(anyshape_thrown);", "}"]
    text = "\n".join(lines)
    assert text.count("{") == text.count("}")


def test_what_does_not_throw_or_is_not_read_stays_as_it_is() -> None:
    for source in (
        KERNEL.replace("TORCH_CHECK", "check"),
        KERNEL.replace("#pragma omp parallel", "//"),
        KERNEL[: KERNEL.index("out_ptr0")],
    ):
        assert with_errors_kept(source) == source
