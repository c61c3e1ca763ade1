// The public view: one stream at a time, as its public topics tell of it.

import { ago, askToken, element, get, Line, login, moment, notice, number, parts, replace, tabs, themes, tiles, wholes } from "./common.js";
import { Budget, Ledger } from "./ledger.js";
import { Chart } from "./charts.js";
import { Keys } from "./keys.js";
import { StreamMap } from "./map.js";
import { Marginals } from "./marginals.js";

const PLAY_MS = 350;
let streams = new Map();
let named = new Map();
let page = null;
let boot = "";

// --- Pictures by kind: each has `root`, `start()`, `update()`, and `show(step)` where there is a slider ------------------

class Series {
  constructor(stream, about) {
    Object.assign(this, { stream, about });
    this.charts = about.fields.map((field) => new Chart(`${field}, released, with its ${about.interval}`));
    this.said = element("p", { class: "small", role: "status" });
    this.root = element("div", {}, ...this.charts.map((chart) => chart.root), this.said);
  }

  start() {}

  async update(when) {
    const found = await get(`/public/streams/${this.stream}/picture`);
    if (!found?.steps) return;
    found.fields.forEach((field, at) => {
      const interval = field.low.some((low) => low !== null);
      const label = this.about.fields[at];
      this.charts[at].show(found.steps, [{ label, values: field.value, ...(interval ? { low: field.low, high: field.high } : {}) }], when);
    });
  }

  themed() { this.charts.forEach((chart) => chart.themed()); }

  close() { this.charts.forEach((chart) => chart.close()); }
}

class States {
  constructor(stream) {
    this.stream = stream;
    this.chart = new Chart("Share of users in each state", { stacked: true });
    this.said = element("p", { class: "small", role: "status" });
    this.root = element("div", {}, this.chart.root, this.said);
  }

  start() {}

  async update(when) {
    const found = await get(`/public/streams/${this.stream}/picture`);
    if (!found?.steps) return;
    this.chart.show(found.steps, found.names.map((label, at) => ({ label, values: found.counts[at] })), when);
  }

  themed() { this.chart.themed(); }

  close() { this.chart.close(); }
}

const KINDS = {
  points: [(name, about) => new StreamMap(name, about, { trips: false }), "Synthetic points"],
  trips: [(name, about) => new StreamMap(name, about, { trips: true }), "Synthetic trips"],
  table: [(name, about) => new Marginals(name, about), "Synthetic rows, one marginal for each attribute"],
  series: [(name, about) => new Series(name, about), "Released numbers"],
  states: [(name) => new States(name), "Users by state"],
  keys: [(name, about) => new Keys(name, about), "Keys that were found, and how many people had them"],
};

// --- One stream ---------------------------------------------------------------------------------------------------------

class StreamPage {
  constructor(about) {
    Object.assign(this, { name: about.stream, about, summary: about.summary, following: true, busy: false, again: false });
    this.head = element("p", { class: "small", role: "status" });
    this.tiles = element("div", {});
    this.ledger = new Ledger(this.name);
    this.budget = new Budget();
    this.counts = new Chart("Synthetic records alive");
    const made = KINDS[about.kind];
    this.picture = made ? made[0](this.name, about.picture) : null;
    this.slider = this.picture?.show ? this.timeline() : null;
    const panels = [];
    if (this.picture) {
      panels.push(element("section", { class: "panel" }, element("h2", {}, made[1]), this.picture.root, ...(this.slider ? [this.slider] : [])));
    }
    const counts = element("section", { class: "panel" }, element("h2", {}, "How many there are"), this.counts.root);
    const budget = element("section", { class: "panel" }, element("h2", {}, "Budget"), this.budget.root);
    panels.push(element("div", { class: "panels" }, counts, budget));
    panels.push(element("section", { class: "panel" }, element("h2", {}, "Ledger"), this.ledger.root));
    this.root = element("div", {}, this.head, this.tiles, ...panels);
  }

  timeline() {
    this.range = element("input", { type: "range", min: 0, max: 0, value: 0, step: 1, id: "time", "aria-label": "Step",
      oninput: () => { this.following = this.range.value === this.range.max; this.seek(+this.range.value); } });
    this.play = element("button", { type: "button", "aria-pressed": "false", onclick: () => this.playing(!this.timer) }, "Play");
    this.at = element("output", { for: "time" });
    return element("div", { class: "time" }, this.play, this.range, this.at);
  }

  playing(on) {
    clearInterval(this.timer);
    this.timer = null;
    this.play.setAttribute("aria-pressed", String(on));
    this.play.textContent = on ? "Pause" : "Play";
    if (!on) return;
    if (this.range.value === this.range.max) this.range.value = this.range.min;
    this.timer = setInterval(() => {
      const next = Math.min(+this.range.value + 1, +this.range.max);
      this.range.value = next;
      this.following = next === +this.range.max;
      this.seek(next);
      if (this.following) this.playing(false);
    }, PLAY_MS);
  }

  seek(step) {
    const when = this.ledger.when.get(step);
    const text = `Step ${step}${when ? `, until ${moment(when, this.summary.timezone)}` : ""}`;
    this.at.textContent = this.following ? `${text} (the newest)` : text;
    this.range.setAttribute("aria-valuetext", text);
    return this.picture.show(step);
  }

  async take(summary) {
    this.summary = summary;
    if (this.busy) { this.again = true; return; }
    this.busy = true;
    try {
      do {
        this.again = false;
        await this.refresh();
      } while (this.again);
    } finally {
      this.busy = false; // what went wrong with one step is not in the way of the next
    }
  }

  async refresh() {
    const summary = this.summary;
    this.say();
    await this.ledger.update(summary);
    this.budget.show(summary);
    const rows = this.ledger.rows;
    this.counts.show(rows.map((row) => row[0]), [{ label: "records", values: rows.map((row) => row[4]) }], this.ledger.when);
    await this.picture?.update(this.ledger.when);
    const { shown, total, what } = summary.picture;
    if (this.picture && !this.slider) {
      this.picture.said.textContent = shown < total ? `Shows the last ${number.format(shown)} of ${number.format(total)} ${what}.` : "";
    }
    if (this.slider && summary.step >= 0) {
      this.range.min = Math.max(0, this.picture.first || 0);
      this.range.max = summary.step;
      if (this.following) this.range.value = summary.step;
      await this.seek(+this.range.value);
    }
    this.root.dataset.step = summary.step;
  }

  say() {
    const s = this.summary;
    const verified = s.verdicts.verified || 0, differs = s.verdicts.differs || 0;
    const broken = s.chain_broken_at !== null || s.twice !== null || s.beyond !== null || differs > 0;
    const left = s.horizon === null ? "no end" : `${number.format(Math.max(0, s.horizon - s.step - 1))} of ${number.format(s.horizon)} steps`;
    replace(this.tiles, tiles([
      ["Synthetic records alive", number.format(s.records)],
      ["Steps published", number.format(s.step + 1)],
      [`Epsilon spent by one ${s.unit === "replace" ? "member" : s.unit}`, `${+s.epsilon_spent.toPrecision(4)} of ${+s.epsilon.toPrecision(4)}`],
      ["Horizon left", left],
      ["Ledger", broken ? "does not hold" : s.steps ? `holds: ${number.format(verified)} of ${number.format(s.steps)} digests verified` : "nothing yet", broken ? "bad" : "good"],
    ]));
    this.tick();
  }

  // Once a second: how old what is shown is.
  tick() {
    const s = this.summary;
    if (s.step < 0) { this.head.textContent = `${s.stream}: no step is public yet.`; return; }
    let text = `${s.stream} (${s.engine}, mode ${s.mode}): as of step ${s.step}, until ${moment(s.until, s.timezone)}; `
      + `read ${ago(Date.now() / 1000 - skew - s.read_at)}.`;
    if (s.due) {
      const late = Date.now() / 1000 - skew - Date.parse(s.due) / 1000;
      text += late > 5 ? ` The next step is ${ago(late).replace(" ago", "")} late.` : ` The next step is due at ${moment(s.due, s.timezone)}.`;
    }
    if (s.unreadable) text += ` ${number.format(s.unreadable)} public records could not be read.`;
    this.head.textContent = text;
  }

  themed() {
    this.picture?.themed();
    this.counts.themed();
  }

  close() {
    clearInterval(this.timer);
    this.picture?.close?.();
    this.counts.close();
  }
}

// --- The page -----------------------------------------------------------------------------------------------------------

let skew = 0; // of this machine's clock against the server's, in seconds
let reading = {};

function choose(name) {
  page?.close();
  const about = streams.get(name);
  page = new StreamPage(about);
  const place = document.getElementById("stream");
  place.hidden = false;
  const { whole } = about.summary;
  place.setAttribute("aria-labelledby", `tab-${whole}`);
  replace(place, ...parts(named.get(whole), name, choose), page.root);
  page.picture?.start();
  page.take(about.summary);
  globalThis.privstream = { page };
}

function say() {
  const s = page?.summary;
  const problems = [];
  if (reading.problem) problems.push(`The page's server cannot read now: ${reading.problem}. What is shown stays as it was.`);
  for (const { summary } of streams.values()) {
    if (!summary.private) problems.push(`Stream ${summary.stream} is NOT PRIVATE: ${summary.note}.`);
    if (summary.chain_broken_at !== null) problems.push(`The ledger of ${summary.stream} breaks at step ${summary.chain_broken_at}.`);
    if (summary.twice !== null) problems.push(`The ledger of ${summary.stream} holds step ${summary.twice} twice.`);
    if (summary.beyond !== null) problems.push(`Public records of step ${summary.beyond} of ${summary.stream} came after it was whole, or behind those of a later step.`);
    if (summary.verdicts.differs) problems.push(`The records of ${summary.verdicts.differs} steps of ${summary.stream} are not those of its ledger.`);
  }
  notice(problems.join(" "));
  document.getElementById("link").textContent = reading.behind > 0 ? `reading, ${number.format(reading.behind)} records to go` : "live";
  if (s) page.tick();
}

async function load() {
  const found = await get("/public/streams");
  if (found?.refused === 401) {
    askToken("This view needs its token.");
    return false;
  }
  if (!found?.streams) return false;
  boot = found.boot;
  const kept = page?.name;
  streams = new Map(found.streams.map((each) => [each.stream, each]));
  const first = streams.has(kept) ? kept : found.streams[0].stream;
  named = wholes(found.streams.map((each) => each.summary));
  tabs([...named.keys()], streams.get(first).summary.whole, (whole) => choose(named.get(whole)[0]));
  choose(first);
  return true;
}

async function begin() {
  themes(() => page?.themed());
  await login();
  while (!await load()) {
    if (!document.getElementById("login").hidden) return;
    notice("The page's server does not answer. It is asked again.");
    await new Promise((done) => setTimeout(done, 1000));
  }
  new Line("/public/events", {
    stream: (summary) => {
      const about = streams.get(summary.stream);
      if (!about) return;
      about.summary = summary;
      if (page?.name === summary.stream) page.take(summary);
    },
    reading: async (told) => {
      reading = told;
      skew = Date.now() / 1000 - told.now;
      if (told.boot !== boot) {
        boot = told.boot; // another server: what it knows begins anew
        await load();
      }
      say();
    },
  }, {
    lost: (seconds) => {
      document.getElementById("link").textContent = "not connected";
      notice(`The connection to the page's server is cut since ${Math.round(seconds)} seconds. What is shown is as of step ${page?.summary.step}; it goes on by itself.`);
    },
    found: () => say(),
  });
  setInterval(() => page?.tick(), 1000);
}

begin();
