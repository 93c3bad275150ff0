"use strict";

// The search over the evaluation set. All data lie in the page; texts come from outside and are set as text only.
const data = JSON.parse(document.getElementById("search-data").textContent);
const part = (name) => document.getElementById(name);
const STEP = 6;
let found = [];
let shown = 0;

const plain = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
const texts = data.captions.map((caption) => plain(caption.text));

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) {
    element.className = className;
  }
  if (text !== undefined) {
    element.textContent = text;
  }
  return element;
}

function stateOf(item) {
  const [before, after] = item.rank;
  if (!before || !after) {
    return "";
  }
  if ((before === 1) === (after === 1)) {
    return after === 1 ? "right" : "wrong";
  }
  return after === 1 ? "fixed" : "broken";
}

function search() {
  const words = plain(part("search-words").value).split(/\s+/).filter(Boolean);
  const kind = part("search-kind").value;
  const direction = part("search-direction").value;
  const says = (place) => words.every((word) => texts[place].includes(word));
  found = [];
  data.images.forEach((image, number) => {
    const said = image.captions.filter(says);
    if (words.length && !said.length) {
      return;
    }
    const asked = [];
    if (direction !== "t2i") {
      asked.push(image);
    }
    if (direction !== "i2t") {
      asked.push(...said.map((place) => data.captions[place]));
    }
    if (kind === "any" || asked.some((item) => stateOf(item) === kind)) {
      found.push({ number, said: words.length ? new Set(said) : new Set() });
    }
  });
  part("search-hits").replaceChildren();
  shown = 0;
  more();
}

function more() {
  const next = found.slice(shown, shown + STEP);
  part("search-hits").append(...next.map(card));
  shown += next.length;
  const what = found.length === 1 ? "picture" : "pictures";
  part("search-count").textContent =
    found.length === 0 ? "Nothing in this file fits." : `${shown} of ${found.length} ${what} that fit.`;
  part("search-more").hidden = shown === found.length;
  return next.length;
}

function describe(number) {
  const first = data.images[number].captions[0];
  return first === undefined ? "no caption" : data.captions[first].text;
}

function picture(number) {
  if (!data.pictures[number]) {
    return make("span", "missing", `picture not in this file: ${describe(number)}`);
  }
  const image = make("img");
  image.src = data.pictures[number];
  image.alt = `picture described as: ${describe(number)}`;
  return image;
}

function outside(text) {
  const element = make("span", "", text);
  element.dir = "auto";
  return element;
}

function ranks(item) {
  const [before, after] = item.rank.map((rank) => rank || "–");
  const state = stateOf(item);
  const line = make("span", "ranks");
  const said = { fixed: "wrong → right", broken: "right → wrong", right: "right in both", wrong: "wrong in both" };
  line.append(make("b", "", `rank ${before} → ${after}`));
  if (state) {
    const mark = { fixed: "good", broken: "bad" }[state] || "soft";
    line.append(" ", make("span", mark, said[state]));
  }
  return line;
}

// What a query ranked first: a list before, and one after the repair; made when it is opened.
function ranking(item, isImage) {
  const details = make("details");
  details.append(make("summary", "", isImage ? "captions ranked first" : "pictures ranked first"));
  details.addEventListener("toggle", () => {
    if (!details.open || details.childElementCount > 1) {
      return;
    }
    const columns = make("div", "columns");
    ["before", "now"].forEach((name, which) => {
      const column = make("div");
      const list = make("ol");
      column.append(make("small", "soft", name), list);
      item.top[which].forEach((place, number) => {
        const line = make("li");
        const right = number + 1 === item.rank[which];
        if (right) {
          line.append(make("span", "good", "✓ right "));
        }
        if (place < 0) {
          line.append(make("span", "soft", "not in this file"));
        } else {
          line.append(isImage ? outside(data.captions[place].text) : picture(place));
        }
        list.append(line);
      });
      if (!item.top[which].length) {
        column.append(make("small", "", "not kept by this run"));
      }
      columns.append(column);
    });
    details.append(columns);
  });
  return details;
}

function card({ number, said }) {
  const image = data.images[number];
  const item = make("li", "tile");
  const about = make("div");
  about.append(make("small", "soft", "image → caption"), ranks(image), ranking(image, true));
  const head = make("div", "head");
  head.append(picture(number), about);
  const list = make("ul");
  for (const place of image.captions) {
    const caption = data.captions[place];
    const line = make("li", said.has(place) ? "said" : "");
    line.append(outside(caption.text), ranks(caption), ranking(caption, false));
    list.append(line);
  }
  item.append(head, make("small", "soft", "caption → image"), list);
  return item;
}

part("search-words").addEventListener("input", search);
part("search-kind").addEventListener("change", search);
part("search-direction").addEventListener("change", search);
part("search-more").addEventListener("click", () => {
  const before = shown;
  more();
  // Who pressed the button goes on reading at the first of the new ones.
  const first = part("search-hits").children[before];
  if (first) {
    first.tabIndex = -1;
    first.focus();
  }
});
part("search-off").hidden = true;
part("search").hidden = false;
search();
