// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// What is done to a matrix with a pointer, a wheel and a keyboard. What that means for what is shown,
// `matrix.js` knows.

/** The pointer may move so far, in pixels, between pressing and letting go of a click. */
const STILL = 4;

export class MatrixInput {
  /** @param {import("./matrix.js").Matrix} matrix */
  constructor(matrix) {
    this.matrix = matrix;
    /** @type {{x: number, y: number, row: number, column: number, moved: boolean}|null} */
    this.held = null;
    this.listen();
  }

  listen() {
    const { stage, overview } = this.matrix;
    stage.addEventListener("pointerdown", (event) => this.press(event));
    stage.addEventListener("pointermove", (event) => this.move(event));
    stage.addEventListener("pointerup", (event) => this.release(event));
    stage.addEventListener("pointerleave", () => this.leave());
    stage.addEventListener("dblclick", (event) => this.matrix.zoom(2, this.matrix.placeOf(event)));
    stage.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    stage.addEventListener("keydown", (event) => this.key(event));
    stage.addEventListener("blur", () => this.leave());
    for (const kind of ["pointerdown", "pointermove"]) {
      overview.addEventListener(kind, (event) => event.buttons && this.centre(event));
    }
  }

  // Pointing

  press(event) {
    if (event.button !== 0) return;
    this.held = { ...this.matrix.placeOf(event), row: this.matrix.window.row, column: this.matrix.window.column, moved: false };
    this.matrix.stage.setPointerCapture(event.pointerId);
  }

  move(event) {
    const at = this.matrix.placeOf(event);
    if (this.held) this.drag(at);
    if (this.held && this.held.moved) return;
    this.matrix.pointAt(this.matrix.cellAt(at), event);
  }

  drag(at) {
    const [across, down] = [at.x - this.held.x, at.y - this.held.y];
    if (Math.hypot(across, down) > STILL) this.held.moved = true;
    if (!this.held.moved) return;
    this.matrix.window.row = this.held.row - down / this.matrix.window.size;
    this.matrix.window.column = this.held.column - across / this.matrix.window.size;
    this.matrix.within();
    this.matrix.paintSoon();
  }

  release(event) {
    const { held } = this;
    this.held = null;
    const cell = held && !held.moved ? this.matrix.cellAt(this.matrix.placeOf(event)) : null;
    if (cell) this.matrix.actions.hold("left", this.matrix.selection.queries[cell.query]);
  }

  leave() {
    this.matrix.pointAt(null, null);
  }

  /** Ctrl and the wheel zoom; the wheel alone moves the window, where there is more to see. */
  wheel(event) {
    const zooms = event.ctrlKey || event.metaKey;
    if (!zooms && this.matrix.side.hidden) return;
    event.preventDefault();
    if (zooms) return this.matrix.zoom(Math.exp(-event.deltaY / 300), this.matrix.placeOf(event));
    this.matrix.window.row += event.deltaY / this.matrix.window.size;
    this.matrix.window.column += event.deltaX / this.matrix.window.size;
    this.matrix.within();
    this.matrix.paintSoon();
  }

  /** Put the middle of the window where the overview was pressed. */
  centre(event) {
    const box = this.matrix.overview.getBoundingClientRect();
    const { grid, place, window } = this.matrix;
    const part = [(event.clientY - box.top) / box.height, (event.clientX - box.left) / box.width];
    window.row = part[0] * grid.rows - place.height / window.size / 2;
    window.column = part[1] * grid.columns - place.width / window.size / 2;
    this.matrix.within();
    this.matrix.paintSoon();
  }

  // Keyboard

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const ways = { "+": () => this.matrix.zoom(2), "-": () => this.matrix.zoom(0.5), 0: () => this.matrix.showAll(), Enter: () => this.holdCell() };
    const act = steps[event.key] ? () => this.step(...steps[event.key]) : ways[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  holdCell() {
    if (this.matrix.cell) this.matrix.actions.hold("left", this.matrix.selection.queries[this.matrix.cell.query]);
  }

  /** Move the crosshair by cells, and the window with it. */
  step(down, across) {
    const { grid, window, place } = this.matrix;
    const start = { query: Math.ceil(window.row), key: Math.ceil(window.column) };
    const from = this.matrix.cell || { query: start.query - down, key: start.key - across };
    const clamp = (value, count) => Math.max(0, Math.min(value, count - 1));
    const cell = { query: clamp(from.query + down, grid.rows), key: clamp(from.key + across, grid.columns) };
    const seen = { row: place.height / window.size, column: place.width / window.size };
    window.row = Math.min(cell.query, Math.max(window.row, cell.query + 1 - seen.row));
    window.column = Math.min(cell.key, Math.max(window.column, cell.key + 1 - seen.column));
    this.matrix.within();
    this.matrix.pointAt(cell, this.matrix.stage);
    this.matrix.paintSoon();
    this.matrix.actions.speak(this.matrix.tip(cell).map((node) => node.textContent).join(", "));
  }
}
