"""The Bloom filter keeps the contract of all filters."""

from oncesink.transforms.membership import Bitmap, Bloom

from tests.unit.membership.filter_contract import FilterContract


class TestBloom(FilterContract):
    """What is its own stands in `test_bloom.py` and `test_snapshot.py`."""

    recipe = Bloom(capacity=5000, error_rate=0.001)
    other = Bloom(capacity=6000, error_rate=0.001)
    foreign = Bitmap(id="id", capacity=100)
    golden = "b49dce2184dd59282c70abf83e09b7de3c8fc9773fb35634571d74bdc0ab3998"
    golden_log = "664f986a0f1245ebb13472a72bf6dba7"
