// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// The elements of the head view: made once, reporting what is done to them. What they show is set by
// `head.js`.

class HeadPage {
  /**
   * @param {HTMLElement} root
   * @param {Object} payload as `head.py` makes it
   * @param {HeadState} state
   * @param {HeadView} actions
   */
  constructor(root, payload, state, actions) {
    this.root = root;
    this.payload = payload;
    this.state = state;
    this.actions = actions;
    this.build();
  }

  build() {
    this.help = helpDialog(Object.keys(this.state.sides).length > 1);
    this.tip = element("div", { class: "tip", role: "tooltip", hidden: true });
    this.spoken = element("p", { class: "spoken", "aria-live": "polite" });
    this.panel = element("aside", { class: "panel", "aria-label": "Weights" });
    this.root.replaceChildren(
      element("div", { class: "top" }, this.buildTitle(), this.buildControls(), this.buildHeads()),
      this.buildStatus(),
      element("div", { class: "body" }, this.buildStage(), this.panel),
      this.buildFooter(),
      this.tip,
      this.spoken,
      this.help,
    );
  }

  buildTitle() {
    const { model } = this.payload;
    this.themeButton = signButton("◐", "Theme", () => this.actions.nextTheme(), "theme");
    return element(
      "header",
      { class: "title" },
      element("h1", { text: "Attention heads" }),
      element("bdi", { class: "model", text: model }),
      element("span", { class: "spring" }),
      signButton("SVG", "Save this picture as an SVG file", () => this.actions.save(), "svg"),
      this.themeButton,
      signButton("?", "Help", () => this.help.showModal(), "ask"),
    );
  }

  buildControls() {
    const { state } = this;
    const set = (name) => (value) => this.actions.update({ [name]: value });
    const sides = Object.keys(state.sides).map((name) => [name, SIDES[name][0]]);
    this.sideList = dropDown("side", sides, (name) => this.actions.step(() => state.turn(name)));
    this.layerList = dropDown("layer", [], (at) => this.actions.update({ layer: Number(at) }));
    this.attentionList = dropDown("attention", ATTENTION, set("attention"));
    this.opacityList = dropDown("opacity", OPACITY, set("opacity"));
    this.mass = percentSlider("mass", (percent) => this.actions.update({ mass: percent / 100 }));
    this.specialBox = checkBox("special", set("hideSpecial"));
    this.firstBox = checkBox("first", set("hideFirst"));
    const step = (by) => () => this.actions.step(() => state.stepLayer(by));
    this.pairField = field("Attention", this.attentionList);
    this.specialField = element(
      "label",
      { class: "field" },
      this.specialBox,
      element("span", { text: "Hide special tokens" }),
    );
    const sideField = field("Side", this.sideList);
    sideField.hidden = sides.length === 1;
    return element(
      "div",
      { class: "controls" },
      sideField,
      element(
        "div",
        { class: "stepper" },
        field("Layer", this.layerList),
        signButton("‹", "Previous layer", step(-1)),
        signButton("›", "Next layer", step(1)),
      ),
      this.pairField,
      field("Opacity", this.opacityList),
      field("Mass", this.mass.input, this.mass.output),
      this.specialField,
      element("label", { class: "field" }, this.firstBox, element("span", { text: "Hide first token" })),
    );
  }

  buildHeads() {
    this.squares = [];
    this.headGroup = element("div", { class: "heads", role: "group", "aria-label": "Heads" });
    return this.headGroup;
  }

  buildSquare(number, head) {
    return headSquare(number, {
      toggle: () => this.actions.step(() => this.state.toggleHead(head)),
      solo: () => this.actions.step(() => this.state.soloHead(head)),
      point: (event) => this.showTip(this.actions.headTip(head), event.target),
      leave: () => this.hideTip(),
    });
  }

  /** Put up what differs from side to side: layers, heads, headings, and room for its tokens. */
  fit(side) {
    if (this.side === side) return;
    this.side = side;
    const layers = side.layers.map((number, i) => element("option", { value: i, text: number }));
    this.layerList.replaceChildren(...layers);
    this.squares = side.heads.map((number, head) => this.buildSquare(number, head));
    this.headGroup.replaceChildren(element("span", { class: "label", text: "Heads" }), ...this.squares);
    this.pairField.hidden = !side.paired;
    this.specialField.hidden = !this.state.hasSpecial();
    ["left", "right"].forEach((column, i) => {
      const heading = SIDES[side.name][i + 1];
      this.headings[column].textContent = heading;
      this.columns[column].setAttribute("aria-label", heading);
      this.columns[column].replaceChildren();
      this.rows[column] = new Map();
    });
  }

  buildStatus() {
    this.count = element("span");
    this.badge = element("span", { class: "badge", text: "renormalised", hidden: true });
    this.lacking = element("span", { class: "badge", hidden: true });
    this.cut = element("span", { class: "badge", hidden: true });
    if (this.payload.truncated) {
      this.cut.hidden = false;
      this.cut.textContent = `${this.payload.truncated} tokens were cut off to fit the model`;
    }
    return element("p", { class: "status", role: "status" }, this.count, this.badge, this.lacking, this.cut);
  }

  buildStage() {
    this.columns = {};
    this.headings = {};
    for (const side of ["left", "right"]) {
      this.headings[side] = element("h2", { class: side });
      this.columns[side] = tokenColumn(side, {
        point: (index) => this.actions.point(side, index),
        hold: (index) => this.actions.refocus(() => this.state.hold(side, index)),
      });
    }
    this.rows = { left: new Map(), right: new Map() };
    this.canvas = element("canvas", { class: "all", "aria-hidden": "true" });
    this.overlay = element("canvas", { class: "some", "aria-hidden": "true" });
    this.stage = element("div", { class: "lines" }, this.canvas, this.overlay);
    return element(
      "div",
      { class: "stage" },
      this.headings.left,
      element("span", { class: "arrow", "aria-hidden": "true", text: "→" }),
      this.headings.right,
      this.columns.left,
      this.stage,
      this.columns.right,
    );
  }

  buildFooter() {
    const { precision, error } = this.payload;
    const scale = precision === "uint8" ? " of the largest in its row" : "";
    const text = `Weights are stored as ${precision}; each is within ${error.toPrecision(2)}${scale}.`;
    return element("footer", { text });
  }

  /** @param {Node[]} content @param {MouseEvent|HTMLElement} where */
  showTip(content, where) {
    const box = where.getBoundingClientRect ? where.getBoundingClientRect() : null;
    this.tip.replaceChildren(...content);
    this.tip.hidden = false;
    const { offsetWidth, offsetHeight } = this.tip;
    const left = Math.min(box ? box.left : where.clientX + 14, innerWidth - offsetWidth - 8);
    const below = box ? box.bottom + 6 : where.clientY + 14;
    const top = below + offsetHeight > innerHeight ? below - offsetHeight - 44 : below;
    this.tip.style.setProperty("left", `${Math.max(8, left)}px`);
    this.tip.style.setProperty("top", `${Math.max(8, top)}px`);
  }

  hideTip() {
    this.tip.hidden = true;
  }
}
