import pytest

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.measuring.tracker import Tracker, describe_measuring, tracker_at


def test_an_address_has_a_host_and_a_port() -> None:
    assert Tracker.at("rack-1:9190", "board") == Tracker("rack-1", 9190, "board")
    assert str(Tracker.at("[::1]:9190", "board")) == "::1:9190"


@pytest.mark.parametrize("address", ["", "rack-1", "rack-1:", ":9190", "rack-1:http", "rack-1:0", "rack-1:70000"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(InputError, match="the tracker's address must be HOST:PORT"):
        Tracker.at(address, "board")


def test_without_an_address_and_a_key_this_machine_measures() -> None:
    assert tracker_at("", "") is None
    assert tracker_at("rack-1:9190", "board") == Tracker("rack-1", 9190, "board")
    with pytest.raises(InputError, match="the tracker's address must be HOST:PORT"):
        tracker_at("", "board")
    assert "cores" in describe_measuring(None)
    assert describe_measuring(Tracker("rack-1", 9190, "board")) == {"processor": "machines 'board' of an RPC tracker"}


def test_the_machines_have_a_key() -> None:
    with pytest.raises(InputError, match="which machines of the tracker rack-1:9190 are meant"):
        Tracker.at("rack-1:9190", "")
