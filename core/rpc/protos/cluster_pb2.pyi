from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Amounts(_message.Message):
    __slots__ = ["amounts"]
    class AmountsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    AMOUNTS_FIELD_NUMBER: _ClassVar[int]
    amounts: _containers.ScalarMap[str, int]
    def __init__(self, amounts: _Optional[_Mapping[str, int]] = ...) -> None: ...

class Beat(_message.Message):
    __slots__ = ["actors", "clients", "free", "queued", "running", "store_nbytes", "store_used_nbytes", "unchanged", "workers"]
    class FreeEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ACTORS_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    FREE_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    STORE_NBYTES_FIELD_NUMBER: _ClassVar[int]
    STORE_USED_NBYTES_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    actors: _containers.RepeatedScalarFieldContainer[bytes]
    clients: int
    free: _containers.ScalarMap[str, int]
    queued: int
    running: int
    store_nbytes: int
    store_used_nbytes: int
    unchanged: bool
    workers: int
    def __init__(self, free: _Optional[_Mapping[str, int]] = ..., unchanged: bool = ..., clients: _Optional[int] = ..., running: _Optional[int] = ..., queued: _Optional[int] = ..., workers: _Optional[int] = ..., store_nbytes: _Optional[int] = ..., store_used_nbytes: _Optional[int] = ..., actors: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Bundle(_message.Message):
    __slots__ = ["amounts", "index"]
    class AmountsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    AMOUNTS_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    amounts: _containers.ScalarMap[str, int]
    index: int
    def __init__(self, index: _Optional[int] = ..., amounts: _Optional[_Mapping[str, int]] = ...) -> None: ...

class BundlesHeld(_message.Message):
    __slots__ = ["attempt", "gang", "indices"]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    GANG_FIELD_NUMBER: _ClassVar[int]
    INDICES_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    gang: int
    indices: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, gang: _Optional[int] = ..., attempt: _Optional[int] = ..., indices: _Optional[_Iterable[int]] = ...) -> None: ...

class BundlesOrder(_message.Message):
    __slots__ = ["attempt", "bundles", "gang", "what"]
    class What(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    BUNDLES_FIELD_NUMBER: _ClassVar[int]
    CONFIRM: BundlesOrder.What
    GANG_FIELD_NUMBER: _ClassVar[int]
    PREPARE: BundlesOrder.What
    RELEASE: BundlesOrder.What
    WHAT_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    bundles: _containers.RepeatedCompositeFieldContainer[Bundle]
    gang: int
    what: BundlesOrder.What
    def __init__(self, gang: _Optional[int] = ..., attempt: _Optional[int] = ..., what: _Optional[_Union[BundlesOrder.What, str]] = ..., bundles: _Optional[_Iterable[_Union[Bundle, _Mapping]]] = ...) -> None: ...

class BundlesState(_message.Message):
    __slots__ = ["attempt", "gang", "state"]
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CONFIRMED: BundlesState.State
    DECLINED: BundlesState.State
    GANG_FIELD_NUMBER: _ClassVar[int]
    PREPARED: BundlesState.State
    STATE_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    gang: int
    state: BundlesState.State
    def __init__(self, gang: _Optional[int] = ..., attempt: _Optional[int] = ..., state: _Optional[_Union[BundlesState.State, str]] = ...) -> None: ...

class ClientAnswer(_message.Message):
    __slots__ = ["accepted", "id", "pythons"]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PYTHONS_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    id: int
    pythons: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[int] = ..., accepted: bool = ..., pythons: _Optional[_Iterable[str]] = ...) -> None: ...

class ClientArrival(_message.Message):
    __slots__ = ["id", "python"]
    ID_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    id: int
    python: str
    def __init__(self, id: _Optional[int] = ..., python: _Optional[str] = ...) -> None: ...

class ClusterStatus(_message.Message):
    __slots__ = ["age_seconds", "cluster", "epoch", "host", "log", "nodes", "pid", "protocol", "refused", "release", "settling", "unlisted"]
    AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    SETTLING_FIELD_NUMBER: _ClassVar[int]
    UNLISTED_FIELD_NUMBER: _ClassVar[int]
    age_seconds: float
    cluster: str
    epoch: int
    host: str
    log: str
    nodes: _containers.RepeatedCompositeFieldContainer[NodeStatus]
    pid: int
    protocol: int
    refused: int
    release: str
    settling: bool
    unlisted: int
    def __init__(self, cluster: _Optional[str] = ..., epoch: _Optional[int] = ..., release: _Optional[str] = ..., nodes: _Optional[_Iterable[_Union[NodeStatus, _Mapping]]] = ..., settling: bool = ..., protocol: _Optional[int] = ..., host: _Optional[str] = ..., pid: _Optional[int] = ..., log: _Optional[str] = ..., age_seconds: _Optional[float] = ..., refused: _Optional[int] = ..., unlisted: _Optional[int] = ...) -> None: ...

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

class Draining(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class GangAnswer(_message.Message):
    __slots__ = ["gang", "nodes", "outcome", "reason", "totals"]
    class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    BROKEN: GangAnswer.Outcome
    GANG_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    READY: GangAnswer.Outcome
    REASON_FIELD_NUMBER: _ClassVar[int]
    REFUSED: GangAnswer.Outcome
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    gang: int
    nodes: _containers.RepeatedScalarFieldContainer[int]
    outcome: GangAnswer.Outcome
    reason: str
    totals: _containers.RepeatedCompositeFieldContainer[Amounts]
    def __init__(self, gang: _Optional[int] = ..., outcome: _Optional[_Union[GangAnswer.Outcome, str]] = ..., nodes: _Optional[_Iterable[int]] = ..., reason: _Optional[str] = ..., totals: _Optional[_Iterable[_Union[Amounts, _Mapping]]] = ...) -> None: ...

class GangRelease(_message.Message):
    __slots__ = ["gang"]
    GANG_FIELD_NUMBER: _ClassVar[int]
    gang: int
    def __init__(self, gang: _Optional[int] = ...) -> None: ...

class GangWish(_message.Message):
    __slots__ = ["bundles", "gang", "python", "strategy", "was_ready"]
    class Strategy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    BUNDLES_FIELD_NUMBER: _ClassVar[int]
    GANG_FIELD_NUMBER: _ClassVar[int]
    PACK: GangWish.Strategy
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    SPREAD: GangWish.Strategy
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    STRICT_PACK: GangWish.Strategy
    STRICT_SPREAD: GangWish.Strategy
    WAS_READY_FIELD_NUMBER: _ClassVar[int]
    bundles: _containers.RepeatedCompositeFieldContainer[Amounts]
    gang: int
    python: str
    strategy: GangWish.Strategy
    was_ready: bool
    def __init__(self, gang: _Optional[int] = ..., bundles: _Optional[_Iterable[_Union[Amounts, _Mapping]]] = ..., strategy: _Optional[_Union[GangWish.Strategy, str]] = ..., python: _Optional[str] = ..., was_ready: bool = ...) -> None: ...

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

class KillActor(_message.Message):
    __slots__ = ["incarnation", "name", "namespace", "owner"]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    name: str
    namespace: str
    owner: int
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., owner: _Optional[int] = ..., incarnation: _Optional[int] = ...) -> None: ...

class Label(_message.Message):
    __slots__ = ["name", "value"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ["address", "draining", "host", "incarnation", "python", "slots", "totals"]
    class TotalsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    address: str
    draining: bool
    host: str
    incarnation: int
    python: str
    slots: int
    totals: _containers.ScalarMap[str, int]
    def __init__(self, incarnation: _Optional[int] = ..., address: _Optional[str] = ..., python: _Optional[str] = ..., totals: _Optional[_Mapping[str, int]] = ..., host: _Optional[str] = ..., slots: _Optional[int] = ..., draining: bool = ...) -> None: ...

class MembersMissed(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class Membership(_message.Message):
    __slots__ = ["epoch", "joined", "left", "more", "number", "since", "whole"]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    joined: _containers.RepeatedCompositeFieldContainer[Member]
    left: _containers.RepeatedScalarFieldContainer[int]
    more: bool
    number: int
    since: int
    whole: bool
    def __init__(self, number: _Optional[int] = ..., whole: bool = ..., joined: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., left: _Optional[_Iterable[int]] = ..., since: _Optional[int] = ..., epoch: _Optional[int] = ..., more: bool = ...) -> None: ...

class NameAnswer(_message.Message):
    __slots__ = ["detached", "id", "incarnation", "node", "outcome", "owner", "reason", "record"]
    class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    DETACHED_FIELD_NUMBER: _ClassVar[int]
    FOUND: NameAnswer.Outcome
    GRANTED: NameAnswer.Outcome
    ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    REFUSED: NameAnswer.Outcome
    UNKNOWN: NameAnswer.Outcome
    detached: bool
    id: int
    incarnation: int
    node: int
    outcome: NameAnswer.Outcome
    owner: int
    reason: str
    record: bytes
    def __init__(self, id: _Optional[int] = ..., outcome: _Optional[_Union[NameAnswer.Outcome, str]] = ..., node: _Optional[int] = ..., owner: _Optional[int] = ..., incarnation: _Optional[int] = ..., reason: _Optional[str] = ..., record: _Optional[bytes] = ..., detached: bool = ...) -> None: ...

class NameClaim(_message.Message):
    __slots__ = ["detached", "id", "incarnation", "name", "namespace", "owner", "record"]
    DETACHED_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    detached: bool
    id: int
    incarnation: int
    name: str
    namespace: str
    owner: int
    record: bytes
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ..., owner: _Optional[int] = ..., incarnation: _Optional[int] = ..., record: _Optional[bytes] = ..., namespace: _Optional[str] = ..., detached: bool = ...) -> None: ...

class NameQuestion(_message.Message):
    __slots__ = ["id", "name", "namespace"]
    ID_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    id: int
    name: str
    namespace: str
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ..., namespace: _Optional[str] = ...) -> None: ...

class NameRelease(_message.Message):
    __slots__ = ["incarnation", "name", "namespace", "owner"]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    name: str
    namespace: str
    owner: int
    def __init__(self, name: _Optional[str] = ..., incarnation: _Optional[int] = ..., namespace: _Optional[str] = ..., owner: _Optional[int] = ...) -> None: ...

class NodeStatus(_message.Message):
    __slots__ = ["age_seconds", "awaited", "clients", "draining", "free", "load", "log", "member", "pid", "release", "silence_seconds"]
    class FreeEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    AWAITED_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    FREE_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    SILENCE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    age_seconds: float
    awaited: bool
    clients: int
    draining: bool
    free: _containers.ScalarMap[str, int]
    load: Beat
    log: str
    member: Member
    pid: int
    release: str
    silence_seconds: float
    def __init__(self, member: _Optional[_Union[Member, _Mapping]] = ..., free: _Optional[_Mapping[str, int]] = ..., silence_seconds: _Optional[float] = ..., draining: bool = ..., clients: _Optional[int] = ..., awaited: bool = ..., release: _Optional[str] = ..., pid: _Optional[int] = ..., log: _Optional[str] = ..., age_seconds: _Optional[float] = ..., load: _Optional[_Union[Beat, _Mapping]] = ...) -> None: ...

class Note(_message.Message):
    __slots__ = ["bundles", "client", "drain", "gang", "kill_actor", "membership", "name", "registered", "room", "struck", "try_later"]
    BUNDLES_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    GANG_FIELD_NUMBER: _ClassVar[int]
    KILL_ACTOR_FIELD_NUMBER: _ClassVar[int]
    MEMBERSHIP_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_FIELD_NUMBER: _ClassVar[int]
    ROOM_FIELD_NUMBER: _ClassVar[int]
    STRUCK_FIELD_NUMBER: _ClassVar[int]
    TRY_LATER_FIELD_NUMBER: _ClassVar[int]
    bundles: BundlesOrder
    client: ClientAnswer
    drain: Drain
    gang: GangAnswer
    kill_actor: KillActor
    membership: Membership
    name: NameAnswer
    registered: Registered
    room: RoomAnswer
    struck: Struck
    try_later: TryLater
    def __init__(self, registered: _Optional[_Union[Registered, _Mapping]] = ..., membership: _Optional[_Union[Membership, _Mapping]] = ..., room: _Optional[_Union[RoomAnswer, _Mapping]] = ..., name: _Optional[_Union[NameAnswer, _Mapping]] = ..., drain: _Optional[_Union[Drain, _Mapping]] = ..., struck: _Optional[_Union[Struck, _Mapping]] = ..., client: _Optional[_Union[ClientAnswer, _Mapping]] = ..., kill_actor: _Optional[_Union[KillActor, _Mapping]] = ..., try_later: _Optional[_Union[TryLater, _Mapping]] = ..., gang: _Optional[_Union[GangAnswer, _Mapping]] = ..., bundles: _Optional[_Union[BundlesOrder, _Mapping]] = ...) -> None: ...

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
    __slots__ = ["by_socket", "offset", "owner", "seq", "taker", "version"]
    BY_SOCKET_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    TAKER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    by_socket: bool
    offset: int
    owner: int
    seq: int
    taker: int
    version: int
    def __init__(self, owner: _Optional[int] = ..., seq: _Optional[int] = ..., version: _Optional[int] = ..., offset: _Optional[int] = ..., taker: _Optional[int] = ..., by_socket: bool = ...) -> None: ...

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
    __slots__ = ["address", "age_seconds", "cluster", "draining", "epoch", "free", "gangs", "held", "host", "incarnation", "is_return", "labels", "log", "names", "pid", "protocol", "python", "release", "slots", "totals"]
    class FreeEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class TotalsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FREE_FIELD_NUMBER: _ClassVar[int]
    GANGS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    IS_RETURN_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    address: str
    age_seconds: float
    cluster: str
    draining: bool
    epoch: int
    free: _containers.ScalarMap[str, int]
    gangs: _containers.RepeatedCompositeFieldContainer[GangWish]
    held: _containers.RepeatedCompositeFieldContainer[BundlesHeld]
    host: str
    incarnation: int
    is_return: bool
    labels: _containers.RepeatedCompositeFieldContainer[Label]
    log: str
    names: _containers.RepeatedCompositeFieldContainer[NameClaim]
    pid: int
    protocol: int
    python: str
    release: str
    slots: int
    totals: _containers.ScalarMap[str, int]
    def __init__(self, protocol: _Optional[int] = ..., release: _Optional[str] = ..., python: _Optional[str] = ..., incarnation: _Optional[int] = ..., cluster: _Optional[str] = ..., address: _Optional[str] = ..., host: _Optional[str] = ..., totals: _Optional[_Mapping[str, int]] = ..., epoch: _Optional[int] = ..., names: _Optional[_Iterable[_Union[NameClaim, _Mapping]]] = ..., is_return: bool = ..., slots: _Optional[int] = ..., labels: _Optional[_Iterable[_Union[Label, _Mapping]]] = ..., free: _Optional[_Mapping[str, int]] = ..., draining: bool = ..., pid: _Optional[int] = ..., log: _Optional[str] = ..., age_seconds: _Optional[float] = ..., held: _Optional[_Iterable[_Union[BundlesHeld, _Mapping]]] = ..., gangs: _Optional[_Iterable[_Union[GangWish, _Mapping]]] = ...) -> None: ...

class Report(_message.Message):
    __slots__ = ["beat", "bundles", "claim", "client", "drained", "draining", "gang", "gang_release", "members_missed", "name", "registration", "release", "room"]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    BUNDLES_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    GANG_FIELD_NUMBER: _ClassVar[int]
    GANG_RELEASE_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_MISSED_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    REGISTRATION_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    ROOM_FIELD_NUMBER: _ClassVar[int]
    beat: Beat
    bundles: BundlesState
    claim: NameClaim
    client: ClientArrival
    drained: Drained
    draining: Draining
    gang: GangWish
    gang_release: GangRelease
    members_missed: MembersMissed
    name: NameQuestion
    registration: Registration
    release: NameRelease
    room: RoomQuestion
    def __init__(self, registration: _Optional[_Union[Registration, _Mapping]] = ..., beat: _Optional[_Union[Beat, _Mapping]] = ..., room: _Optional[_Union[RoomQuestion, _Mapping]] = ..., claim: _Optional[_Union[NameClaim, _Mapping]] = ..., release: _Optional[_Union[NameRelease, _Mapping]] = ..., name: _Optional[_Union[NameQuestion, _Mapping]] = ..., drained: _Optional[_Union[Drained, _Mapping]] = ..., draining: _Optional[_Union[Draining, _Mapping]] = ..., members_missed: _Optional[_Union[MembersMissed, _Mapping]] = ..., client: _Optional[_Union[ClientArrival, _Mapping]] = ..., gang: _Optional[_Union[GangWish, _Mapping]] = ..., gang_release: _Optional[_Union[GangRelease, _Mapping]] = ..., bundles: _Optional[_Union[BundlesState, _Mapping]] = ...) -> None: ...

class Room(_message.Message):
    __slots__ = ["address", "node", "tasks"]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    address: str
    node: int
    tasks: int
    def __init__(self, node: _Optional[int] = ..., tasks: _Optional[int] = ..., address: _Optional[str] = ...) -> None: ...

class RoomAnswer(_message.Message):
    __slots__ = ["asked", "id", "never", "python", "pythons", "rooms", "totals"]
    class AskedEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ASKED_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    NEVER_FIELD_NUMBER: _ClassVar[int]
    PYTHONS_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    ROOMS_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    asked: _containers.ScalarMap[str, int]
    id: int
    never: bool
    python: str
    pythons: _containers.RepeatedScalarFieldContainer[str]
    rooms: _containers.RepeatedCompositeFieldContainer[Room]
    totals: _containers.RepeatedCompositeFieldContainer[Amounts]
    def __init__(self, id: _Optional[int] = ..., rooms: _Optional[_Iterable[_Union[Room, _Mapping]]] = ..., never: bool = ..., asked: _Optional[_Mapping[str, int]] = ..., python: _Optional[str] = ..., pythons: _Optional[_Iterable[str]] = ..., totals: _Optional[_Iterable[_Union[Amounts, _Mapping]]] = ...) -> None: ...

class RoomQuestion(_message.Message):
    __slots__ = ["id", "python", "shape", "waiting"]
    class ShapeEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    id: int
    python: str
    shape: _containers.ScalarMap[str, int]
    waiting: int
    def __init__(self, id: _Optional[int] = ..., shape: _Optional[_Mapping[str, int]] = ..., waiting: _Optional[int] = ..., python: _Optional[str] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class StopReply(_message.Message):
    __slots__ = ["left", "lost"]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    left: int
    lost: int
    def __init__(self, left: _Optional[int] = ..., lost: _Optional[int] = ...) -> None: ...

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

class TryLater(_message.Message):
    __slots__ = ["id"]
    ID_FIELD_NUMBER: _ClassVar[int]
    id: int
    def __init__(self, id: _Optional[int] = ...) -> None: ...
