"use strict";

document.getElementById("join").addEventListener("submit", (event) => {
  event.preventDefault();
  const name = document.getElementById("name").value;
  location.assign(`${document.querySelector("main").dataset.base}/as/${encodeURIComponent(name)}`);
});
