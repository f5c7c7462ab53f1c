"""What the service can be told: by flag, by environment (SLATEWISE_…), or in a TOML file, in this order."""

import ipaddress
import math
import os
import re
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from slatewise.evidence import SERVICE_DEFAULT, Attention
from slatewise.recommender.assignment import Experiment
from slatewise.recommender.event_kinds import event_kinds
from slatewise.recommender.rules import ATTENTION_FIT, FOLLOW_FIT, LearningRules, fitted_attention
from slatewise.recommender.types import PolicyShare
from slatewise.service.schemas import RulesBody
from slatewise.service.validation_words import in_words, within_a_sentence
from slatewise.store import Store

PREFIX = "SLATEWISE_"
CONFIG_FILE = Path("slatewise.toml")
UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
DURATION = re.compile(r"[1-9][0-9]{0,6}[smhd]")
KEYS_FILE = Path("keys.json")
REMOVED = {
    "chooser": "slates are now chosen in threads of the server's own process",
    "header_timeout": "request_timeout limits the time of a whole request",
    "body_timeout": "request_timeout limits the time of a whole request",
}
"""Settings of earlier versions, and why they are no longer needed."""


class BadSettingsError(ValueError):
    """Settings that cannot be used; the message names the setting and what to do, never a value."""


class PolicySetting(BaseModel):
    """A policy with options and its share of users; without `policy`, it is the one that the entry is named after."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    policy: str | None = None
    share: float = 1.0
    options: dict[str, Any] = {}


EXPLORING_POLICY = "dc2b-calibrated"


class ExperimentSetting(BaseModel):
    """A named experiment among the policies; see `slatewise.recommender.Experiment`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    control: str | None = None
    holdout: float = 0.0
    effect: float = 0.01
    running: bool = True

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        self.experiment()
        return self

    def experiment(self) -> Experiment:
        """Return it as the recommender takes it."""
        return Experiment(**self.model_dump())


class Settings(BaseSettings):
    """Everything that can be set; secrets are never printed."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True, hide_input_in_errors=True)

    catalog: Path = Field(description="Directory of the catalog (`slatewise train` creates one).")
    store: SecretStr = Field(default=SecretStr("sqlite:///slates.db"), description="Where slates and clicks are kept.")
    policies: Annotated[dict[str, PolicySetting], NoDecode] = Field(
        default={"dc2b-calibrated": PolicySetting()},
        description="Shares of users by policy, or tables of policy, share and options; the shares sum to 1.",
    )
    seed: int = Field(default=0, ge=0, description="Seed of everything random.")
    reward_wait: float = Field(
        default=1800.0, gt=0, le=31_536_000, description="Seconds until a slate without feedback is closed."
    )
    attention: Literal["all", "until-last-click", "curve"] = Field(
        default="until-last-click", description="What was looked at on a slate if the client does not say."
    )
    skip_weight: float | None = Field(
        default=None, ge=0, le=1, description="What an item that was seen and not clicked weighs against a click."
    )
    explore: float = Field(
        default=0.5, ge=0, le=10, description="How much new items are tried: 0 not at all, 1 as Thompson sampling does."
    )
    approximate: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Choose faster from a million items or more: 0 exactly, 0.35 nearly always so.",
    )
    approximate_checks: float = Field(
        default=0.01, ge=0, le=1, description="Share of approximate slates that are chosen exactly too, and compared."
    )
    half_life: float | None = Field(default=None, gt=0, description="Days after which evidence counts half.")
    repeat_after: float | None = Field(
        default=None, ge=0, description="Seconds after which a shown item may be offered again."
    )
    events: dict[str, dict[str, float]] = Field(
        default={}, description="Tables of value, weight and repeat_after by kind of event."
    )
    scenarios: dict[str, RulesBody] = Field(
        default={}, description="Tables of rules by name; a request for a slate names one as `scenario`."
    )
    experiment: ExperimentSetting | None = Field(
        default=None, description="A table of name, control, holdout, effect and running: compare policies in it."
    )
    shadow: PolicySetting | None = Field(
        default=None, description="A table of policy and options: it chooses along, is logged, and is never shown."
    )
    retrain: str | None = Field(
        default=None, description="How often the catalog is trained from the log, such as 24h; s, m, h and d."
    )
    retrain_interactions: tuple[Path, ...] = Field(
        default=(), description="Tables of interactions to train on as well; without them, the first catalog counts."
    )
    retrain_half_life: float | None = Field(
        default=None, gt=0, description="Days after which what people did counts half in training."
    )
    host: str = Field(default="127.0.0.1", description="Address to listen on; beyond loopback, keys are required.")
    port: int = Field(default=8000, ge=0, le=65_535, description="Port to listen on; 0 picks a free one.")
    workers: int = Field(default=1, ge=1, le=64, description="Server processes; more than one requires PostgreSQL.")
    pin_to_core: bool | None = Field(
        default=None, description="Keep each process on one core; by default with fewer than 200,000 items."
    )
    keys: Path = Field(default=KEYS_FILE, description="File of API keys (`slatewise keys add` creates it).")
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Host names by which clients may call the service, besides localhost and addresses."
    )
    rate: float = Field(default=1000.0, ge=0, description="Requests and events per second and key; 0 sets no limit.")
    burst: int = Field(default=2000, ge=100, description="How many may come at once before the rate applies.")
    largest_body: int = Field(default=262_144, ge=1024, le=16_777_216, description="Bytes of a request body.")
    request_timeout: float = Field(
        default=10.0, gt=0, description="Seconds in which a request must arrive, with its body."
    )
    connections: int = Field(default=1000, ge=1, description="Connections at once, in each worker.")
    connections_per_address: int = Field(default=500, ge=1, description="Connections at once from one address.")
    shutdown_timeout: int = Field(
        default=20, ge=1, description="Seconds that pending requests get when the server stops."
    )
    log_salt: SecretStr | None = Field(
        default=None, description="Key of the user hashes in the log; by default random at each start."
    )
    reference: bool = Field(default=True, description="Whether /docs and /openapi.json are served.")

    @field_validator("policies", mode="before")
    @classmethod
    def _policy_table(cls, value: Any) -> Any:
        """Accept text too, `dc2b-calibrated=0.9,popular=0.1` or a single name, and a bare number as a share."""
        if isinstance(value, str):
            parts = [part.partition("=") for part in value.split(",")]
            if len({name.strip() for name, _, _ in parts}) < len(parts):
                raise ValueError("a policy is named twice; give each policy one share")
            value = {name.strip(): share or 1.0 for name, _, share in parts}
        if not isinstance(value, dict):
            return value
        return {
            name: {"share": entry} if isinstance(entry, str | float | int) else entry for name, entry in value.items()
        }

    @field_validator("retrain")
    @classmethod
    def _is_duration(cls, value: str | None) -> str | None:
        if value is not None and not DURATION.fullmatch(value):
            raise ValueError("give a number with s, m, h or d, such as 24h")
        return value

    @property
    def retrain_every(self) -> float | None:
        """Seconds from one training to the next; None if there is none."""
        return None if self.retrain is None else float(self.retrain[:-1]) * UNITS[self.retrain[-1]]

    @field_validator("allowed_hosts", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        """Accept text too, separated by commas."""
        return [name for name in value.split(",") if name.strip()] if isinstance(value, str) else value

    @field_validator("allowed_hosts")
    @classmethod
    def _lowercase(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name.strip().lower() for name in names)

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can reach the service."""
        return is_loopback(self.host)

    @property
    def store_kind(self) -> str:
        """The part of the store's URL that is not secret."""
        return self.store.get_secret_value().partition("://")[0]

    def policy_of(self, name: str) -> str:
        """Return the policy behind a name of the table of policies; other names stand for themselves."""
        entry = self.policies.get(name)
        return name if entry is None or entry.policy is None else entry.policy

    def attention_rule(self) -> Attention | str:
        """Return what an item without a reaction means, as the recommender takes it."""
        if self.attention == FOLLOW_FIT:
            return FOLLOW_FIT
        rule = SERVICE_DEFAULT if self.attention == SERVICE_DEFAULT.rule else Attention(self.attention)
        return rule if self.skip_weight is None else replace(rule, skip_weight=self.skip_weight)

    def learning_rules(self, store: Store) -> LearningRules:
        """Return how logs are learned from; a fit of attention that is followed is read from the store."""
        rule = self.attention_rule()
        if not isinstance(rule, Attention):
            rule = fitted_attention(store.read(lambda transaction: transaction.fit(ATTENTION_FIT)))
        repeat_after = math.inf if self.repeat_after is None else self.repeat_after
        return LearningRules(rule, self.half_life or math.inf, repeat_after, event_kinds(self.events))

    def policy_shares(self) -> dict[str, PolicyShare]:
        """Return the policies as the recommender takes them; options of one go before what is set for all."""
        shares, for_all = {}, {"explore": self.explore}
        if self.approximate:
            for_all["approximate"] = self.approximate
        for name, entry in self.policies.items():
            policy = self.policy_of(name)
            common = for_all if policy == EXPLORING_POLICY else {}
            shares[name] = PolicyShare(policy, entry.share, {**common, **entry.options})
        return shares


def shadow_share(setting: PolicySetting | None) -> PolicyShare | None:
    """Return the shadow policy as the recommender takes it."""
    return None if setting is None else PolicyShare(setting.policy or EXPLORING_POLICY, 1.0, setting.options)


def is_loopback(host: str) -> bool:
    """Whether an address or name means this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def load_settings(flags: dict[str, Any], config: Path | None = None) -> Settings:
    """Join flags, environment and file; a file that is named must exist, `slatewise.toml` is read if it exists."""
    if config is not None and not config.is_file():
        raise BadSettingsError(f"the settings file {config} does not exist; check --config")
    _refuse_removed_variables()
    file = config or CONFIG_FILE

    class SettingsWithFile(Settings):
        """Settings that also read the file."""

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            *sources: PydanticBaseSettingsSource,
            **named: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            flags_and_environment = (*sources, *named.values())[:2]
            return *flags_and_environment, TomlConfigSettingsSource(settings_cls, toml_file=file)

    try:
        return SettingsWithFile(**{name: value for name, value in flags.items() if value is not None})
    except ValidationError as error:
        raise BadSettingsError(_message(error, file)) from None
    except tomllib.TOMLDecodeError as error:
        raise BadSettingsError(f"{file} is not a TOML file: {error}") from None
    except SettingsError as error:
        raise BadSettingsError(f"{error}; see the table of settings in docs/serving.md") from None


def _refuse_removed_variables() -> None:
    """Refuse settings of earlier versions in the environment, where an unknown one would go unnoticed."""
    for variable in os.environ:
        prefix, name = variable[: len(PREFIX)].upper(), variable[len(PREFIX) :].lower()
        if prefix == PREFIX and name in REMOVED:
            raise BadSettingsError(
                f"the environment sets {variable}, which is no longer needed: {REMOVED[name]}; remove this variable"
            )


def _known_at(location: Sequence[str | int]) -> list[str]:
    """Return the names that can stand where an unknown one does; the keys of a table by name are not settings."""
    model: type[BaseModel] = Settings
    parts = iter(location[:-1])
    for part in parts:
        annotation = model.model_fields[str(part)].annotation if str(part) in model.model_fields else None
        model = _model_in(annotation) or model
        if get_origin(annotation) in (dict, tuple):
            next(parts, None)
    return [*model.model_fields]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model that an annotation is about."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for part in get_args(annotation) if (model := _model_in(part)) is not None), None)


def _message(error: ValidationError, file: Path) -> str:
    """Say in one sentence what is wrong with the first setting that is."""
    first = error.errors(include_url=False, include_input=False)[0]
    name = ".".join(map(str, first["loc"]))
    if name in REMOVED:
        return f"{file} sets {name!r}, which is no longer needed: {REMOVED[name]}; remove this line"
    if first["type"] == "extra_forbidden":
        return f"{file} sets {name!r}, which is not a setting; choose from: {', '.join(_known_at(first['loc']))}"
    if name == "catalog" and first["type"] == "missing":
        return "no catalog is given; use --catalog DIR (`slatewise train` creates one)"
    return f"the setting {name!r} cannot be used: {within_a_sentence(in_words(first))}"
