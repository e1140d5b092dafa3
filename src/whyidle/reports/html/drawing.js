// The canvas of one step: rows of host events over idle blocks over device streams.
// All times are ns from the start of the step.

const HOST_KINDS = ["annotation", "python", "operator", "runtime", "overhead", "gc"];
const HOST_KIND_WORDS = [
  "annotation",
  "Python function",
  "operator",
  "runtime call",
  "profiler",
  "garbage collection",
];
const AXIS = 22,
  TITLE = 18,
  STREAM_ROW = 20,
  IDLE_ROW = 30,
  ROW = 17;

// Index of the first event that ends after t; the events of a row do not overlap.
function firstAfter(row, t) {
  let low = 0,
    high = row.index.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (row.events.start[row.index[middle]] + row.events.ns[row.index[middle]] > t) high = middle;
    else low = middle + 1;
  }
  return low;
}

function hostRows(lane) {
  const rows = [];
  lane.start.forEach((_, i) => (rows[lane.depth[i]] = rows[lane.depth[i]] || []).push(i));
  return Array.from(rows, (index) => ({ events: lane, index: index || [] }));
}

// Rows from top to bottom: {type, y, height, ...}, and the height of all.
function layout(step, names, expanded) {
  const items = [];
  let y = AXIS;
  const add = (type, height, more) => {
    items.push({ type, y, height, ...more });
    y += height;
  };
  const lanes = step.lanes.map((lane) => ({ lane, rows: hostRows(lane) }));
  const total = lanes.reduce((sum, { rows }) => sum + rows.length, 0);
  const rowHeight = expanded
    ? ROW
    : Math.max(5, Math.min(ROW, Math.floor(430 / Math.max(total, 1))));
  for (const { lane, rows } of lanes) {
    const inside = lane.outer.map((n) => names[n]).join(" > ");
    add("title", TITLE, {
      text: lane.title + (inside ? ", inside " + inside : ""),
      outer: lane.outer,
    });
    if (!rows.length)
      add("title", TITLE, { text: "nothing recorded here during this step", faint: true });
    rows.forEach((row) => add("host", rowHeight, row));
    y += 4;
  }
  if (step.gaps) {
    add("title", TITLE, { text: "GPU idle, by what it is lost to" });
    add("idle", IDLE_ROW, { events: step.gaps, index: step.gaps.start.map((_, i) => i) });
    y += 4;
    for (const stream of step.streams) {
      add("title", TITLE, { text: "GPU " + stream.title });
      add("stream", STREAM_ROW, { events: stream, index: stream.start.map((_, i) => i) });
      y += 4;
    }
  }
  return { items, height: y + 4, rowHeight };
}

function colourOf(item, i) {
  if (item.type === "host") return Palette.read("host-" + HOST_KINDS[item.events.kind[i]]);
  return Palette.account(DATA.accounts[item.events.account[i]].name);
}

function labelOf(item, i, names) {
  if (item.type === "idle") return DATA.accounts[item.events.account[i]].name.replace("idle.", "");
  return names[item.events.name[i]];
}

// A hatch that marks idle blocks without colour.
function hatch(context) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const pen = tile.getContext("2d");
  pen.strokeStyle = Palette.read("hatch");
  pen.lineWidth = 2;
  pen.beginPath();
  for (const shift of [-8, 0, 8]) {
    pen.moveTo(shift, 8);
    pen.lineTo(shift + 8, 0);
  }
  pen.stroke();
  return context.createPattern(tile, "repeat");
}

function fitted(context, text, width) {
  if (width < 14) return "";
  const room = Math.floor(width / 5.6);
  if (text.length <= room || context.measureText(text).width <= width) return text;
  let low = 0,
    high = Math.min(text.length, Math.ceil(width / 2.5));
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(text.slice(0, middle) + "\u2026").width <= width) low = middle;
    else high = middle - 1;
  }
  return low > 1 ? text.slice(0, low) + "\u2026" : "";
}

// Steps of 1, 2 or 5 times a power of ten, about 90 px apart.
function tickStep(span, width) {
  const rough = span / Math.max(2, width / 90);
  const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
  return [1, 2, 5, 10].map((n) => n * power).find((size) => size >= rough) || 10 * power;
}

function tickLabel(t, step, high) {
  const [factor, unit] =
    high >= 1e9 ? [1e9, "s"] : high >= 1e6 ? [1e6, "ms"] : high >= 1e3 ? [1e3, "us"] : [1, "ns"];
  const digits = Math.max(0, Math.round(Math.log10(factor)) - Math.floor(Math.log10(step) + 1e-9));
  return (t / factor).toFixed(digits) + " " + unit;
}

class Drawing {
  constructor(context, names) {
    this.context = context;
    this.names = names;
  }

  draw(step, plan, view, width, hover) {
    const pen = this.context;
    const x = (t) => ((t - view.low) / (view.high - view.low)) * width;
    pen.clearRect(0, 0, width, plan.height);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    this.hatch = this.hatch || hatch(pen);
    this.axis(view, x, width, plan.height);
    this.bands(plan, view, x);
    for (const item of plan.items) {
      if (item.type === "title") this.title(item, width);
      else this.row(item, view, x, width);
    }
    if (hover) this.outline(hover, x, width);
  }

  axis(view, x, width, height) {
    const pen = this.context;
    const step = tickStep(view.high - view.low, width);
    for (let t = Math.ceil(view.low / step) * step; t <= view.high; t += step) {
      const at = Math.round(x(t)) + 0.5;
      pen.fillStyle = Palette.read("line");
      pen.fillRect(at, AXIS - 4, 1, height);
      pen.fillStyle = Palette.read("quiet");
      const text = tickLabel(t, step, view.high);
      if (at + 4 + pen.measureText(text).width < width) pen.fillText(text, at + 3, AXIS / 2 - 1);
    }
  }

  // Faint bands over all rows where the GPU is idle: what was above, what was below.
  bands(plan, view, x) {
    const idle = plan.items.find((item) => item.type === "idle");
    if (!idle) return;
    this.context.globalAlpha = 0.1;
    this.visible(idle, view, (i, start, end) => {
      if (x(end) - x(start) < 2) return;
      this.context.fillStyle = colourOf(idle, i);
      this.context.fillRect(x(start), AXIS, x(end) - x(start), plan.height);
    });
    this.context.globalAlpha = 1;
  }

  visible(item, view, use) {
    for (let k = firstAfter(item, view.low); k < item.index.length; k++) {
      const i = item.index[k];
      const start = item.events.start[i];
      if (start > view.high) return;
      use(i, Math.max(start, view.low), Math.min(start + item.events.ns[i], view.high));
    }
  }

  title(item, width) {
    const pen = this.context;
    pen.font = "11px system-ui, sans-serif";
    pen.fillStyle = Palette.read("quiet");
    pen.fillText(fitted(pen, item.text, width - 12), 6, item.y + item.height / 2 + 1);
  }

  row(item, view, x, width) {
    const pen = this.context;
    const inner = item.height - (item.height > 8 ? 1 : 0);
    pen.font = (item.height < 14 ? "9px" : "11px") + " system-ui, sans-serif";
    let drawnTo = -1;
    this.visible(item, view, (i, start, end) => {
      // Widths are true, so that narrow events mix in the shares they have; one that stands alone
      // in its pixel is widened to be seen.
      const left = x(start);
      const right = left >= drawnTo ? Math.max(x(end), left + 0.5) : x(end);
      drawnTo = Math.max(drawnTo, Math.ceil(right));
      const colour = colourOf(item, i);
      const gap = right - left > 3 ? 0.8 : 0; // a hairline between neighbours
      pen.fillStyle = colour;
      pen.fillRect(left, item.y, right - left - gap, inner);
      if (item.type === "idle" && right - left > 2) {
        pen.fillStyle = this.hatch;
        pen.fillRect(left, item.y, right - left - gap, inner);
      }
      if (item.height >= 11 && right - left > 22) this.label(item, i, colour, left, right, width);
    });
  }

  label(item, i, colour, left, right, width) {
    const pen = this.context;
    const from = Math.max(left, 0) + 4,
      room = Math.min(right, width) - from - 4;
    let text = labelOf(item, i, this.names);
    if (item.type === "idle" && room > 90) text += "  " + duration(item.events.ns[i]);
    text = fitted(pen, text, room);
    if (!text) return;
    const middle = item.y + (item.height - 1) / 2 + 0.5;
    if (item.type === "idle") {
      // clear of the hatch
      pen.fillStyle = colour;
      pen.fillRect(from - 2, middle - 8, pen.measureText(text).width + 4, 16);
    }
    pen.fillStyle = Palette.ink(colour);
    pen.fillText(text, from, middle);
  }

  outline(hover, x, width) {
    const { item, i } = hover;
    const left = Math.max(x(item.events.start[i]), -2);
    const right = Math.min(
      Math.max(x(item.events.start[i] + item.events.ns[i]), left + 2),
      width + 2,
    );
    this.context.strokeStyle = Palette.read("ink");
    this.context.lineWidth = 1.5;
    this.context.strokeRect(left, item.y, right - left, item.height - 1);
  }
}
