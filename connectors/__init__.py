"""The outside world: stores and sinks. Importing this loads no engine and no driver."""

from .cache_times import ttl_for
from .callable_sink import CallableSink
from .clock import ManualClock, SystemClock
from .contract import (
    ALREADY,
    STALE,
    WRITTEN,
    Answer,
    Cache,
    CacheSession,
    Claim,
    Entry,
    Finish,
    Ledger,
    LedgerSession,
    Outcome,
    Row,
    Scope,
    Sink,
    SinkKind,
    SinkSession,
    Take,
    Use,
    Write,
)
from .errors import (
    InDoubt,
    Misconfigured,
    OnceSinkError,
    OutcomeUnknown,
    RecordsParked,
    RecordsRejected,
    Rejected,
    Unavailable,
)
from .faults import Crash, Fault, Faults
from .faulty import FaultyCache, FaultyLedger, FaultySink
from .http_reply import HttpReply
from .http_sink import HttpSink
from .json_lines_sink import JsonLinesSink
from .kafka_messages import KafkaMessage, json_record, raw_record
from .kafka_sink import KafkaSink
from .kafka_source import KafkaSource
from .lru_cache import LRUCache
from .memory import MemoryCache, MemoryLedger, forget_all, memory_store
from .memory_sinks import MemorySink, MemoryTable
from .mysql_ledger import MySQLLedger
from .mysql_server import MySQLTimeouts, MySQLTLS
from .mysql_table import MySQLTable
from .redis_cache import RedisCache
from .redis_ledger import RedisLedger
from .redis_sink import RedisSink
from .secret import Secret
from .sqlite_ledger import SQLiteLedger
from .sqlite_table import SQLiteTable
from .versioned import Versioned

__all__ = [
    "ALREADY",
    "STALE",
    "WRITTEN",
    "Answer",
    "Cache",
    "CacheSession",
    "CallableSink",
    "Claim",
    "Crash",
    "Entry",
    "Fault",
    "Faults",
    "FaultyCache",
    "FaultyLedger",
    "FaultySink",
    "Finish",
    "HttpReply",
    "HttpSink",
    "InDoubt",
    "JsonLinesSink",
    "KafkaMessage",
    "KafkaSink",
    "KafkaSource",
    "LRUCache",
    "Ledger",
    "LedgerSession",
    "ManualClock",
    "MemoryCache",
    "MemoryLedger",
    "MemorySink",
    "MemoryTable",
    "Misconfigured",
    "MySQLLedger",
    "MySQLTLS",
    "MySQLTable",
    "MySQLTimeouts",
    "OnceSinkError",
    "Outcome",
    "OutcomeUnknown",
    "RecordsParked",
    "RecordsRejected",
    "RedisCache",
    "RedisLedger",
    "RedisSink",
    "Rejected",
    "Row",
    "SQLiteLedger",
    "SQLiteTable",
    "Scope",
    "Secret",
    "Sink",
    "SinkKind",
    "SinkSession",
    "SystemClock",
    "Take",
    "Unavailable",
    "Use",
    "Versioned",
    "Write",
    "forget_all",
    "json_record",
    "memory_store",
    "raw_record",
    "ttl_for",
]
