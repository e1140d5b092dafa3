"""What the rules of input, memory, communication and model promise, on random traces."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from builders import TraceBuilder, evidence_of
from whyidle.causes import communication, input, memory, model
from whyidle.timeline.columns import DeviceKind, HostKind

_HOST = (
    ("ProfilerStep#1", HostKind.ANNOTATION),
    ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", HostKind.ANNOTATION),
    ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", HostKind.ANNOTATION),
    ("torch/utils/data/dataloader.py(3): _get_iterator", HostKind.PYTHON),
    ("aten::copy_", HostKind.OPERATOR),
    ("aten::conv2d", HostKind.OPERATOR),
    ("aten::bmm", HostKind.OPERATOR),
    ("aten::isnan", HostKind.OPERATOR),
    ("autograd::engine::evaluate_function: MulBackward0", HostKind.OPERATOR),
    ("CheckpointFunctionBackward", HostKind.OPERATOR),
    ("Broadcast", HostKind.OPERATOR),
    ("c10d::allreduce_", HostKind.OPERATOR),
    ("nccl:all_reduce", HostKind.ANNOTATION),
    ("DistributedDataParallel.forward", HostKind.ANNOTATION),
    ("Optimizer.step#SGD.step", HostKind.ANNOTATION),
    ("Optimizer.zero_grad#SGD.zero_grad", HostKind.ANNOTATION),
    ("compile_fx (dynamo_timed)", HostKind.ANNOTATION),
    ("torch/cuda/memory.py(1): empty_cache", HostKind.PYTHON),
    ("cudaStreamSynchronize", HostKind.RUNTIME),
    ("cudaEventSynchronize", HostKind.RUNTIME),
    ("cudaMalloc", HostKind.RUNTIME),
    ("cudaFree", HostKind.RUNTIME),
    ("cuModuleLoadData", HostKind.RUNTIME),
)
_WORK = (
    ("ampere_sgemm_128x64", DeviceKind.KERNEL),
    ("conv_fprop", DeviceKind.KERNEL),
    ("softmax_warp_forward", DeviceKind.KERNEL),
    ("elementwise_kernel<double>", DeviceKind.KERNEL),
    ("nchwToNhwcKernel", DeviceKind.KERNEL),
    ("ncclDevKernel_AllReduce", DeviceKind.KERNEL),
    ("Memcpy HtoD (Pageable -> Device)", DeviceKind.MEMCPY),
    ("Memcpy HtoD (Pinned -> Device)", DeviceKind.MEMCPY),
    ("Memset (Device)", DeviceKind.MEMSET),
)
_time = st.integers(0, 2_000)
_length = st.integers(0, 400)
_host = st.tuples(st.sampled_from(_HOST), _time, _length, st.integers(0, 1))
_work = st.tuples(
    st.sampled_from(_WORK), _time, st.integers(0, 60), st.integers(0, 300), _length,
    st.booleans(), st.integers(7, 8), st.integers(-1, 100_000),
)  # fmt: skip
RULES = (*input.RULES, *memory.RULES, *communication.RULES, *model.RULES)
LEAST = 0.01  # of the window: R52's threshold, the lowest of all


@given(st.lists(_host, max_size=30), st.lists(_work, min_size=1, max_size=30))
@settings(max_examples=150, deadline=None)
def test_claims_are_free_and_losses_within_them(hosts, works) -> None:
    b = TraceBuilder()
    b.properties(memory_bytes=1_000)
    b.thread("other")
    for (name, kind), start, length, thread in hosts:
        b.host(name, start * 1000, (start + length) * 1000, kind, thread)
    for (name, kind), start, call, delay, length, launched, stream, size in works:
        begin = start + call + delay
        if launched:
            b.launch(
                name, start * 1000, (start + call) * 1000, begin * 1000,
                (begin + length) * 1000, stream, kind=kind, bytes=size,
            )  # fmt: skip
        else:
            b.orphan(name, begin * 1000, (begin + length) * 1000, stream, kind=kind, bytes=size)
    evidence = evidence_of(b)
    timeline = replace(evidence.timeline, peak_reserved_bytes={0: 100})
    evidence = replace(evidence, timeline=timeline)
    window = evidence.ledger.window_ns
    lost = 0
    for rule in RULES:
        finding = rule(evidence)
        if finding is None:
            continue
        claimed = int(evidence.ledger.segments.ns[finding.claims].sum())
        assert not (finding.claims & ~evidence.free).any()
        assert 0 < finding.lost_ns <= claimed == sum(finding.accounts.values())
        assert 0 < finding.gain_upper_bound <= 1
        assert finding.lost_ns >= LEAST * window
        assert all(finding.evidence)
        evidence = replace(evidence, free=evidence.free & ~finding.claims)
        lost += finding.lost_ns
    assert lost <= window
