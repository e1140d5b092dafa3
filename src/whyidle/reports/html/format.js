"use strict";
// Numbers into words (as reports/words.py does), elements, colours and the tooltip.
// Texts from the trace reach the page only through textContent.

window.addEventListener("error", (event) => {
  const said = document.body.dataset.errors || "";
  document.body.dataset.errors = said + event.message + "\n";
});

const DATA = JSON.parse(document.getElementById("data").textContent);
const ACCOUNT = new Map(DATA.accounts.map((account) => [account.name, account]));

function duration(ns) {
  const size = Math.abs(ns);
  for (const [factor, unit] of [
    [1e9, "s"],
    [1e6, "ms"],
    [1e3, "us"],
  ]) {
    if (size >= factor * 0.9995) {
      const value = ns / factor;
      const digits = Math.abs(value) < 9.995 ? 2 : Math.abs(value) < 99.95 ? 1 : 0;
      return value.toFixed(digits) + " " + unit;
    }
  }
  return ns.toFixed(0) + " ns";
}

function percent(share) {
  return share > 0 && share < 0.0005 ? "<0.1 %" : (100 * share).toFixed(1) + " %";
}

function count(n, noun) {
  return n.toLocaleString("en") + " " + noun + (n === 1 ? "" : "s");
}

function element(tag, options, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(options || {})) {
    if (key === "text") made.textContent = value;
    else if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined) made.setAttribute(key, value);
  }
  for (const child of children) if (child !== null) made.append(child);
  return made;
}

// Colours come from the style sheet, so that dark and light are decided in one place.
const Palette = {
  cache: new Map(),
  read(name) {
    if (!this.cache.has(name)) {
      const value = getComputedStyle(document.documentElement).getPropertyValue("--" + name);
      this.cache.set(name, value.trim() || "#8c95a3");
    }
    return this.cache.get(name);
  },
  account(name) {
    return this.read(name.replaceAll(".", "-"));
  },
  // Near-black or white, whichever has more contrast (WCAG relative luminance).
  ink(colour) {
    const channel = (at) => {
      const c = parseInt(colour.slice(at, at + 2), 16) / 255;
      return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    };
    return 0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5) > 0.195
      ? "#10151c"
      : "#ffffff";
  },
};

const themeListeners = [];
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  Palette.cache.clear();
  themeListeners.forEach((listen) => listen());
});

// Fill an element with an account's colour; the style sheet keeps it right when the theme changes.
function paint(target, account) {
  target.style.backgroundColor = `var(--${account.replaceAll(".", "-")}, #8c95a3)`;
  if (ACCOUNT.has(account) && !ACCOUNT.get(account).busy) target.classList.add("idle");
  return target;
}

// As paint, for an element that holds text.
function paintText(target, account) {
  const ink = () => {
    target.style.color = Palette.ink(Palette.account(account));
  };
  ink();
  themeListeners.push(ink);
  return paint(target, account);
}

function swatch(account) {
  return paint(element("span", { class: "swatch", "aria-hidden": "true" }), account);
}

function meaning(account) {
  if (account === "compute") return "kernels of the model";
  return ACCOUNT.has(account) ? ACCOUNT.get(account).meaning : "";
}

// One tooltip for the whole page. rows: [label, text].
const Tip = {
  node: document.getElementById("tip"),
  show(x, y, title, rows) {
    const lines = [element("div", { class: "tip-title", text: title })];
    for (const [label, text] of rows) {
      lines.push(
        element(
          "div",
          { class: "tip-row" },
          element("span", { text: label }),
          element("span", { text }),
        ),
      );
    }
    this.node.replaceChildren(...lines);
    this.node.hidden = false;
    const box = this.node.getBoundingClientRect();
    const left = Math.min(x + 14, innerWidth - box.width - 8);
    const top = y + 16 + box.height > innerHeight ? y - box.height - 10 : y + 16;
    this.node.style.left = Math.max(8, left) + "px";
    this.node.style.top = Math.max(8, top) + "px";
  },
  hide() {
    this.node.hidden = true;
  },
};

function tipped(target, title, rows) {
  target.addEventListener("pointermove", (e) => Tip.show(e.clientX, e.clientY, title, rows()));
  target.addEventListener("pointerleave", () => Tip.hide());
  target.addEventListener("focus", () => {
    if (!target.matches(":focus-visible")) return;
    const box = target.getBoundingClientRect();
    Tip.show(box.left + box.width / 2, box.top + box.height / 2, title, rows());
  });
  target.addEventListener("blur", () => Tip.hide());
  return target;
}
document.addEventListener("keydown", (e) => {
  if (e.key === "Escape") Tip.hide();
});
addEventListener("scroll", () => Tip.hide(), { passive: true });
