"use strict";

const form = document.getElementById("questions");
const fields = [...form.querySelectorAll("fieldset")];
const part = (name) => document.getElementById(name);
const chosen = (field) => field.querySelector("input:checked");
const kept = new Map(fields.map((field) => [field, chosen(field)]));
let pending = Promise.resolve();

function mark(field, focus = true) {
  for (const other of fields) {
    other.classList.toggle("marked", other === field);
  }
  if (field && focus) {
    field.focus(); // not one of its answers: none is to be nearer than the others
  }
}

function state() {
  const open = fields.filter((field) => !chosen(field)).length;
  const next = part("forward") ? "Press f for the next one." : "This is the last one.";
  part("state").textContent = open ? `${open} of ${fields.length} questions are open.` : `All are answered. ${next}`;
}

async function put(field) {
  const input = chosen(field);
  const body = JSON.stringify({ item: form.dataset.item, question: field.dataset.question, answer: input.value });
  const headers = { "Content-Type": "application/json" };
  try {
    const told = await fetch(`${form.dataset.base}/answers`, { method: "POST", headers, body, keepalive: true });
    const found = await told.json().catch(() => ({}));
    if (!told.ok) {
      throw new Error(found.detail || told.statusText);
    }
    kept.set(field, input);
    part("progress").value = found.done;
    part("done").textContent = found.done;
    part("problem").textContent = "";
  } catch (error) {
    // What is not on the disk is not shown as answered.
    input.checked = false;
    if (kept.get(field)) {
      kept.get(field).checked = true;
    }
    part("problem").textContent = `Not kept: ${error.message}. Is the command still running?`;
  }
  state();
}

// One after another, so that the last choice is the last line.
function keep(field) {
  pending = pending.then(() => put(field));
}

function answer(field, value) {
  field.querySelector(`input[value="${value}"]`).checked = true;
  keep(field);
  const next = fields[fields.indexOf(field) + 1];
  if (next) {
    mark(next);
  } else {
    mark(null);
    (part("forward") || form).focus();
  }
  state();
}

async function follow(link) {
  await pending;
  if (part("problem").textContent === "") {
    location.assign(link.href);
  }
}

for (const field of fields) {
  field.addEventListener("focusin", () => mark(field, false));
  field.addEventListener("change", () => {
    keep(field);
    state();
  });
}
for (const link of form.querySelectorAll("nav a")) {
  link.addEventListener("click", (event) => {
    event.preventDefault();
    follow(link);
  });
}

const links = { b: "back", f: "forward", o: "open" };
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) {
    return;
  }
  const key = event.key.toLowerCase();
  const marked = fields.find((field) => field.classList.contains("marked"));
  const value = [...form.querySelectorAll("input")].find((input) => input.value.startsWith(key) && key.length === 1);
  if (key in links && part(links[key])) {
    event.preventDefault();
    follow(part(links[key]));
  } else if (key >= "1" && key <= String(fields.length)) {
    event.preventDefault();
    mark(fields[Number(key) - 1]);
  } else if (value && marked) {
    event.preventDefault();
    answer(marked, value.value);
  }
});

mark(fields.find((field) => !chosen(field)) || null);
state();
