from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Beat(_message.Message):
    __slots__ = ["clients", "free", "unchanged"]
    class FreeEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    FREE_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    clients: int
    free: _containers.ScalarMap[str, int]
    unchanged: bool
    def __init__(self, free: _Optional[_Mapping[str, int]] = ..., unchanged: bool = ..., clients: _Optional[int] = ...) -> None: ...

class ClusterStatus(_message.Message):
    __slots__ = ["cluster", "epoch", "nodes", "release", "settling"]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    SETTLING_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    epoch: int
    nodes: _containers.RepeatedCompositeFieldContainer[NodeStatus]
    release: str
    settling: bool
    def __init__(self, cluster: _Optional[str] = ..., epoch: _Optional[int] = ..., release: _Optional[str] = ..., nodes: _Optional[_Iterable[_Union[NodeStatus, _Mapping]]] = ..., settling: bool = ...) -> None: ...

class Drain(_message.Message):
    __slots__ = ["deadline_seconds", "reason"]
    DEADLINE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    deadline_seconds: float
    reason: str
    def __init__(self, reason: _Optional[str] = ..., deadline_seconds: _Optional[float] = ...) -> None: ...

class Drained(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class HealthReply(_message.Message):
    __slots__ = ["status"]
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    NOT_SERVING: HealthReply.Status
    SERVICE_UNKNOWN: HealthReply.Status
    SERVING: HealthReply.Status
    STATUS_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN: HealthReply.Status
    status: HealthReply.Status
    def __init__(self, status: _Optional[_Union[HealthReply.Status, str]] = ...) -> None: ...

class HealthRequest(_message.Message):
    __slots__ = ["service"]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    service: str
    def __init__(self, service: _Optional[str] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ["address", "host", "incarnation", "python", "totals"]
    class TotalsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    address: str
    host: str
    incarnation: int
    python: str
    totals: _containers.ScalarMap[str, int]
    def __init__(self, incarnation: _Optional[int] = ..., address: _Optional[str] = ..., python: _Optional[str] = ..., totals: _Optional[_Mapping[str, int]] = ..., host: _Optional[str] = ...) -> None: ...

class Membership(_message.Message):
    __slots__ = ["joined", "left", "number", "whole"]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    joined: _containers.RepeatedCompositeFieldContainer[Member]
    left: _containers.RepeatedScalarFieldContainer[int]
    number: int
    whole: bool
    def __init__(self, number: _Optional[int] = ..., whole: bool = ..., joined: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., left: _Optional[_Iterable[int]] = ...) -> None: ...

class NameAnswer(_message.Message):
    __slots__ = ["id", "incarnation", "node", "outcome", "owner"]
    class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    FOUND: NameAnswer.Outcome
    GRANTED: NameAnswer.Outcome
    ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN: NameAnswer.Outcome
    id: int
    incarnation: int
    node: int
    outcome: NameAnswer.Outcome
    owner: int
    def __init__(self, id: _Optional[int] = ..., outcome: _Optional[_Union[NameAnswer.Outcome, str]] = ..., node: _Optional[int] = ..., owner: _Optional[int] = ..., incarnation: _Optional[int] = ...) -> None: ...

class NameClaim(_message.Message):
    __slots__ = ["id", "incarnation", "name", "owner", "record"]
    ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    id: int
    incarnation: int
    name: str
    owner: int
    record: bytes
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ..., owner: _Optional[int] = ..., incarnation: _Optional[int] = ..., record: _Optional[bytes] = ...) -> None: ...

class NameQuestion(_message.Message):
    __slots__ = ["id", "name"]
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    id: int
    name: str
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...

class NameRelease(_message.Message):
    __slots__ = ["incarnation", "name"]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    name: str
    def __init__(self, name: _Optional[str] = ..., incarnation: _Optional[int] = ...) -> None: ...

class NodeStatus(_message.Message):
    __slots__ = ["clients", "draining", "free", "member", "silence_seconds"]
    class FreeEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    FREE_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    SILENCE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    clients: int
    draining: bool
    free: _containers.ScalarMap[str, int]
    member: Member
    silence_seconds: float
    def __init__(self, member: _Optional[_Union[Member, _Mapping]] = ..., free: _Optional[_Mapping[str, int]] = ..., silence_seconds: _Optional[float] = ..., draining: bool = ..., clients: _Optional[int] = ...) -> None: ...

class Note(_message.Message):
    __slots__ = ["drain", "membership", "name", "registered", "room", "struck"]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    MEMBERSHIP_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_FIELD_NUMBER: _ClassVar[int]
    ROOM_FIELD_NUMBER: _ClassVar[int]
    STRUCK_FIELD_NUMBER: _ClassVar[int]
    drain: Drain
    membership: Membership
    name: NameAnswer
    registered: Registered
    room: RoomAnswer
    struck: Struck
    def __init__(self, registered: _Optional[_Union[Registered, _Mapping]] = ..., membership: _Optional[_Union[Membership, _Mapping]] = ..., room: _Optional[_Union[RoomAnswer, _Mapping]] = ..., name: _Optional[_Union[NameAnswer, _Mapping]] = ..., drain: _Optional[_Union[Drain, _Mapping]] = ..., struck: _Optional[_Union[Struck, _Mapping]] = ...) -> None: ...

class PeerHello(_message.Message):
    __slots__ = ["address", "cluster", "incarnation", "protocol", "python", "release", "wanted"]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    address: str
    cluster: str
    incarnation: int
    protocol: int
    python: str
    release: str
    wanted: int
    def __init__(self, protocol: _Optional[int] = ..., release: _Optional[str] = ..., python: _Optional[str] = ..., incarnation: _Optional[int] = ..., cluster: _Optional[str] = ..., wanted: _Optional[int] = ..., address: _Optional[str] = ...) -> None: ...

class PullRequest(_message.Message):
    __slots__ = ["offset", "owner", "seq", "version"]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    offset: int
    owner: int
    seq: int
    version: int
    def __init__(self, owner: _Optional[int] = ..., seq: _Optional[int] = ..., version: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class RawFrames(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class RawPiece(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class Registered(_message.Message):
    __slots__ = ["beat_seconds", "cluster", "epoch", "patience_seconds"]
    BEAT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PATIENCE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    beat_seconds: float
    cluster: str
    epoch: int
    patience_seconds: float
    def __init__(self, epoch: _Optional[int] = ..., cluster: _Optional[str] = ..., beat_seconds: _Optional[float] = ..., patience_seconds: _Optional[float] = ...) -> None: ...

class Registration(_message.Message):
    __slots__ = ["address", "cluster", "epoch", "host", "incarnation", "names", "protocol", "python", "release", "totals"]
    class TotalsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    address: str
    cluster: str
    epoch: int
    host: str
    incarnation: int
    names: _containers.RepeatedCompositeFieldContainer[NameClaim]
    protocol: int
    python: str
    release: str
    totals: _containers.ScalarMap[str, int]
    def __init__(self, protocol: _Optional[int] = ..., release: _Optional[str] = ..., python: _Optional[str] = ..., incarnation: _Optional[int] = ..., cluster: _Optional[str] = ..., address: _Optional[str] = ..., host: _Optional[str] = ..., totals: _Optional[_Mapping[str, int]] = ..., epoch: _Optional[int] = ..., names: _Optional[_Iterable[_Union[NameClaim, _Mapping]]] = ...) -> None: ...

class Report(_message.Message):
    __slots__ = ["beat", "claim", "drained", "name", "registration", "release", "room"]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    REGISTRATION_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    ROOM_FIELD_NUMBER: _ClassVar[int]
    beat: Beat
    claim: NameClaim
    drained: Drained
    name: NameQuestion
    registration: Registration
    release: NameRelease
    room: RoomQuestion
    def __init__(self, registration: _Optional[_Union[Registration, _Mapping]] = ..., beat: _Optional[_Union[Beat, _Mapping]] = ..., room: _Optional[_Union[RoomQuestion, _Mapping]] = ..., claim: _Optional[_Union[NameClaim, _Mapping]] = ..., release: _Optional[_Union[NameRelease, _Mapping]] = ..., name: _Optional[_Union[NameQuestion, _Mapping]] = ..., drained: _Optional[_Union[Drained, _Mapping]] = ...) -> None: ...

class Room(_message.Message):
    __slots__ = ["node", "tasks"]
    NODE_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    node: int
    tasks: int
    def __init__(self, node: _Optional[int] = ..., tasks: _Optional[int] = ...) -> None: ...

class RoomAnswer(_message.Message):
    __slots__ = ["id", "never", "rooms"]
    ID_FIELD_NUMBER: _ClassVar[int]
    NEVER_FIELD_NUMBER: _ClassVar[int]
    ROOMS_FIELD_NUMBER: _ClassVar[int]
    id: int
    never: bool
    rooms: _containers.RepeatedCompositeFieldContainer[Room]
    def __init__(self, id: _Optional[int] = ..., rooms: _Optional[_Iterable[_Union[Room, _Mapping]]] = ..., never: bool = ...) -> None: ...

class RoomQuestion(_message.Message):
    __slots__ = ["id", "shape", "waiting"]
    class ShapeEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    id: int
    shape: _containers.ScalarMap[str, int]
    waiting: int
    def __init__(self, id: _Optional[int] = ..., shape: _Optional[_Mapping[str, int]] = ..., waiting: _Optional[int] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class StopReply(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class StopRequest(_message.Message):
    __slots__ = ["deadline_seconds", "force"]
    DEADLINE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    deadline_seconds: float
    force: bool
    def __init__(self, force: bool = ..., deadline_seconds: _Optional[float] = ...) -> None: ...

class Struck(_message.Message):
    __slots__ = ["reason"]
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...
