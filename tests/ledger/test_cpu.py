from __future__ import annotations

from builders import MAIN, TraceBuilder
from whyidle.ledger.cpu import HostAccount, host_account, sentence
from whyidle.timeline.columns import HostKind
from whyidle.timeline.nesting import nest

MS = 1_000_000


def _account(builder: TraceBuilder) -> HostAccount | None:
    timeline = builder.build()
    return host_account(timeline, nest(timeline.host, len(timeline.threads)))


def _steps(count: int, loader_ms: int = 6) -> TraceBuilder:
    """Steps of 10 ms: the loader, 1 ms of Python, operators up to 9 ms, the optimizer."""
    b = TraceBuilder()
    for i in range(count):
        at = i * 10 * MS
        work = at + (loader_ms + 1) * MS
        b.step(i, at, at + 10 * MS)
        b.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at,
                     at + loader_ms * MS)  # fmt: skip
        b.op("aten::stack", at + MS, at + 2 * MS)
        b.op("aten::conv2d", work, at + 9 * MS)
        b.annotation("Optimizer.step#AdamW.step", at + 9 * MS, at + 10 * MS)
        b.op("aten::add_", at + 9 * MS, at + 10 * MS)
    return b


def test_every_nanosecond_of_the_steps_is_accounted_for() -> None:
    account = _account(_steps(3))
    assert account is not None
    assert account.window == (0, 30 * MS)
    assert account.steps == 3
    assert account.ns == {
        "input": 18 * MS,
        "dispatch": 6 * MS,
        "python": 3 * MS,
        "optimizer": 3 * MS,
    }
    assert list(account.ns) == ["input", "dispatch", "python", "optimizer"]
    assert account.share("input") == 0.6
    assert account.share("checkpoint") == 0


def test_operators_of_the_thread_that_main_waits_for_are_operators() -> None:
    b = TraceBuilder()
    engine = b.thread("autograd")
    b.step(0, 0, 10 * MS)
    b.op("aten::conv2d", 0, 4 * MS)
    b.op("ConvolutionBackward0", 3 * MS, 8 * MS, thread=engine)
    account = _account(b)
    assert account is not None
    assert account.ns == {"dispatch": 8 * MS, "python": 2 * MS}


def test_a_loader_beside_another_threads_operators_stays_the_loader() -> None:
    b = _steps(1)
    engine = b.thread("other")
    b.op("aten::stack", 0, 10 * MS, thread=engine)
    account = _account(b)
    assert account is not None
    assert account.ns["input"] == 6 * MS
    assert sum(account.ns.values()) == account.window_ns


def test_without_steps_it_is_the_span_of_the_main_thread() -> None:
    b = TraceBuilder()
    b.op("aten::mm", 2 * MS, 5 * MS)
    b.op("aten::mm", 7 * MS, 9 * MS)
    account = _account(b)
    assert account is not None
    assert account.steps == 0
    assert account.window == (2 * MS, 9 * MS)
    assert account.ns == {"dispatch": 5 * MS, "python": 2 * MS}
    assert "over its recorded span" in sentence(account)


def test_a_step_that_outlasts_the_record_is_said_to_have_none() -> None:
    b = TraceBuilder()
    worker = b.thread("worker")
    b.host("ProfilerStep#1", 0, 10 * MS, HostKind.ANNOTATION, thread=worker)
    b.op("aten::mm", 0, 4 * MS, thread=MAIN)
    account = _account(b)
    assert account is not None
    assert account.ns == {"unattributed": 6 * MS, "dispatch": 4 * MS}


def test_no_host_row_no_account() -> None:
    assert _account(TraceBuilder()) is None


def test_the_sentence_says_that_it_is_not_gpu_time() -> None:
    account = _account(_steps(2))
    assert account is not None
    assert sentence(account) == (
        "host time, not GPU time: over 2 steps the main thread was 60 % getting the next batch, "
        "20 % in operators, 10 % in Python between operators, 10 % in the optimizer"
    )


def test_the_sentence_leaves_out_what_is_below_a_hundredth() -> None:
    account = HostAccount((0, 1000), 1, "", {"dispatch": 995, "gc": 5})
    assert sentence(account).endswith("over 1 step the main thread was 100 % in operators")
