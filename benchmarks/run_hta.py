"""What HolisticTraceAnalysis does for the same question: load, temporal and idle breakdown.

Run with the interpreter of an environment that has it:  python run_hta.py FOLDER
"""

import sys

from hta.trace_analysis import TraceAnalysis

# The last step is kept, as whyidle keeps it; plots are off, as whyidle's are.
analysis = TraceAnalysis(trace_dir=sys.argv[1], include_last_profiler_step=True)
temporal = analysis.get_temporal_breakdown(visualize=False)
idle, _ = analysis.get_idle_time_breakdown(ranks=analysis.t.get_ranks(), visualize=False)
print(temporal.to_string())
print(idle.to_string())
