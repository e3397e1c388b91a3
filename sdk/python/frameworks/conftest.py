"""The development server."""

pytest_plugins = ["undolog_sdk.testing.plugin"]
