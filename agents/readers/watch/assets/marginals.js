// Rows as marginals: of each attribute the shares of its values, as bars that are tables as well.

import { element, get, number, percent, replace } from "./common.js";

const MOST = 12; // values of an attribute that are listed, the most frequent

export class Marginals {
  constructor(stream, about) {
    Object.assign(this, { stream, about, first: 0, asked: 0 });
    this.said = element("p", { class: "small", role: "status" });
    this.body = element("div", { class: "marginals" });
    this.root = element("div", {}, this.body, this.said);
  }

  start() {}

  async update() { /* it is fetched for a step, by `show` */ }

  async show(step) {
    const asked = ++this.asked;
    const found = await get(`/public/streams/${this.stream}/picture?step=${step}`);
    if (!found?.counts || asked !== this.asked) return;
    // Values that are found get their names as they come.
    const attributes = this.about.attributes.map((each) => ({ ...each, labels: found.found[each.field] ?? each.labels }));
    replace(this.body, ...attributes.map((attribute, at) => this.marginal(attribute, found.counts[at], found.before?.[at])));
    const rows = found.counts[0]?.reduce((sum, count) => sum + count, 0) || 0;
    const open = attributes.map((each, at) => [each, found.counts[at]]).filter(([each]) => each.found).map(([{ field, found: most }, counts]) => {
      const there = counts.slice(0, most).filter((count) => count > 0).length;
      return ` Nobody listed the values of ${field}: rows of this step have ${number.format(there)} that were found, of ${number.format(most)} at most; (other) is every value that was not found by then.`;
    });
    this.said.textContent = `Shares of ${number.format(rows)} synthetic rows at this step; the last column is the change since the step before.${open.join("")}`;
  }

  marginal({ field, labels }, counts, before) {
    const total = counts.reduce((sum, count) => sum + count, 0) || 1;
    const totalBefore = before?.reduce((sum, count) => sum + count, 0) || 1;
    const order = counts.map((_, at) => at).filter((at) => counts[at] > 0 || before?.[at] > 0);
    if (order.length > MOST) order.sort((a, b) => counts[b] - counts[a]);
    const listed = order.slice(0, MOST), most = Math.max(...listed.map((at) => counts[at]), 1);
    const rows = listed.map((at) => {
      const bar = element("span", { class: "bar", "aria-hidden": "true" });
      bar.style.width = `${(72 * counts[at]) / most}%`;
      const change = before ? counts[at] / total - before[at] / totalBefore : null;
      const text = change === null ? "" : Math.abs(change) < 0.0005 ? "0" : `${change > 0 ? "+" : "−"}${(100 * Math.abs(change)).toFixed(1)}`;
      return element("tr", {}, element("th", { scope: "row" }, labels[at]),
        element("td", { class: "bars" }, bar, ` ${percent(counts[at] / total)}`), element("td", { class: "n" }, text));
    });
    if (order.length > MOST) rows.push(element("tr", {}, element("td", { colspan: 3, class: "dim" }, `and ${order.length - MOST} more ${order.length - MOST === 1 ? "value" : "values"}`)));
    return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": field },
      element("table", {}, element("caption", {}, field), element("tbody", {}, ...rows)));
  }

  themed() {}
}
