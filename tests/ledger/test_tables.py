"""The tables of names: what label a host event's name gets, what kind a kernel's name has.

Names are those of real traces, or of the functions that PyTorch and Triton have.
"""

from __future__ import annotations

import pytest

from whyidle.ledger.host import own_label
from whyidle.ledger.kinds import kernel_kind
from whyidle.timeline.columns import HostKind

A, P, O, R = HostKind.ANNOTATION, HostKind.PYTHON, HostKind.OPERATOR, HostKind.RUNTIME  # noqa: E741


@pytest.mark.parametrize(
    ("kind", "name", "account"),
    [
        (A, "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "idle.input"),
        (A, "## data_load ##", "idle.input"),
        (A, "train_dataloader_next", "idle.input"),
        (A, "metadata_load", "idle.python"),
        (A, "target_batch_norm", "idle.python"),
        (A, "[pl][profile][_EvaluationLoop].val_next", "idle.evaluation"),
        (A, "val_dataloader_next", "idle.evaluation"),
        (A, "validation/data_loading", "idle.evaluation"),
        (A, "## Call CompiledFxGraph fal4xp ##", "idle.python"),
        (O, "Torch-Compiled Region: 0/0", "idle.dispatch"),
        (O, "autograd::engine::evaluate_function: MmBackward0", "idle.dispatch"),
        (R, "cudaHostAlloc", "idle.allocator"),
        (R, "cudaHostGetDevicePointer", "idle.dispatch"),
        (P, "train.py(12): validate", "idle.evaluation"),
        (P, "transformers/trainer.py(4100): evaluate", "idle.evaluation"),
        (P, "transformers/generation/configuration_utils.py(500): validate", "idle.python"),
        (P, "pydantic/main.py(190): validate", "idle.python"),
        (P, "tqdm/std.py(1160): __iter__", "idle.python"),
        (P, "tqdm/std.py(1325): refresh", "idle.logging"),
        (P, "torch/_inductor/codecache.py(906): __call__", "idle.python"),
        (P, "torch/_inductor/compile_fx.py(944): run", "idle.python"),
        (P, "torch/_inductor/compile_fx.py(475): compile_fx_inner", "idle.compile"),
        (P, "torch/_inductor/runtime/triton_heuristics.py(909): run", "idle.python"),
        (
            P,
            "torch/_inductor/runtime/triton_heuristics.py(763): autotune_to_one_config",
            "idle.compile",
        ),
        (P, "triton/runtime/autotuner.py(190): run", "idle.python"),
        (P, "triton/runtime/autotuner.py(120): _bench", "idle.compile"),
        (P, "triton/compiler/compiler.py(220): compile", "idle.compile"),
        (P, "triton/compiler/compiler.py(400): launch_metadata", "idle.python"),
    ],
)
def test_host_names(kind: HostKind, name: str, account: str) -> None:
    assert own_label(name, kind)[0] == account


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("volta_sgemm_64x64_nt", "matmul"),
        ("void fbgemm_gpu::permute_2D_data_kernel<false, int>(int, int)", "embedding"),
        (
            "void split_embedding_codegen_forward_weighted_kernel<float>(fbgemm_gpu::Divisor)",
            "embedding",
        ),
        (
            "void bounds_check_indices_kernel<long>(long const*, fbgemm_gpu::FixedDivisor)",
            "embedding",
        ),
        ("void fbgemm_gpu::_compute_FP8_quantize_cuda_kernel<float>(float const*)", "elementwise"),
        (
            "void at::native::vectorized_elementwise_kernel<4, fbgemm_gpu::_float_to_hfp8_gpu>",
            "elementwise",
        ),
        (
            "void fft2d_r2c_32x32<float, false>(float2*, cudnn::reduced_divisor, bool)",
            "convolution",
        ),
        (
            "_ZN19cutlass_cudnn_train6KernelINS_4conv6kernel23ImplicitGemmConvolution9NoPermute",
            "convolution",
        ),
        ("kernel_batched_gemm_xdlops_bwd_weightINS_47GridwiseGemm", "convolution"),
        ("void convert_fp16_to_fp32_kernel<4>(float*, vectorized)", "elementwise"),
        ("void at::native::reduce_kernel<512, 1, WelfordOps<float>>", "reduction"),
        ("void at::native::batch_norm_collect_statistics_kernel<float>", "normalization"),
        ("void cudnn::ops::scalePackedTensor_kernel<float, float>(long, float*)", "elementwise"),
        ("void cudnn::ops::nchwToNhwcKernel<float>(float const*, float*)", "layout"),
        ("batched_transpose_16x32_half", "layout"),
        ("void pytorch_flash::flash_fwd_kernel<cutlass::bfloat16_t>", "attention"),
    ],
)
def test_kernel_names(name: str, kind: str) -> None:
    assert kernel_kind(name) == kind
