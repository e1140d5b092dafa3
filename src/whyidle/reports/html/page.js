// Everything but the picture: verdict, ledgers, steps, findings, kernels, sources.

const STEPPED = DATA.devices.some((device) => device.window_source !== "span");

// All kinds of compute as one part, the rest in ledger order: [account, ns].
function merged(pairs) {
  const parts = new Map();
  for (const [account, ns] of pairs) {
    if (!ns) continue;
    const name = account.startsWith("compute.") ? "compute" : account;
    parts.set(name, (parts.get(name) || 0) + ns);
  }
  return [...parts];
}

function shortName(account) { return account.replace(/^idle\./, ""); }

function spoken(parts, whole) {
  return parts.map(([name, ns]) => name + " " + percent(ns / whole)).join(", ");
}

function bar(parts, whole, options) {
  const node = element("div", {
    class: options.thin ? "bar thin" : "bar", role: "img", tabindex: "0",
    "aria-label": options.title + ": " + spoken(parts, whole),
  });
  node.style.width = 100 * options.scale + "%";
  tipped(node, options.title, () => parts.map(([n, ns]) => [n, duration(ns) + ", " + percent(ns / whole)]));
  for (const [name, ns] of parts) {
    const part = paint(element("div", { class: "part" }), name);
    part.style.width = (100 * ns) / whole + "%";
    if (!options.thin && ns / whole > 0.07) {
      const label = paintText(element("span", { text: shortName(name) + " " + Math.round((100 * ns) / whole) + "%" }), name);
      label.style.backgroundImage = "none";
      part.append(label);
    }
    part.addEventListener("pointermove", (e) => {
      e.stopPropagation();
      Tip.show(e.clientX, e.clientY, name, [
        ["time", duration(ns)], ["share", percent(ns / whole)], ["what it is", meaning(name)]]);
    });
    node.append(part);
  }
  return node;
}

function legend(names) {
  const list = element("ul", { class: "legend", "aria-label": "Legend" });
  for (const name of names) list.append(element("li", { title: meaning(name) }, swatch(name), name));
  list.append(element("li", { class: "quiet", text: "solid: GPU busy, hatched: GPU idle" }));
  return list;
}

function drawFacts() {
  const facts = document.getElementById("facts");
  const { window_ns: whole, busy_ns: busy, idle_ns: idle } = DATA.overall;
  const add = (label, text) => facts.append(element("div", {}, element("dt", { text: label }), element("dd", { text })));
  if (!whole) return;
  add("GPU busy", percent(busy / whole));
  add("GPU idle", percent(idle / whole));
  if (DATA.devices_total > 1) add("devices", String(DATA.devices_total));
  if (DATA.devices_total === 1) {
    const { steps, window_ns: window } = DATA.devices[0];
    if (STEPPED && steps.count) {
      add("steps", String(steps.count));
      add("median step", duration(steps.median_ns));
      add("95th percentile", duration(steps.p95_ns));
    } else add("window", duration(window));
  }
}

function drawLedger() {
  const place = document.getElementById("ledger");
  if (!DATA.devices.length) {
    place.append(element("p", { class: "quiet", text: "No GPU activity was recorded, so there is no GPU time to account for. This does not mean that the GPU was idle." }));
    return;
  }
  const used = new Set();
  DATA.devices.forEach((device, index) => {
    const parts = merged(device.accounts.map((a) => [a.account, a.ns]));
    parts.forEach(([name]) => used.add(name));
    place.append(element("div", { class: "device" }, deviceHead(device, index),
      device.window_ns ? bar(parts, device.window_ns, { title: device.title, scale: 1, thin: DATA.devices.length > 8 }) : null));
  });
  if (DATA.devices_total > DATA.devices.length) {
    const hidden = DATA.devices_total - DATA.devices.length;
    place.append(element("p", { class: "note", text: `Shown are the ${DATA.devices.length} devices with the largest idle share, most idle first; ${count(hidden, "device")} with less idle time not shown. All are in --json.` }));
  }
  const names = ["compute", ...DATA.accounts.map((a) => a.name)].filter((name) => used.has(name));
  place.append(legend(names));
  place.append(element("div", { id: "accounts" }));
}

function deviceHead(device, index) {
  const whole = device.window_ns || 1;
  let facts = `busy ${percent(device.busy_ns / whole)}, idle ${percent(device.idle_ns / whole)} of ${duration(device.window_ns)}`;
  if (device.window_source !== "span" && device.steps.count) {
    facts += `; ${count(device.steps.count, "step")}, median ${duration(device.steps.median_ns)}, p95 ${duration(device.steps.p95_ns)}`;
  }
  const head = element("div", { class: "head" }, element("h3", { text: device.title }));
  if (device.name) head.append(element("span", { class: "quiet", text: device.name }));
  head.append(element("span", { class: "quiet", text: facts }));
  if (DATA.devices.length > 1) {
    head.append(element("button", { text: "Details", "aria-pressed": String(index === 0), "aria-label": "Details of " + device.title, "data-device": index,
      onclick: () => selectDevice(index) }));
  }
  return head;
}

function selectDevice(index) {
  document.querySelectorAll("button[data-device]").forEach((button) => {
    button.setAttribute("aria-pressed", String(button.dataset.device === String(index)));
  });
  drawAccounts(DATA.devices[index]);
  drawSteps(DATA.devices[index]);
}

function drawAccounts(device) {
  const steps = device.window_source !== "span" ? Math.max(device.steps.count, 1) : 1;
  const body = element("tbody");
  const row = (name, ns, cause, sub) => body.append(element("tr", { class: sub ? "sub" : "" },
    element("td", { class: "account" }, swatch(name), sub ? name.replace("compute.", "") : name),
    element("td", { class: "num", text: duration(ns / steps) }),
    element("td", { class: "num", text: percent(ns / device.window_ns) }),
    element("td", { class: "wide-only quiet", text: sub ? "" : meaning(name) }),
    element("td", { text: cause || "" })));
  const bySize = (a, b) => b.ns - a.ns;
  const kinds = device.accounts.filter((a) => a.account.startsWith("compute.")).sort(bySize);
  const others = device.accounts.filter((a) => !a.account.startsWith("compute."));
  if (kinds.length) row("compute", kinds.reduce((sum, a) => sum + a.ns, 0), null, false);
  kinds.forEach((a) => row(a.account, a.ns, null, true));
  others.filter((a) => ACCOUNT.get(a.account).busy).sort(bySize).forEach((a) => row(a.account, a.ns, a.cause, false));
  others.filter((a) => !ACCOUNT.get(a.account).busy).sort(bySize).forEach((a) => row(a.account, a.ns, a.cause, false));
  const head = element("tr", {}, element("th", { scope: "col", text: "account" }),
    element("th", { scope: "col", class: "num", text: steps > 1 ? "per step" : "time" }),
    element("th", { scope: "col", class: "num", text: "share" }),
    element("th", { scope: "col", class: "wide-only", text: "what it is" }),
    element("th", { scope: "col", text: "lost to" }));
  const title = DATA.devices.length > 1 ? device.title + ": " : "";
  const how = device.window_source === "steps" ? `Steps found by: ${device.window_how}.` : `Window: ${device.window_how}.`;
  const box = document.getElementById("accounts");
  const open = box.firstElementChild ? box.firstElementChild.open : true;
  const details = element("details", {}, element("summary", { text: title + "every account" }),
    element("div", { class: "scroll" }, element("table", {}, element("thead", {}, head), body)),
    element("p", { class: "note", text: how + " Shares are of the window, and add up to it." }));
  details.open = open;
  box.replaceChildren(details);
}

function drawSteps(device) {
  const { size, accounts, columns } = device.chart;
  const section = document.getElementById("steps");
  section.hidden = device.window_source === "span" || columns.length < 2;
  if (section.hidden) return;
  const body = document.getElementById("steps-body");
  const shown = columns.map(([first, n, longest, longestNs, sums]) => {
    const total = sums.reduce((sum, ns) => sum + ns, 0);
    const parts = merged(sums.map((ns, i) => [accounts[i], ns / n]));
    const title = n === 1 ? `step ${first}` : `steps ${first} to ${first + n - 1}`;
    return { first, n, longest, longestNs, mean: total / n, parts, title };
  });
  const top = Math.max(...shown.map((s) => s.mean), 1);
  let text = columns.length > 24 ? "Height" : "Width";
  text += " is step time" + (DATA.devices.length > 1 ? " on " + device.title : "") + ".";
  if (size > 1) {
    text += ` ${count(device.steps.count, "step")} are too many to draw one by one: each column is the mean of ${size} consecutive steps (the last may hold fewer). Hover tells the longest step of each.`;
  }
  const chart = shown.length > 24 ? stepColumns(shown, top) : stepRows(shown, top);
  body.replaceChildren(chart, element("p", { class: "note", text }));
}

function stepRows(shown, top) {
  const list = element("div");
  for (const step of shown) {
    list.append(element("div", { class: "steprow" }, element("span", { class: "quiet", text: step.title }),
      element("div", {}, bar(step.parts, step.mean, { title: `${step.title}, ${duration(step.mean)}`, scale: step.mean / top, thin: true })),
      element("span", { class: "num", text: duration(step.mean) })));
  }
  return list;
}

function stepColumns(shown, top) {
  const chart = element("div", { class: shown.length > 90 ? "columns dense" : "columns", role: "group", tabindex: "0",
    "aria-label": `Chart of ${count(shown.length, "column")}, step time by account; arrow keys move between columns` });
  const nodes = shown.map((step) => {
    const node = element("div", { class: "column", tabindex: "-1", role: "img", "aria-label": `${step.title}, ${duration(step.mean)}: ${spoken(step.parts, step.mean)}` });
    for (const [name, ns] of step.parts) {
      const part = paint(element("div", { class: "part" }), name);
      part.style.height = (100 * ns) / top + "%";
      node.append(part);
    }
    const title = `${step.title}, ${step.n > 1 ? "mean " : ""}${duration(step.mean)}`;
    return tipped(node, title, () => [
      ...(step.n > 1 ? [["longest", `step ${step.longest}, ${duration(step.longestNs)}`]] : []),
      ...step.parts.map(([name, ns]) => [name, `${duration(ns)}, ${percent(ns / step.mean)}`])]);
  });
  chart.append(...nodes);
  chart.addEventListener("keydown", (e) => {
    if (e.key !== "ArrowRight" && e.key !== "ArrowLeft") return;
    const at = nodes.indexOf(document.activeElement) + (e.key === "ArrowRight" ? 1 : -1);
    nodes[Math.max(0, Math.min(nodes.length - 1, at))].focus();
    e.preventDefault();
  });
  const last = shown[shown.length - 1];
  return element("div", {}, element("div", { class: "axis" }, element("span", { text: `top: ${duration(top)}` })), chart,
    element("div", { class: "axis" }, element("span", { text: "step " + shown[0].first }), element("span", { text: "step " + (last.first + last.n - 1) })));
}

function drawFindings() {
  const body = document.getElementById("findings-body");
  if (!DATA.findings.length) {
    const told = { healthy: "None: no lost time is large enough to be worth a change.", no_gpu_activity: "None: without GPU activity nothing can be found.", cannot_tell: "None: no rule explains the time that is lost; see the verdict for what to record." };
    body.append(element("p", { class: "quiet", text: told[DATA.verdict.kind] || "None." }));
    return;
  }
  DATA.findings.forEach((finding, index) => body.append(findingCard(finding, index)));
}

function findingCard(finding, index) {
  const summary = element("summary", {}, element("h3", { text: `${index + 1}. ${finding.title}` }),
    element("span", { class: "tag", text: finding.rule }), element("span", { class: "tag", text: finding.cause }));
  const lost = STEPPED ? `${duration(finding.lost_ns_per_step)} per step` : duration(finding.lost_ns);
  const numbers = element("p", { class: "lost" });
  for (const [label, value] of [["lost", lost], ["share", percent(finding.share) + " of the time"], ["gain at most", percent(finding.gain_upper_bound)]]) {
    numbers.append(element("span", {}, label + " ", element("b", { text: value })));
  }
  const from = element("p", { class: "legend" });
  for (const [name, ns] of Object.entries(finding.accounts).sort((a, b) => b[1] - a[1])) {
    from.append(element("span", { title: meaning(name) }, swatch(name), `${name} ${duration(ns)}`));
  }
  const body = element("div", { class: "body" }, numbers, from);
  const list = (title, items) => { if (items.length) body.append(element("h4", { text: title }), element("ul", {}, ...items)); };
  list("Evidence", finding.evidence.map((text) => element("li", { text })));
  list("What to do", finding.remedies.map((remedy) => element("li", {}, remedy.text,
    element("span", { class: "tag numerics-" + remedy.numerics.replaceAll(" ", "-"), title: "what it does to the numbers", text: remedy.numerics }))));
  list("What would show this to be wrong", finding.disproof ? [element("li", { text: finding.disproof })] : []);
  list("Notes", finding.notes.map((text) => element("li", { text })));
  if (finding.devices_total > 1) {
    const more = finding.devices_total - finding.devices.length;
    body.append(element("p", { class: "note", text: `On ${count(finding.devices_total, "device")}: ${finding.devices.join(", ")}${more ? ` and ${more} more` : ""}.` }));
  }
  const card = element("details", { class: "finding-card" }, summary, body);
  card.open = index < 3;
  return card;
}

function drawKernels() {
  const lines = DATA.kernels;
  if (!lines.length) return;
  document.getElementById("kernels").hidden = false;
  const place = document.getElementById("kernels-body");
  const columns = [["name", "name", false], ["account", "account", false], ["count", "calls", true], ["ns", "total", true], ["median_ns", "median", true]];
  let sort = "ns", descending = true, all = false;
  const body = element("tbody");
  const heads = columns.map(([key, label, numeric]) => element("th", { scope: "col", class: numeric ? "num" : "" },
    element("button", { text: label, onclick: () => { descending = sort === key ? !descending : numeric; sort = key; fill(); } })));
  const more = element("button", { onclick: () => { all = !all; fill(); } });
  const fill = () => {
    const order = [...lines].sort((a, b) => (a[sort] < b[sort] ? -1 : a[sort] > b[sort] ? 1 : 0) * (descending ? -1 : 1));
    body.replaceChildren(...(all ? order : order.slice(0, 20)).map((k) => element("tr", {},
      element("td", { class: "name mono" }, element("div", { class: "clamp", text: k.name })),
      element("td", { class: "account" }, swatch(k.account), k.account),
      element("td", { class: "num", text: k.count.toLocaleString("en") }),
      element("td", { class: "num", text: duration(k.ns) }),
      element("td", { class: "num", text: duration(k.median_ns) }))));
    heads.forEach((head, i) => {
      const own = columns[i][0] === sort;
      head.setAttribute("aria-sort", own ? (descending ? "descending" : "ascending") : "none");
      head.firstChild.textContent = columns[i][1] + (own ? (descending ? " \u25be" : " \u25b4") : "");
    });
    more.textContent = all ? "Show the first 20" : `Show all ${lines.length}`;
  };
  fill();
  place.append(element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of kernels" },
    element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body)));
  if (lines.length > 20) place.append(element("p", { class: "note" }, more));
  place.append(element("p", { class: "note", text: `Total is the sum over all streams and calls, so concurrent kernels count each. The table holds the ${lines.length >= 200 ? lines.length + " names that took most time" : count(lines.length, "name") + " of the window"}.` }));
}

function drawSources() {
  const place = document.getElementById("sources");
  const body = element("tbody", {}, ...DATA.sources.map((s) => element("tr", {},
    element("td", { class: "name mono", text: s.path }), element("td", { text: s.format }),
    element("td", { class: "num", text: s.rank === null ? "-" : s.world_size ? `${s.rank} of ${s.world_size}` : String(s.rank) }),
    element("td", { text: s.device_name || "-" }))));
  const head = element("tr", {}, ...["trace", "format", "rank", "device"].map((text) => element("th", { scope: "col", class: text === "rank" ? "num" : "", text })));
  place.append(element("div", { class: "scroll" }, element("table", {}, element("thead", {}, head), body)));
  const hidden = DATA.sources_total - DATA.sources.length;
  if (hidden) place.append(element("p", { class: "note", text: `and ${count(hidden, "trace")} more, see --json` }));
  if (DATA.warnings.length) place.append(element("h4", { text: "Warnings" }), element("ul", {}, ...DATA.warnings.map((text) => element("li", { class: "name", text }))));
  else place.append(element("p", { class: "note", text: "No warnings." }));
  const more = DATA.warnings_total - DATA.warnings.length;
  if (more) place.append(element("p", { class: "note", text: `and ${count(more, "warning")} more, see --json` }));
  document.getElementById("about").textContent = `${DATA.whyidle}, ${count(DATA.sources_total, "trace")}`;
}

drawFacts();
drawLedger();
if (DATA.devices.length) selectDevice(0);
drawFindings();
drawKernels();
drawSources();
