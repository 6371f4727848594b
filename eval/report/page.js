"use strict";

// Level k of 0 to 255 for a sparsity in [0, 1], as jax.numpy.round(255 * s) in single precision: halves go to the even one.
function threshold(level) {
  const scaled = Math.fround(Math.fround(level) * 255);
  const below = Math.floor(scaled);
  const rest = scaled - below;
  if (rest !== 0.5) return rest < 0.5 ? below : below + 1;
  return below % 2 === 0 ? below : below + 1;
}

// The root of every pixel's region: an edge ties its two pixels unless its entry level is at most the threshold.
function regionsAt(sample, level) {
  const { height, width, down, right } = sample;
  const limit = threshold(level);
  const parent = new Int32Array(height * width);
  for (let pixel = 0; pixel < parent.length; pixel++) parent[pixel] = pixel;
  const find = (pixel) => {
    while (parent[pixel] !== pixel) {
      parent[pixel] = parent[parent[pixel]];
      pixel = parent[pixel];
    }
    return pixel;
  };
  const tie = (one, other) => {
    const a = find(one), b = find(other);
    if (a < b) parent[b] = a;
    else parent[a] = b;
  };
  for (let row = 0; row < height; row++) {
    for (let column = 0; column < width; column++) {
      const pixel = row * width + column;
      if (row + 1 < height && down[pixel] > limit) tie(pixel, pixel + width);
      if (column + 1 < width && right[row * (width - 1) + column] > limit) tie(pixel, pixel + 1);
    }
  }
  for (let pixel = 0; pixel < parent.length; pixel++) parent[pixel] = find(pixel);
  return parent;
}

// The image at a level, as isvs.ScaleSpace.at gives it: values in [0, 1], [height, width, channels] in one array.
function smoothAt(sample, level) {
  const { channels, image } = sample;
  const roots = regionsAt(sample, level);
  const sums = new Float64Array(image.length);
  const sizes = new Int32Array(roots.length);
  for (let pixel = 0; pixel < roots.length; pixel++) {
    sizes[roots[pixel]]++;
    for (let c = 0; c < channels; c++) sums[roots[pixel] * channels + c] += image[pixel * channels + c];
  }
  const values = new Float64Array(image.length);
  let regions = 0;
  for (let pixel = 0; pixel < roots.length; pixel++) {
    if (roots[pixel] === pixel) regions++;
    for (let c = 0; c < channels; c++) {
      values[pixel * channels + c] = sums[roots[pixel] * channels + c] / sizes[roots[pixel]] / 255;
    }
  }
  return { values, regions };
}

function draw(canvas, sample, values) {
  const { height, width, channels } = sample;
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d");
  const picture = context.createImageData(width, height);
  for (let pixel = 0; pixel < height * width; pixel++) {
    for (let c = 0; c < 3; c++) {
      picture.data[pixel * 4 + c] = Math.round(255 * values[pixel * channels + (channels === 3 ? c : 0)]);
    }
    picture.data[pixel * 4 + 3] = 255;
  }
  context.putImageData(picture, 0, 0);
}

function bytes(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

function readSamples(data) {
  const { height, width, channels } = data;
  return data.samples.map(({ name, image, down, right }) => ({
    name, height, width, channels, image: bytes(image), down: bytes(down), right: bytes(right),
  }));
}

function startViewer(samples, level) {
  const at = (id) => document.getElementById(id);
  const slider = at("level");
  let chosen = samples[0];

  function show() {
    const now = Number(slider.value);
    const { values, regions } = smoothAt(chosen, now);
    draw(at("smoothed"), chosen, values);
    at("level-text").textContent = now.toFixed(2);
    const pixels = chosen.height * chosen.width;
    const words = `${regions.toLocaleString("en")} ${regions === 1 ? "region" : "regions"}`;
    at("regions").textContent = `${words} of ${pixels.toLocaleString("en")} pixels`;
    slider.setAttribute("aria-valuetext", `${now.toFixed(2)}, ${words}`);
    at("smoothed-caption").textContent = `${chosen.name}, level ${now.toFixed(2)}`;
    at("smoothed").setAttribute("aria-label", `${chosen.name} at level ${now.toFixed(2)}`);
  }

  function choose(sample) {
    chosen = sample;
    draw(at("original"), sample, smoothAt(sample, 1).values);
    for (const [k, button] of [...at("chooser").children].entries()) {
      button.setAttribute("aria-pressed", String(samples[k] === sample));
    }
    at("original-caption").textContent = `${sample.name}, as it is`;
    at("original").setAttribute("aria-label", `${sample.name}, as it is`);
    show();
  }

  for (const sample of samples) {
    const button = document.createElement("button");
    button.type = "button";
    const thumbnail = document.createElement("canvas");
    draw(thumbnail, sample, smoothAt(sample, 1).values);
    button.append(thumbnail, sample.name);
    button.addEventListener("click", () => choose(sample));
    at("chooser").append(button);
  }
  slider.value = String(level);
  slider.addEventListener("input", show);
  at("viewer").hidden = false;
  choose(chosen);
}

// Numbers by value and texts by letters; empty cells stay last in both directions.
function sortTable(heading) {
  const ascending = heading.getAttribute("aria-sort") !== "ascending";
  const place = [...heading.parentElement.children].indexOf(heading);
  const body = heading.closest("table").tBodies[0];
  const key = (line) => {
    const text = line.children[place].dataset.sort;
    if (text === undefined) return null;
    return Number.isNaN(Number(text)) ? text : Number(text);
  };
  const compare = (a, b) => {
    const left = key(a), right = key(b);
    if (left === null || right === null) return (left === null) - (right === null);
    const bothNumbers = typeof left === "number" && typeof right === "number";
    const order = bothNumbers ? left - right : String(left).localeCompare(String(right));
    return ascending ? order : -order;
  };
  for (const other of heading.parentElement.children) other.setAttribute("aria-sort", "none");
  heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
  body.append(...[...body.rows].sort(compare));
}

async function copy(button) {
  const source = document.getElementById(button.dataset.copy);
  try {
    await navigator.clipboard.writeText(source.textContent);
    button.textContent = "Copied";
  } catch {
    // Not every browser lets a file on disk write to the clipboard: select it, so that a key copies it.
    getSelection().selectAllChildren(source);
    button.textContent = "Selected";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
}

const data = JSON.parse(document.getElementById("data").textContent);
const samples = readSamples(data);
if (samples.length) startViewer(samples, data.level);
for (const button of document.querySelectorAll("table[data-sortable] th button")) {
  button.addEventListener("click", () => sortTable(button.parentElement));
}
for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", () => copy(button));
}
// On paper nothing can be unfolded.
addEventListener("beforeprint", () => {
  for (const folded of document.querySelectorAll("details")) folded.open = true;
});
