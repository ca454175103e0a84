// Elements, and the two pictures of the overview: what was mistaken for what, and the run's curves.

const SVG = "http://www.w3.org/2000/svg"; // a name, not an address
const WIDEST = 100; // classes in the matrix
const COUNTED = 30; // classes up to which its cells have room for numbers

/** An element with attributes; children are elements or text, never markup. */
function make(tag, attributes = {}, ...children) {
  return dress(document.createElement(tag), attributes, children);
}

function draw(tag, attributes = {}, ...children) {
  return dress(document.createElementNS(SVG, tag), attributes, children);
}

function dress(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) if (value !== undefined && value !== false) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const formatted = new Intl.NumberFormat("en");
const count = (n) => formatted.format(n);
const several = (n, one, many = one + "s") => `${count(n)} ${n === 1 ? one : many}`;

/** A share in percent, with a digit more where it is small or nearly all. */
function percent(share) {
  const near = Math.min(share, 1 - share);
  return `${(100 * share).toFixed(near > 0 && near < 0.02 ? 1 : 0)}\u00a0%`;
}

/** The chance that a label is wrong, of which nobody can be certain. */
function chance(wrong) {
  return wrong > 0.999 ? ">\u00a099.9\u00a0%" : wrong < 0.001 ? "<\u00a00.1\u00a0%" : percent(wrong);
}

/** Somebody's name as it can be shown: on one line, nothing in it invisible or able to turn the text around. */
function shown(name) {
  const plain = name.replace(/\s+/gu, " ").replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Co}]/gu, (c) => (c === "\u200d" ? c : "\ufffd"));
  return plain.trim() === "" ? "(empty)" : plain;
}

/** A grid of buttons: row what it seems to be, column what it was given. `choose(pair)` is told of clicks. */
class Matrix {
  constructor(place, note, classes, choose) {
    Object.assign(this, { place, note, classes, choose, chosen: null });
    place.addEventListener("keydown", (event) => this.move(event));
  }

  draw(suspects, chosen) {
    const counts = new Map();
    const involved = new Map();
    for (const { given, suggestion } of suspects) {
      if (given === suggestion) continue;
      const key = `${suggestion} ${given}`;
      counts.set(key, (counts.get(key) ?? 0) + 1);
      for (const c of [given, suggestion]) involved.set(c, (involved.get(c) ?? 0) + 1);
    }
    let shownClasses = this.classes.map((_, i) => i);
    if (shownClasses.length > WIDEST) {
      shownClasses = [...involved.keys()].sort((a, b) => involved.get(b) - involved.get(a)).slice(0, WIDEST).sort((a, b) => a - b);
    }
    const n = shownClasses.length;
    const order = new Map(shownClasses.map((c, i) => [c, i]));
    const most = Math.max(1, ...counts.values());
    const short = shownClasses.every((c) => this.classes[c].length <= 2);
    const grid = make("div", { class: `grid${n > COUNTED ? " many" : ""}${short ? " short" : ""}`, role: "group" });
    grid.setAttribute("aria-label", "Pairs of classes: row what it seems to be, column what it was given");
    grid.style.setProperty("--n", n);
    for (const [c, i] of order) {
      for (const side of ["row", "column"]) {
        const name = make("span", { class: side, title: shown(this.classes[c]) }, make("bdi", {}, shown(this.classes[c])));
        name.style.gridRow = side === "row" ? i + 2 : 1;
        name.style.gridColumn = side === "row" ? 1 : i + 2;
        grid.append(name);
      }
      const diagonal = make("span", { class: "diagonal" });
      diagonal.style.gridArea = `${i + 2} / ${i + 2}`;
      grid.append(diagonal);
    }
    const cells = [];
    for (const [key, number] of counts) {
      const [suggestion, given] = key.split(" ").map(Number);
      if (!order.has(suggestion) || !order.has(given)) continue;
      cells.push({ key, number, row: order.get(suggestion), column: order.get(given), pair: { suggestion, given } });
    }
    cells.sort((a, b) => a.row - b.row || a.column - b.column);
    for (const { key, number, row, column, pair } of cells) {
      const words = `${shown(this.classes[pair.suggestion])}, given as ${shown(this.classes[pair.given])}: ${count(number)}`;
      const cell = make("button", { type: "button", title: words, "aria-label": words, "aria-pressed": key === chosen, "data-key": key });
      if (n <= COUNTED) cell.append(number < 1000 ? String(number) : `${Math.round(number / 1000)}k`);
      const heat = 12 + 88 * (number / most);
      cell.classList.toggle("warm", heat > 52);
      cell.classList.toggle("hot", heat > 80);
      cell.style.setProperty("--heat", `${heat.toFixed(0)}%`);
      cell.style.gridArea = `${row + 2} / ${column + 2}`;
      cell.tabIndex = -1;
      cell.addEventListener("click", () => this.choose(pair));
      grid.append(cell);
    }
    const focused = this.place.contains(document.activeElement) && document.activeElement.dataset.key;
    const axes = make("p", { class: "axes" }, "Rows: what it seems to be. Columns: what it was given.");
    this.place.replaceChildren(axes, make("div", { class: "scroll" }, grid));
    const entry = grid.querySelector("[aria-pressed=true]") ?? grid.querySelector("button");
    if (entry) entry.tabIndex = 0;
    if (focused) grid.querySelector(`[data-key="${focused}"]`)?.focus();
    const some = `The ${n} classes with the most suspects, of ${count(this.classes.length)}.`;
    this.note.textContent = n < this.classes.length ? some : cells.length ? "" : "No pairs.";
  }

  /** Arrow keys go to the nearest button in that direction; only one is in the tab order. */
  move(event) {
    const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    const from = event.target.closest("button");
    if (!step || !from) return;
    event.preventDefault();
    const at = (cell) => [parseInt(cell.style.gridRowStart), parseInt(cell.style.gridColumnStart)];
    const [row, column] = at(from);
    let best = null;
    for (const cell of this.place.querySelectorAll("button")) {
      const [r, c] = at(cell);
      const ahead = (r - row) * step[0] + (c - column) * step[1];
      const aside = Math.abs((r - row) * step[1]) + Math.abs((c - column) * step[0]);
      if (ahead > 0 && (!best || ahead + 3 * aside < best.far)) best = { cell, far: ahead + 3 * aside };
    }
    if (!best) return;
    from.tabIndex = -1;
    best.cell.tabIndex = 0;
    best.cell.focus();
  }
}

/** The run's curves in percent over epochs. */
function drawCurves(place, epochs, curves) {
  const [width, height, left, right, top, bottom] = [340, 190, 34, 8, 10, 26];
  const last = Math.max(...epochs, 1);
  const first = Math.min(...epochs, last - 1);
  const x = (epoch) => left + ((epoch - first) / (last - first)) * (width - left - right);
  const y = (value) => top + (1 - value / 100) * (height - top - bottom);
  const figure = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-labelledby": "curves-title" });
  const ends = curves.map(([name, values]) => [name, values.findLast((value) => value !== null)]);
  const words = ends.map(([name, value]) => `${name} ${value.toFixed(1)} %`).join(", ");
  figure.append(draw("title", { id: "curves-title" }, `Curves over ${several(last, "epoch")}; at the end: ${words}`));
  for (const value of [0, 25, 50, 75, 100]) {
    figure.append(draw("line", { class: "rule", x1: left, x2: width - right, y1: y(value), y2: y(value) }));
    figure.append(draw("text", { x: left - 6, y: y(value) + 3.5, "text-anchor": "end" }, value === 100 ? "100 %" : String(value)));
  }
  for (const epoch of ticks(first, last)) {
    figure.append(draw("line", { class: "tick", x1: x(epoch), x2: x(epoch), y1: y(0), y2: y(0) + 4 }));
    figure.append(draw("text", { x: x(epoch), y: height - 9, "text-anchor": "middle" }, String(epoch)));
  }
  const legend = make("ul", { class: "legend" });
  curves.forEach(([name, values], i) => {
    let pen = "M";
    const path = values.map((value, k) => {
      if (value === null) return (pen = "M"), "";
      const piece = `${pen}${x(epochs[k]).toFixed(1)} ${y(value).toFixed(1)}`;
      pen = "L";
      return piece;
    });
    figure.append(draw("path", { class: `curve c${i}`, d: path.join("") }));
    const stroke = draw("path", { class: `curve c${i}`, d: "M0 2H22" });
    const swatch = draw("svg", { class: "swatch", viewBox: "0 0 22 4", "aria-hidden": "true" }, stroke);
    legend.append(make("li", {}, swatch, name, make("b", {}, `${ends[i][1].toFixed(1)}\u00a0%`)));
  });
  place.replaceChildren(figure, legend, make("p", { class: "small" }, "Over epochs; numbers are those of the last one."));
}

/** Some five round numbers from first to last. */
function ticks(first, last) {
  const rough = Math.max((last - first) / 5, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const found = [];
  for (let tick = Math.ceil(first / step) * step; tick <= last; tick += step) found.push(tick);
  return found;
}
