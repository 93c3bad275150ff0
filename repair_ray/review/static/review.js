"use strict";

const main = document.getElementById("review");
const base = main.dataset.base;
const part = (name) => document.getElementById(name);
const buttons = [...document.querySelectorAll("button")];
let current = null;
let busy = false;

async function ask(path, options) {
  const answer = await fetch(base + path, options);
  if (!answer.ok) {
    throw new Error((await answer.json()).detail || answer.statusText);
  }
  return answer.json();
}

// Texts come from outside: they are set as text, never as markup.
function show(found) {
  current = found;
  part("place").textContent = `${found.at + 1} of ${found.total}`;
  part("done").textContent = `${found.done} labelled`;
  part("text").textContent = found.text;
  part("label").textContent = found.label === null ? "" : `labelled: ${found.label}`;
  part("pictures").replaceChildren();
  for (let number = 0; number < found.pictures; number += 1) {
    const picture = document.createElement("img");
    picture.alt = "this picture cannot be shown";
    picture.src = `${base}/pictures/${encodeURIComponent(found.item)}/${number}`;
    part("pictures").append(picture);
  }
  for (const button of buttons) {
    button.classList.toggle("chosen", found.label !== null && button.dataset.label === found.label);
  }
}

async function go(at) {
  show(await ask(at === null ? "/items" : `/items?at=${at}`));
}

async function press(button) {
  if (current === null || busy) {
    return;
  }
  busy = true;
  try {
    const step = Number(button.dataset.step || 1);
    if (button.dataset.label) {
      const body = JSON.stringify({ item: current.item, label: button.dataset.label });
      await ask("/labels", { method: "POST", headers: { "Content-Type": "application/json" }, body });
    }
    await go(Math.min(Math.max(current.at + step, 0), current.total - 1));
    part("problem").textContent = "";
  } catch (error) {
    part("problem").textContent = `not kept: ${error.message}`;
  } finally {
    busy = false;
  }
}

for (const button of buttons) {
  button.addEventListener("click", () => press(button));
}
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) {
    return;
  }
  const button = buttons.find((found) => found.dataset.key === event.key.toLowerCase());
  if (button) {
    event.preventDefault();
    press(button);
  }
});
go(null).catch((error) => {
  part("problem").textContent = error.message;
});
