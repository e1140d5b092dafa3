// The picture of one step: choosing, zooming, panning, finding what is under the pointer.

const SMALLEST_VIEW = 200; // ns

class Viewer {
  constructor(place) {
    this.expanded = false;
    this.pointers = new Map();
    this.canvas = element("canvas", { tabindex: "0", role: "img" });
    this.drawing = new Drawing(this.canvas.getContext("2d"), PICTURE.names);
    this.notes = element("div");
    this.gaps = element("div");
    place.append(
      this.tools(),
      element("div", { class: "canvas" }, this.canvas),
      this.help(),
      this.key(),
      this.notes,
      this.gaps,
    );
    this.listen();
    this.select(0);
    new ResizeObserver(() => this.refresh()).observe(this.canvas.parentElement);
    themeListeners.push(() => {
      this.drawing.hatch = null;
      this.refresh();
    });
  }

  tools() {
    const button = (text, label, act) =>
      element("button", { text, "aria-label": label, title: label, onclick: act });
    const bar = element("div", { class: "tools" });
    if (PICTURE.steps.length > 1) {
      const choice = element("select", { onchange: () => this.select(Number(choice.value)) });
      PICTURE.steps.forEach((step, i) =>
        choice.append(element("option", { value: i, text: stepTitle(step) })),
      );
      bar.append(element("label", {}, element("span", { class: "quiet", text: "Step" }), choice));
    }
    this.expand = element("button", {
      text: "Taller rows",
      "aria-pressed": "false",
      onclick: () => {
        this.expanded = !this.expanded;
        this.expand.setAttribute("aria-pressed", String(this.expanded));
        this.relayout();
      },
    });
    bar.append(
      button("\u2212", "Zoom out", () => this.zoom(1.6)),
      button("+", "Zoom in", () => this.zoom(1 / 1.6)),
      button("\u2190", "Earlier", () => this.pan(-0.25)),
      button("\u2192", "Later", () => this.pan(0.25)),
      button("Reset", "Show the whole step", () => this.reset()),
      this.expand,
    );
    return bar;
  }

  help() {
    const keys = element(
      "p",
      { class: "note" },
      "Drag to move. Pinch, Ctrl + wheel, or click and then turn the wheel to zoom. Keys: ",
    );
    for (const key of ["+", "-", "\u2190", "\u2192", "0"])
      keys.append(element("kbd", { text: key }), " ");
    keys.append("(0 resets).");
    return keys;
  }

  key() {
    const list = element("ul", { class: "legend", "aria-label": "Colours of host events" });
    const kinds = new Set(PICTURE.steps.flatMap((step) => step.lanes.flatMap((lane) => lane.kind)));
    HOST_KINDS.forEach((kind, i) => {
      if (!kinds.has(i)) return;
      const mark = element("span", { class: "swatch", "aria-hidden": "true" });
      mark.style.backgroundColor = `var(--host-${kind})`;
      list.append(element("li", {}, mark, HOST_KIND_WORDS[i]));
    });
    const used = new Set(
      PICTURE.steps.flatMap((step) => step.streams.flatMap((stream) => stream.account)),
    );
    DATA.accounts.forEach((account, i) => {
      if (used.has(i)) list.append(element("li", {}, swatch(account.name), account.name));
    });
    return list;
  }

  select(index) {
    this.step = PICTURE.steps[index];
    this.view = { low: 0, high: this.step.ns };
    this.hover = null;
    this.relayout();
    this.notes.replaceChildren(
      ...notesOf(this.step).map((text) => element("p", { class: "note", text })),
    );
    this.gaps.replaceChildren(...longestGaps(this));
    this.canvas.setAttribute("aria-label", describe(this.step));
  }

  relayout() {
    this.plan = layout(this.step, PICTURE.names, this.expanded);
    const total = this.plan.items.filter((item) => item.type === "host").length;
    this.expand.hidden = !this.expanded && (this.plan.rowHeight === ROW || !total);
    this.refresh();
  }

  refresh() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.paint();
    });
  }

  paint() {
    const width = this.canvas.parentElement.clientWidth;
    const ratio = devicePixelRatio || 1;
    const pixels = [Math.round(width * ratio), Math.round(this.plan.height * ratio)];
    if (this.canvas.width !== pixels[0] || this.canvas.height !== pixels[1]) {
      [this.canvas.width, this.canvas.height] = pixels;
      this.canvas.style.height = this.plan.height + "px";
    }
    this.width = width;
    this.drawing.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.drawing.draw(this.step, this.plan, this.view, width, this.hover);
    this.canvas.dataset.view = `${this.view.low} ${this.view.high}`;
  }

  // Keep the view inside the step.
  look(low, high) {
    const span = Math.min(Math.max(high - low, SMALLEST_VIEW), this.step.ns);
    const start = Math.max(0, Math.min(low, this.step.ns - span));
    this.view = { low: start, high: start + span };
    this.refresh();
  }

  zoom(factor, at) {
    const { low, high } = this.view;
    const centre = at === undefined ? (low + high) / 2 : at;
    const span = Math.min(Math.max((high - low) * factor, SMALLEST_VIEW), this.step.ns);
    const start = centre - ((centre - low) * span) / (high - low);
    this.look(start, start + span);
  }

  pan(share) {
    const shift = (this.view.high - this.view.low) * share;
    this.look(this.view.low + shift, this.view.high + shift);
  }

  reset() {
    this.look(0, this.step.ns);
  }

  timeAt(clientX) {
    const box = this.canvas.getBoundingClientRect();
    return this.view.low + ((clientX - box.left) / box.width) * (this.view.high - this.view.low);
  }

  listen() {
    const canvas = this.canvas;
    canvas.addEventListener("wheel", (e) => this.wheel(e), { passive: false });
    canvas.addEventListener("pointerdown", (e) => {
      this.pointers.set(e.pointerId, e.clientX);
      canvas.setPointerCapture(e.pointerId);
      canvas.classList.add("dragging");
      this.point(e);
    });
    canvas.addEventListener("pointermove", (e) => this.move(e));
    for (const end of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(end, (e) => {
        this.pointers.delete(e.pointerId);
        if (!this.pointers.size) canvas.classList.remove("dragging");
      });
    }
    canvas.addEventListener("pointerleave", (e) => {
      if (e.pointerType === "touch") return; // a tap tells until the next one
      this.hover = null;
      Tip.hide();
      this.refresh();
    });
    canvas.addEventListener("keydown", (e) => this.press(e));
  }

  wheel(e) {
    const sideways = Math.abs(e.deltaX) > Math.abs(e.deltaY) || e.shiftKey;
    const meant = e.ctrlKey || e.metaKey || document.activeElement === this.canvas;
    if (!sideways && !meant) return; // the page scrolls
    e.preventDefault();
    const lines = e.deltaMode === 1 ? 16 : 1;
    if (sideways) this.pan(((e.deltaX || e.deltaY) * lines) / Math.max(this.width, 1));
    else this.zoom(Math.exp(e.deltaY * lines * (e.ctrlKey ? 0.01 : 0.002)), this.timeAt(e.clientX));
    Tip.hide();
  }

  move(e) {
    if (!this.pointers.has(e.pointerId)) {
      this.point(e);
      return;
    }
    const before = [...this.pointers.values()];
    this.pointers.set(e.pointerId, e.clientX);
    const after = [...this.pointers.values()];
    Tip.hide();
    if (after.length === 1) {
      this.pan((before[0] - after[0]) / Math.max(this.width, 1));
    } else if (after.length === 2) {
      const spread = (xs) => Math.max(Math.abs(xs[0] - xs[1]), 10);
      this.zoom(spread(before) / spread(after), this.timeAt((after[0] + after[1]) / 2));
    }
  }

  point(e) {
    const box = this.canvas.getBoundingClientRect();
    const found = this.hit(e.clientX - box.left, e.clientY - box.top);
    this.hover = found;
    if (found) {
      const [title, rows] = tipOf(found);
      Tip.show(e.clientX, e.clientY, title, rows);
    } else Tip.hide();
    this.refresh();
  }

  // The event under a point, within 3 px of it.
  hit(px, py) {
    const item = this.plan.items.find((at) => py >= at.y && py < at.y + at.height && at.index);
    if (!item) return null;
    const scale = (this.view.high - this.view.low) / Math.max(this.width, 1);
    const t = this.view.low + px * scale;
    let best = null,
      nearest = 3 * scale;
    for (let k = Math.max(0, firstAfter(item, t - nearest) - 1); k < item.index.length; k++) {
      const i = item.index[k];
      const start = item.events.start[i],
        end = start + item.events.ns[i];
      const away = t < start ? start - t : t > end ? t - end : 0;
      if (start > t + 3 * scale) break;
      if (away < nearest || (away === 0 && best === null)) {
        best = i;
        nearest = away;
      }
      if (away === 0) break;
    }
    return best === null ? null : { item, i: best };
  }

  press(e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const acts = {
      "+": () => this.zoom(1 / 1.6),
      "=": () => this.zoom(1 / 1.6),
      "-": () => this.zoom(1.6),
      _: () => this.zoom(1.6),
      ArrowLeft: () => this.pan(-0.15),
      ArrowRight: () => this.pan(0.15),
      0: () => this.reset(),
      Home: () => this.reset(),
    };
    if (!acts[e.key]) return;
    acts[e.key]();
    Tip.hide();
    e.preventDefault();
  }
}

function drawPicture() {
  if (!PICTURE || !PICTURE.steps.length) return;
  document.getElementById("picture").hidden = false;
  const place = document.getElementById("picture-body");
  const first = PICTURE.steps[0];
  let text =
    PICTURE.device === null
      ? "Host time: no GPU activity was recorded. "
      : `${PICTURE.device}${DATA.devices_total > 1 ? ", the one that is idle most" : ""}. `;
  text +=
    PICTURE.found === "span"
      ? "No steps were found, so the whole window is drawn."
      : `Drawn is ${stepTitle(first)}`;
  if (PICTURE.found !== "span")
    text +=
      PICTURE.steps_total > 1
        ? `: the step of median duration of ${PICTURE.steps_total}. Pick another below.`
        : ".";
  place.append(element("p", { class: "quiet", text }));
  window.viewer = new Viewer(place);
}

drawPicture();
document.body.dataset.ready = "1";
