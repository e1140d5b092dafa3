"""Record a small real training run with one planted fault, for whyidle to find.

The fault: samples are decoded one by one in the training process (``num_workers=0``), so the
device has nothing to do while the next batch is made. Everything else is ordinary PyTorch, run on
the GPU if there is one and on the CPU if not.

    python examples/demo.py demo-out/demo.pt.trace.json.gz
    whyidle trace demo-out/demo.pt.trace.json.gz
"""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, Dataset

BATCH, SIDE, CLASSES = 32, 32, 10
FILE_SIDE = 256  # images are stored larger than the network takes them, as they usually are
WAIT, WARMUP, ACTIVE = 2, 2, 8  # steps: let caches settle, let the profiler settle, record


class StoredImages(Dataset[tuple[Tensor, int]]):
    """Images kept as compressed files are: each is unpacked and shrunk whenever it is read."""

    def __init__(self, count: int) -> None:
        pixels = torch.randint(16, (BATCH, 3 * FILE_SIDE**2), dtype=torch.uint8) * 16
        self.files = [zlib.compress(image.numpy().tobytes(), 1) for image in pixels]
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        raw = bytearray(zlib.decompress(self.files[index % len(self.files)]))
        image = torch.frombuffer(raw, dtype=torch.uint8).view(1, 3, FILE_SIDE, FILE_SIDE)
        small = nn.functional.interpolate(image.float() / 255, size=SIDE, mode="area")
        return small[0], index % CLASSES


def small_network() -> nn.Module:
    """A few convolutions: enough work for a step to be a step, on a CPU too."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(32, CLASSES),
    )  # fmt: skip


def record(trace: Path) -> str:
    """Train for a few steps and write their trace; returns the device's name."""
    torch.manual_seed(0)
    cuda = torch.cuda.is_available()
    device = torch.device("cuda" if cuda else "cpu")
    model = small_network().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loss_of = nn.CrossEntropyLoss()
    steps = WAIT + WARMUP + ACTIVE
    loader = DataLoader(StoredImages(steps * BATCH), batch_size=BATCH, num_workers=0)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    trace.parent.mkdir(parents=True, exist_ok=True)
    with profile(
        activities=activities,
        schedule=schedule(wait=WAIT, warmup=WARMUP, active=ACTIVE, repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(trace)),
    ) as profiler:
        for images, labels in loader:
            loss = loss_of(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            profiler.step()
    return torch.cuda.get_device_name() if cuda else "CPU"


if __name__ == "__main__":
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "demo-out/demo.pt.trace.json.gz")
    print(f"Recording {ACTIVE} training steps, with a planted fault: a slow loader ...")
    print(f"Recorded on {record(out)}: {out} ({out.stat().st_size / 1000:.0f} kB)")
