"""A catalog from the log of a service: read it, fit, let the gate decide, and put the catalog in use or not."""

import json
import math
import shlex
import time
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slatewise.catalog import Catalog, CatalogError
from slatewise.catalog.embeddings import BprSettings
from slatewise.catalog.live_items import ItemContent, with_content
from slatewise.catalog.versions import current_version
from slatewise.cli.console import amounts, steps, tell
from slatewise.cli.store import existing, reporting_errors
from slatewise.cli.train import Loop, Source, keeping, load_source, train_catalog
from slatewise.plurals import counted
from slatewise.recommender.interaction_log import read_news
from slatewise.recommender.items import catalog_id
from slatewise.recommender.rules import LearningRules
from slatewise.retraining import FitOptions, InteractionLog, Verdict, compare, refit
from slatewise.retraining.fit import ROUNDS
from slatewise.retraining.gate import WINDOW_SHARE, WINDOW_SLATES
from slatewise.retraining.log_cache import KnownLog
from slatewise.store import Store
from slatewise.store.records import ItemRecord

if TYPE_CHECKING:
    from slatewise.data.dataset import Dataset

ITEMS_AT_ONCE = 10_000
JUDGED_FROM = "judged_from"
"""What says of a catalog from which time on slates judged it, before it learned from these as well."""
LOG_CACHE = "log-cache.bin"
"""What the last training read of the log, in the directory of the catalog; safe to delete."""


@dataclass(frozen=True)
class Start:
    """The catalog to start from, and the name of its version."""

    catalog: Catalog
    version: str


@dataclass(frozen=True, eq=False)
class Training:
    """What to start from, what to learn from, and half-lives in days of evidence and of beliefs."""

    start: Start
    log: InteractionLog
    half_life: float
    belief_half_life: float

    def before(self, end: float) -> Catalog:
        """Return the catalog that the part of the log before a time teaches."""
        log, fit = self.log.before(end), FitOptions(self.half_life, self.belief_half_life, min(end, time.time()))
        with steps("learning from the log", ROUNDS) as count_round:
            fitted = refit(self.start.catalog, log, fit, count_round)
        return replace(fitted, about={**self.start.catalog.about, **_described(log, fit, self.start)})


def train_from_store(out: Path, source: Source, settings: dict[str, Any], loop: Loop) -> dict[str, Any]:
    """Train, judge, save and promote; return what happened, ready for JSON."""
    with reporting_errors():
        log, rules, listed = _read(out, loop)
        serving = _serving(out)
        start = _start(out, source, settings, log)
        start = replace(start, catalog=_with_listed(start.catalog, listed))
        _tell_unknown(start.catalog, log)
        training = Training(start, log, loop.half_life or math.inf, rules.half_life)
        if loop.gate and serving is not None:
            since = log.time_of_last(WINDOW_SHARE, WINDOW_SLATES)
            catalog, verdict = _gated(training, _without_latest_slates(out, serving, training, listed, since), since)
        else:
            catalog, verdict = training.before(math.inf), None
        sha256 = catalog.save(out, promote=verdict is None or verdict.is_accepted)
    return _result(out, catalog, sha256, verdict)


def _gated(training: Training, serving: Catalog, since: float) -> tuple[Catalog, Verdict]:
    """Judge what was learned before a time by the slates from then on; if it is accepted, learn from these as well.

    Otherwise the catalog in use would know nothing of what people did lately, least of all of new items.
    """
    candidate = training.before(since)
    verdict = compare(serving, candidate, training.log, since, training.belief_half_life)
    if not verdict.is_accepted:
        return candidate, verdict
    tell("the gate accepts the training, which is now done again with the latest slates")
    catalog = training.before(math.inf)
    learned = {**catalog.about["log"], JUDGED_FROM: since}
    return replace(catalog, about={**catalog.about, "log": learned}), verdict


def _without_latest_slates(
    out: Path, serving: Catalog, training: Training, listed: list[ItemRecord], since: float
) -> Catalog:
    """Return the catalog in use as it was when the gate accepted it, if it has learned from the slates to predict.

    These would not be news for it, and whatever has not seen them would look worse.
    """
    learned = serving.about.get("log", {})
    if learned.get("until", -math.inf) < since:
        return serving
    tell("the catalog in use has learned from the latest slates, and is trained without them for the comparison")
    version = str(serving.about["start"])
    start = Start(_with_listed(Catalog.load(out, version), listed), version)
    half_life = learned.get("half_life", math.inf)
    return replace(training, start=start, half_life=half_life).before(min(learned.get(JUDGED_FROM, since), since))


def _read(out: Path, loop: Loop) -> tuple[InteractionLog, LearningRules, list[ItemRecord]]:
    """Read the log by the rules of the service, and its item table."""
    from slatewise.service.settings import load_settings
    from slatewise.store import open_store

    settings = load_settings({"catalog": out, "store": loop.store}, loop.config)
    with closing(open_store(existing(loop.store), read_only=True)) as store:
        rules = settings.learning_rules(store)
        n_users = sum(1 for _ in store.users())
        if not n_users:
            raise ValueError("the store is empty; nobody has asked for a slate or done anything yet")
        file, described = out / LOG_CACHE, json.dumps(rules.described(), sort_keys=True)
        known = KnownLog.read(file, described)
        with amounts("reading the log", n_users) as count:
            reading = read_news(store, rules, known, lambda: count(1))
        log = reading.known.log
        if known is not None:
            tell(f"{reading.n_read:,} of {n_users:,} people did something since the last training")
        out.mkdir(parents=True, exist_ok=True)
        reading.known.write(file, described)
        listed = _listed(store)
    if not len(log.items):
        raise ValueError("nobody has reacted to a slate, liked or bought anything yet; there is nothing to learn from")
    return log, rules, listed


def _listed(store: Store) -> list[ItemRecord]:
    """Return the item table."""
    records: list[ItemRecord] = []
    while True:
        last = records[-1].number if records else -1
        page = store.read(lambda transaction, last=last: transaction.items_by_number(last, ITEMS_AT_ONCE))  # type: ignore[misc]
        records += page
        if len(page) < ITEMS_AT_ONCE:
            return records


def _with_listed(catalog: Catalog, listed: list[ItemRecord]) -> Catalog:
    """Return the catalog with titles and categories of the item table, and with the items that it does not have."""
    ids = [catalog_id(catalog, record.item) for record in listed]
    fitting = [(item, record) for item, record in zip(ids, listed, strict=True) if item is not None]
    content = [ItemContent(item, record.title, record.categories, record.vector) for item, record in fitting]
    merged = replace(with_content(catalog, content, ()), origin=None)
    if merged.n_items > catalog.n_items:
        added = counted(merged.n_items - catalog.n_items, "item")
        tell(f"the catalog has {added} more, from the item table")
    return merged


def _serving(out: Path) -> Catalog | None:
    """Return the catalog in use, None if the directory has none."""
    return Catalog.load(out) if (out / "catalog.json").exists() else None


def _start(out: Path, source: Source, settings: dict[str, Any], log: InteractionLog) -> Start:
    """Return the catalog to start from: from data, or the one that the catalog in use started from itself.

    Starting from the catalog in use would count the same log again in every training.
    """
    if source.is_given:
        dataset = load_source(source, settings["seed"])
        catalog = keeping(train_catalog(dataset, BprSettings(**settings)), dataset, source)
        start = Start(catalog, catalog.save(out, promote=False)[:16]) if _serving(out) else None
        start = start or Start(catalog, catalog.save(out)[:16])
    elif (out / "catalog.json").exists():
        current = current_version(out)
        version = str(Catalog.load(out).about.get("start", current))
        start = Start(Catalog.load(out, None if version == current else version), version)
        _check_kept(start.catalog, source)
    else:
        dataset = _likes(log)
        catalog = keeping(train_catalog(dataset, BprSettings(**settings)), dataset, source)
        start = Start(catalog, catalog.save(out)[:16])
    return start


def _check_kept(catalog: Catalog, source: Source) -> None:
    """Refuse a catalog without what the policies that were named need: the log of a service does not have it."""
    missing = sorted(part for part in source.kept if getattr(catalog, part) is None)
    if missing:
        raise CatalogError(
            f"the catalog to start from does not hold {' and '.join(missing)}, which --policy asks for; "
            "give the data that it was trained on as well (--data or --interactions)"
        )


def _tell_unknown(catalog: Catalog, log: InteractionLog) -> None:
    """Tell how many items of the log the catalog does not have; refuse one that has none of them."""
    numbers = log.numbered(catalog)
    unknown = len(set(log.items[numbers < 0].tolist()))
    if unknown == len(log.item_ids):
        shown = ", ".join(repr(item) for item in log.item_ids[:3])
        raise CatalogError(
            f"the catalog has none of the {unknown:,} items of the log, such as {shown}; check their ids"
        )
    if unknown:
        tell(f"note: {unknown:,} of {len(log.item_ids):,} items of the log are not in the catalog and teach nothing")


def _likes(log: InteractionLog) -> "Dataset":
    """Return what people of the log liked, as a data set."""
    import polars as pl

    from slatewise.data.dataset import Dataset

    liked = log.value > 0.5
    if not liked.any():
        raise ValueError("nobody has liked anything yet, and there is no catalog to start from; give --interactions")
    people, items = log.person_of[liked], [log.item_ids[item] for item in log.items[liked].tolist()]
    return Dataset.from_frames(pl.DataFrame({"user_id": people, "item_id": items}), name="the log of a service")


def _described(log: InteractionLog, fit: FitOptions, start: Start) -> dict[str, Any]:
    described: dict[str, Any] = {"people": log.n_people, "slates": log.n_slates, "observations": len(log.items)}
    described["until"] = float(log.at.max(initial=0.0))
    if math.isfinite(fit.half_life):
        described["half_life"] = fit.half_life
    return {"log": described, "start": start.version}


def _result(out: Path, catalog: Catalog, sha256: str, verdict: Verdict | None) -> dict[str, Any]:
    log, version = catalog.about["log"], sha256[:16]
    is_promoted = verdict is None or verdict.is_accepted
    words = [
        f"learned from {log['slates']:,} slates and {log['observations']:,} seen items or events of "
        f"{log['people']:,} people until {datetime.fromtimestamp(log['until'], UTC):%Y-%m-%d %H:%M:%S} UTC, "
        f"starting from version {catalog.about['start']}"
    ]
    words += [] if verdict is None else [verdict.in_words()]
    words.append(
        f"version {version} is in use in {out}"
        if is_promoted
        else f"version {version}, without the latest slates, is kept in {out}, not in use; "
        f"`slatewise catalog promote {version} --catalog {shlex.quote(str(out))}` puts it in use"
    )
    return {
        "directory": str(out),
        "version": version,
        "sha256": sha256,
        "items": catalog.n_items,
        "log": log,
        "start": catalog.about["start"],
        "gate": None if verdict is None else verdict.as_json(),
        "promoted": is_promoted,
        "words": words,
    }
