// Filters and sorts the tables. Without it every page is whole: it only hides and orders rows.
"use strict";

const SHOWN_AT_ONCE = 300;
const NUMBERS = ["value", "nodes", "per W", "per 1000 US$", "values", "best decode"];
const waiting = new Map(); // files of further rows, by name: what to do with them

// Called by the files rows~N.js, which hold the rows of the other pages of the table of all results.
function nixwulfRows(name, html) {
  waiting.get(name)(html);
}

function load(name) {
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    waiting.set(name, resolve);
    script.src = name;
    script.onerror = reject;
    document.head.append(script);
  });
}

function rowsOf(html) {
  const template = document.createElement("template");
  template.innerHTML = `<table><tbody>${html}</tbody></table>`;
  return [...template.content.querySelectorAll("tr")];
}

// What a cell names: each of its links, or its text, without the small print under it.
function names(cell) {
  const links = [...cell.querySelectorAll("a")].map((link) => link.textContent);
  return links.length ? links : [cell.firstChild?.textContent.trim() ?? ""];
}

const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

// Values of one unit stand together, those of the most common one first: 300 ms is neither more nor
// less than 200 tok/s.
function compare(a, b, ascending, units) {
  if (a.empty !== b.empty) return a.empty ? 1 : -1;
  if (a.unit !== b.unit) return units.indexOf(a.unit) - units.indexOf(b.unit);
  const order = a.number === null ? collator.compare(a.text, b.text) : a.number - b.number;
  return ascending ? order : -order;
}

// What a row is sorted by; unit is that of its value, which its value per W is in too.
function keyOf(row, columns, column) {
  const text = names(row.cells[columns.indexOf(column)]).join(" ");
  const value = row.cells[columns.indexOf("value")];
  const number = NUMBERS.includes(column) ? parseFloat(text) : NaN;
  const unit = column === "nodes" ? "" : (value?.querySelector("small")?.textContent ?? "");
  const empty = text === "" || (NUMBERS.includes(column) && Number.isNaN(number));
  return { text, unit: Number.isNaN(number) ? "" : unit, empty, number: Number.isNaN(number) ? null : number };
}

function byFrequency(words) {
  const counts = new Map();
  for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1);
  return [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a) || collator.compare(a, b));
}

class Rows {
  constructor(table, form, status, pagers) {
    Object.assign(this, { table, form, status, pagers });
    this.body = table.tBodies[0];
    this.heads = [...table.tHead.rows[0].cells];
    this.columns = this.heads.map((head) => head.dataset.column);
    this.rows = [...this.body.rows];
    this.rest = (table.dataset.rest ?? "").split(" ").filter(Boolean);
    this.sort = "";
    this.ascending = true;
    this.limit = SHOWN_AT_ONCE;
    this.more = document.createElement("button");
    this.more.className = "more";
    this.more.type = "button";
    this.more.hidden = true;
    this.more.addEventListener("click", () => {
      this.limit += SHOWN_AT_ONCE;
      this.show();
    });
    table.parentElement.after(this.more);
    this.heads.forEach((head) => this.addButton(head));
  }

  addButton(head) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const column = head.dataset.column;
      // The first click puts the highest number, or the first word, on top.
      const first = !head.classList.contains("number");
      this.ascending = this.sort === column ? !this.ascending : first;
      this.sort = column;
      this.changed();
    });
  }

  changed() {
    this.limit = SHOWN_AT_ONCE;
    if (this.form) this.remember();
    return this.show();
  }

  async show() {
    if (this.rest.length) {
      const files = this.rest;
      this.rest = [];
      if (this.status) this.status.textContent = "Reading all rows …";
      const parts = await Promise.all(files.map(load));
      for (const html of parts) this.rows.push(...rowsOf(html));
    }
    const found = this.rows.filter((row) => this.wanted(row));
    if (this.sort) {
      const keys = new Map(found.map((row) => [row, keyOf(row, this.columns, this.sort)]));
      const units = byFrequency([...keys.values()].map((key) => key.unit));
      found.sort((a, b) => compare(keys.get(a), keys.get(b), this.ascending, units));
    }
    this.heads.forEach((head) => {
      if (head.dataset.column !== this.sort) head.removeAttribute("aria-sort");
      else head.setAttribute("aria-sort", this.ascending ? "ascending" : "descending");
    });
    const shown = found.slice(0, this.limit);
    this.body.replaceChildren(...shown);
    this.pagers.forEach((pager) => (pager.hidden = true));
    this.more.hidden = shown.length === found.length;
    this.more.textContent = `Show ${Math.min(SHOWN_AT_ONCE, found.length - shown.length)} more`;
    if (this.status) {
      const first = shown.length < found.length ? `, the first ${shown.length} shown` : "";
      this.status.textContent = `${found.length} of ${this.rows.length} rows${first}.`;
    }
  }

  wanted(row) {
    if (!this.form) return true;
    row.words ??= row.textContent.toLowerCase();
    for (const [name, value] of new FormData(this.form)) {
      if (!value) continue;
      if (name === "q") {
        const words = value.toLowerCase().split(/\s+/);
        if (!words.every((word) => row.words.includes(word))) return false;
      } else if (!names(row.cells[this.columns.indexOf(name)]).includes(value)) {
        return false;
      }
    }
    return true;
  }

  // The state is the address's fragment, so that it can be sent to others and 'back' works.
  remember() {
    const state = new URLSearchParams();
    for (const [name, value] of new FormData(this.form)) if (value) state.set(name, value);
    if (this.sort) state.set("sort", (this.ascending ? "" : "-") + this.sort);
    const fragment = state.toString();
    history.replaceState(null, "", fragment ? `#${fragment}` : location.pathname);
  }

  recall() {
    const state = new URLSearchParams(location.hash.slice(1));
    let known = false;
    for (const field of this.form.elements) {
      if (!field.name) continue;
      field.value = state.get(field.name) ?? "";
      if (field.value !== (state.get(field.name) ?? "")) field.value = "";
      known ||= field.value !== "";
    }
    const sort = state.get("sort") ?? "";
    const column = sort.replace(/^-/, "");
    this.sort = this.columns.includes(column) ? column : "";
    this.ascending = !sort.startsWith("-");
    return known || this.sort !== "";
  }
}

for (const table of document.querySelectorAll("table[data-all]")) {
  const form = "rest" in table.dataset ? document.querySelector("form.filter") : null;
  const status = form && document.querySelector("[data-status]");
  const rows = new Rows(table, form, status, form ? document.querySelectorAll(".pager") : []);
  if (form) {
    form.hidden = false;
    form.addEventListener("input", () => rows.changed());
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("reset", () => {
      rows.sort = "";
      setTimeout(() => rows.changed());
    });
    addEventListener("hashchange", () => {
      rows.recall();
      rows.show();
    });
    if (rows.recall()) rows.show().then(() => form.closest("section").scrollIntoView());
  }
}
