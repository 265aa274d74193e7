// Criteria by which the agents may act: some from the start, others that the user adds.

import { byId, el } from "../dom.js";

const GIVEN = ["mean", "cvar:0.1", "cvar:0.25", "mean-std:1", "entropic:-0.5"];
const MOST = 8; // as the server allows (c2d/web/lens/commands.py)

export class Criteria {
  constructor(send) {
    this.send = send;
    this.names = [...GIVEN];
    this.accepted = { names: this.names, by: "mean" }; // what the server accepted last
    byId("by").addEventListener("input", () => this.tell());
    byId("criterion").addEventListener("keydown", (event) => event.key === "Enter" && this.add(event.target));
    this.fill("mean");
  }

  fill(by) {
    byId("by").replaceChildren(...this.names.map((name) => el("option", { value: name }, name)));
    byId("by").value = by;
  }

  tell() {
    this.send({ do: "criteria", names: this.names, by: this.names.indexOf(byId("by").value) });
  }

  /** When there are too many, the oldest of those that the user added are removed. */
  add(field) {
    const name = field.value.trim();
    if (!name) return;
    field.value = "";
    if (this.names.includes(name)) return;
    const by = byId("by").value;
    const added = [...this.names.slice(GIVEN.length), name].slice(GIVEN.length - MOST);
    this.names = [...GIVEN, ...added];
    this.fill(this.names.includes(by) ? by : "mean");
    this.tell();
  }

  /** The server accepted the last change. */
  accept() {
    this.accepted = { names: this.names, by: byId("by").value };
  }

  /** The server rejected it: restore the previous criteria. */
  reject() {
    this.names = this.accepted.names;
    this.fill(this.accepted.by);
  }
}
