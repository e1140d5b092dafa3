// The picture in words: tooltips, what is not drawn, the longest idle blocks.

const PICTURE = DATA.picture;

function stepTitle(step) {
  if (PICTURE.found === "span") return `the whole window (no steps found), ${duration(step.ns)}`;
  return `step ${step.index} (${step.why}), ${duration(step.ns)}`;
}

// Names of a chain, innermost first.
function chainText(at, from) {
  if (at < 0) return "";
  const links = PICTURE.chains[at].map((n) => (n < 0 ? `${-n} outer ones` : PICTURE.names[n]));
  return links.slice(from || 0).join(" < ");
}

function brief(text) {
  return text.length > 160 ? text.slice(0, 157) + "..." : text;
}

function tipOf({ item, i }) {
  const events = item.events;
  const times = [
    ["start", duration(events.start[i])],
    ["duration", duration(events.ns[i])],
  ];
  if (item.type === "host") {
    return [
      brief(PICTURE.names[events.name[i]]),
      [...times, ["kind", HOST_KIND_WORDS[events.kind[i]]]],
    ];
  }
  const account = DATA.accounts[events.account[i]];
  if (item.type === "stream") {
    const rows = [...times, ["account", account.name]];
    if (events.chain[i] >= 0) {
      const ahead = events.lead[i] >= 0 ? `${duration(events.lead[i])} before it ran: ` : "";
      rows.push(["launched", ahead + brief(chainText(events.chain[i]))]);
    }
    return [brief(PICTURE.names[events.name[i]]), rows];
  }
  const rows = [
    ...times,
    ["account", account.name + (account.cause ? ", cause: " + account.cause : "")],
    ["meaning", account.meaning],
  ];
  const [first, ...others] = events.did[i];
  if (account.name !== "idle.queue" || first[0] >= 0) rows.push(...didRows(first));
  for (const [chain, ns] of others)
    rows.push([
      "also",
      `${chain < 0 ? "nothing recorded" : chainText(chain).split(" < ")[0]}, ${duration(ns)}`,
    ]);
  if (events.more[i]) rows.push(["and", count(events.more[i], "other name")]);
  if (events.ended[i] >= 0) rows.push(["ended by", brief(PICTURE.names[events.ended[i]])]);
  if (events.launch[i] >= 0) rows.push(["launched by", brief(PICTURE.names[events.launch[i]])]);
  if (events.after_sync[i]) rows.push(["note", "follows a synchronize in the same gap"]);
  return ["GPU idle: " + account.name, rows];
}

function didRows([chain, ns]) {
  if (chain < 0) return [["host did", "nothing recorded"]];
  const rows = [["host did", `${chainText(chain).split(" < ")[0]}, ${duration(ns)}`]];
  const around = chainText(chain, 1);
  if (around) rows.push(["inside", brief(around)]);
  return rows;
}

// What the picture does not show: never silent.
function notesOf(step) {
  const left = step.left_out;
  const notes = [];
  const part = (what, word) => {
    if (what.count)
      notes.push(
        `${what.count.toLocaleString("en")} of ${what.of.toLocaleString("en")} ${word} are not drawn to keep the file small: the shortest, none longer than ${duration(what.longest_ns)}.`,
      );
  };
  part(left.host, "host events");
  part(left.gaps, "idle blocks");
  part(left.device, "GPU activities");
  if (left.threads)
    notes.push(
      `${count(left.threads, "other host thread")} not drawn: neither the main one, nor one that the GPU waited for, or beyond the third.`,
    );
  if (left.streams) notes.push(`${count(left.streams, "less busy stream")} not drawn.`);
  if (left.unnested)
    notes.push(
      `${count(left.unnested, "host event")} not drawn: they overlap others without nesting.`,
    );
  return notes;
}

function describe(step) {
  const seconds = new Map();
  if (step.gaps)
    step.gaps.account.forEach((a, i) => seconds.set(a, (seconds.get(a) || 0) + step.gaps.ns[i]));
  const parts = [...seconds]
    .sort((a, b) => b[1] - a[1])
    .slice(0, 5)
    .map(([a, ns]) => `${DATA.accounts[a].name} ${duration(ns)}`);
  return `Picture of ${stepTitle(step)}. GPU idle blocks drawn: ${parts.join(", ") || "none"}. The longest are listed below the picture.`;
}

// The text alternative of the picture, and a way to jump.
function longestGaps(viewer) {
  const gaps = viewer.step.gaps;
  if (!gaps || !gaps.start.length) return [];
  const order = gaps.ns
    .map((_, i) => i)
    .sort((a, b) => gaps.ns[b] - gaps.ns[a])
    .slice(0, 10);
  const body = element(
    "tbody",
    {},
    ...order.map((i) => {
      const account = DATA.accounts[gaps.account[i]].name;
      const [chain] = gaps.did[i][0];
      const jump = () => {
        const margin = gaps.ns[i] * 0.25;
        viewer.look(gaps.start[i] - margin, gaps.start[i] + gaps.ns[i] + margin);
        viewer.canvas.scrollIntoView({ block: "nearest" });
      };
      return element(
        "tr",
        {},
        element(
          "td",
          {},
          element("button", {
            text: "Zoom",
            "aria-label": `Zoom to the gap at ${duration(gaps.start[i])}`,
            onclick: jump,
          }),
        ),
        element("td", { class: "account" }, swatch(account), account),
        element("td", { class: "num", text: duration(gaps.start[i]) }),
        element("td", { class: "num", text: duration(gaps.ns[i]) }),
        element(
          "td",
          { class: "name" },
          element("div", {
            class: "clamp",
            text: chain < 0 ? "nothing recorded" : chainText(chain),
          }),
        ),
      );
    }),
  );
  const heads = [
    ["", ""],
    ["account", ""],
    ["at", "num"],
    ["length", "num"],
    ["host did (innermost first)", ""],
  ];
  const head = element(
    "tr",
    {},
    ...heads.map(([text, kind]) => element("th", { scope: "col", class: kind, text })),
  );
  return [
    element(
      "details",
      {},
      element("summary", { text: `The ${count(order.length, "longest idle block")} of this step` }),
      element("div", { class: "scroll" }, element("table", {}, element("thead", {}, head), body)),
    ),
  ];
}
