// A map without tiles: Leaflet moves and zooms it, by mouse, touch and keys; the layer of counts is coloured here.

import { colour, element, get, number, replace } from "./common.js";
import { Points } from "./points.js";

const CELL = 2, CHANGE_CELL = 12, WEIGHT_CELL = 6;
const FEW = 4000; // on the screen: so many are drawn as dots, which a single pixel would hide
const AROUND = 0.2; // of the screen on each side is coloured as well, so that it is there when the map is moved

// Ends of cividis, and of orange to blue: both told apart without red and green.
const DENSITY = {
  light: [[222, 213, 150], [166, 157, 117], [124, 123, 120], [60, 77, 110], [0, 32, 76]],
  dark: [[30, 58, 110], [87, 93, 109], [124, 123, 120], [187, 174, 107], [255, 234, 70]],
};
const LESS = [179, 88, 6], MORE = [0, 104, 178];

function isDark() {
  return getComputedStyle(document.documentElement).getPropertyValue("--paper").trim() !== "#ffffff";
}

// 256 colours as 32-bit words, first the faintest.
function ramp(stops) {
  const words = new Uint32Array(256);
  for (let i = 0; i < 256; i++) {
    const place = (i / 255) * (stops.length - 1);
    const at = Math.min(stops.length - 2, Math.floor(place)), part = place - at;
    const [r, g, b] = stops[at].map((from, channel) => Math.round(from + part * (stops[at + 1][channel] - from)));
    words[i] = ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
  }
  return words;
}

export class StreamMap {
  constructor(stream, about, { trips }) {
    Object.assign(this, { stream, about, trips, step: -1, latest: -1, first: 0, mode: trips ? "flows" : "density" });
    this.points = new Points(about);
    this.shown = {};
    this.box = element("div", { class: "map", role: "application", tabindex: "0",
      "aria-label": "Map of synthetic points. Arrow keys move it, plus and minus zoom." });
    this.said = element("p", { class: "small", role: "status" });
    this.legend = element("div", { class: "legend" });
    const modes = trips ? ["flows", "paths", "density"] : ["density", "change"];
    this.buttons = modes.map((mode) => element("button", {
      type: "button", "aria-pressed": String(mode === this.mode), onclick: () => this.choose(mode),
    }, { density: "Density", change: "Change by step", flows: "Flows", paths: "Paths" }[mode]));
    this.modes = modes;
    this.root = element("div", {},
      element("div", { class: "row", role: "group", "aria-label": "What the map shows" }, ...this.buttons),
      this.box, this.legend, this.said);
  }

  // Once the box is in the page and has a size.
  start() {
    const { points } = this;
    this.map = L.map(this.box, {
      crs: L.CRS.Simple, minZoom: -3, maxZoom: 14, zoomSnap: 0.25, zoomDelta: 1, attributionControl: false,
      renderer: L.canvas({ padding: 0.3 }), zoomAnimation: !matchMedia("(prefers-reduced-motion: reduce)").matches,
    });
    this.bounds = L.latLngBounds([0, 0], [points.height, points.width]);
    this.map.fitBounds(this.bounds);
    this.map.setMaxBounds(this.bounds.pad(1));
    this.canvas = element("canvas", { class: "counts", "aria-hidden": "true" });
    // An overlay of any element: Leaflet places it and scales it while it zooms.
    this.overlay = L.svgOverlay(this.canvas, this.bounds, { interactive: false }).addTo(this.map);
    this.lines = L.layerGroup().addTo(this.map);
    this.outline();
    this.map.on("moveend resize", () => this.draw());
    this.draw();
  }

  outline() {
    this.border?.remove();
    const { xmin, ymin, kx, ky } = this.points;
    const turned = (x) => (this.about.degrees && x < xmin - 1e-9 ? x + 360 : x);
    const lines = this.about.outline.length
      ? this.about.outline.map((line) => line.map(([x, y]) => [(y - ymin) * ky, (turned(x) - xmin) * kx]))
      : [[[0, 0], [0, this.points.width], [this.points.height, this.points.width], [this.points.height, 0], [0, 0]]];
    this.border = L.polyline(lines, { color: colour("dim"), weight: 1, opacity: 0.7, interactive: false }).addTo(this.map);
  }

  choose(mode) {
    this.mode = mode;
    this.buttons.forEach((button, at) => button.setAttribute("aria-pressed", String(this.modes[at] === mode)));
    this.draw();
    this.drawTrips();
  }

  async update() {
    let body = null;
    for (let again = 0; again < 3; again += 1) {
      body = await get(`/public/streams/${this.stream}/picture?${this.points.query()}`, "arrayBuffer");
      if (body?.refused !== 503) break; // others are being sent; beyond these turns the next step asks again
      await new Promise((done) => { setTimeout(done, 2000); });
    }
    if (!(body instanceof ArrayBuffer)) return;
    this.shown = this.points.take(body);
    this.first = this.shown.first;
    this.draw();
  }

  show(step) {
    this.step = step;
    this.draw();
    return this.drawTrips();
  }

  themed() {
    if (!this.map) return;
    this.outline();
    this.draw();
    this.drawTrips();
  }

  close() {
    this.map?.remove();
    this.map = null;
  }

  // All points are counted into the cells of the screen; where few are on it each is a dot.
  draw() {
    if (!this.map) return;
    const began = performance.now();
    const size = this.map.getSize();
    if (!size.x || !size.y) return;
    const wide = Math.ceil(size.x * (1 + 2 * AROUND)), high = Math.ceil(size.y * (1 + 2 * AROUND));
    const corner = L.point(-Math.round(size.x * AROUND), -Math.round(size.y * AROUND));
    const topLeft = this.map.containerPointToLatLng(corner);
    const bottomRight = this.map.containerPointToLatLng(corner.add([wide, high]));
    const units = wide / (bottomRight.lng - topLeft.lng); // pixels for one unit of the map
    const changes = this.mode === "change";
    const cell = changes ? CHANGE_CELL : this.about.weighted ? WEIGHT_CELL : CELL;
    const columns = Math.ceil(wide / cell), rows = Math.ceil(high / cell);
    if (!this.grid || this.grid.length !== columns * rows) this.grid = new Int32Array(columns * rows);
    const place = { left: topLeft.lng, top: topLeft.lat, zoom: units / cell };
    const found = changes
      ? this.points.change(this.grid, columns, rows, place, this.step - 1, this.step)
      : this.points.alive(this.grid, columns, rows, place, this.step);
    this.counted = found.inside;
    const faint = this.mode === "flows" || this.mode === "paths";
    const dots = found.inside <= FEW && !changes && !this.about.weighted; // a dot would hide a weight
    if (dots) this.dots(wide, high, place, cell);
    else this.cells(columns, rows, found.most, changes);
    this.canvas.style.opacity = faint ? 0.35 : 1;
    // Cells need not end where the box ends.
    const end = dots ? [wide, high] : [columns * cell, rows * cell];
    this.overlay.setBounds(L.latLngBounds(topLeft, this.map.containerPointToLatLng(corner.add(end))));
    this.explain(found, changes, cell);
    this.took = performance.now() - began;
  }

  cells(columns, rows, most, changes) {
    if (this.canvas.width !== columns) this.canvas.width = columns;
    if (this.canvas.height !== rows) this.canvas.height = rows;
    const context = this.canvas.getContext("2d");
    if (!this.image || this.image.width !== columns || this.image.height !== rows) {
      this.image = context.createImageData(columns, rows);
      this.words = new Uint32Array(this.image.data.buffer);
    }
    const { grid, words } = this;
    const top = Math.log1p(most) || 1;
    if (changes) {
      for (let i = 0; i < grid.length; i++) {
        const [r, g, b] = grid[i] > 0 ? MORE : LESS;
        const alpha = grid[i] === 0 ? 0 : 60 + Math.round((195 * Math.log1p(Math.abs(grid[i]))) / top);
        words[i] = ((alpha << 24) | (b << 16) | (g << 8) | r) >>> 0;
      }
    } else {
      const colours = ramp(DENSITY[isDark() ? "dark" : "light"]);
      // Of each count once: there are far fewer than cells.
      const known = new Uint32Array(Math.min(most, 65535) + 1);
      for (let count = 1; count < known.length; count++) known[count] = colours[Math.round((255 * Math.log1p(count)) / top)];
      for (let i = 0; i < grid.length; i++) words[i] = known[grid[i] < known.length ? grid[i] : known.length - 1];
    }
    context.putImageData(this.image, 0, 0);
  }

  dots(wide, high, place, cell) {
    this.canvas.width = wide;
    this.canvas.height = high;
    const context = this.canvas.getContext("2d");
    const { x, y, died } = this.points, end = this.points.until(this.step);
    context.fillStyle = colour("accent");
    for (let i = 0; i < end; i++) {
      if (died[i] <= this.step) continue;
      const across = (x[i] - place.left) * place.zoom * cell, down = (place.top - y[i]) * place.zoom * cell;
      if (across >= 0 && across < wide && down >= 0 && down < high) context.fillRect(across - 1.5, down - 1.5, 3, 3);
    }
  }

  async drawTrips() {
    if (!this.trips || !this.map) return;
    const asked = (this.asked = (this.asked || 0) + 1);
    if (this.mode === "density") {
      this.lines.clearLayers();
      this.drawn = null;
      return;
    }
    const found = await get(`/public/streams/${this.stream}/picture?step=${this.step}`);
    if (!found || !found.flows || asked !== this.asked) return;
    this.drawn = found;
    this.lines.clearLayers();
    const at = (x, y) => [(y - this.points.ymin) * this.points.ky, (x - this.points.xmin) * this.points.kx];
    const ink = colour("accent");
    if (this.mode === "paths") {
      for (const path of found.paths) {
        L.polyline(path.map(([x, y]) => at(x, y)), { color: ink, weight: 1.5, opacity: 0.5, interactive: false }).addTo(this.lines);
      }
    } else {
      const { side } = this.about;
      const middle = (which) => [((Math.floor(which / side) + 0.5) / side) * this.points.height,
        (((which % side) + 0.5) / side) * this.points.width];
      const most = Math.max(1, ...found.flows.map((flow) => flow[2]));
      for (const [start, end, count] of found.flows) {
        const share = Math.sqrt(count / most), style = { color: ink, opacity: 0.15 + 0.65 * share, interactive: false };
        if (start === end) L.circleMarker(middle(start), { ...style, radius: 3 + 9 * share, weight: 1, fillOpacity: 0.25 }).addTo(this.lines);
        else {
          L.polyline([middle(start), middle(end)], { ...style, weight: 0.5 + 5 * share }).addTo(this.lines);
          L.circleMarker(middle(end), { ...style, radius: 2 + 3 * share, weight: 1, fillOpacity: 1 }).addTo(this.lines);
        }
      }
    }
    this.explain({}, false, CELL);
  }

  explain(found, changes, cell) {
    const { shown } = this;
    if (shown.total !== undefined) {
      let text = `Shows ${number.format(shown.shown)} of ${number.format(shown.total)} ${shown.what} alive at the newest step`;
      if (shown.shown < shown.total) text += ", a sample by a hash of their keys";
      if (this.drawn && this.mode === "paths") {
        text += `; ${number.format(this.drawn.paths.length)} of ${number.format(this.drawn.trips)} paths of this step`;
      } else if (this.drawn && this.mode === "flows") {
        text += `; the ${number.format(this.drawn.flows.length)} largest of ${number.format(this.drawn.flows_total)} flows of this step, `
          + "between cells of a fixed grid; a dot is where they end";
      }
      if (this.said.textContent !== `${text}.`) this.said.textContent = `${text}.`;
    }
    if (this.mode === "flows" || this.mode === "paths") { // the points are faint behind the lines: their scale says nothing of these
      this.explained = this.mode;
      replace(this.legend, this.mode === "flows" ? "a line is wider and darker where more trips go" : "each line is a synthetic trip");
      return;
    }
    if (found.inside === undefined) return;
    const key = `${this.mode} ${found.most} ${found.inside <= FEW} ${isDark()}`;
    if (key === this.explained) return;
    this.explained = key;
    if (changes) {
      const swatch = (rgb) => {
        const made = element("span", { class: "key" });
        made.style.background = `rgb(${rgb.join(",")})`;
        return made;
      };
      replace(this.legend, element("span", {}, swatch(LESS), "fewer than a step before"),
        element("span", {}, swatch(MORE), "more"),
        `up to ${number.format(found.most)} in a square of ${cell} pixels`);
    } else if (found.inside <= FEW && !this.about.weighted) {
      replace(this.legend, "each synthetic point is a dot");
    } else {
      const scale = element("canvas", { width: 256, height: 1, role: "img", "aria-label": "colours from one point to the most" });
      const image = new ImageData(256, 1);
      new Uint32Array(image.data.buffer).set(ramp(DENSITY[isDark() ? "dark" : "light"]));
      scale.getContext("2d").putImageData(image, 0, 0);
      replace(this.legend, "1", scale, `${number.format(found.most)} ${this.about.weighted ? "events" : "points"} in a square of ${cell} pixels, on a logarithmic scale`);
    }
  }
}
