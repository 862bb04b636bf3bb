"""Keys, membership filters, the gate and the writer. Importing this loads no engine and no driver."""

from .decide import Rules, Verdict, decide
from .gate import Batch, Gate
from .kafka_consumer import OnceConsumer
from .kafka_position import KafkaPosition, uuid_header
from .keys import ByStamp, Computed, Content, Fields, Header, SourcePosition, Stamped, checkpoint_subtask_key
from .membership import Bitmap, Bloom, Cuckoo, Generations, RedisBloom, Rotation
from .metrics import Counts, LevelName, MetricName, Metrics
from .prometheus_metrics import PrometheusMetrics
from .reconcile import Reconciler
from .reconciled import Reconciled
from .results import Duplicate, Parked, Passed, Refused, Results, Written
from .retry import Backoff
from .session import GateSession
from .stored import Json, Serialiser
from .writer import OnceWriter

__all__ = [
    "Backoff",
    "Batch",
    "Bitmap",
    "Bloom",
    "ByStamp",
    "Computed",
    "Content",
    "Counts",
    "Cuckoo",
    "Duplicate",
    "Fields",
    "Gate",
    "GateSession",
    "Generations",
    "Header",
    "Json",
    "KafkaPosition",
    "LevelName",
    "MetricName",
    "Metrics",
    "OnceConsumer",
    "OnceWriter",
    "Parked",
    "Passed",
    "PrometheusMetrics",
    "Reconciled",
    "Reconciler",
    "RedisBloom",
    "Refused",
    "Results",
    "Rotation",
    "Rules",
    "Serialiser",
    "SourcePosition",
    "Stamped",
    "Verdict",
    "Written",
    "checkpoint_subtask_key",
    "decide",
    "uuid_header",
]
