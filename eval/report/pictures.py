"""Pictures of a report: the live viewer of the scale space, and what the network looks at."""

import base64
import io
import json
from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np
from PIL import Image

from eval.report.read import Run, Samples

# Hidden until the script shows it. The ids are those of page.js.
VIEWER = """<p>Move the slider: the page itself smooths the image, by the entry level of each edge. Pixels whose edges
are not yet kept are tied together, and every region shows its mean colour.</p>
<noscript><p>This needs JavaScript.</p></noscript>
<div class="viewer" id="viewer" hidden>
<div class="chooser" id="chooser" role="group" aria-label="Sample image"></div>
<div class="pictures">
<figure><canvas id="smoothed" role="img"></canvas><figcaption id="smoothed-caption"></figcaption></figure>
<figure><canvas id="original" role="img"></canvas><figcaption id="original-caption"></figcaption></figure></div>
<label class="slider" for="level"><span>Level <output id="level-text" for="level"></output></span>
<input type="range" id="level" min="0" max="1" step="0.01"></label>
<p class="regions" id="regions"></p></div>"""


def sample_data(run: Run | None) -> str:
    """The samples for the script, in JSON that cannot end its element."""
    content: dict[str, Any] = {"level": 0.6, "samples": []}
    if run is not None and run.samples is not None:
        samples = run.samples
        content["level"] = run.evaluation.get("sparsity") or content["level"]
        _, height, width, channels = samples.images.shape
        content.update(height=height, width=width, channels=channels)
        content["samples"] = [
            {
                "name": name,
                "image": _base64(samples.images[k].tobytes()),
                "down": _base64(samples.down[k].tobytes()),
                "right": _base64(samples.right[k].tobytes()),
            }
            for k, name in enumerate(_sample_names(samples, run.evaluation))
        ]
    text = json.dumps(content, allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _sample_names(samples: Samples, evaluation: Mapping[str, Any]) -> list[str]:
    classes = evaluation.get("class_names") or []
    return [
        str(classes[label]) if 0 <= label < len(classes) else f"class {label}"
        for label in samples.labels.tolist()
    ]


def panels(run: Run, *, several: bool) -> str:
    """Pictures of what the network looks at, a small table per sample; empty if the run has none."""
    samples = run.samples
    if samples is None or samples.panels is None or not samples.panels.size:
        return ""
    names = _sample_names(samples, run.evaluation)
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in samples.panel_columns)
    figures = []
    for pictures, name in zip(samples.panels, names, strict=True):
        lines = "".join(
            f'<tr><th scope="row">{escape(row)}</th>{_pictures(line, samples, f"{name}, {row}")}</tr>'
            for line, row in zip(pictures, samples.panel_rows, strict=True)
        )
        figures.append(
            f"<figure><figcaption>{escape(name)}</figcaption><table><thead><tr><td></td>{head}</tr>"
            f"</thead><tbody>{lines}</tbody></table></figure>"
        )
    title = f"<h3>{escape(run.label)}</h3>" if several else ""
    return f'{title}<div class="panels">{"".join(figures)}</div>'


def _pictures(line: np.ndarray, samples: Samples, words: str) -> str:
    return "".join(
        f'<td><img alt="{escape(f"{words}, {column}")}" src="{_png(pixels)}"></td>'
        for pixels, column in zip(line, samples.panel_columns, strict=True)
    )


def _png(pixels: np.ndarray) -> str:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "png", optimize=True)
    return f"data:image/png;base64,{_base64(buffer.getvalue())}"


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
