// The rest of the page: facts, findings, kernels, sources.

function drawFacts() {
  const facts = document.getElementById("facts");
  const { window_ns: whole, busy_ns: busy, idle_ns: idle } = DATA.overall;
  const add = (label, text) =>
    facts.append(element("div", {}, element("dt", { text: label }), element("dd", { text })));
  if (!whole) return;
  add("GPU busy", percent(busy / whole));
  add("GPU idle", percent(idle / whole));
  if (DATA.devices_total > 1) add("devices", String(DATA.devices_total));
  if (DATA.devices_total === 1) {
    const { steps, window_ns: window } = DATA.devices[0];
    if (STEPPED && steps.count === 1) add("step", duration(steps.median_ns));
    else if (STEPPED && steps.count) {
      add("steps", String(steps.count));
      add("median step", duration(steps.median_ns));
      add("95th percentile", duration(steps.p95_ns));
    } else add("window", duration(window));
  }
}

function drawFindings() {
  const body = document.getElementById("findings-body");
  if (!DATA.findings.length) {
    const told = {
      healthy: "None: no lost time is large enough to be worth a change.",
      no_gpu_activity: "None: without GPU activity nothing can be found.",
      cannot_tell:
        "None: no rule explains the time that is lost; see the verdict for what to record.",
    };
    body.append(element("p", { class: "quiet", text: told[DATA.verdict.kind] || "None." }));
    return;
  }
  DATA.findings.forEach((finding, index) => body.append(findingCard(finding, index)));
}

function findingCard(finding, index) {
  const summary = element(
    "summary",
    {},
    element("h3", { text: `${index + 1}. ${finding.title}` }),
    element("span", { class: "tag", text: finding.rule }),
    element("span", { class: "tag", text: finding.cause }),
  );
  const lost = STEPPED
    ? `${duration(finding.lost_ns_per_step)} per step`
    : duration(finding.lost_ns);
  const numbers = element("p", { class: "lost" });
  for (const [label, value] of [
    ["lost", lost],
    ["share", percent(finding.share) + " of the time"],
    ["gain at most", percent(finding.gain_upper_bound)],
  ]) {
    numbers.append(element("span", {}, label + " ", element("b", { text: value })));
  }
  const from = element(
    "p",
    { class: "legend" },
    element("span", { class: "quiet", text: "in all, from" }),
  );
  for (const [name, ns] of Object.entries(finding.accounts).sort((a, b) => b[1] - a[1])) {
    from.append(element("span", { title: meaning(name) }, swatch(name), `${name} ${duration(ns)}`));
  }
  const body = element("div", { class: "body" }, numbers, from);
  const list = (title, items) => {
    if (items.length) body.append(element("h4", { text: title }), element("ul", {}, ...items));
  };
  list(
    "Evidence",
    finding.evidence.map((text) => element("li", { text })),
  );
  list(
    "What to do",
    finding.remedies.map((remedy) =>
      element(
        "li",
        {},
        remedy.text,
        element("span", {
          class: "tag numerics-" + remedy.numerics.replaceAll(" ", "-"),
          title: "what it does to the numbers",
          text: remedy.numerics,
        }),
      ),
    ),
  );
  list(
    "What would show this to be wrong",
    finding.disproof ? [element("li", { text: finding.disproof })] : [],
  );
  list(
    "Notes",
    finding.notes.map((text) => element("li", { text })),
  );
  if (finding.devices_total > 1) {
    const more = finding.devices_total - finding.devices.length;
    body.append(
      element("p", {
        class: "note",
        text: `On ${count(finding.devices_total, "device")}: ${finding.devices.join(", ")}${more ? ` and ${more} more` : ""}.`,
      }),
    );
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
  const columns = [
    ["name", "name", false],
    ["ns", "total", true],
    ["count", "calls", true],
    ["median_ns", "median", true],
    ["account", "account", false],
  ];
  let sort = "ns",
    descending = true,
    all = false;
  const body = element("tbody");
  const heads = columns.map(([key, label, numeric]) =>
    element(
      "th",
      { scope: "col", class: numeric ? "num" : "" },
      element("button", {
        text: label,
        onclick: () => {
          descending = sort === key ? !descending : numeric;
          sort = key;
          fill();
        },
      }),
    ),
  );
  const more = element("button", {
    onclick: () => {
      all = !all;
      fill();
    },
  });
  const fill = () => {
    const order = [...lines].sort(
      (a, b) => (a[sort] < b[sort] ? -1 : a[sort] > b[sort] ? 1 : 0) * (descending ? -1 : 1),
    );
    body.replaceChildren(
      ...(all ? order : order.slice(0, 20)).map((k) =>
        element(
          "tr",
          {},
          element("td", { class: "name mono" }, element("div", { class: "clamp", text: k.name })),
          element("td", { class: "num", text: duration(k.ns) }),
          element("td", { class: "num", text: k.count.toLocaleString("en") }),
          element("td", { class: "num", text: duration(k.median_ns) }),
          element("td", { class: "account" }, swatch(k.account), k.account),
        ),
      ),
    );
    heads.forEach((head, i) => {
      const own = columns[i][0] === sort;
      head.setAttribute("aria-sort", own ? (descending ? "descending" : "ascending") : "none");
      head.firstChild.textContent =
        columns[i][1] + (own ? (descending ? " \u25be" : " \u25b4") : "");
    });
    more.textContent = all ? "Show the first 20" : `Show all ${lines.length}`;
  };
  fill();
  place.append(
    element(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of kernels" },
      element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body),
    ),
  );
  if (lines.length > 20) place.append(element("p", { class: "note" }, more));
  place.append(
    element("p", {
      class: "note",
      text: `Total is the sum over all streams and calls, so concurrent kernels count each. Listed by name: the ${lines.length} that took most time.`,
    }),
  );
}

function drawSources() {
  const place = document.getElementById("sources");
  const body = element(
    "tbody",
    {},
    ...DATA.sources.map((s) =>
      element(
        "tr",
        {},
        element("td", { class: "name mono", text: s.path }),
        element("td", { text: s.format }),
        element("td", {
          class: "num",
          text:
            s.rank === null ? "-" : s.world_size ? `${s.rank} of ${s.world_size}` : String(s.rank),
        }),
        element("td", { text: s.device_name || "-" }),
      ),
    ),
  );
  const head = element(
    "tr",
    {},
    ...["trace", "format", "rank", "device"].map((text) =>
      element("th", { scope: "col", class: text === "rank" ? "num" : "", text }),
    ),
  );
  place.append(
    element("div", { class: "scroll" }, element("table", {}, element("thead", {}, head), body)),
  );
  const hidden = DATA.sources_total - DATA.sources.length;
  if (hidden)
    place.append(
      element("p", { class: "note", text: `and ${count(hidden, "trace")} more, see --json` }),
    );
  if (DATA.warnings.length)
    place.append(
      element("h4", { text: "Warnings" }),
      element("ul", {}, ...DATA.warnings.map((text) => element("li", { class: "name", text }))),
    );
  else place.append(element("p", { class: "note", text: "No warnings." }));
  const more = DATA.warnings_total - DATA.warnings.length;
  if (more)
    place.append(
      element("p", { class: "note", text: `and ${count(more, "warning")} more, see --json` }),
    );
  document.getElementById("about").textContent =
    `${DATA.whyidle}, ${count(DATA.sources_total, "trace")}`;
}

drawFacts();
drawLedger();
if (DATA.devices.length) selectDevice(0);
drawFindings();
drawKernels();
drawSources();
