// What both views need: elements, numbers, the token, and the line of events with what is said while it is cut.

export const number = new Intl.NumberFormat("en-US");

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.filter((each) => each !== null && each !== undefined));
  return made;
}

export function replace(parent, ...children) {
  parent.replaceChildren(...children);
}

export function tiles(pairs) {
  return element("dl", { class: "tiles" }, ...pairs.map(([name, value, kind]) =>
    element("div", {}, element("dt", {}, name), element("dd", { class: kind || "" }, value))));
}

export function table(caption, head, rows) {
  const cells = (tag, row) => row.map((cell, at) => {
    const numeric = head[at].startsWith("#");
    const attributes = { class: numeric ? "n" : "", ...(tag === "th" ? { scope: "col" } : {}) };
    const shown = tag === "th" && numeric ? cell.slice(1) : cell;
    return element(tag, attributes, ...(Array.isArray(shown) ? shown : [shown]));
  });
  // Where it is wider than the page it scrolls, by keys as well.
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    element("table", {}, element("caption", {}, caption),
      element("thead", {}, element("tr", {}, ...cells("th", head))),
      element("tbody", {}, ...rows.map((row) => element("tr", {}, ...cells("td", row))))));
}

export function moment(iso, zone = "UTC", named = true) {
  if (!iso) return "";
  const options = { dateStyle: "medium", timeStyle: "short", timeZone: zone };
  const text = new Intl.DateTimeFormat("en-GB", options).format(new Date(iso));
  return named ? `${text} ${zone}` : text;
}

export function ago(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 120) return `${whole} second${whole === 1 ? "" : "s"} ago`;
  if (whole < 7200) return `${Math.round(whole / 60)} minutes ago`;
  return `${Math.round(whole / 3600)} hours ago`;
}

export function percent(share) {
  return `${(100 * share).toFixed(share !== 0 && Math.abs(share) < 0.1 ? 1 : 0)} %`;
}

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// --- Theme --------------------------------------------------------------------------------------

export function themes(changed) {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme || (dark.matches ? "dark" : "light")) === "dark";
  const button = document.getElementById("theme");
  const label = () => { button.textContent = isDark() ? "Light colours" : "Dark colours"; };
  try {
    const kept = localStorage.getItem("privstream-theme");
    if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  } catch { /* a browser that keeps nothing still shows the page */ }
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("privstream-theme", root.dataset.theme); } catch { /* as above */ }
    label();
    changed();
  });
  dark.addEventListener("change", () => { label(); changed(); });
  label();
}

// --- Token --------------------------------------------------------------------------------------

const view = document.body.dataset.view;

async function trade(token) {
  const answer = await fetch("/login", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ view, token }),
  });
  return answer.status;
}

// Trades the token behind # for a cookie and takes it out of the address bar and the history.
export async function login() {
  const found = /^#token=([\w-]+)$/.exec(location.hash);
  if (!found) return;
  history.replaceState(null, "", location.pathname);
  await trade(found[1]);
}

export function askToken(why) {
  const form = document.getElementById("login");
  if (!form.hidden) return;
  form.hidden = false;
  notice(why);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (await trade(document.getElementById("token").value.trim()) === 204) location.reload();
    else notice("This is not the token of this server. The server prints its own when it starts.");
  });
  document.getElementById("token").focus();
}

// --- Events -------------------------------------------------------------------------------------

const SILENT_MS = 15000;

export function notice(text) {
  const place = document.getElementById("notice");
  if (place.textContent !== text) place.textContent = text;
}

// A line of server-sent events that begins again by itself. `on` has a function for each kind of event; `lost` is called
// once a second while nothing comes, with seconds, and `found` when it does again.
export class Line {
  constructor(address, on, { lost, found }) {
    Object.assign(this, { address, on, lost, found });
    this.heard = Date.now();
    this.cut = false;
    this.times = 0;
    this.open();
    setInterval(() => this.look(), 1000);
  }

  open() {
    this.opened = Date.now();
    this.source = new EventSource(this.address);
    this.source.addEventListener("open", () => this.hear());
    this.source.addEventListener("error", () => { this.cut = true; });
    for (const [name, take] of Object.entries(this.on)) {
      this.source.addEventListener(name, (event) => { this.hear(); take(JSON.parse(event.data)); });
    }
  }

  hear() {
    this.heard = Date.now();
    if (!this.cut) return;
    this.cut = false;
    this.times += 1;
    document.body.dataset.reconnects = this.times;
    this.found();
  }

  look() {
    const silent = Date.now() - this.heard;
    if (silent > SILENT_MS) this.cut = true;
    if (!this.cut) return;
    this.lost(silent / 1000);
    // Browsers ask again by themselves, but not after every answer; and a line can be dead without their noticing.
    if (this.source.readyState === EventSource.CLOSED || Date.now() - this.opened > SILENT_MS) {
      this.source.close();
      this.open();
    }
  }
}

// Fetches JSON or bytes; null where the server is away or refuses, which the line of events says anyway.
export async function get(address, as = "json") {
  try {
    const answer = await fetch(address, { credentials: "same-origin" });
    return answer.ok ? await answer[as]() : { refused: answer.status };
  } catch {
    return null;
  }
}

// --- Tabs ---------------------------------------------------------------------------------------

// Names of streams by their name in the configuration: the parts of one that is split are together.
export function wholes(summaries) {
  const found = new Map();
  for (const { stream, whole } of summaries) found.set(whole, [...(found.get(whole) || []), stream]);
  return found;
}

// Buttons for the parts of a split stream, of which one is shown; none where it is no split.
export function parts(names, chosen, choose) {
  if (names.length < 2) return [];
  const group = element("div", { class: "row", role: "group", "aria-label": "Parts" }, ...names.map((name) => element("button", {
    type: "button", "aria-pressed": String(name === chosen),
    onclick: () => { choose(name); document.querySelector("#stream [aria-pressed=true]")?.focus(); },
  }, name)));
  return [group];
}

// Tabs by the pattern of WAI-ARIA: arrows move, one stop of the tabulator key.
export function tabs(names, chosen, choose) {
  const list = document.getElementById("tabs");
  const buttons = names.map((name) => element("button", {
    type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "stream",
    "aria-selected": String(name === chosen), tabindex: name === chosen ? "0" : "-1",
    onclick: () => pick(name),
  }, name));
  const pick = (name) => {
    for (const button of buttons) {
      const it = button.textContent === name;
      button.setAttribute("aria-selected", String(it));
      button.tabIndex = it ? 0 : -1;
      if (it) button.focus();
    }
    choose(name);
  };
  list.onkeydown = (event) => {
    const at = buttons.findIndex((button) => button.tabIndex === 0);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: names.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    pick(names[(to + names.length) % names.length]);
  };
  replace(list, ...buttons);
}
