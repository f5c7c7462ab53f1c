"""What the service can be told: by flag, by environment (SLATEWISE_…), or in a TOML file, in this order."""

import ipaddress
import os
import tomllib
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

CONFIG_FILE = Path("slatewise.toml")
KEYS_FILE = Path("keys.json")


class BadSettingsError(ValueError):
    """Settings that cannot be used; the message names the setting and the way out, never a value."""


class Settings(BaseSettings):
    """Everything that can be set; secrets are never printed."""

    model_config = SettingsConfigDict(env_prefix="SLATEWISE_", extra="forbid", frozen=True, hide_input_in_errors=True)

    catalog: Path = Field(description="Directory of the catalogue (`slatewise train` makes one).")
    store: SecretStr = Field(default=SecretStr("sqlite:///slates.db"), description="Where slates and answers are kept.")
    policies: Annotated[dict[str, float], NoDecode] = Field(
        default={"dc2b-calibrated": 1.0}, description="Shares of users by policy; they sum to 1."
    )
    seed: int = Field(default=0, ge=0, description="Seed of everything random.")
    reward_wait: float = Field(
        default=1800.0, gt=0, le=31_536_000, description="Seconds until an unanswered slate is counted."
    )
    host: str = Field(default="127.0.0.1", description="Address to listen on; keys are needed beyond loopback.")
    port: int = Field(default=8000, ge=0, le=65_535, description="Port to listen on; 0 takes a free one.")
    workers: int = Field(default=1, ge=1, le=64, description="Processes that serve; several only with PostgreSQL.")
    chooser: bool | None = Field(
        default=None, description="Whether one more process chooses slates; by default where one worker has two cores."
    )
    keys: Path = Field(default=KEYS_FILE, description="File of API keys (`slatewise keys add` makes it).")
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Names by which clients may call the service, besides localhost and addresses."
    )
    rate: float = Field(default=1000.0, ge=0, description="Requests and events per second and key; 0 sets no limit.")
    burst: int = Field(default=2000, ge=100, description="How many may come at once before the rate counts.")
    largest_body: int = Field(default=262_144, ge=1024, le=16_777_216, description="Bytes of a request body.")
    header_timeout: float = Field(default=10.0, gt=0, description="Seconds in which the head of a request must arrive.")
    body_timeout: float = Field(default=10.0, gt=0, description="Seconds in which the body of a request must arrive.")
    connections: int = Field(default=1000, ge=1, description="Connections at once; more are answered with 503.")
    shutdown_timeout: int = Field(
        default=20, ge=1, description="Seconds that running requests get when the server stops."
    )
    log_salt: SecretStr | None = Field(
        default=None, description="Key of the user hashes in the log; drawn anew at each start."
    )
    reference: bool = Field(default=True, description="Whether /docs and /openapi.json are served.")

    @field_validator("policies", mode="before")
    @classmethod
    def _shares(cls, given: Any) -> Any:
        """Take shares as text too: `dc2b-calibrated=0.9,popular=0.1`, or one name alone."""
        if not isinstance(given, str):
            return given
        parts = [part.partition("=") for part in given.split(",")]
        if len({name.strip() for name, _, _ in parts}) < len(parts):
            raise ValueError("a policy is named twice; give each policy one share")
        return {name.strip(): share or 1.0 for name, _, share in parts}

    @field_validator("allowed_hosts", mode="before")
    @classmethod
    def _names(cls, given: Any) -> Any:
        """Take names as text too, separated by commas."""
        return [name for name in given.split(",") if name.strip()] if isinstance(given, str) else given

    @field_validator("allowed_hosts")
    @classmethod
    def _lower(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name.strip().lower() for name in names)

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can reach the service."""
        return is_loopback(self.host)

    @property
    def chooses_beside(self) -> bool:
        """Whether slates are chosen in a process of their own."""
        return (os.cpu_count() or 1) > 1 == self.workers if self.chooser is None else self.chooser

    @property
    def store_kind(self) -> str:
        """The part of the store's URL that is no secret."""
        return self.store.get_secret_value().partition("://")[0]


def is_loopback(host: str) -> bool:
    """Whether an address or name means this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def load_settings(flags: dict[str, Any], config: Path | None = None) -> Settings:
    """Join flags, environment and file; a file named must exist, `slatewise.toml` is read if it is there."""
    if config is not None and not config.is_file():
        raise BadSettingsError(f"the settings file {config} does not exist; check --config")
    file = config or CONFIG_FILE

    class Configured(Settings):
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
        return Configured(**{name: value for name, value in flags.items() if value is not None})
    except ValidationError as error:
        raise BadSettingsError(_words(error, file)) from None
    except tomllib.TOMLDecodeError as error:
        raise BadSettingsError(f"{file} is not a TOML file: {error}") from None
    except SettingsError as error:
        raise BadSettingsError(f"{error}; see the table of settings in docs/serving.md") from None


def _words(error: ValidationError, file: Path) -> str:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    name = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        return f"{file} sets {name!r}, which is no setting; settings are: {', '.join(Settings.model_fields)}"
    if name == "catalog" and first["type"] == "missing":
        return "no catalogue is named; give --catalog DIR (`slatewise train` makes one)"
    return f"the setting {name!r} cannot be used: {first['msg'].lower()}"
