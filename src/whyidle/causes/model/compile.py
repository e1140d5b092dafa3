"""The host compiles while the device waits: R43 (torch.compile), R44 (kernels)."""

from __future__ import annotations

import numpy as np

from whyidle.causes import places, wording
from whyidle.causes.claim import MIN_SHARE, finding, worth
from whyidle.causes.evidence import Evidence, Finding, Remedy
from whyidle.causes.segments import held_by, step_of, steps_known
from whyidle.timeline.columns import Bool
from whyidle.timeline.select import events_named, outermost, under

# torch.compile gives up on a function after this many recompilations (rules.tsv R43,
# torch._dynamo.config.recompile_limit).
RECOMPILE_LIMIT = 8
# Kernels built in this many steps after the first are no warm-up. Ours (rules.tsv R44: any).
BUILT_STEPS = 2

_DYNAMO = (
    r"\(dynamo_timed\)|_compile\.compile|call_user_compiler|compile_fx|inductor_compile|"
    r"torch/_dynamo/(convert_frame|symbolic_convert|output_graph)\.py|"
    r"torch/_inductor/(compile_fx|graph|scheduler)\.py"
)


def r43_recompiles(evidence: Evidence) -> Finding | None:
    """``torch.compile`` compiles again in steps after the first.

    Claims ``idle.compile`` inside dynamo or inductor after the first recorded step, from
    ``MIN_SHARE`` of the window (ours). Without steps, the first compilation is not told apart.
    """
    if not steps_known(evidence):
        return None
    marks = events_named(evidence.timeline, _DYNAMO)
    later = step_of(evidence, evidence.ledger.segments.start) > 0
    claims = evidence.accounts("idle.compile") & held_by(evidence, under(evidence.nesting, marks))
    claims &= later
    if not worth(evidence, evidence.ns(claims), MIN_SHARE):
        return None
    host, ledger, seg = evidence.timeline.host, evidence.ledger, evidence.ledger.segments
    outer = outermost(evidence.nesting, marks)
    calls = np.unique(outer[outer >= 0])
    step = step_of(evidence, host.start[calls])
    again = int((step > 0).sum())
    limit = f" (PyTorch gives up on a function after {RECOMPILE_LIMIT})" if again > 1 else ""
    said = [
        f"The GPU idles {wording.per_step(evidence.ns(claims), ledger)} while torch.compile works, "
        f"in {len(np.unique(step[step > 0]))} of the {len(ledger.steps) - 1} later steps.",
        f"{again} compilations after the first step{limit}.",
    ]
    rows = np.flatnonzero(claims)
    if found := places.code_lines(evidence, seg.host[rows], seg.ns[rows])[:3]:
        said.append(f"Compiled at {places.told(evidence, found)}.")
    return finding(
        evidence,
        "R43",
        "model",
        "torch.compile compiles again during training",
        claims,
        said,
        (
            Remedy(
                "mark-dynamic",
                "approximate",
                "TORCH_LOGS=recompiles names the guard that fails; mark the varying size "
                "(torch._dynamo.mark_dynamic, dynamic=True) or pass integers as tensors.",
            ),
            Remedy(
                "bucket-shapes",
                "exact",
                "Pad or bucket inputs to a few shapes, and compile them before training.",
            ),
        ),
        "A trace of later steps without compilation: then this was warm-up.",
    )


def r44_kernel_built_in_steps(evidence: Evidence) -> Finding | None:
    """Kernels are compiled or loaded (triton, nvrtc, modules) in one step after another.

    Claims what is left of ``idle.compile`` after the first step, where it comes in ``BUILT_STEPS``
    of the later steps or more, from ``MIN_SHARE`` of the window (ours).
    """
    if not steps_known(evidence):
        return None
    seg, ledger = evidence.ledger.segments, evidence.ledger
    claims = evidence.accounts("idle.compile") & (step_of(evidence, seg.start) > 0)
    steps = np.unique(step_of(evidence, seg.start[claims]))
    if len(steps) < BUILT_STEPS or not worth(evidence, evidence.ns(claims), MIN_SHARE):
        return None
    rows = np.flatnonzero(claims)
    said = [
        f"The GPU idles {wording.per_step(evidence.ns(claims), ledger)} while kernels are compiled "
        f"or loaded, in {len(steps)} of the {len(ledger.steps) - 1} steps after the first.",
        f"The host is in {_calls(evidence, claims)}.",
    ]
    if found := places.best(evidence, seg.host[rows], seg.ns[rows]):
        said.append(f"Most at {places.told(evidence, found)}.")
    return finding(
        evidence,
        "R44",
        "model",
        "Kernels are compiled or loaded in every step",
        claims,
        said,
        (
            Remedy(
                "stable-compile-keys",
                "exact",
                "Keep what a kernel is compiled for the same from step to step: pass Python ints "
                "(not tensors) as constants, bucket sizes, pin the library's version.",
            ),
            Remedy(
                "load-kernels-first",
                "config",
                "Run every shape once before training; CUDA_MODULE_LOADING=EAGER loads all "
                "modules at start.",
            ),
        ),
        "A trace of later steps without it: then this was warm-up.",
    )


def _calls(evidence: Evidence, claims: Bool) -> str:
    """The innermost host events of the claimed segments by name, most time first."""
    seg, timeline = evidence.ledger.segments, evidence.timeline
    rows = np.flatnonzero(claims & (seg.host >= 0))
    unique, group = np.unique(timeline.host.name[seg.host[rows]], return_inverse=True)
    total = np.zeros(len(unique), np.int64)
    np.add.at(total, group, seg.ns[rows])
    order = np.argsort(-total, kind="stable")[:3]
    return wording.listed(
        [
            f"{wording.short(timeline.names[unique[i]], 60)} "
            f"({wording.per_step(int(total[i]), evidence.ledger)})"
            for i in order
        ]
    )
