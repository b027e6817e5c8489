"""What a browser tells about a page: texts that are hard to read, what Tab reaches, and what lies beyond the screen."""

from __future__ import annotations

from playwright.sync_api import Page, expect  # pyright: ignore[reportMissingImports]  a suite imports this

_LEAST = 4.5  # WCAG 2.2, level AA, text of normal size

# The colours that a text and its background have after all layers and opacities; a control that is off may be pale
_FAINT = """least => {
  const context = Object.assign(document.createElement("canvas"), {width: 1, height: 1})
    .getContext("2d", {willReadFrequently: true});
  const colour = text => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = text;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data];
  };
  const over = (above, below, opacity) => [0, 1, 2].map(i => above[i] * opacity + below[i] * (1 - opacity));
  const light = rgb => {
    const [r, g, b] = rgb.map(c => c / 255).map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = matchMedia("(prefers-color-scheme: dark)").matches ? [0, 0, 0] : [255, 255, 255];
  const ratio = element => {
    const parents = [];
    for (let one = element; one; one = one.parentElement) parents.unshift(getComputedStyle(one));
    const layers = parents.map(style => colour(style.backgroundColor));
    const below = layers.reduce((under, one) => over(one, under, one[3] / 255), paper);
    const text = colour(getComputedStyle(element).color);
    const opacity = parents.reduce((share, style) => share * style.opacity, text[3] / 255);
    const [dark, bright] = [light(over(text, below, opacity)), light(below)].sort((a, b) => a - b);
    return (bright + 0.05) / (dark + 0.05);
  };
  return [...document.querySelectorAll("body *")]
    .filter(one => one.checkVisibility() && !one.closest(":disabled"))
    .filter(one => [...one.childNodes].some(node => node.nodeType === Node.TEXT_NODE && node.textContent.trim()))
    .map(one => [ratio(one), one.outerHTML.slice(0, 120)])
    .filter(([ratio]) => ratio < least)
    .map(([ratio, html]) => `${ratio.toFixed(2)} ${html}`);
}"""
_CONTROLS = """[...document.querySelectorAll("a[href],button,select,textarea,input,summary,[tabindex]")]
  .filter(one => one.checkVisibility() && !one.disabled && one.tabIndex >= 0)"""


def faint_texts(page: Page) -> list[str]:
    """Visible texts whose contrast with what is behind them is below 4.5, each with its contrast."""
    return page.evaluate(_FAINT, _LEAST)


def out_of_reach(page: Page) -> list[str]:
    """Visible controls that Tab, pressed from the top of the page to its end, does not reach, or whose focus cannot be seen."""
    n_controls = page.evaluate(f"{_CONTROLS}.map((one, i) => one.dataset.nth = i).length")
    page.evaluate("document.activeElement.blur()")
    seen = set()
    for _ in range(2 * n_controls):  # once around, also if a control has come meanwhile
        page.keyboard.press("Tab")
        nth, outline = page.evaluate(
            "(style => [document.activeElement.dataset.nth, style.outlineStyle !== 'none' && parseFloat(style.outlineWidth)])"
            "(getComputedStyle(document.activeElement))"
        )
        if nth is not None and outline:
            seen.add(int(nth))
    html = page.evaluate(
        f"{_CONTROLS}.filter(one => one.dataset.nth).map(one => [+one.dataset.nth, one.outerHTML.slice(0, 120)])"
    )
    return [text for nth, text in html if nth not in seen]


def notice_beside_the_key(page: Page, key: str) -> str:
    """What the line for everybody says after a key that the server does not take; "" if it is hidden. The clock of the page is
    replaced."""
    page.clock.install()
    page.fill("#key-text", key)
    page.press("#key-text", "Enter")
    expect(page.locator("#key-why")).to_contain_text("never did")
    page.clock.run_for(5000)
    notice = page.locator("#notice")
    return notice.inner_text() if notice.is_visible() else ""


def word_of_end(page: Page, how: str) -> str:
    """The word with which the page begins to say that a process has ended so."""
    return page.evaluate("how => import('/page/format.js').then(it => it.ending(how, 1).split(' ')[0])", how)
