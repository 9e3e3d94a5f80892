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
    this.help = helpDialog();
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
    const layers = this.payload.layers.map((number, i) => [String(i), String(number)]);
    this.layerList = dropDown("layer", layers, (at) => this.actions.update({ layer: Number(at) }));
    this.attentionList = dropDown("attention", state.pairs(), set("attention"));
    this.opacityList = dropDown("opacity", OPACITY, set("opacity"));
    this.mass = percentSlider("mass", (percent) => this.actions.update({ mass: percent / 100 }));
    this.specialBox = checkBox("special", set("hideSpecial"));
    const step = (by) => () => this.actions.step(() => state.stepLayer(by));
    const fields = [
      element(
        "div",
        { class: "stepper" },
        field("Layer", this.layerList),
        signButton("‹", "Previous layer", step(-1)),
        signButton("›", "Next layer", step(1)),
      ),
      field("Attention", this.attentionList),
      field("Opacity", this.opacityList),
      field("Mass", this.mass.input, this.mass.output),
      element("label", { class: "field" }, this.specialBox, element("span", { text: "Hide special tokens" })),
    ];
    if (state.pairs().length === 1) fields[1].hidden = true;
    if (!state.special.size) fields[4].hidden = true;
    return element("div", { class: "controls" }, ...fields);
  }

  buildHeads() {
    this.squares = this.payload.heads.map((number, head) =>
      headSquare(number, {
        toggle: () => this.actions.step(() => this.state.toggleHead(head)),
        solo: () => this.actions.step(() => this.state.soloHead(head)),
        point: (event) => this.showTip(this.actions.headTip(head), event.target),
        leave: () => this.hideTip(),
      }),
    );
    return element(
      "div",
      { class: "heads", role: "group", "aria-label": "Heads" },
      element("span", { class: "label", text: "Heads" }),
      ...this.squares,
    );
  }

  buildStatus() {
    this.count = element("span");
    this.badge = element("span", { class: "badge", text: "renormalised", hidden: true });
    this.badge.title = "Special tokens are left out; the other weights of each row are scaled up to a sum of one.";
    this.cut = element("span", { class: "badge", hidden: true });
    if (this.payload.truncated) {
      this.cut.hidden = false;
      this.cut.textContent = `${this.payload.truncated} tokens were cut off to fit the model`;
    }
    return element("p", { class: "status", role: "status" }, this.count, this.badge, this.cut);
  }

  buildStage() {
    this.columns = {};
    for (const [side, label] of [["left", "attends from"], ["right", "attended to"]]) {
      this.columns[side] = tokenColumn(side, label, {
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
      element("h2", { class: "left", text: "attends from" }),
      element("span", { class: "arrow", "aria-hidden": "true", text: "→" }),
      element("h2", { class: "right", text: "attended to" }),
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
