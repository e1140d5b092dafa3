"""The command line: parses, calls, prints. What costs time to import is imported in the commands.

Exit codes: 0 done, 1 below --fail-under, 2 bad usage or unreadable input, 3 internal error,
130 interrupted.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn, TextIO

from whyidle import __version__
from whyidle.errors import WhyidleError

if TYPE_CHECKING:
    from whyidle.reports.model import Report
    from whyidle.reports.progress import ProgressBar

OK, BELOW, BAD, INTERNAL, INTERRUPTED = 0, 1, 2, 3, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; errors are told in one line on stderr."""
    if sys.stderr is None:  # closed by the caller: what would be told there goes nowhere
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    try:
        args = _parser().parse_args(argv)
        code: int = args.run(args)
        return code
    except WhyidleError as error:
        return _fail(BAD, f"error: {error}")
    except KeyboardInterrupt:
        return _fail(INTERRUPTED, "interrupted")
    except MemoryError:
        return _fail(BAD, "error: not enough memory; give fewer or smaller traces")
    except Exception as error:
        if os.environ.get("WHYIDLE_DEBUG"):
            raise
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return _fail(
            INTERNAL,
            f"internal error ({what[:200]}), please report; set WHYIDLE_DEBUG=1 for the traceback",
        )


def _fail(code: int, message: str) -> int:
    from whyidle.reports.words import plain

    try:
        print(f"whyidle: {plain(message)}", file=sys.stderr)
    except OSError:  # nowhere to tell it: the exit code does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    return code


class _Parser(argparse.ArgumentParser):
    """Tells bad usage in one line, as all errors."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD, f"whyidle: error: {message}; see {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="whyidle",
        description="Accounts for every nanosecond of GPU time in a recorded training run, names "
        "what it was lost to, and says what to do about it.",
        epilog="exit codes: 0 done, 1 below --fail-under, 2 bad usage or unreadable input",
    )
    parser.add_argument("--version", action="version", version=f"whyidle {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_trace(commands)
    _add_compare(commands)
    return parser


def _add_trace(commands: argparse._SubParsersAction[_Parser]) -> None:
    trace = commands.add_parser(
        "trace",
        help="diagnose recorded profiler traces",
        description="Diagnose PyTorch profiler (Kineto) traces: .json, .json.gz, directories and "
        "globs of many ranks.",
    )
    trace.add_argument("paths", nargs="+", metavar="PATH", help="trace file, directory or glob")
    trace.add_argument("--json", metavar="FILE", help="write the report as JSON; - for stdout")
    trace.add_argument("--html", metavar="FILE", help="write one self-contained HTML file")
    trace.add_argument(
        "--perfetto",
        metavar="FILE",
        help="write the trace with tracks of labelled idle gaps, for ui.perfetto.dev "
        "(gzipped if FILE ends in .gz; of several ranks the one that is idle most)",
    )
    trace.add_argument(
        "--fail-under",
        metavar="SHARE",
        type=_share,
        help="exit 1 if the GPUs are busy for less than SHARE of the time: 0.8 or 80%%",
    )
    _add_output_options(trace)
    trace.set_defaults(run=_trace)


def _add_compare(commands: argparse._SubParsersAction[_Parser]) -> None:
    compare = commands.add_parser(
        "compare",
        help="compare two runs: what moved where, and is it more than noise",
        description="Compare the per-step ledgers of two runs, each a trace file, a directory or "
        "glob of ranks, or a report saved with --json.",
    )
    compare.add_argument("a", metavar="A", help="the run to compare with")
    compare.add_argument("b", metavar="B", help="the run to judge")
    compare.add_argument("--json", metavar="FILE", help="write it as JSON; - for stdout")
    _add_output_options(compare)
    compare.set_defaults(run=_compare)


def _add_output_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quiet", action="store_true", help="print no report")
    parser.add_argument("--no-progress", action="store_true", help="show no progress bar")


def _share(text: str) -> float:
    """A share given as 0.8 or as 80%."""
    number = text.strip()
    try:
        value = float(number[:-1]) / 100 if number.endswith("%") else float(number)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share: 0 to 1, or 0% to 100%")
    return value


def _trace(args: argparse.Namespace) -> int:
    outputs = [args.json if args.json != "-" else None, args.html, args.perfetto]
    if "-" in outputs:
        raise WhyidleError("-: only --json can go to stdout; name an output file")
    if "" in outputs:
        raise WhyidleError("an output file's name is empty; check the variable that it came from")
    _check_outputs([path for path in outputs if path], args.paths)
    if args.html or args.perfetto:
        _check_readable_again(args.paths, bool(args.perfetto))
    from whyidle.diagnosis import diagnose

    with _progress(args) as progress:
        report = diagnose(args.paths, progress, picture=bool(args.html or args.perfetto))
    if not args.quiet and args.json != "-":
        from whyidle.reports.terminal import console_for, render

        _print(render(report, console_for(_stdout())))
    _write_files(args, report)
    return _judge(args.fail_under, report)


def _write_files(args: argparse.Namespace, report: Report) -> None:
    from whyidle.reports.files import write_whole
    from whyidle.reports.json import dumps, to_dict, write_json

    if args.json == "-":
        _print(dumps(to_dict(report)))
    elif args.json:
        write_whole(args.json, lambda path: write_json(report, path))
    if args.html:
        from whyidle.reports.html import write_html

        write_whole(args.html, lambda path: write_html(report, path))
    if args.perfetto:
        from whyidle.reports.perfetto import write_perfetto

        picture = report.picture
        if picture is None:
            raise WhyidleError(
                f"{args.perfetto}: not written, no GPU activity recorded in any of the traces; "
                "record with ProfilerActivity.CUDA"
            )
        source = picture.timeline.source
        with _progress(args) as bar:
            write_whole(
                args.perfetto,
                lambda path: write_perfetto(
                    picture, path, progress=lambda done, size: bar(source.path, done, size)
                ),
            )
        if len(report.sources) > 1 and not args.quiet:
            _fail(OK, f"note: {args.perfetto} shows {source.path}, the rank that is idle most")


def _judge(least: float | None, report: Report) -> int:
    """Exit code of --fail-under: the busy share of all devices' windows together."""
    if least is None:
        return OK
    window = sum(device.window[1] - device.window[0] for device in report.devices)
    if not window:
        return _fail(BELOW, "--fail-under: no GPU activity recorded, so no share to check")
    busy = sum(device.busy_ns for device in report.devices) / window
    if busy >= least:
        return OK
    told = f"--fail-under: the GPU is busy {100 * busy:.2f} % of the time, below {100 * least:g} %"
    if report.verdict.kind == "cannot_tell":
        told += " (that may be wrong: see the verdict)"
    return _fail(BELOW, told)


def _compare(args: argparse.Namespace) -> int:
    to_stdout = args.json == "-"
    if args.json and not to_stdout:
        _check_outputs([args.json], [args.a, args.b])
    from whyidle.compare import compare, load, to_tree
    from whyidle.reports.json import dumps

    with _progress(args) as progress:
        a, b = load(args.a, progress), load(args.b, progress)
    comparison = compare(a, b, args.a, args.b)
    if to_stdout:
        _print(dumps(to_tree(comparison)))
        return OK
    if not args.quiet:
        from whyidle.reports.comparison import render
        from whyidle.reports.terminal import console_for

        _print(render(comparison, console_for(_stdout())))
    if args.json:
        from whyidle.reports.files import write_text

        write_text(args.json, dumps(to_tree(comparison)))
    return OK


def _check_outputs(outputs: list[str], paths: list[str]) -> None:
    """Before the long work: that what it is to be written to can be written."""
    from whyidle.readers.paths import trace_files
    from whyidle.reports.files import check_outputs

    if outputs:
        check_outputs(outputs, trace_files(paths)[0])


def _check_readable_again(paths: list[str], always: bool) -> None:
    """That what is read twice is no pipe: the trace for Perfetto, a rank of several for HTML."""
    from whyidle.readers.paths import trace_files

    files, _ = trace_files(paths)
    for path in files if always or len(files) > 1 else ():
        if not path.is_file():
            raise WhyidleError(f"{path}: is a pipe, and this must read it twice; save it to a file")


def _progress(args: argparse.Namespace) -> ProgressBar:
    from whyidle.reports.progress import ProgressBar

    return ProgressBar(sys.stderr, enabled=not (args.quiet or args.no_progress))


def _stdout() -> TextIO:
    if sys.stdout is None:
        raise WhyidleError("stdout: is closed; redirect it, or use --quiet")
    return sys.stdout


def _print(text: str) -> None:
    """Write to stdout; a reader that went away (``| head``) is no error."""
    stdout = _stdout()
    try:
        stdout.write(text)
        stdout.flush()
    except OSError as error:
        # What is still buffered goes nowhere, or the interpreter would fail on it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise WhyidleError(
                f"stdout: cannot be written ({error.strerror or error}); redirect it elsewhere"
            ) from error


if __name__ == "__main__":
    sys.exit(main())
