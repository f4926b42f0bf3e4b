"""The documentation as it is built: its search in a real browser, its pages on a phone and as Markdown."""

import http.server
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from urllib.parse import quote_plus

import pytest
from browser import Tab
from checkout import ROOT

#: What somebody types, and the page that must come first.
SEARCHES = {
    "multi gpu": "how-to/several-ranks",
    "multi-gpu": "how-to/several-ranks",
    "distributed": "how-to/several-ranks",
    "fsdp": "how-to/several-ranks",
    "mixed precision": "how-to/batches-and-precision",
    "fp16": "how-to/batches-and-precision",
    "gradient accumulation": "how-to/batches-and-precision",
    "oom": "how-to/batches-and-precision",
    "out of memory": "how-to/batches-and-precision",
    "inference": "how-to/use-what-was-trained",
    "export": "how-to/use-what-was-trained",
    "predict": "how-to/use-what-was-trained",
    "hydra": "how-to/coming-from-hydra",
    "optuna": "how-to/coming-from-optuna",
    "lightning": "how-to/coming-from-lightning",
    "lora": "how-to/coming-from-hugging-face",
    "packing": "how-to/coming-from-hugging-face",
    "Fine-tuning": "how-to/coming-from-hugging-face",
    "glossary": "glossary",
    "faq": "faq",
    "pickle": "security",
    "resume after crash": "how-to/resume",
    "preemption": "how-to/resume",
    "spot instances": "how-to/mirror-and-resume-elsewhere",
    "wandb": "reference/reporters",
    "MLflow": "reference/reporters",
    "tensorboard": "reference/reporters",
    "early stopping": "reference/callbacks",
    "gradient clipping": "reference/callbacks",
    "learning rate": "authors/trainers",
    "checkpoint": "concepts/checkpoints",
    "S3": "how-to/data-sources",
    "dataloader": "how-to/data-sources",
    "num_workers": "how-to/transform-batches",
    "kubernetes": "how-to/run-on-kubernetes",
    "k8s": "how-to/run-on-kubernetes",
    "slurm": "how-to/run-on-slurm",
    "multi node": "how-to/run-on-several-machines",
    "shuffle": "concepts/data-order",
    "seed": "concepts/data-order",
    "reproducible": "concepts/data-order",
    "nan loss": "how-to/debug-a-step",
    "hyperparameter tuning": "how-to/sweeps",
    "grid search": "how-to/sweeps",
    "docker": "how-to/build-an-image",
    "dashboard": "how-to/watch-jobs-in-the-browser",
    "validation": "how-to/validate-and-test",
    "pretrained weights": "how-to/inputs-and-weights",
    "exit code": "concepts/ends",
    "api key": "how-to/secrets",
    "config": "how-to/job-files",
    "install": "install",
}
FIRST = "document.querySelector('#search-results li a')"
OVER = f"Boolean({FIRST}) || /did not match/.test(document.querySelector('#search-results')?.textContent)"
#: What is wider than the page, and lies in nothing that scrolls.
TOO_WIDE = """
[...document.querySelectorAll('article *')].filter((one) => {
  if (one.getBoundingClientRect().right <= innerWidth + 1 || !one.checkVisibility()) return false;
  for (let around = one.parentElement; around; around = around.parentElement)
    if (getComputedStyle(around).overflowX !== 'visible') return false;
  return true;
}).map((one) => one.outerHTML.slice(0, 100))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages, as ``make docs`` builds them."""
    built = tmp_path_factory.mktemp("documentation")
    for builder in ("html", "markdown"):
        command = [sys.executable, "-m", "sphinx", "-W", "-q", "-a", "-b", builder, "-d", str(built / "doctrees")]
        subprocess.run([*command, str(ROOT / "docs"), str(built / "pages")], check=True)
    return built / "pages"


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_what: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_each_search_puts_the_page_that_is_meant_first(open_tab: Callable[..., Tab], address: str) -> None:
    tab = open_tab(f"{address}/index.html")
    found = {}
    for words in SEARCHES:
        tab.call("Page.navigate", url=f"{address}/search.html?q={quote_plus(words)}")
        tab.until(f"new URLSearchParams(location.search).get('q') === {words!r} && ({OVER})")
        found[words] = tab.js(f"{FIRST}?.pathname.slice(1).replace('.html', '')")
    assert found == SEARCHES


@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_is_wider_than_a_window(open_tab: Callable[..., Tab], site: Path, address: str, width: int) -> None:
    tab = open_tab(f"{address}/index.html", width=width)
    too_wide = {}
    for page in sorted(site.rglob("*.html")):
        name = str(page.relative_to(site))
        tab.call("Page.navigate", url=f"{address}/{name}")
        tab.until(f"location.pathname === '/{name}' && document.readyState === 'complete'")
        if found := tab.js(TOO_WIDE):
            too_wide[name] = found[0]
    assert not too_wide


def test_a_job_is_shown_in_three_formats_and_an_installation_with_two_programs(
    open_tab: Callable[..., Tab], address: str
) -> None:
    tab = open_tab(f"{address}/tutorial.html")
    labels = "[...document.querySelectorAll('.sd-tab-label')].map((one) => one.textContent.trim())"
    assert tab.js(labels) == ["pip", "uv", "pip", "uv", "JSON", "YAML", "TOML"]
    tab.js("[...document.querySelectorAll('.sd-tab-label')].find((one) => one.textContent.trim() === 'YAML').click()")
    shown = "[...document.querySelectorAll('.sd-tab-content')].filter((one) => one.checkVisibility()).at(-1)"
    assert "trainer: circle" in tab.js(f"{shown}.textContent")


def test_a_command_is_copied_without_its_prompt_and_what_it_prints(open_tab: Callable[..., Tab], address: str) -> None:
    tab = open_tab(f"{address}/tutorial.html")
    tab.js(
        "const field = () => [...document.querySelectorAll('textarea')].at(-1);"  # in which the button puts the text
        "document.execCommand = () => { window.copied = field().value; return true };"
        "[...document.querySelectorAll('div.highlight-console')].find((one) => one.textContent.includes('samples/s'))"
        ".querySelector('button.copybtn').click()"
    )
    assert tab.until("window.copied") == "hostcore run job.json"


def test_each_page_is_there_as_markdown_and_the_lists_name_them_all(site: Path) -> None:
    pages = {str(page.relative_to(site).with_suffix("")) for page in site.rglob("*.html")}
    pages -= {"genindex", "search", "py-modindex"}
    assert pages == {str(page.relative_to(site).with_suffix("")) for page in site.rglob("*.md")}
    listed = re.findall(r"^- \[.*?\]\((.*?)\.md\)", (site / "llms.txt").read_text(), re.MULTILINE)
    assert set(listed) == pages - {"index"}
    whole = (site / "llms-full.txt").read_text()
    assert set(re.findall(r"^<!-- (.*)\.md -->$", whole, re.MULTILINE)) == pages - {"index", "changelog"}
    assert "```python" in whole
    assert "data:image" not in whole


def test_the_index_has_three_doors_of_six_pages_and_groups_of_seven(open_tab: Callable[..., Tab], address: str) -> None:
    tab = open_tab(f"{address}/index.html")
    cards = tab.js(
        "[...document.querySelectorAll('article .sd-card')].map((one) => one.querySelectorAll('li a').length)"
    )
    assert max(cards[:3]) <= 6
    assert max(cards[3:]) <= 7
