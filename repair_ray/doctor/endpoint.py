"""Endpoints: does each answer, take the key, and serve the model? Nothing that a server says goes into a finding."""

from __future__ import annotations

import os

import openai

from repair_ray.config import Config, LanguageConfig
from repair_ray.doctor.needs import languages
from repair_ray.engines.endpoint import NO_KEY
from repair_ray.report.findings import Finding, State

SECONDS = 10.0
LISTED = 5


def check_endpoints(config: Config, timeout: float = SECONDS) -> list[Finding]:
    """One finding for each language section that asks an endpoint."""
    asked = {key: language for key, language in languages(config).items() if language.backend == "openai"}
    return [check_endpoint(key, language, timeout) for key, language in asked.items()]


def check_endpoint(key: str, language: LanguageConfig, timeout: float = SECONDS) -> Finding:
    """A GET of `<url>/models`, with the run's client and key, tried once."""
    endpoint = language.endpoint
    variable = endpoint.key_variable
    secret = os.environ.get(variable)
    with_key = f"with the key of {variable}" if secret else f"without a key, as {variable} is not set here"
    set_it = f"set {variable} to a key of this endpoint"
    limit = min(timeout, endpoint.timeout_s)
    try:
        client = openai.OpenAI(base_url=endpoint.url, api_key=secret or NO_KEY, max_retries=0, timeout=limit)
    except openai.OpenAIError as error:
        fact = f"the client refuses: {type(error).__name__}"
        return Finding(f"endpoint of {key}", "failed", fact, f"correct {key}.endpoint")
    # Without the user and the password that an address may hold.
    place = str(client.base_url.copy_with(username=None, password=None)).rstrip("/")

    def found(state: State, fact: str, advice: str = "") -> Finding:
        return Finding(f"endpoint of {key}", state, f"{place}: {fact}", advice)

    with client:
        try:
            listed = [model.id for model in client.models.list().data]
        except openai.APITimeoutError:
            return found("failed", f"no answer within {limit:g} s", "see whether the server is up and not overloaded")
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            return found("failed", f"cannot be reached: {cause}", f"start the server, or correct {key}.endpoint.url")
        except openai.AuthenticationError:
            return found("failed", f"HTTP 401: who asks is not known ({with_key})", set_it)
        except openai.PermissionDeniedError:
            return found("failed", f"HTTP 403: the key may not do this ({with_key})", set_it)
        except openai.NotFoundError:
            return found(
                "warning", f"answers, and lists no models (HTTP 404; {with_key})", "see that the url ends in /v1"
            )
        except openai.APIStatusError as error:
            return found("failed", f"HTTP {error.status_code} ({with_key})", "see the server's log")
        except (openai.OpenAIError, ValueError, TypeError, AttributeError):
            return found("failed", "its answer is not a list of models", f"correct {key}.endpoint.url")
    if language.model not in listed:
        some = ", ".join(listed[:LISTED]) + (f" and {len(listed) - LISTED} more" if listed[LISTED:] else "")
        fact = f"{language.model} is not among its models: {some or 'it lists none'}"
        return found("failed" if listed else "warning", fact, f"set {key}.model to one that it serves")
    return found("ok", f"serves {language.model} ({with_key})")
