// Points of a stream as typed arrays, and how many of them fall into each cell of a screen. No drawing here.

const ALIVE = 0x7fffffff;

export class Points {
  constructor(about) {
    const [xmin, ymin, xmax, ymax] = about.bounds;
    // A degree of longitude is shorter than one of latitude, by the cosine of the middle.
    const squeeze = about.degrees ? Math.cos(((ymin + ymax) / 2) * Math.PI / 180) : 1;
    const scale = 512 / Math.max((xmax - xmin) * squeeze, ymax - ymin);
    Object.assign(this, { xmin, ymin, kx: scale * squeeze, ky: scale, weighted: about.weighted });
    this.width = (xmax - xmin) * this.kx;
    this.height = (ymax - ymin) * this.ky;
    this.clear();
  }

  clear() {
    this.generation = -1;
    this.count = 0;
    this.deaths = 0;
    this.x = new Float32Array(1024);
    this.y = new Float32Array(1024);
    this.born = new Int32Array(1024);
    this.died = new Int32Array(1024);
    this.weight = this.weighted ? new Int32Array(1024) : null; // without weights each point is one
  }

  query() {
    return `generation=${this.generation}&points=${this.count}&deaths=${this.deaths}`;
  }

  // Takes in what the server sent; see PointPicture.body. Returns its header.
  take(buffer) {
    const words = new DataView(buffer).getUint32(0, true);
    const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, words)));
    if (header.generation !== this.generation) this.clear();
    this.generation = header.generation;
    const added = header.points - header.from_point;
    const dead = header.deaths - header.from_death;
    let at = 4 + words;
    const xy = new Float32Array(buffer, at, 2 * added); at += 8 * added;
    const born = new Int32Array(buffer, at, added); at += 4 * added;
    const weight = this.weighted ? new Int32Array(buffer, at, added) : null; at += weight ? 4 * added : 0;
    const gone = new Int32Array(buffer, at, dead); at += 4 * dead;
    const when = new Int32Array(buffer, at, dead);
    this.room(header.points);
    for (let i = 0; i < added; i++) {
      const to = header.from_point + i;
      this.x[to] = xy[2 * i] * this.kx;
      this.y[to] = xy[2 * i + 1] * this.ky;
      this.born[to] = born[i];
      this.died[to] = ALIVE;
      if (weight) this.weight[to] = weight[i];
    }
    for (let i = 0; i < dead; i++) this.died[gone[i]] = when[i];
    this.count = header.points;
    this.deaths = header.deaths;
    return header;
  }

  room(count) {
    if (count <= this.x.length) return;
    const size = Math.max(count, 2 * this.x.length);
    for (const name of ["x", "y", "born", "died", ...(this.weighted ? ["weight"] : [])]) {
      const larger = new this[name].constructor(size);
      larger.set(this[name].subarray(0, this.count));
      this[name] = larger;
    }
  }

  // Points come in the order of their steps: how many were born up to a step.
  until(step) {
    let low = 0, high = this.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.born[middle] <= step) low = middle + 1; else high = middle;
    }
    return low;
  }

  // Counts of the points alive at `step` in cells of a screen: `left` and `top` are the map's x and y of its corner, where
  // y grows upwards, and `zoom` is cells for one unit. Returns how many lie on the screen, and the fullest cell.
  alive(grid, columns, rows, { left, top, zoom }, step) {
    const { x, y, died, weight } = this;
    const end = this.until(step);
    grid.fill(0);
    let inside = 0, most = 0;
    for (let i = 0; i < end; i++) {
      if (died[i] <= step) continue;
      const column = (x[i] - left) * zoom, row = (top - y[i]) * zoom;
      if (column >= 0 && column < columns && row >= 0 && row < rows) {
        const count = (grid[(row | 0) * columns + (column | 0)] += weight ? weight[i] : 1);
        if (count > most) most = count;
        inside++;
      }
    }
    return { inside, most };
  }

  // The same of those that appeared, less those that were withdrawn, after `from` and up to `step`. Signed.
  change(grid, columns, rows, { left, top, zoom }, from, step) {
    const { x, y, born, died, weight } = this;
    const end = this.until(step);
    grid.fill(0);
    let inside = 0;
    for (let i = 0; i < end; i++) {
      const sign = (born[i] > from ? 1 : 0) - (died[i] > from && died[i] <= step ? 1 : 0);
      if (sign === 0) continue;
      const column = (x[i] - left) * zoom, row = (top - y[i]) * zoom;
      if (column >= 0 && column < columns && row >= 0 && row < rows) {
        grid[(row | 0) * columns + (column | 0)] += weight ? sign * weight[i] : sign;
        inside++;
      }
    }
    let most = 0;
    for (const count of grid) most = Math.max(most, Math.abs(count));
    return { inside, most };
  }
}
