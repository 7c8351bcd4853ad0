"""What a worker says of a task whose arguments it could not get."""

from __future__ import annotations

import pickle

import pytest

from outboard.errors import ObjectLostError, SerializationError, StoreFullError
from outboard.failures import as_exception, encode_error, input_cause
from outboard.ids import ObjectId
from outboard.rpc.protos import outboard_pb2 as pb

LOST = ObjectLostError("no copy is left", oid=ObjectId(7, 9), version=3)


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (LOST, pb.Error.INPUT_LOST),
        (ObjectLostError("released"), pb.Error.ARGUMENT_UNPICKLABLE),
        (StoreFullError("no room"), pb.Error.RAISED),
        (ValueError("of __setstate__"), pb.Error.ARGUMENT_UNPICKLABLE),
    ],
)
def test_cause_tells_who_can_help(error: Exception, cause: pb.Error.Cause) -> None:
    assert input_cause(error) == cause


def test_lost_input_is_named_to_the_owner_and_comes_back_as_itself() -> None:
    body = encode_error(LOST, input_cause(LOST))
    error = pb.Outcome.FromString(body).error
    assert (error.cause, error.lost.owner, error.lost.seq, error.lost.version) == (pb.Error.INPUT_LOST, 7, 9, 3)
    again = as_exception(body)
    assert isinstance(again, ObjectLostError) and (again.oid, again.version) == (ObjectId(7, 9), 3)


def test_full_store_is_no_fault_of_the_argument() -> None:
    full = StoreFullError("no room", needed_nbytes=5)
    again = as_exception(encode_error(full, input_cause(full)))
    assert isinstance(again, StoreFullError) and again.needed_nbytes == 5
    other = as_exception(encode_error(ValueError("x"), input_cause(ValueError("x"))))
    assert isinstance(other, SerializationError)


def test_name_of_a_lost_object_survives_pickling() -> None:
    again = pickle.loads(pickle.dumps(LOST))
    assert (str(again), again.oid, again.version) == (str(LOST), LOST.oid, 3)
