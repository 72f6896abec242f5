"""The contract of an engine, for the reference model and for the builtin engine on both PostgreSQLs."""

from __future__ import annotations

import pytest

from databases import Database
from langgraph_navin.abc import Engine
from langgraph_navin.testing import DictionaryEngine, EngineContract


class TestDictionary(EngineContract):
    @pytest.fixture
    def engine(self) -> Engine:
        return DictionaryEngine()


class TestBuiltinOnPostgreSQL18(EngineContract):
    @pytest.fixture
    def engine(self, migrated18: Database) -> Engine:
        return migrated18.engine


class TestBuiltinOnPostgreSQL16(EngineContract):
    @pytest.fixture
    def engine(self, migrated16: Database) -> Engine:
        return migrated16.engine
