"""The page in a browser, as wide as a phone: it smooths as the library does, sorts, and makes no errors."""

import html
import json
import re
import shutil
import subprocess

import jax
import numpy as np
import pytest

import isvs
from eval import report

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium or google-chrome found")

# 255 * s is a half at .1, .3, .5, .7 and .9: there the way of rounding shows.
LEVELS = [0, 0.02, 0.1, 0.25, 0.3, 0.5, 0.6, 0.7, 0.77, 0.9, 0.99, 1]

CATCH = """<script>
const problems = [];
addEventListener("error", (event) => problems.push(String(event.message)));
addEventListener("unhandledrejection", (event) => problems.push(String(event.reason)));
addEventListener("securitypolicyviolation", (event) => problems.push(event.violatedDirective));
console.error = (...words) => problems.push(words.join(" "));
</script>"""

ACT = """<script>
addEventListener("load", async () => {
  const canvas = document.getElementById("smoothed"), slider = document.getElementById("level");
  const state = () => ({
    picture: [...canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data].join(),
    level: document.getElementById("level-text").textContent,
    regions: document.getElementById("regions").textContent,
  });
  const move = (level) => {
    slider.value = String(level);
    slider.dispatchEvent(new Event("input"));
    return state();
  };
  const column = (table, place) => [...table.tBodies[0].rows].map((row) => row.children[place].textContent.trim());
  const start = state();
  const moved = [0, 0.5, 1].map(move);
  document.querySelectorAll("#chooser button")[1].click();
  const other = state();
  const table = document.querySelector("#suite-1 table");
  const sorts = [];
  for (const place of [1, 1, 0]) {
    const heading = table.tHead.rows[0].children[place];
    heading.querySelector("button").click();
    sorts.push([heading.getAttribute("aria-sort"), column(table, place)]);
  }
  const marked = table.querySelectorAll("th[aria-sort=ascending], th[aria-sort=descending]").length;
  const copying = document.querySelector("[data-copy]");
  copying.click();
  await new Promise((done) => setTimeout(done, 100));
  parent.postMessage(JSON.stringify({
    problems, start, moved, other, sorts, marked, copying: copying.textContent,
    width: innerWidth, contentWidth: document.documentElement.scrollWidth,
    smoothed: samples.map((sample) => LEVELS.map((level) => {
      const { values, regions } = smoothAt(sample, level);
      return { values: [...values], regions };
    })),
  }), "*");
});
</script>"""

OUTER = """<!DOCTYPE html><body style="margin:0"><pre id="found"></pre><script>
addEventListener("message", (event) => { document.getElementById("found").textContent = event.data; });
</script><iframe src="page.html" style="border:0;width:390px;height:900px"></iframe></body>"""


def images():
    """Two colour images with plateaus and noise, of unequal sides: uint8 [2, 9, 12, 3]."""
    random = np.random.default_rng(3)
    blocks = random.integers(30, 226, (2, 3, 4, 3)).repeat(3, axis=1).repeat(3, axis=2)
    return (blocks + random.integers(-25, 26, blocks.shape)).astype(np.uint8)


def write_evaluation(folder, space):
    rows = []
    for place, name in enumerate(("a_rather_long_name_of_a_corruption", "fog", "snow", "frost")):
        for preprocess in ("none", "paper", "soft", "auto"):
            # As texts, 9 would come after 80.
            value = (80.0, 9.0, 55.5, 100.0)[place]
            row = {"suite": "corruptions", "name": name, "metric": "accuracy", "value": value}
            rows.append(row | {"preprocess": preprocess, "low": value, "high": value, "n": 100})
    rows += [
        rows[0] | {"severity": severity, "value": 80.0 - severity, "low": 70, "high": 80}
        for severity in range(1, 6)
    ]
    (folder / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    evaluation = {"run": "a" * 80, "sparsity": 0.6, "command": "python " + "b" * 200}
    (folder / "evaluation.json").write_text(json.dumps(evaluation))
    np.savez(
        folder / "samples.npz",
        images=images(),
        down=np.asarray(space.down),
        right=np.asarray(space.right),
        labels=np.zeros(2, np.int32),
    )


@pytest.fixture(scope="module")
def space():
    return jax.jit(isvs.encode)(images().astype(np.float32) / 255)


@pytest.fixture(scope="module")
def found(space, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    write_evaluation(folder, space)
    page, _ = report.write([folder], folder)
    act = ACT.replace("LEVELS", json.dumps(LEVELS))
    text = page.read_text().replace("<head>", f"<head>{CATCH}").replace("</body>", f"{act}</body>")
    (folder / "page.html").write_text(text)
    (folder / "outer.html").write_text(OUTER)
    command = [
        *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *("--disable-background-networking", "--no-first-run", "--enable-logging=stderr"),
        f"--user-data-dir={folder / 'profile'}",
        *("--virtual-time-budget=5000", "--dump-dom", (folder / "outer.html").as_uri()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    match = re.search(r'<pre id="found">(.+?)</pre>', done.stdout, re.S)
    assert match, done.stdout[-2000:] + done.stderr[-2000:]
    # The test itself reads the canvas often, which the browser remarks on.
    said = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    assert [line for line in said if "willReadFrequently" not in line] == []
    return json.loads(html.unescape(match[1]))


def test_page_makes_no_errors(found):
    assert found["problems"] == []


def test_page_smooths_as_the_library(found, space):
    for number, level in enumerate(LEVELS):
        expected = np.asarray(space.at(level))
        pages = [sample[number]["values"] for sample in found["smoothed"]]
        np.testing.assert_allclose(np.reshape(pages, expected.shape), expected, atol=1e-5)


def test_number_of_regions_is_that_of_the_library(found, space):
    for number, level in enumerate(LEVELS):
        down, right = space.support(level)
        labels = np.asarray(isvs.connected_components(~down, ~right))
        expected = [len(np.unique(image)) for image in labels]
        assert [sample[number]["regions"] for sample in found["smoothed"]] == expected


def test_slider_changes_picture_and_words(found, space):
    none, half, whole = found["moved"]
    pictures = [state["picture"] for state in (found["start"], none, half, whole, found["other"])]
    assert len(set(pictures)) == 5
    assert found["start"]["level"] == "0.60"
    assert [state["level"] for state in found["moved"]] == ["0.00", "0.50", "1.00"]
    assert none["regions"] == "1 region of 108 pixels"
    shown = np.array(whole["picture"].split(","), int).reshape(9, 12, 4)
    np.testing.assert_array_equal(shown[..., :3], images()[0])


def test_headings_sort_numbers_and_words(found):
    (up, rising), (down, falling), (_, words) = found["sorts"]
    assert (up, down) == ("ascending", "descending")
    numbers = [float(text.split()[0]) for text in rising]
    assert numbers == [9, 55.5, 80, 100]
    assert [float(text.split()[0]) for text in falling] == numbers[::-1]
    assert words == sorted(words)
    assert found["marked"] == 1


def test_phone_needs_no_sideways_scrolling(found):
    assert found["width"] == 390
    assert found["contentWidth"] <= 390


def test_copy_button_answers(found):
    assert found["copying"] in ("Copied", "Selected")
