// Keys that were found: at each step how many people had one, with the interval of its noise, as bars that are a table.

import { element, get, number, replace } from "./common.js";

export class Keys {
  constructor(stream, about) {
    Object.assign(this, { stream, about, first: 0, asked: 0 });
    this.said = element("p", { class: "small", role: "status" });
    this.body = element("div", {});
    this.root = element("div", {}, this.body, this.said);
  }

  start() {}

  async update() { /* it is fetched for a step, by `show` */ }

  async show(step) {
    const asked = ++this.asked;
    const found = await get(`/public/streams/${this.stream}/picture?step=${step}`);
    if (!found?.keys || asked !== this.asked) return;
    this.first = found.first;
    const reach = Math.max(...found.keys.map(([, , , high]) => high), 1);
    const rows = found.keys.map(([name, count, low, high, since]) => {
      const bar = element("span", { class: "bar" }), whisker = element("span", { class: "whisker" });
      bar.style.width = `${(100 * Math.max(count, 0)) / reach}%`;
      whisker.style.left = `${(100 * Math.max(low, 0)) / reach}%`;
      whisker.style.width = `${(100 * (high - Math.max(low, 0))) / reach}%`;
      return element("tr", {}, element("th", { scope: "row" }, name),
        element("td", { class: "bars" }, element("span", { class: "track", "aria-hidden": "true" }, bar, whisker)),
        element("td", { class: "n" }, number.format(Math.round(count))),
        element("td", { class: "n" }, `${number.format(Math.round(low))} to ${number.format(Math.round(high))}`),
        element("td", { class: "n" }, number.format(since)));
    });
    const head = ["key", "", "people", this.about.interval, "found in step"].map((text, at) =>
      element("th", { scope: "col", class: at < 2 ? "" : "n" }, text));
    replace(this.body, element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Keys" },
      element("table", {}, element("caption", {}, this.about.fields.join(", ")),
        element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows))));
    const more = found.listed > found.keys.length ? `; these are the ${found.keys.length} with most people` : "";
    this.said.textContent = `${number.format(found.listed)} keys are listed at this step, ${number.format(found.new)} of them for the first time in their period${more}.`;
  }

  themed() {}
}
