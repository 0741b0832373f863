"use strict";
// Tables that sort and filter, and commands that copy. Text from the evidence is only ever moved as text nodes.
(() => {
  const SHOWN = 100;
  const number = (value) => value.toLocaleString("en-US");

  const element = (name, properties, ...children) => {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  };

  const tableTools = (section) => {
    const table = section.querySelector("table");
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row, at) => ({ row, at, text: null }));
    const textOf = (entry) => (entry.text ??= entry.row.textContent.toLowerCase());
    const heads = [...table.tHead.rows[0].cells];
    const tools = section.querySelector(".tools");
    const search = tools.querySelector("input");
    const selects = [...tools.querySelectorAll("select")];
    const all = tools.querySelector(".all");
    const output = tools.querySelector("output");
    let order = null;
    let isCut = rows.length > SHOWN;
    let isTouched = false; // the rows stand as they came

    const isNumber = (column) => heads[column].classList.contains("of-numbers");
    const key = (entry, column) => {
      const cell = entry.row.cells[column];
      if (cell.dataset.sort !== undefined) return Number(cell.dataset.sort);
      if (cell.textContent === "") return null;
      return isNumber(column) ? Number(cell.textContent.replaceAll(",", "")) : cell.textContent;
    };
    const compare = (a, b) => {
      const [x, y] = [key(a, order.column), key(b, order.column)];
      if (x === null || y === null) return (x === null) - (y === null) || a.at - b.at; // what is missing comes last either way
      const by = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
      return order.sign * by || a.at - b.at;
    };
    const show = () => {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      const chosen = selects.filter((select) => select.value).map((select) => [Number(select.dataset.column), select.value]);
      const wanted = rows.filter((entry) => words.every((word) => textOf(entry).includes(word)) && chosen.every(([column, value]) => entry.row.cells[column].textContent === value));
      if (order) wanted.sort(compare);
      if (isTouched) body.replaceChildren(...wanted.map(({ row }) => row));
      const cuts = isCut && wanted.length > SHOWN;
      table.classList.toggle("cut", cuts);
      all.hidden = !cuts;
      all.textContent = `show all ${number(wanted.length)}`;
      output.textContent = cuts ? `first ${SHOWN} of ${number(wanted.length)}` : wanted.length < rows.length ? `${number(wanted.length)} of ${number(rows.length)}` : "";
    };

    heads.forEach((head, column) => {
      const button = element("button", { type: "button" }, head.textContent);
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const wasAscending = head.getAttribute("aria-sort") === "ascending";
        const wasDescending = head.getAttribute("aria-sort") === "descending";
        const isLargestFirst = isNumber(column) || rows.some(({ row }) => row.cells[column].dataset.sort !== undefined && !row.cells[column].classList.contains("tag"));
        // numbers begin with the largest, names with the first
        const next = wasAscending ? "descending" : wasDescending ? "ascending" : isLargestFirst ? "descending" : "ascending";
        heads.forEach((each) => each.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", next);
        order = { column, sign: next === "ascending" ? 1 : -1 };
        show();
      });
    });
    for (const select of selects) {
      const values = new Set(rows.map(({ row }) => row.cells[select.dataset.column].textContent));
      select.append(...[...values].map((value) => element("option", { value }, value)));
      select.hidden = values.size < 2;
      select.addEventListener("change", show);
    }
    search.addEventListener("input", show);
    all.addEventListener("click", () => { isCut = false; show(); });
    tools.hidden = rows.length < 8;
    show();
    isTouched = true;
    return (words) => { section.querySelector("details").open = true; search.value = words; show(); };
  };

  const filters = {};
  for (const section of document.querySelectorAll("section:has(table)")) filters[section.id] = tableTools(section);

  for (const pre of document.querySelectorAll(".steps pre")) {
    const command = pre.textContent;
    const button = element("button", { type: "button" }, "copy");
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(command);
        button.textContent = "copied";
      } catch {
        getSelection().selectAllChildren(pre.firstElementChild);
        button.textContent = "selected";
      }
    });
    pre.append(button);
  }
  globalThis.report = { element, number, filters };
})();
