"""Who held the host: the account of each host event, from its own name and its ancestors'.

An event's own label has a strength; the strongest on the way from it to its outermost ancestor
decides, the innermost of equals. So everything inside a DataLoader's ``next`` is input, a
synchronize inside an optimizer step is a synchronize, an operator inside it is the optimizer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from whyidle.ledger.accounts import INDEX
from whyidle.timeline.columns import U8, Bool, DeviceKind, HostKind, Timeline
from whyidle.timeline.intervals import coded
from whyidle.timeline.nesting import Nesting

# Strengths. Phases that a user would name as such hold all that happens in them.
_GC, _CHECKPOINT, _PROFILER, _EVALUATION, _INPUT, _LOGGING, _STARTUP = 92, 90, 88, 85, 70, 65, 60
_COMPILE, _ALLOCATOR, _BARRIER, _COPY, _SYNC, _TRANSFER, _WAIT = 55, 50, 45, 41, 40, 38, 36
_OPTIMIZER, _WORK = 30, 10

_Label = tuple[str, int]
_Patterns = tuple[tuple[re.Pattern[str], _Label], ...]


def _patterns(*rows: tuple[str, str, int]) -> _Patterns:
    return tuple((re.compile(p, re.IGNORECASE), (account, s)) for p, account, s in rows)


_ANNOTATIONS = _patterns(
    # Before the loader: validation's loader is not training input.
    (
        r"\bvalidat|\beval(uate|uation)?\b|eval_(step|loop|epoch)|val(idation)?_(step|loop|epoch|"
        r"next|dataloader)|run_evaluation|evaluation_loop",
        "idle.evaluation",
        _EVALUATION,
    ),
    (r"enumerate\(DataLoader\)", "idle.input", _INPUT),
    (
        r"data_?loader|load_batch|(?<![a-z])(data_?load|next_batch|get_batch)|fetch_batch|"
        r"\bdata_?fetch",
        "idle.input",
        _INPUT,
    ),
    (
        r"(save|write|store|dump)\w*[_ ]?(checkpoint|ckpt|state_dict)|"
        r"(checkpoint|ckpt)\w*[_ :]?(save|saving|write)|torch\.save|^\W*checkpoint(ing)?\W*$|"
        r"on_save_checkpoint|ModelCheckpoint",
        "idle.checkpoint",
        _CHECKPOINT,
    ),
    (
        r"wandb|tensorboard|summary_?writer|mlflow|log_metrics|\blogging\b|metrics:publish|"
        r"^\W*log(ger)?\W*$|log_(scalars?|step|images?|histograms?)",
        "idle.logging",
        _LOGGING,
    ),
    (r"gc\.collect|garbage.?collect", "idle.gc", _GC),
    (
        r"\(dynamo_timed\)|_compile\.compile|call_user_compiler|compile_fx|triton.*compile|"
        r"autotune|compile_and_call|inductor_compile",
        "idle.compile",
        _COMPILE,
    ),
    (r"barrier|monitored_barrier|TCPStore|store\.(get|wait)", "idle.comm", _BARRIER),
    (r"\bwait\(\)|^gloo:|^mpi:", "idle.comm", _WAIT),
    (r"Optimizer\.\w+#|^\W*optimi[sz]er(_?step)?\W*$|zero_grad", "idle.optimizer", _OPTIMIZER),
    (r"^\W*(warm_?up|start_?up|setup|init(ialization)?)\W*$", "idle.startup", _STARTUP),
)

_OPERATORS = _patterns(
    (r"^aten::(item|_local_scalar_dense|is_nonzero)$", "idle.sync", _SYNC),
    (r"c10d::(barrier|monitored_barrier)", "idle.comm", _BARRIER),
    (r"\(dynamo_timed\)", "idle.compile", _COMPILE),
)

_RUNTIME = _patterns(
    (
        r"(Device|Stream|Event|Ctx|Queue)_?Synchronize|zeEventHostSynchronize|waitStream|"
        r"synchronizeStream",
        "idle.sync",
        _SYNC,
    ),
    (
        r"^(cuda|hip|cu)(Malloc|Free|Host(?!Get)|ExtHost|Mem(Alloc|Free|HostAlloc|Create|Map|Unmap|"
        r"Release|AddressReserve|AddressFree|SetAccess))|^zeMem(Alloc|Free)",
        "idle.allocator",
        _ALLOCATOR,
    ),
    (
        r"Module(Load|Unload)|LibraryLoad|^cuLink|nvrtc|hiprtc|ModuleGetFunction|zeModuleCreate",
        "idle.compile",
        _COMPILE,
    ),
)

_PYTHON = _patterns(
    (
        r"torch/utils/data/(dataloader|_utils/\w+)\.py.*: (__next__|_next_data|fetch|collate\w*|"
        r"default_collate|_try_get_data|_get_data|_process_data|pin_memory|__iter__|_reset|"
        r"__init__|_shutdown_workers)",
        "idle.input",
        _INPUT,
    ),
    (r"torch/serialization\.py\(\d+\): save", "idle.checkpoint", _CHECKPOINT),
    (
        r"torch/distributed/checkpoint/.*: (save|async_save|_save)|"
        r": (_?save_checkpoint|save_pretrained|save_model)$",
        "idle.checkpoint",
        _CHECKPOINT,
    ),
    (
        # Not the functions of these names that check a value or compute an expression.
        r"^(?!.*(pydantic|jsonschema|marshmallow|omegaconf|sympy|configuration_utils|sqlalchemy)).*"
        r": (evaluate|evaluation_loop|prediction_loop|validate|run_validation|validation_step|"
        r"validation_epoch)$",
        "idle.evaluation",
        _EVALUATION,
    ),
    (
        # In tqdm's __iter__ the loop's own iterator works.
        r"torch/utils/tensorboard/|(^|/)(wandb|mlflow|tensorboardX|tqdm(?!.*: __(iter|next)__)|"
        r"comet_ml)/|"
        r"(^|/)logging/__init__\.py",
        "idle.logging",
        _LOGGING,
    ),
    (r"<built-in function collect>|gc\.collect", "idle.gc", _GC),
    (
        # A compiled graph's calls go through compile_fx and codecache too (run, __call__), a tuned
        # kernel's through the autotuner.
        r"torch/_dynamo/(convert_frame|symbolic_convert|output_graph)\.py|"
        r"torch/_inductor/(compile_fx|codecache|async_compile|graph|scheduler)\.py"
        r"(?!.*: (run|__call__|get_current_callable|_run_from_cache|wrapper)$)|"
        r"triton_heuristics\.py.*: (autotune_to_one_config|benchmark_all_configs|bench|precompile|"
        r"coordinate_descent_tuning)$|"
        r"triton/compiler/(?!.*: (__getattribute__|__getitem__|runner|launch_metadata|run)$)|"
        r"triton/runtime/(build|autotuner\.py.*: (_bench|benchmark|check_disk_cache))|"
        r"torch/utils/cpp_extension\.py",
        "idle.compile",
        _COMPILE,
    ),
    (
        r"torch/(profiler|autograd)/profiler\.py.*: (step|_?start(_trace)?|_?stop(_trace)?|"
        r"_transit_action|_?prepare_trace)$",
        "idle.profiler",
        _PROFILER,
    ),
    (r"_cuda_emptyCache|torch/cuda/memory\.py.*: empty_cache", "idle.allocator", _ALLOCATOR),
    (r"torch/cuda/\w+\.py.*: synchronize", "idle.sync", _SYNC),
    (r"distributed_c10d\.py.*: (barrier|monitored_barrier)", "idle.comm", _BARRIER),
    (r"torch/optim/\w+\.py.*: (step|zero_grad)$", "idle.optimizer", _OPTIMIZER),
)

_OVERHEAD = _patterns(
    (r"lazy|compiler|module", "idle.compile", _COMPILE),
    (r"command buffer", "idle.dispatch", _WORK),
    (r"", "idle.profiler", _PROFILER),
)

_KIND_PATTERNS: dict[int, _Patterns] = {
    HostKind.ANNOTATION: _ANNOTATIONS,
    HostKind.PYTHON: _PYTHON,
    HostKind.RUNTIME: _RUNTIME,
    HostKind.OVERHEAD: _OVERHEAD,
}
_DEFAULTS: dict[int, _Label] = {
    HostKind.ANNOTATION: ("idle.python", 0),
    HostKind.PYTHON: ("idle.python", _WORK),
    HostKind.OPERATOR: ("idle.dispatch", _WORK),
    HostKind.RUNTIME: ("idle.dispatch", _WORK),
    HostKind.OVERHEAD: ("idle.profiler", _PROFILER),
    HostKind.GC: ("idle.gc", _GC),
}
_PASSIVE = re.compile(r"run_backward|autograd/(__init__|graph)\.py|_tensor\.py\(\d+\): backward")
_BLOCKING_COPY = re.compile(r"Memcpy(?!.*Async)|MemcpyWithStream", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class HostLabels:
    """Per host event: ``account`` (index of the ledger account that its time would go to),
    ``waits`` (it is, or is inside, a call that blocks until the device is done), ``passive`` (the
    thread only waits for another one there, as in ``backward()``). All of shape (n,)."""

    account: U8
    waits: Bool
    passive: Bool


def own_label(name: str, kind: int) -> _Label:
    """The label that a host event's own name gives it: account and strength."""
    if kind == HostKind.OPERATOR:
        patterns = _OPERATORS
        # Old profilers wrote user annotations as operators; operators' names hold "::".
        if "::" not in name and not name.endswith(("Backward", "Backward0", "Backward1")):
            patterns = _OPERATORS + _ANNOTATIONS
    else:
        patterns = _KIND_PATTERNS.get(kind, ())
    for pattern, label in patterns:
        if pattern.search(name):
            return label
    return _DEFAULTS[kind]


def label_host(timeline: Timeline, nesting: Nesting) -> HostLabels:
    """Label every host event of the timeline."""
    host = timeline.host
    if not len(host):
        return HostLabels(np.empty(0, np.uint8), np.empty(0, np.bool_), np.empty(0, np.bool_))
    key = host.name.astype(np.int64) * 8 + host.kind
    unique, inverse = coded(key)
    labels = [own_label(timeline.names[int(k) // 8], int(k) % 8) for k in unique]
    account = np.array([INDEX[a] for a, _ in labels], np.uint8)[inverse]
    strength = np.array([s for _, s in labels], np.int16)[inverse]
    _label_copies(timeline, nesting, account, strength)
    passive_name = np.array([bool(_PASSIVE.search(n)) for n in timeline.names], np.bool_)
    own_wait = (strength == _SYNC) & (host.kind == HostKind.RUNTIME)
    own_wait |= (strength == _TRANSFER) | (strength == _COPY)
    waits = own_wait.copy()
    python = INDEX["idle.python"]
    for level in nesting.levels:
        parent = nesting.parent[level]
        weaker = strength[level] < strength[parent]
        account[level] = np.where(weaker, account[parent], account[level])
        strength[level] = np.where(weaker, strength[parent], strength[level])
        waits[level] |= waits[parent]
    passive = (account == python) & (
        (host.kind == HostKind.ANNOTATION)
        | ((host.kind == HostKind.PYTHON) & passive_name[host.name])
    )
    return HostLabels(account, waits, passive)


def _label_copies(timeline: Timeline, nesting: Nesting, account: U8, strength: object) -> None:
    """Label the runtime calls that block in a host-device copy, and the operators around them.

    A copy blocks where the host side is pageable or the call is not asynchronous. ``aten::copy_``
    then waits in a synchronize of its own: all of it is the copy's.
    """
    host, device = timeline.host, timeline.device
    copies = np.flatnonzero((device.kind == DeviceKind.MEMCPY) & (device.launch >= 0))
    if not len(copies):
        return
    crossing = _named(timeline, r"HtoD|DtoH|HostToDevice|DeviceToHost")[device.name[copies]]
    copies = copies[crossing]
    call = device.launch[copies]
    pageable = _named(timeline, r"pageable")[device.name[copies]]
    blocking = np.array([bool(_BLOCKING_COPY.search(n)) for n in timeline.names])[host.name[call]]
    blocked = call[pageable | blocking]
    strengths: np.ndarray[tuple[int], np.dtype[np.int16]] = strength  # type: ignore[assignment]
    account[blocked] = INDEX["idle.transfer"]
    strengths[blocked] = _TRANSFER
    copy_op = _named(timeline, r"^aten::(copy_|_copy_from|_to_copy|to)$")[host.name]
    sync = np.flatnonzero(
        (host.kind == HostKind.RUNTIME) & (account == INDEX["idle.sync"]) & (nesting.parent >= 0)
    )
    around = np.intersect1d(nesting.parent[sync], nesting.parent[call])
    around = np.union1d(around, nesting.parent[blocked])
    around = around[around >= 0]
    around = around[copy_op[around]]
    account[around] = INDEX["idle.transfer"]
    strengths[around] = _COPY


def _named(timeline: Timeline, pattern: str) -> Bool:
    match = re.compile(pattern, re.IGNORECASE).search
    return np.array([bool(match(n)) for n in timeline.names], np.bool_)
