"""Cause "parallelism": the device has too little work queued, or too little in each piece."""

from whyidle.causes.parallelism.grid import r11_small_grid
from whyidle.causes.parallelism.launch import r01_host_bound
from whyidle.causes.parallelism.metrics import r14_metrics_each_step
from whyidle.causes.parallelism.optimizer import r06_unfused_optimizer
from whyidle.causes.parallelism.queued import x01_queued_work_waits
from whyidle.causes.parallelism.sync import (
    r02_scalar_read,
    r03_data_dependent_shape,
    r04_explicit_synchronize,
)

# Special rules first: R01 takes what no other has claimed.
RULES = (
    r14_metrics_each_step,
    r03_data_dependent_shape,
    r02_scalar_read,
    r04_explicit_synchronize,
    r06_unfused_optimizer,
    r11_small_grid,
    r01_host_bound,
    x01_queued_work_waits,
)
