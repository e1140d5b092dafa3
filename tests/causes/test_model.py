from __future__ import annotations

from pathlib import Path

import pytest

from builders import TraceBuilder, evidence_of
from findings import FAULT, STEP, STEPS, check, loop
from whyidle.causes.evidence import Evidence
from whyidle.causes.model import (
    RULES,
    r38_fp32_without_tf32,
    r40_layout_kernels,
    r41_tunes_convolutions,
    r43_recompiles,
    r44_kernel_built_in_steps,
    r46_unfused_attention,
    r48_debug_flags,
    r50_zero_fills,
    r51_elementwise_dominated,
    r52_fp64_kernels,
)
from whyidle.causes.model.precision import is_fp64
from whyidle.causes.rules import find
from whyidle.ledger.build import build_ledgers
from whyidle.readers import open_trace
from whyidle.timeline.nesting import nest

_NODE = "autograd::engine::evaluate_function: "


def silent(evidence: Evidence) -> bool:
    return all(rule(evidence) is None for rule in RULES)


def python(b: TraceBuilder, i: int, start: int, end: int) -> None:
    b.python("train.py(9): work", start, end)


def kernels(*names: str, ns: int = 40_000):
    """Kernels in a row, ``ns`` each, all launched in time by calls of 100 ns."""

    def fault(b: TraceBuilder, i: int, start: int, end: int) -> None:
        for k, name in enumerate(names):
            call = start - 10_000 + 200 * k
            b.launch(name, call, call + 100, start + k * ns, start + (k + 1) * ns)

    return fault


def later(fault):
    """The fault in all steps but the first."""

    def all_but_first(b: TraceBuilder, i: int, start: int, end: int) -> None:
        (python if i == 0 else fault)(b, i, start, end)

    return all_but_first


class TestPrecision:
    def test_fp32_matmuls_without_tensor_cores(self) -> None:
        evidence = evidence_of(loop(python, first="ampere_sgemm_128x64_nn"))
        lost = STEPS * 400_000 * 6 // 7
        finding = check(evidence, r38_fp32_without_tf32(evidence), "R38", lost)
        assert finding.accounts == {"compute.matmul": STEPS * 400_000}
        assert "80.0 % of the GPU's busy time" in finding.evidence[0]

    @pytest.mark.parametrize(
        "name",
        [
            "ampere_fp16_s1688gemm_fp16_128x64_nn",
            "cutlass_80_tensorop_s1688gemm_128x64_nn",
            "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n",
            "elementwise_kernel<float>",
        ],
    )
    def test_kernels_on_tensor_cores_or_of_other_kinds(self, name: str) -> None:
        assert r38_fp32_without_tf32(evidence_of(loop(python, first=name))) is None

    def test_a_gpu_without_tf32(self) -> None:
        b = TraceBuilder()
        b.properties(name="AMD Instinct MI300X")
        b.step(0, 0, STEP)
        b.launch("sgemm_128x64", 0, 0, 0, STEP)
        assert r38_fp32_without_tf32(evidence_of(b)) is None

    @pytest.mark.parametrize(
        ("name", "double"),
        [
            ("void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<double> >()", True),
            ("reduce_kernel<512, 1, ReduceOp<double, func_wrapper_t<double> > >", True),
            ("ampere_dgemm_128x64_nn", True),
            ("void uniform_kernel<float>(at::TensorIteratorBase&, double, double)", False),
            ("multi_tensor_apply_kernel<LpNormFunctor<float, (NormType)2, double> >", False),
            ("ampere_sgemm_128x64_nn", False),
            ("cudnn_dgrad_engine<float>", False),
        ],
    )
    def test_fp64_is_told_from_scalar_arguments(self, name: str, double: bool) -> None:
        assert is_fp64(name) == double

    @pytest.mark.parametrize(("gpu", "ratio"), [("NVIDIA H100 80GB", 2), ("RTX 4090", 64)])
    def test_fp64_kernels(self, gpu: str, ratio: int) -> None:
        b = TraceBuilder()
        b.properties(name=gpu)
        b.step(0, 0, STEP)
        b.launch("gemm", 0, 0, 0, 900_000)
        b.launch("elementwise_kernel<double>", 0, 1_000, 900_000, STEP)
        evidence = evidence_of(b)
        lost = 100_000 * (ratio - 1) // ratio
        check(evidence, r52_fp64_kernels(evidence), "R52", lost)

    def test_a_few_fp64_kernels_are_not_told(self) -> None:
        evidence = evidence_of(loop(kernels("elementwise_kernel<double>", ns=5_000)))
        assert r52_fp64_kernels(evidence) is None


class TestLayout:
    def test_layout_kernels_around_convolutions(self) -> None:
        evidence = evidence_of(loop(kernels(*["nchwToNhwcKernel<float>"] * 3), first="conv_fprop"))
        finding = check(evidence, r40_layout_kernels(evidence), "R40", STEPS * 120_000)
        assert finding.accounts == {"compute.layout": STEPS * 120_000}
        assert "3 calls" in finding.evidence[1]

    def test_without_convolutions_it_is_the_code_s_own(self) -> None:
        evidence = evidence_of(loop(kernels(*["nchwToNhwcKernel<float>"] * 3)))
        assert r40_layout_kernels(evidence) is None

    def test_in_a_run_that_mostly_idles_it_gains_too_little(self) -> None:
        fault = kernels("nchwToNhwcKernel<float>")  # 7.4 % of busy time, 4 % of the window
        assert r40_layout_kernels(evidence_of(loop(fault, first="conv_fprop"))) is None

    def test_overlapped_by_other_work(self) -> None:
        fault = kernels(*["nchwToNhwcKernel<float>"] * 3)
        assert r40_layout_kernels(evidence_of(loop(fault, first="conv", hidden=True))) is None


def tuned(b: TraceBuilder, i: int, start: int, end: int) -> None:
    """Four candidates of 20 us, each waited for until 50 us have passed, then the convolution."""
    b.op("aten::conv2d", start, end)
    b.op("aten::cudnn_convolution", start, end - 1_000)
    for k in range(5):
        at = start + 50_000 * k
        b.launch(f"conv_fprop_{k}", at, at + 1_000, at + 1_000, at + 21_000)
        if k < 4:
            b.sync(at + 2_000, at + 50_000, "cudaEventSynchronize")


class TestTuning:
    def test_convolutions_tuned_in_every_step(self) -> None:
        evidence = evidence_of(loop(tuned))
        # Of the whole 499 us the last candidate's 20 us stay.
        lost = STEPS * (FAULT - 20_000)
        finding = check(evidence, r41_tunes_convolutions(evidence), "R41", lost)
        assert "1 convolutions a step time candidate kernels" in finding.evidence[0]

    def test_tuning_in_the_first_step_is_warm_up(self) -> None:
        def first(b: TraceBuilder, i: int, start: int, end: int) -> None:
            (tuned if i == 0 else python)(b, i, start, end)

        assert silent(evidence_of(loop(first)))

    def test_convolutions_that_time_nothing(self) -> None:
        def plain(b: TraceBuilder, i: int, start: int, end: int) -> None:
            b.op("aten::conv2d", start, end)
            for k in range(5):
                at = start + 50_000 * k
                b.launch("conv_fprop", at, at + 1_000, at + 1_000, at + 21_000)

        assert r41_tunes_convolutions(evidence_of(loop(plain))) is None

    def test_behind_a_busy_gpu(self) -> None:
        assert r41_tunes_convolutions(evidence_of(loop(tuned, hidden=True))) is None


def dynamo(b: TraceBuilder, i: int, start: int, end: int) -> None:
    b.python("train.py(9): work", start, end)
    b.annotation("_compile.compile_inner (dynamo_timed)", start, end)


def module_load(b: TraceBuilder, i: int, start: int, end: int) -> None:
    b.sync(start, end, "cuModuleLoadData")


class TestCompile:
    def test_recompilations(self) -> None:
        evidence = evidence_of(loop(dynamo))
        lost = (STEPS - 1) * FAULT  # the first step's is the first compilation
        finding = check(evidence, r43_recompiles(evidence), "R43", lost)
        assert "5 compilations after the first step" in finding.evidence[1]
        assert "train.py:9 (work)" in finding.evidence[2]

    def test_kernels_built_in_every_step(self) -> None:
        evidence = evidence_of(loop(module_load))
        assert r43_recompiles(evidence) is None
        finding = check(evidence, r44_kernel_built_in_steps(evidence), "R44", (STEPS - 1) * FAULT)
        assert "cuModuleLoadData" in finding.evidence[1]

    @pytest.mark.parametrize("fault", [dynamo, module_load])
    def test_the_first_step_alone_is_warm_up(self, fault) -> None:
        def first(b: TraceBuilder, i: int, start: int, end: int) -> None:
            (fault if i == 0 else python)(b, i, start, end)

        assert silent(evidence_of(loop(first)))

    def test_one_late_module_is_lazy_loading(self) -> None:
        def once(b: TraceBuilder, i: int, start: int, end: int) -> None:
            (module_load if i == 2 else python)(b, i, start, end)

        assert silent(evidence_of(loop(once)))

    @pytest.mark.parametrize("fault", [dynamo, module_load])
    def test_behind_a_busy_gpu(self, fault) -> None:
        assert silent(evidence_of(loop(fault, hidden=True)))


def attention(first: str = "aten::bmm", between: str = "elementwise_kernel<mul>"):
    """Matmul, scale, softmax, matmul: 20 us each."""

    def fault(b: TraceBuilder, i: int, start: int, end: int) -> None:
        names = ("bgemm_qk", between, "softmax_warp_forward", "bgemm_av")
        ops = (first, "aten::mul", "aten::_softmax", "aten::bmm")
        for k, (name, op) in enumerate(zip(names, ops, strict=True)):
            call = start - 20_000 + 1_000 * k
            b.op(op, call, call + 500)
            b.launch(name, call + 100, call + 200, start + k * 100_000, start + (k + 1) * 100_000)

    return fault


class TestAttention:
    def test_softmax_between_batched_matmuls(self) -> None:
        evidence = evidence_of(loop(attention()))
        finding = check(evidence, r46_unfused_attention(evidence), "R46", STEPS * 200_000)
        assert finding.accounts == {
            "compute.elementwise": STEPS * 100_000,
            "compute.reduction": STEPS * 100_000,
        }
        assert "1 such softmax kernels a step" in finding.evidence[2]

    @pytest.mark.parametrize(
        "builder",
        [
            loop(attention("aten::linear")),  # a router or classifier, not attention
            loop(attention(between="layer_norm_kernel")),
            loop(attention(), hidden=True),
        ],
    )
    def test_other_softmaxes(self, builder: TraceBuilder) -> None:
        assert r46_unfused_attention(evidence_of(builder)) is None


def blocking(count: int, call_ends_before: int = 0) -> TraceBuilder:
    """Kernels of 20 us, each inside a launch call of 30 us; Python for 10 us between."""
    b = TraceBuilder()
    b.properties()
    b.step(0, 0, count * 40_000)
    for k in range(count):
        t = k * 40_000
        b.op("aten::mul", t, t + 31_000)
        b.launch("mul", t, t + 30_000 - call_ends_before, t + 5_000, t + 25_000)
    return b


class TestDebug:
    def test_launches_that_wait_for_their_kernels(self) -> None:
        evidence = evidence_of(blocking(30))
        busy = 30 * 20_000
        window = evidence.ledger.window_ns
        assert window == 30 * 40_000 - 15_000
        finding = check(evidence, r48_debug_flags(evidence), "R48", min(busy, window - busy))
        assert "100.0 % of 30 launch calls" in finding.evidence[0]

    def test_launches_that_return_before_their_kernel_ends(self) -> None:
        assert r48_debug_flags(evidence_of(blocking(30, call_ends_before=6_000))) is None

    def test_too_few_launches_tell_nothing(self) -> None:
        assert r48_debug_flags(evidence_of(blocking(19))) is None

    def test_gradients_checked_for_nan(self) -> None:
        def checked(b: TraceBuilder, i: int, start: int, end: int) -> None:
            b.op(f"{_NODE}MulBackward0", start - 5_000, end)
            b.op("aten::isnan", start, start + 3_000)
            b.launch("isnan_kernel", start, start + 1_000, start + 2_000, start + 22_000)
            b.op("aten::item", start + 22_000, start + 322_000)
            b.sync(start + 23_000, start + 321_000)

        evidence = evidence_of(loop(checked))
        # The check's kernel and the read behind it; 1 us of launch, 1 us of queue not claimed.
        finding = check(evidence, r48_debug_flags(evidence), "R48", STEPS * (20_000 + 301_000))
        assert finding.title.startswith("Anomaly detection")

    def test_the_model_s_own_check(self) -> None:
        def own(b: TraceBuilder, i: int, start: int, end: int) -> None:
            b.op("aten::isnan", start, start + 3_000)
            b.op("aten::item", start + 22_000, start + 322_000)

        assert r48_debug_flags(evidence_of(loop(own))) is None


def zero_fills(b: TraceBuilder, i: int, start: int, end: int) -> None:
    """Ten fills of 5 us each, launched by calls of 1 us that end 10 us before each end."""
    b.annotation("Optimizer.zero_grad#SGD.zero_grad", start, end)
    for k in range(10):
        at = start + 20_000 * k
        b.op("aten::zero_", at, at + 2_000)
        b.launch("fill_kernel", at, at + 1_000, at + 1_000, at + 6_000)


class TestGradients:
    def test_filling_gradients_with_zeros(self) -> None:
        evidence = evidence_of(loop(zero_fills))
        finding = check(evidence, r50_zero_fills(evidence), "R50", STEPS * FAULT)
        assert finding.accounts == {
            "compute.elementwise": STEPS * 50_000,
            "idle.optimizer": STEPS * (FAULT - 50_000),
        }
        assert "10 fills a step" in finding.evidence[0]

    def test_dropping_gradients_is_no_fill(self) -> None:
        name = "Optimizer.zero_grad#SGD.zero_grad"
        evidence = evidence_of(loop(lambda b, i, s, e: b.annotation(name, s, e)))
        assert r50_zero_fills(evidence) is None

    def test_behind_a_busy_gpu(self) -> None:
        assert r50_zero_fills(evidence_of(loop(zero_fills, hidden=True))) is None


class TestFusion:
    def test_chains_of_elementwise_kernels(self) -> None:
        chain = ["elementwise_kernel<mul>", "layer_norm_kernel", "elementwise_kernel<add>"]
        b = loop(kernels(*chain * 4), first="elementwise_kernel<gelu>")
        evidence = evidence_of(b)
        # One chain a step of 400 us and 12 times 40 us; the longest kernel stays.
        finding = check(evidence, r51_elementwise_dominated(evidence), "R51", STEPS * 480_000)
        assert finding.accounts == {
            "compute.elementwise": STEPS * (400_000 + 8 * 40_000),
            "compute.normalization": STEPS * 4 * 40_000,
        }

    def test_single_kernels_between_matmuls_cannot_be_fused(self) -> None:
        pairs = ["gemm", "elementwise_kernel<mul>"] * 6
        evidence = evidence_of(loop(kernels(*pairs), first="elementwise_kernel<gelu>"))
        assert evidence.ledger.ns("compute.elementwise") > 0.4 * evidence.ledger.busy_ns
        assert r51_elementwise_dominated(evidence) is None

    def test_where_matmuls_dominate(self) -> None:
        fault = kernels(*["elementwise_kernel<mul>"] * 5)
        assert r51_elementwise_dominated(evidence_of(loop(fault))) is None


def test_real_traces(traces: Path) -> None:
    found = {}
    for name in (
        "tracelens/h100_owlv2_infer",
        "hta/v100_dlrm_ns_rank0",
        "tracelens/mi210_gpu_only",
    ):
        timeline = open_trace(traces / f"{name}.json.gz")
        nesting = nest(timeline.host, len(timeline.threads))
        (ledger,) = build_ledgers(timeline, nesting)
        found[name] = {f.rule for f in find(timeline, nesting, ledger) if f.cause == "model"}
    owlv2, dlrm, mi210 = found.values()
    assert owlv2 == {"R46"}
    assert not dlrm
    assert mi210 == {"R40"}
