// The operator's view: true counts, errors, lag and refusals. It has nothing of the public view, and the other way round.

import { askToken, element, get, Line, login, notice, number, parts, percent, replace, table, tabs, themes, tiles, wholes } from "./common.js";
import { Chart } from "./charts.js";

let streams = new Map();
let page = null;
let reading = {};

const capital = (text) => text[0].toUpperCase() + text.slice(1);

class OperatorPage {
  constructor(summary) {
    Object.assign(this, { name: summary.stream, summary, rows: [], boot: "" });
    this.tiles = element("div", {});
    this.stops = element("div", {});
    this.refusals = element("div", {});
    this.counts = new Chart("What is there after each step, true and released");
    this.uncounted = element("p", { class: "small" }, `No counts are drawn: none of the ${summary.records} stands for one ` +
      `of the ${summary.events}, so that their numbers do not compare. The error does.`);
    this.errors = new Chart("Error against the held-out truth", { unit: summary.error_unit });
    this.said = element("p", { class: "small", role: "status" });
    const panel = (title, ...inside) => element("section", { class: "panel" }, element("h2", {}, title), ...inside);
    this.compared = element("div", { class: "panels" },
      panel("Truth and release", summary.counted ? this.counts.root : this.uncounted), panel("Error", this.errors.root));
    this.root = element("div", {}, this.said, this.stops, this.tiles, this.compared,
      panel("Refusals", this.refusals));
  }

  async take(summary) {
    this.summary = summary;
    if (this.boot !== summary.boot) Object.assign(this, { boot: summary.boot, rows: [] });
    const last = this.rows.length ? this.rows[this.rows.length - 1][0] : -1;
    const found = await get(`/operator/streams/${this.name}/utility?after=${last}`);
    if (found?.rows && found.boot === this.boot) {
      const newer = this.rows.length ? this.rows[this.rows.length - 1][0] : -1;
      this.rows.push(...found.rows.filter((row) => row[0] > newer));
    }
    this.draw();
  }

  draw() {
    const { summary: s, rows } = this;
    const state = s.status, last = s.last;
    this.said.textContent = last ? `${s.stream}: as of step ${last[0]} that was measured.` :
      s.audited ? `${s.stream}: nothing is measured yet.` : `${s.stream}: no audit topic is configured (audit in [[streams]]), so there is no truth to compare with.`;
    this.compared.hidden = !s.audited; // without a truth there is nothing to draw
    replace(this.tiles, tiles([
      ...(state ? [
        ["Health", state.health, state.health === "ok" ? "good" : "bad"],
        ["Clock", state.clock],
        ["Source records to ingest", number.format(state.ingest_lag)],
        ...(state.unrouted === null ? [] : [["Of these not yet at their users' partitions", number.format(state.unrouted)]]),
        ["Steps to publish", number.format(state.waiting)],
        ["Source offsets lost", number.format(state.lost), state.lost ? "bad" : ""],
        ["Records read", number.format(state.records)],
      ] : [["Health", "not known yet"]]),
      ...(last ? [[`True ${s.events} so far`, number.format(last[2])]] : []),
      ...(last && last[3] !== null ? [[`True ${s.events} there now`, number.format(last[3])]] : []),
      ...(last ? [[capital(s.records), number.format(last[4])]] : []),
      ...(last ? Object.entries(last[5]).slice(0, 4).map(([name, error]) =>
        [capital(name), error === null ? "none" : s.error_unit === "%" ? percent(error) : `${+error.toPrecision(3)} ${s.error_unit}`]) : []),
    ]));
    replace(this.stops, ...(state?.stopped || []).map((text) => element("p", { class: "notice" }, `STOPPED: ${text}`)),
      ...[state?.source_problem, state?.doubt].filter(Boolean).map((text) => element("p", { class: "notice" }, text)));
    const steps = rows.map((row) => row[0]);
    if (s.counted) {
      this.counts.show(steps, [{ label: `true ${s.events}`, values: rows.map((row) => row[3]) },
        { label: s.records, values: rows.map((row) => row[4]) }]);
    }
    const names = [...new Set(rows.flatMap((row) => Object.keys(row[5])))];
    this.errors.show(steps, names.map((label) => ({ label, values: rows.map((row) => row[5][label] ?? null) })));
    const refused = state?.refusals || [];
    replace(this.refusals,
      element("p", { class: "small" }, state?.recently ? `Of the last records ${state.recently}.` : "Nothing is counted lately."),
      ...(state?.advice || []).map((line) => element("p", { class: "small" }, line)),
      refused.length ? table("All that did not count, by reason and field", ["reason", "field", "#records"],
        refused.map(([reason, field, count]) => [reason, field || "(the record)", number.format(count)])) :
        element("p", {}, "No record was refused or dropped."));
  }

  themed() {
    this.counts.themed();
    this.errors.themed();
  }
}

function choose(name) {
  const { whole } = streams.get(name);
  page?.counts.close();
  page?.errors.close();
  page = new OperatorPage(streams.get(name));
  const place = document.getElementById("stream");
  place.hidden = false;
  place.setAttribute("aria-labelledby", `tab-${whole}`);
  replace(place, ...parts(wholes(streams.values()).get(whole), name, choose), page.root);
  page.take(streams.get(name));
}

function say() {
  const stopped = [...streams.values()].filter((each) => each.status?.stopped.length).map((each) => each.stream);
  notice([reading.problem ? `The page's server cannot read now: ${reading.problem}` : "",
    stopped.length ? `Stopped: ${stopped.join(", ")}.` : ""].filter(Boolean).join(" "));
  document.getElementById("link").textContent = "live";
}

async function begin() {
  themes(() => page?.themed());
  await login();
  const allowed = await get("/operator/allowed", "text");
  if (allowed?.refused === 401) {
    askToken("The operator's view needs its token. It is not private: open it for yourself alone.");
    return;
  }
  new Line("/operator/events", {
    stream: (summary) => {
      const known = streams.has(summary.stream);
      streams.set(summary.stream, summary);
      if (!known) {
        const named = wholes(streams.values());
        tabs([...named.keys()], (page?.summary || summary).whole, (whole) => choose(named.get(whole)[0]));
      }
      const beside = page && !known && page.name !== summary.stream && page.summary.whole === summary.whole;
      if (!page || beside) choose(page?.name || summary.stream);
      else if (page.name === summary.stream) page.take(summary);
    },
    reading: (told) => { reading = told; say(); },
  }, {
    lost: async (seconds) => {
      document.getElementById("link").textContent = "not connected";
      notice(`The connection to the page's server is cut since ${Math.round(seconds)} seconds. What is shown is old; it goes on by itself.`);
      const again = await get("/operator/allowed", "text");
      if (again?.refused === 401) askToken("The server was started anew and has another token: open the address that it printed, or type its token.");
    },
    found: () => say(),
  });
}

begin();
