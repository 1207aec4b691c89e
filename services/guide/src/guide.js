// Copy buttons and search of the guide. Without JavaScript, the pages can be read, but they have neither of the two.
"use strict";

for (const block of document.querySelectorAll("pre")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    const text = block.querySelector("code").textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      // Browsers allow access to the clipboard only over HTTPS or on localhost. Elsewhere the text is selected instead.
      getSelection().selectAllChildren(block.querySelector("code"));
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  block.append(button);
}

// On wide screens, the list of pages is open at first.
document.getElementById("pages").open = matchMedia("(min-width: 40rem)").matches;

const RESULTS_MAX = 12;
const input = document.getElementById("search");
const found = document.getElementById("found");
let sections;

async function search() {
  const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) {
    found.replaceChildren();
    return;
  }
  sections ??= fetch("search.json").then((response) => response.json());
  const hits = (await sections).filter((section) => words.every((word) => section.text.includes(word)));
  const inHeading = (section) => words.filter((word) => section.heading.toLowerCase().includes(word)).length;
  hits.sort((one, other) => inHeading(other) - inHeading(one));
  const items = hits.slice(0, RESULTS_MAX).map((section) => {
    const item = document.createElement("li");
    const link = document.createElement("a");
    link.href = section.at;
    link.textContent = section.heading;
    const page = document.createElement("small");
    page.textContent = ` ${section.page}`;
    item.append(link, page);
    return item;
  });
  if (items.length === 0) {
    const item = document.createElement("li");
    item.textContent = "No section contains all of these words.";
    items.push(item);
  }
  found.replaceChildren(...items);
}

input.addEventListener("input", search);
