// The ledgers: a bar and a table for each device, a bar or column for each step.

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

function shortName(account) {
  return account.replace(/^idle\./, "");
}

function spoken(parts, whole) {
  return parts.map(([name, ns]) => name + " " + percent(ns / whole)).join(", ");
}

function bar(parts, whole, options) {
  const node = element("div", {
    class: options.thin ? "bar thin" : "bar",
    role: "img",
    tabindex: "0",
    "aria-label": options.title + ": " + spoken(parts, whole),
  });
  node.style.width = 100 * options.scale + "%";
  tipped(node, options.title, () =>
    parts.map(([n, ns]) => [n, duration(ns) + ", " + percent(ns / whole)]),
  );
  for (const [name, ns] of parts) {
    const part = paint(element("div", { class: "part" }), name);
    part.style.width = (100 * ns) / whole + "%";
    if (!options.thin && ns / whole > 0.07) {
      const label = paintText(
        element("span", { text: shortName(name) + " " + Math.round((100 * ns) / whole) + "%" }),
        name,
      );
      label.style.backgroundImage = "none";
      part.append(label);
    }
    part.addEventListener("pointermove", (e) => {
      e.stopPropagation();
      Tip.show(e.clientX, e.clientY, name, [
        ["time", duration(ns)],
        ["share", percent(ns / whole)],
        ["what it is", meaning(name)],
      ]);
    });
    node.append(part);
  }
  return node;
}

function legend(names) {
  const list = element("ul", { class: "legend", "aria-label": "Legend" });
  for (const name of names)
    list.append(element("li", { title: meaning(name) }, swatch(name), name));
  list.append(element("li", { class: "quiet", text: "solid: GPU busy, hatched: GPU idle" }));
  return list;
}

function drawLedger() {
  const place = document.getElementById("ledger");
  if (!DATA.devices.length) {
    place.append(
      element("p", {
        class: "quiet",
        text: "No GPU activity was recorded, so there is no GPU time to account for. This does not mean that the GPU was idle.",
      }),
    );
    return;
  }
  const used = new Set();
  DATA.devices.forEach((device, index) => {
    const parts = merged(device.accounts.map((a) => [a.account, a.ns]));
    parts.forEach(([name]) => used.add(name));
    place.append(
      element(
        "div",
        { class: "device" },
        deviceHead(device, index),
        device.window_ns
          ? bar(parts, device.window_ns, {
              title: device.title,
              scale: 1,
              thin: DATA.devices.length > 8,
            })
          : null,
      ),
    );
  });
  if (DATA.devices_total > DATA.devices.length) {
    const hidden = DATA.devices_total - DATA.devices.length;
    place.append(
      element("p", {
        class: "note",
        text: `Shown are the ${DATA.devices.length} devices with the largest idle share, most idle first; ${count(hidden, "device")} with less idle time not shown. All are in --json.`,
      }),
    );
  }
  const names = ["compute", ...DATA.accounts.map((a) => a.name)].filter((name) => used.has(name));
  place.append(legend(names));
  place.append(element("div", { id: "accounts" }));
}

function deviceHead(device, index) {
  const whole = device.window_ns || 1;
  let facts = `busy ${percent(device.busy_ns / whole)}, idle ${percent(device.idle_ns / whole)} of ${duration(device.window_ns)}`;
  if (device.window_source !== "span" && device.steps.count > 1) {
    facts += `; ${count(device.steps.count, "step")}, median ${duration(device.steps.median_ns)}, p95 ${duration(device.steps.p95_ns)}`;
  }
  const head = element("div", { class: "head" }, element("h3", { text: device.title }));
  if (device.name) head.append(element("span", { class: "quiet", text: device.name }));
  head.append(element("span", { class: "quiet", text: facts }));
  if (DATA.devices.length > 1) {
    head.append(
      element("button", {
        text: "Details",
        "aria-pressed": String(index === 0),
        "aria-label": "Details of " + device.title,
        "data-device": index,
        onclick: () => selectDevice(index),
      }),
    );
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
  const row = (name, ns, cause, sub) =>
    body.append(
      element(
        "tr",
        { class: sub ? "sub" : "" },
        element(
          "td",
          { class: "account" },
          swatch(name),
          sub ? name.replace("compute.", "") : name,
        ),
        element("td", { class: "num", text: duration(ns / steps) }),
        element("td", { class: "num", text: percent(ns / device.window_ns) }),
        element("td", { class: "wide-only quiet", text: sub ? "" : meaning(name) }),
        element("td", { text: cause || "" }),
      ),
    );
  const bySize = (a, b) => b.ns - a.ns;
  const kinds = device.accounts.filter((a) => a.account.startsWith("compute.")).sort(bySize);
  const others = device.accounts.filter((a) => !a.account.startsWith("compute."));
  if (kinds.length)
    row(
      "compute",
      kinds.reduce((sum, a) => sum + a.ns, 0),
      null,
      false,
    );
  kinds.forEach((a) => row(a.account, a.ns, null, true));
  others
    .filter((a) => ACCOUNT.get(a.account).busy)
    .sort(bySize)
    .forEach((a) => row(a.account, a.ns, a.cause, false));
  others
    .filter((a) => !ACCOUNT.get(a.account).busy)
    .sort(bySize)
    .forEach((a) => row(a.account, a.ns, a.cause, false));
  const head = element(
    "tr",
    {},
    element("th", { scope: "col", text: "account" }),
    element("th", { scope: "col", class: "num", text: steps > 1 ? "per step" : "time" }),
    element("th", { scope: "col", class: "num", text: "share" }),
    element("th", { scope: "col", class: "wide-only", text: "what it is" }),
    element("th", { scope: "col", text: "cause" }),
  );
  const title = DATA.devices.length > 1 ? device.title + ": " : "";
  const how =
    device.window_source === "steps"
      ? `Steps found by: ${device.window_how}.`
      : `Window: ${device.window_how}.`;
  const box = document.getElementById("accounts");
  const open = box.firstElementChild ? box.firstElementChild.open : true;
  const details = element(
    "details",
    {},
    element("summary", { text: title + (title ? "every account" : "Every account") }),
    element("div", { class: "scroll" }, element("table", {}, element("thead", {}, head), body)),
    element("p", { class: "note", text: how + " Shares are of the window, and add up to it." }),
  );
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
  const top = Math.max(...shown.map((s) => (size > 1 ? s.longestNs : s.mean)), 1);
  let text = columns.length > 24 ? "Height" : "Width";
  text += " is step time" + (DATA.devices.length > 1 ? " on " + device.title : "") + ".";
  if (size > 1) {
    text += ` ${count(device.steps.count, "step")} are too many to draw one by one: each column is the mean of ${size} consecutive steps (the last may hold fewer), and the thin line marks its longest step.`;
  }
  const chart = shown.length > 24 ? stepColumns(shown, top) : stepRows(shown, top);
  body.replaceChildren(chart, element("p", { class: "note", text }));
}

function stepRows(shown, top) {
  const list = element("div");
  for (const step of shown) {
    list.append(
      element(
        "div",
        { class: "steprow" },
        element("span", { class: "quiet", text: step.title }),
        element(
          "div",
          {},
          bar(step.parts, step.mean, {
            title: `${step.title}, ${duration(step.mean)}`,
            scale: step.mean / top,
            thin: true,
          }),
        ),
        element("span", { class: "num", text: duration(step.mean) }),
      ),
    );
  }
  return list;
}

function stepColumns(shown, top) {
  const chart = element("div", {
    class: shown.length > 90 ? "columns dense" : "columns",
    role: "group",
    tabindex: "0",
    "aria-label": `Chart of ${count(shown.length, "column")}, step time by account; arrow keys move between columns`,
  });
  const nodes = shown.map((step) => {
    const node = element("div", {
      class: "column",
      tabindex: "-1",
      role: "img",
      "aria-label": `${step.title}, ${duration(step.mean)}: ${spoken(step.parts, step.mean)}`,
    });
    for (const [name, ns] of step.parts) {
      const part = paint(element("div", { class: "part" }), name);
      part.style.height = (100 * ns) / top + "%";
      node.append(part);
    }
    if (step.n > 1) {
      const mark = element("div", { class: "longest" });
      mark.style.bottom = (100 * step.longestNs) / top + "%";
      node.append(mark);
    }
    const title = `${step.title}, ${step.n > 1 ? "mean " : ""}${duration(step.mean)}`;
    return tipped(node, title, () => [
      ...(step.n > 1 ? [["longest", `step ${step.longest}, ${duration(step.longestNs)}`]] : []),
      ...step.parts.map(([name, ns]) => [name, `${duration(ns)}, ${percent(ns / step.mean)}`]),
    ]);
  });
  chart.append(...nodes);
  chart.addEventListener("keydown", (e) => {
    if (e.key !== "ArrowRight" && e.key !== "ArrowLeft") return;
    const at = nodes.indexOf(document.activeElement) + (e.key === "ArrowRight" ? 1 : -1);
    nodes[Math.max(0, Math.min(nodes.length - 1, at))].focus();
    e.preventDefault();
  });
  const last = shown[shown.length - 1];
  return element(
    "div",
    {},
    element("div", { class: "axis" }, element("span", { text: `top: ${duration(top)}` })),
    chart,
    element(
      "div",
      { class: "axis" },
      element("span", { text: "step " + shown[0].first }),
      element("span", { text: "step " + (last.first + last.n - 1) }),
    ),
  );
}
