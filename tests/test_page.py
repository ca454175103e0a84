"""The review page as a person uses it, in a real browser."""

import re
import time

import numpy as np
import pytest
from browsing import CLASSES, CURRENT, FLAGGED, LABELS, MADE, current, expect, press, reload, shown, states, sync_api
from pages import page, table

from sprl.audit import judge
from sprl.report import thumbnail


def test_it_opens_with_the_estimate_and_the_most_suspicious(visit):
    tab = visit()
    rate, low, high = (f"{100 * share:.0f}" for share in (MADE.verdict.rate, MADE.verdict.low, MADE.verdict.high))
    expect(tab.locator("#estimate"), f"About {rate}\u00a0% of 240 labels are wrong ({low} to {high}\u00a0%).")
    expect(tab.locator("#scope"), f"{len(FLAGGED)} labels look wrong")
    expect(tab.locator("#progress"), f"0 of {len(FLAGGED)} reviewed")
    assert shown(tab) == len(FLAGGED)
    assert current(tab) == FLAGGED.index[0]
    assert tab.locator("#gallery img").first.evaluate("image => image.decode().then(() => image.naturalWidth)") == 32
    assert tab.locator("#curves path.curve").count() == 6  # three, and as many in the legend
    assert "test accuracy 60.0 %" in tab.locator("#curves title").text_content()


def test_what_cannot_be_told_is_not(visit):
    unclear = page(table(240, CLASSES, wrong=0), CLASSES)
    assert not unclear.verdict.clear
    tab = visit(unclear)
    expect(tab.locator("#estimate"), "cannot be told clearly (estimates: 0 to")
    expect(tab.locator("#scope"), "No label is flagged; ")
    assert {seems.text_content() for seems in tab.locator("#gallery .seems dd").all()} == {"none clearly"}
    assert all(tab.locator("#gallery .seems dd").evaluate_all("them => them.map(it => it.scrollWidth <= it.clientWidth)"))


def test_a_guess_is_not_sold_with_a_number(visit):
    quality = 1 / (1 + np.exp(-np.random.default_rng(0).normal(0.7, 1.3, 240)))
    wrong = judge(quality)
    guessed = LABELS.assign(label_quality=quality, wrong_probability=wrong.wrong, is_label_issue=wrong.wrong > 0.5)
    assert not wrong.clear
    assert guessed["is_label_issue"].sum() > 5
    tab = visit(page(guessed, CLASSES))
    expect(tab.locator("#scope"), f"{guessed['is_label_issue'].sum()} labels are flagged, on a guess; ")
    expect(tab.locator("#scope"), "Review by rank: the most suspicious first")
    expect(tab.locator("#above"), "at or above it; how many of them are wrong cannot be told.")
    expect(tab.locator(".slider"), "which is not a probability")
    ranks = [f"no. {place}" for place in range(1, shown(tab) + 1)]
    assert tab.locator("#gallery .chance").all_text_contents() == ranks
    card = tab.locator("#gallery > li").first.get_attribute("aria-label")
    assert "no. 1, open" in card
    assert "likely" not in card
    tab.locator("#threshold").fill("0")
    press(tab, "x " * 50)
    expect(tab.locator("#found"), "Of 50 checked, 0 were wrong: precision 0\u00a0% (0 to 5\u00a0%).")


def test_a_cell_of_the_matrix_shows_its_pair_alone(visit):
    tab = visit()
    pairs = FLAGGED.groupby(["predicted_label", "given_label"]).size()
    cells = [cell.get_attribute("aria-label") for cell in tab.locator("#matrix button").all()]
    assert sorted(cells) == sorted(f"{a}, given as {b}: {n}" for (a, b), n in pairs.items())
    bees = tab.get_by_role("button", name="bee, given as ant")
    bees.click()
    assert shown(tab) == pairs["bee", "ant"]
    assert set(tab.locator("#gallery .given dd").all_text_contents()) == {"ant"}
    expect(tab.locator("#clear"), "bee given as ant")
    assert bees.get_attribute("aria-pressed") == "true"
    bees.click()
    assert shown(tab) == len(FLAGGED)
    bees.focus()
    press(tab, "ArrowDown Enter")  # the next cell with anything in it, by keyboard
    assert shown(tab) == pairs["cat", "bee"]
    press(tab, "Escape")
    assert shown(tab) == len(FLAGGED)


def test_every_key(visit):
    tab = visit()
    press(tab, "a Enter x Space s")
    assert states(tab)[:6] == ["accepted", "accepted", "kept", "kept", "skipped", "open"]
    press(tab, "o")
    assert tab.locator("#other").is_visible()
    tab.keyboard.type(LABELS["given_label"][FLAGGED.index[5]])
    press(tab, "Enter")
    assert states(tab)[5] == "kept"  # the given label, though chosen from the list
    press(tab, "o ArrowDown Escape")
    assert states(tab)[6] == "open"
    row_of_cards = round(tab.locator("#gallery").evaluate("list => getComputedStyle(list).gridTemplateColumns.split(' ').length"))
    for keys, step in (("j", 1), ("k", -1), ("ArrowRight", 1), ("ArrowLeft", -1), ("ArrowDown", row_of_cards), ("ArrowUp", -row_of_cards)):
        before = tab.locator(CURRENT).get_attribute("aria-posinset")
        press(tab, keys)
        assert int(tab.locator(CURRENT).get_attribute("aria-posinset")) == int(before) + step
        assert tab.locator(CURRENT).evaluate("card => card === document.activeElement")
    press(tab, "u")
    assert states(tab)[5] == "open"
    assert current(tab) == FLAGGED.index[5]
    press(tab, "u u u u u u")
    assert set(states(tab)) == {"open"}
    expect(tab.locator("#status"), "Nothing to undo")
    press(tab, "?")
    assert tab.locator("#help").is_visible()
    press(tab, "a Escape")
    assert not tab.locator("#help").is_visible()
    assert set(states(tab)) == {"open"}
    press(tab, "/ a s")
    assert tab.locator("#search").input_value() == "as"
    assert shown(tab) == 0


def test_enter_takes_the_likeliest_other_class_and_never_the_given_one(visit):
    tab = visit()
    press(tab, "o")
    options = tab.locator("#choices option").all_text_contents()
    at = FLAGGED.index[0]
    assert options[0] == f"{LABELS['predicted_label'][at]} (suggested)"
    assert options[-1] == f"{LABELS['given_label'][at]} (given)"
    tab.keyboard.type("t")
    assert tab.locator("#choices option").all_text_contents() == [name for name in options if "t" in name.split()[0]]
    press(tab, "Backspace Enter")
    assert states(tab)[0] == "accepted"
    tab = visit(page(table(240, CLASSES, wrong=0), CLASSES))  # no class is suggested
    press(tab, "o Enter")
    assert states(tab)[0] == "other"


def test_buttons_do_what_keys_do(visit):
    tab = visit()
    cards = tab.locator("#gallery > li")
    for place, word in ((3, "Accept"), (1, "Keep"), (2, "Skip")):
        cards.nth(place).get_by_role("button", name=word, exact=True).click()
    assert states(tab)[:5] == ["open", "kept", "skipped", "accepted", "open"]
    cards.nth(0).get_by_role("button", name="Other", exact=True).click()
    at = FLAGGED.index[0]
    third = next(name for name in CLASSES if name not in (LABELS["given_label"][at], LABELS["predicted_label"][at]))
    tab.locator("#choices").select_option(label=third)
    tab.get_by_role("button", name="Choose").click()
    assert states(tab)[0] == "other"
    expect(cards.nth(0).locator(".verdict"), f"now {third}")
    expect(tab.locator("#progress"), f"4 of {len(FLAGGED)} reviewed: 1 accepted, 1 other class, 1 kept, 1 skipped")
    cards.nth(1).get_by_role("button", name="Keep", exact=True).click()  # once more: taken back
    assert states(tab)[:2] == ["other", "open"]
    press(tab, "u")
    assert states(tab)[:2] == ["other", "kept"]


def test_nothing_is_judged_out_of_sight(visit):
    tab = visit()
    tab.evaluate("scrollTo(0, document.body.scrollHeight)")
    tab.locator('#gallery [aria-posinset="1"]').wait_for(state="detached")
    press(tab, "a")
    assert set(states(tab)) == {"open"}
    press(tab, "a")
    assert states(tab)[0] == "accepted"


def test_search_order_state_and_threshold(visit):
    tab = visit()
    tab.locator("#search").fill("ROW/12")
    assert shown(tab) == FLAGGED["id"].str.contains("row/12").sum()
    tab.locator("#search").fill("")
    for order, column in (("given", "given_label"), ("suggestion", "predicted_label")):
        tab.locator("#sort").select_option(order)
        places = tab.locator("#gallery > li").evaluate_all("cards => cards.map(card => Number(card.dataset.at))")
        seen = [LABELS[column][at] for at in places]
        assert seen == sorted(seen)
    tab.locator("#sort").select_option("file")
    assert current(tab) == FLAGGED.index.min()
    tab.locator("#sort").select_option("wrong")
    tab.locator("#state").select_option("open")
    tab.locator(CURRENT).click()
    press(tab, "a x")
    assert shown(tab) == len(FLAGGED) - 2
    assert current(tab) == FLAGGED.index[2]
    tab.locator("#state").select_option("accepted")
    assert [current(tab), shown(tab)] == [FLAGGED.index[0], 1]
    tab.locator("#state").select_option("")
    tab.locator("#threshold").fill("99")
    above = LABELS["wrong_probability"][LABELS["wrong_probability"].round(4) >= 0.99]
    expect(tab.locator("#above"), f"{len(above)} labels are at or above it; about {above.sum():.0f} of them")
    sync_api.expect(tab.locator("#gallery > li").first).to_have_attribute("aria-setsize", str(len(above)))
    tab.locator("#threshold").fill("0")
    everyone = (LABELS["wrong_probability"] >= 0.01).sum()
    sync_api.expect(tab.locator("#gallery > li").first).to_have_attribute("aria-setsize", str(max(everyone, 100)))


def test_the_precision_is_told_after_fifty_verdicts(visit):
    tab = visit()
    press(tab, "x s " + "a " * 48)
    expect(tab.locator("#found"), "1 verdict more")
    press(tab, "a")
    expect(tab.locator("#found"), "Of 50 checked, 49 were wrong: precision 98\u00a0% (")
    low, high = map(float, re.search(r"\(([\d.]+) to ([\d.]+)", tab.locator("#found").text_content()).groups())
    z, p, n = 1.645, 0.98, 50  # Wilson: all p0 that are no further than z of their own standard errors from p
    inside = [p0 for p0 in np.linspace(0.5, 1, 5001)[:-1] if abs(p - p0) <= z * np.sqrt(p0 * (1 - p0) / n)]
    assert [low, high] == pytest.approx([100 * inside[0], 100 * inside[-1]], abs=0.6)


def test_rows_without_pictures_show_their_features(visit):
    tab = visit(page(LABELS, CLASSES, features=lambda at: [("height", f"{at} cm"), ("legs", "6")]))
    table = tab.locator("#gallery table").first
    assert table.locator("th").all_text_contents() == ["height", "legs"]
    assert table.locator("td").all_text_contents() == [f"{FLAGGED.index[0]} cm", "6"]


def test_fifty_thousand_rows_stay_fluid(visit):
    tiny = [thumbnail(np.random.default_rng(seed).integers(0, 256, (3, 8, 8), np.uint8)) for seed in range(50)]
    labels = table(50_000, [f"class {i}" for i in range(100)])
    made = page(labels, [f"class {i}" for i in range(100)], picture=lambda at: tiny[at % 50])
    began = time.perf_counter()
    tab = visit(made)
    tab.locator(CURRENT).wait_for()
    assert time.perf_counter() - began < 10
    assert shown(tab) > 15_000
    tab.evaluate("scrollTo(0, document.body.scrollHeight)")
    tab.locator(f"#gallery [aria-posinset='{shown(tab)}']").wait_for()
    assert tab.locator("#gallery > li").count() < 100
    tab.evaluate("scrollTo(0, 0)")
    tab.locator("#gallery [aria-posinset='1']").wait_for()
    began = time.perf_counter()
    press(tab, "a " * 20)
    assert time.perf_counter() - began < 6
    assert states(tab).count("accepted") >= 8


def test_it_prints_the_cards_without_their_buttons(visit):
    tab = visit()
    tab.evaluate("scrollTo(0, document.body.scrollHeight)")
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    tab.emulate_media(media="print", color_scheme="dark")
    assert len(states(tab)) == len(FLAGGED)
    assert not tab.locator("#gallery button").first.is_visible()
    assert tab.evaluate("getComputedStyle(document.body).colorScheme") == "light"
    tab.emulate_media(media="screen")
    tab.evaluate("dispatchEvent(new Event('afterprint'))")
    assert len(states(tab)) < len(FLAGGED)


def test_narrow_screens_and_both_schemes(visit, address):
    tab = visit(url=f"{address}/report.html")  # from a file, Chromium loses one in forty of what was stored between two reloads
    backgrounds = set()
    for scheme in ("light", "dark"):
        tab.emulate_media(color_scheme=scheme)
        reload(tab)
        backgrounds.add(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(backgrounds) == 2
    tab.locator("#theme").click()
    reload(tab)
    assert tab.evaluate("getComputedStyle(document.body).colorScheme") == "light"  # the person's word counts
    tab.set_viewport_size({"width": 360, "height": 740})
    reload(tab)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360
    press(tab, "a a")  # the first brings the card into sight
    assert states(tab)[:2] == ["accepted", "open"]
