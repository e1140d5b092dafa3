"""What every rule of these rooms promises, on random traces: no crash, honest claims."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from builders import TraceBuilder, evidence_of
from whyidle.causes import interruption, parallelism, visibility
from whyidle.timeline.columns import DeviceKind, HostKind

_HOST = (
    ("aten::item", HostKind.OPERATOR),
    ("aten::nonzero", HostKind.OPERATOR),
    ("aten::copy_", HostKind.OPERATOR),
    ("aten::add", HostKind.OPERATOR),
    ("cudaStreamSynchronize", HostKind.RUNTIME),
    ("cudaDeviceSynchronize", HostKind.RUNTIME),
    ("train.py(3): loop", HostKind.PYTHON),
    ("torchmetrics/metric.py(1): update", HostKind.PYTHON),
    ("Optimizer.step#SGD.step", HostKind.ANNOTATION),
    ("validation", HostKind.ANNOTATION),
    ("save_checkpoint", HostKind.ANNOTATION),
    ("ProfilerStep#1", HostKind.ANNOTATION),
    ("Buffer Flush", HostKind.OVERHEAD),
    ("Python GC", HostKind.GC),
)
_WORK = (
    ("gemm", DeviceKind.KERNEL),
    ("ncclKernel_AllReduce", DeviceKind.KERNEL),
    ("multi_tensor_apply_kernel", DeviceKind.KERNEL),
    ("Memcpy DtoH (Device -> Pageable)", DeviceKind.MEMCPY),
    ("Memcpy HtoD (Pinned -> Device)", DeviceKind.MEMCPY),
    ("Memset (Device)", DeviceKind.MEMSET),
)
_time = st.integers(0, 2_000)
_length = st.integers(0, 400)
_host = st.tuples(st.sampled_from(_HOST), _time, _length, st.integers(0, 1))
_work = st.tuples(
    st.sampled_from(_WORK), _time, st.integers(0, 60), st.integers(0, 300), _length,
    st.booleans(), st.integers(-1, 150),
)  # fmt: skip
RULES = (*visibility.RULES, *interruption.RULES, *parallelism.RULES)


@given(st.lists(_host, max_size=25), st.lists(_work, min_size=1, max_size=25))
@settings(max_examples=150, deadline=None)
def test_claims_are_free_and_losses_within_them(hosts, works) -> None:
    b = TraceBuilder()
    b.properties(sms=100)
    b.thread("other")
    for (name, kind), start, length, thread in hosts:
        b.host(name, start * 1000, (start + length) * 1000, kind, thread)
    for (name, kind), start, call, delay, length, launched, blocks in works:
        begin = start + call + delay
        if launched:
            b.launch(
                name, start * 1000, (start + call) * 1000, begin * 1000,
                (begin + length) * 1000, kind=kind, blocks=blocks,
            )  # fmt: skip
        else:
            b.orphan(name, begin * 1000, (begin + length) * 1000, kind=kind, blocks=blocks)
    evidence = evidence_of(b)
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
        assert finding.lost_ns >= 0.02 * window
        assert all(finding.evidence)
        evidence = replace(evidence, free=evidence.free & ~finding.claims)
        lost += finding.lost_ns
    assert lost <= window
