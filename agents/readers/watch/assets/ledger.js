// What each step cost, and whether the public records are those that its ledger entry names.

import { element, get, moment, number, replace, table } from "./common.js";

const SHOWN = 25, KEPT = 10000;
const WORDS = {
  waiting: ["reading", "not all records of the step are read yet"],
  verified: ["✓ verified", "the digest of the public records is the one in the ledger"],
  compacted: ["compacted", "withdrawn records were cleaned away since: the digest cannot be computed any more"],
  differs: ["✗ DIFFERS", "the public records are not those of the ledger"],
};

export class Ledger {
  constructor(stream) {
    Object.assign(this, { stream, rows: [], when: new Map(), boot: "", shown: SHOWN });
    this.body = element("div", {});
    this.said = element("p", { class: "small" });
    this.more = element("button", { type: "button", onclick: () => { this.shown += 4 * SHOWN; this.draw(); } }, "Older steps");
    this.root = element("div", {}, this.said, this.body, this.more);
  }

  // Rows, as seen.Entry.row has them: step, end, added, removed, records, spent, gathered, digest, chained, verdict.
  async update(summary) {
    this.summary = summary;
    const settled = this.rows.findIndex((row) => row[9] === "waiting");
    const from = settled < 0 ? this.rows.length : settled;
    const after = from ? this.rows[from - 1][0] : -1;
    const found = await get(`/public/streams/${this.stream}/ledger?after=${after}`);
    if (!found?.rows) return;
    this.rows = [...this.rows.slice(0, from), ...found.rows].slice(-KEPT);
    for (const row of found.rows) this.when.set(row[0], row[1]);
    this.draw();
  }

  draw() {
    const { rows, summary: s } = this;
    const head = ["#step", `until (${s.timezone})`, "#added", "#withdrawn", "#records", "#epsilon spent", "digest", "records and digest", "chain"];
    const lines = rows.slice(-this.shown).reverse().map((row) => {
      const [word, why] = WORDS[row[9]];
      const kind = { verified: "good", differs: "bad" }[row[9]] || "";
      return [String(row[0]), moment(row[1], s.timezone, false), number.format(row[2]), number.format(row[3]), number.format(row[4]),
        row[6] ? "0 (gathers)" : String(+row[5].toPrecision(4)), element("code", { title: row[7] }, row[7].slice(0, 12)),
        element("span", { class: kind, title: why }, word),
        element("span", { class: row[8] ? "good" : "bad" }, row[8] ? "✓ follows" : "✗ BREAKS")];
    });
    replace(this.body, table("Steps, newest first", head, lines));
    const { verified = 0, compacted = 0, differs = 0 } = s.verdicts;
    let text = `This page's server read the public records itself, and compared: ${number.format(verified)} steps verified`;
    if (compacted) text += `, ${number.format(compacted)} can no longer be (their topic is compacted)`;
    if (differs) text += `, ${number.format(differs)} DIFFER`;
    text += `. The chain of entries ${s.chain_broken_at === null ? "holds" : `breaks at step ${s.chain_broken_at}`}`
      + `${s.first ? ` from step ${s.first} on` : ""}.`;
    if (s.steps > s.entries) text += ` Lists the last ${number.format(s.entries)} of ${number.format(s.steps)} steps.`;
    this.said.textContent = text;
    this.more.hidden = this.shown >= rows.length;
  }
}

function price(epsilon, delta) {
  return `${+epsilon.toPrecision(4)}` + (delta ? ` with delta = ${+delta.toPrecision(3)}` : "");
}

export class Budget {
  constructor() {
    this.root = element("div", {});
  }

  show(s) {
    const spent = `${+s.epsilon_spent.toPrecision(4)} of ${+s.epsilon.toPrecision(4)}`;
    const unit = { user: s.max_contributions ? `one user with at most ${number.format(s.max_contributions)} contributions` : "one user",
      event: "one event", replace: "one member whose records are replaced" }[s.unit] || s.unit;
    const day = 86400e6;
    const period = s.epsilon_per_us ? ` in each ${+(s.epsilon_per_us / day).toPrecision(4)} days; it then renews` : ", over the whole life of the stream";
    const meter = element("progress", { max: s.epsilon || 1, value: s.epsilon_spent, "aria-label": `epsilon spent: ${spent}` });
    const left = s.horizon === null ? "The stream has no last step." :
      `The budget is planned for ${number.format(s.horizon)} steps; ${number.format(Math.max(0, s.horizon - s.step - 1))} are left. After them nothing more is released.`;
    const rows = s.mechanisms.map((each) => [element("span", { class: "wrap" }, each.name), each.distribution,
      String(+Number(each.scale).toPrecision(4)), String(+Number(each.epsilon).toPrecision(4)), String(each.uses)]);
    replace(this.root,
      element("p", {}, `All that was published so far costs ${unit} at most epsilon = ${spent}${period}.`
        + (s.delta ? ` That is with delta = ${s.delta}.` : "")),
      meter,
      ...(s.renewal ? [element("p", {}, `${s.unit === "user" ? "A user" : "Somebody"} who was in ${s.renewal.periods === 1 ? "the one period" : `all ${number.format(s.renewal.periods)} periods`} so far `
        + `pays at most epsilon = ${price(s.renewal.epsilon, s.renewal.delta)}; for any time as long as one period it is ${price(s.renewal.window_epsilon, s.renewal.window_delta)}.`)] : []),
      element("p", { class: "small" }, `It is a bound over all ${s.unit === "event" ? "events" : "users"}, and can be the whole epsilon from the first release on. ${left}`),
      ...(s.epsilon_warning ? [element("p", { class: "bad" }, s.epsilon_warning)] : []),
      ...(s.private ? [] : [element("p", { class: "bad" }, `NOT PRIVATE. ${s.note}`)]),
      ...(rows.length ? [table("Mechanisms, per event", ["what is measured", "noise", "#scale", "#epsilon", "#uses"], rows)] : []));
  }
}
