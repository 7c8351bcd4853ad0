from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

ADOPT: FrameType
ANNOUNCE: FrameType
ANSWER: FrameType
ASK: FrameType
BIND: FrameType
BINDING_FAILED: FrameType
BLOCKED: FrameType
BORROW: FrameType
BORROWER_DIED: FrameType
CANCEL: FrameType
CONNECT: FrameType
DESCRIPTOR: _descriptor.FileDescriptor
DROP_KINDS: FrameType
ENDED: FrameType
EVACUATE: FrameType
EVACUATED: FrameType
FETCH: FrameType
FINISHED: FrameType
FORKED: FrameType
FRAME_UNSPECIFIED: FrameType
FREE: FrameType
GANG: FrameType
GANG_STATE: FrameType
GET_KIND: FrameType
GET_PACKET: FrameType
GIVE_BACK: FrameType
GRANT: FrameType
HELLO: FrameType
INIT_FAILED: FrameType
KIND: FrameType
KIND_REFUSED: FrameType
LEASE: FrameType
LEAVING: FrameType
LOG: FrameType
LOST: FrameType
MAP: FrameType
MET: FrameType
MOVED: FrameType
NAME: FrameType
NAME_REPLY: FrameType
NODE_GONE: FrameType
NO_PATH: FrameType
OWNER_LOST: FrameType
PACKET: FrameType
PASSED_ON: FrameType
PIECE: FrameType
PULL: FrameType
PULLED: FrameType
REACH: FrameType
RECLAIM: FrameType
REFUSAL: FrameType
RELEASE: FrameType
RESUME: FrameType
RETURNED: FrameType
SEGMENT: FrameType
SESSION: FrameType
STARTED: FrameType
STATUS: FrameType
STATUS_REPLY: FrameType
STORE_FULL: FrameType
SUBMIT: FrameType
TIMELINE: FrameType
TIMELINE_REPLY: FrameType
UNBIND: FrameType
UNBLOCK: FrameType
UNBOUND: FrameType
UNPIN: FrameType
WANT: FrameType
WELCOME: FrameType

class ActorStatus(_message.Message):
    __slots__ = ["anchor", "class_name", "name", "namespace", "owner", "pid", "restarts", "state"]
    ANCHOR_FIELD_NUMBER: _ClassVar[int]
    CLASS_NAME_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    anchor: int
    class_name: str
    name: str
    namespace: str
    owner: int
    pid: int
    restarts: int
    state: str
    def __init__(self, owner: _Optional[int] = ..., anchor: _Optional[int] = ..., class_name: _Optional[str] = ..., name: _Optional[str] = ..., namespace: _Optional[str] = ..., state: _Optional[str] = ..., pid: _Optional[int] = ..., restarts: _Optional[int] = ...) -> None: ...

class Adopt(_message.Message):
    __slots__ = ["adopted", "announced", "heard", "lent"]
    ADOPTED_FIELD_NUMBER: _ClassVar[int]
    ANNOUNCED_FIELD_NUMBER: _ClassVar[int]
    HEARD_FIELD_NUMBER: _ClassVar[int]
    LENT_FIELD_NUMBER: _ClassVar[int]
    adopted: _containers.RepeatedCompositeFieldContainer[Adoption]
    announced: _containers.RepeatedCompositeFieldContainer[Descriptor]
    heard: int
    lent: _containers.RepeatedCompositeFieldContainer[Ref]
    def __init__(self, adopted: _Optional[_Iterable[_Union[Adoption, _Mapping]]] = ..., announced: _Optional[_Iterable[_Union[Descriptor, _Mapping]]] = ..., lent: _Optional[_Iterable[_Union[Ref, _Mapping]]] = ..., heard: _Optional[int] = ...) -> None: ...

class Adoption(_message.Message):
    __slots__ = ["holdings", "ref", "value"]
    HOLDINGS_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    holdings: _containers.RepeatedCompositeFieldContainer[Holding]
    ref: Ref
    value: bytes
    def __init__(self, ref: _Optional[_Union[Ref, _Mapping]] = ..., value: _Optional[bytes] = ..., holdings: _Optional[_Iterable[_Union[Holding, _Mapping]]] = ...) -> None: ...

class Announce(_message.Message):
    __slots__ = ["announced"]
    ANNOUNCED_FIELD_NUMBER: _ClassVar[int]
    announced: _containers.RepeatedCompositeFieldContainer[Descriptor]
    def __init__(self, announced: _Optional[_Iterable[_Union[Descriptor, _Mapping]]] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ["lent", "ref", "value"]
    LENT_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    lent: _containers.RepeatedCompositeFieldContainer[Ref]
    ref: Ref
    value: bytes
    def __init__(self, ref: _Optional[_Union[Ref, _Mapping]] = ..., value: _Optional[bytes] = ..., lent: _Optional[_Iterable[_Union[Ref, _Mapping]]] = ...) -> None: ...

class Ask(_message.Message):
    __slots__ = ["asker", "end", "ref"]
    class End(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    ASKER_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    EXIT: Ask.End
    KILL: Ask.End
    NONE: Ask.End
    REF_FIELD_NUMBER: _ClassVar[int]
    RESTART: Ask.End
    asker: int
    end: Ask.End
    ref: Ref
    def __init__(self, ref: _Optional[_Union[Ref, _Mapping]] = ..., asker: _Optional[int] = ..., end: _Optional[_Union[Ask.End, str]] = ...) -> None: ...

class Binding(_message.Message):
    __slots__ = ["anchor", "bundle", "class_name", "eager", "gang", "id", "initializer", "keeper", "label", "max_concurrency", "max_restarts", "max_tasks", "modules", "name", "namespace", "ordered", "processes", "record", "restarts", "sys_path"]
    ANCHOR_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    CLASS_NAME_FIELD_NUMBER: _ClassVar[int]
    EAGER_FIELD_NUMBER: _ClassVar[int]
    GANG_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    INITIALIZER_FIELD_NUMBER: _ClassVar[int]
    KEEPER_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    MAX_CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    MAX_RESTARTS_FIELD_NUMBER: _ClassVar[int]
    MAX_TASKS_FIELD_NUMBER: _ClassVar[int]
    MODULES_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ORDERED_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    SYS_PATH_FIELD_NUMBER: _ClassVar[int]
    anchor: int
    bundle: int
    class_name: str
    eager: bool
    gang: Gang
    id: int
    initializer: bytes
    keeper: int
    label: str
    max_concurrency: int
    max_restarts: int
    max_tasks: int
    modules: _containers.RepeatedScalarFieldContainer[str]
    name: str
    namespace: str
    ordered: bool
    processes: int
    record: bytes
    restarts: int
    sys_path: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[int] = ..., processes: _Optional[int] = ..., initializer: _Optional[bytes] = ..., max_tasks: _Optional[int] = ..., label: _Optional[str] = ..., ordered: bool = ..., eager: bool = ..., sys_path: _Optional[_Iterable[str]] = ..., modules: _Optional[_Iterable[str]] = ..., max_restarts: _Optional[int] = ..., max_concurrency: _Optional[int] = ..., keeper: _Optional[int] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., record: _Optional[bytes] = ..., restarts: _Optional[int] = ..., anchor: _Optional[int] = ..., class_name: _Optional[str] = ..., gang: _Optional[_Union[Gang, _Mapping]] = ..., bundle: _Optional[int] = ...) -> None: ...

class BindingFailed(_message.Message):
    __slots__ = ["death", "id", "outcome"]
    DEATH_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    death: Death
    id: int
    outcome: bytes
    def __init__(self, id: _Optional[int] = ..., outcome: _Optional[bytes] = ..., death: _Optional[_Union[Death, _Mapping]] = ...) -> None: ...

class Borrow(_message.Message):
    __slots__ = ["borrower", "by", "count", "ref"]
    BORROWER_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    borrower: int
    by: int
    count: int
    ref: Ref
    def __init__(self, ref: _Optional[_Union[Ref, _Mapping]] = ..., borrower: _Optional[int] = ..., count: _Optional[int] = ..., by: _Optional[int] = ...) -> None: ...

class Buffer(_message.Message):
    __slots__ = ["inline", "readonly", "stored"]
    INLINE_FIELD_NUMBER: _ClassVar[int]
    READONLY_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    inline: bytes
    readonly: bool
    stored: Descriptor
    def __init__(self, inline: _Optional[bytes] = ..., stored: _Optional[_Union[Descriptor, _Mapping]] = ..., readonly: bool = ...) -> None: ...

class Bundle(_message.Message):
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

class Cancel(_message.Message):
    __slots__ = ["force", "kill", "kill_after", "spans"]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    KILL_AFTER_FIELD_NUMBER: _ClassVar[int]
    KILL_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    force: bool
    kill: bool
    kill_after: float
    spans: _containers.RepeatedCompositeFieldContainer[Span]
    def __init__(self, spans: _Optional[_Iterable[_Union[Span, _Mapping]]] = ..., force: bool = ..., kill_after: _Optional[float] = ..., kill: bool = ...) -> None: ...

class Connect(_message.Message):
    __slots__ = ["address", "hello", "node"]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    address: str
    hello: Hello
    node: int
    def __init__(self, node: _Optional[int] = ..., address: _Optional[str] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ...) -> None: ...

class Death(_message.Message):
    __slots__ = ["exitcode", "host", "limit_nbytes", "peak_nbytes", "pid", "restarting", "signal", "stderr_tail", "worker"]
    EXITCODE_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    LIMIT_NBYTES_FIELD_NUMBER: _ClassVar[int]
    PEAK_NBYTES_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    RESTARTING_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    STDERR_TAIL_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    exitcode: int
    host: str
    limit_nbytes: int
    peak_nbytes: int
    pid: int
    restarting: bool
    signal: int
    stderr_tail: str
    worker: int
    def __init__(self, pid: _Optional[int] = ..., exitcode: _Optional[int] = ..., signal: _Optional[int] = ..., peak_nbytes: _Optional[int] = ..., limit_nbytes: _Optional[int] = ..., stderr_tail: _Optional[str] = ..., host: _Optional[str] = ..., worker: _Optional[int] = ..., restarting: bool = ...) -> None: ...

class Descriptor(_message.Message):
    __slots__ = ["nbytes", "node", "offset", "owner", "segment", "seq", "version"]
    NBYTES_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    nbytes: int
    node: int
    offset: int
    owner: int
    segment: int
    seq: int
    version: int
    def __init__(self, owner: _Optional[int] = ..., seq: _Optional[int] = ..., version: _Optional[int] = ..., segment: _Optional[int] = ..., offset: _Optional[int] = ..., nbytes: _Optional[int] = ..., node: _Optional[int] = ...) -> None: ...

class Done(_message.Message):
    __slots__ = ["attempt", "first", "mixed", "seconds", "stream", "stride", "values"]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    MIXED_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    first: int
    mixed: bool
    seconds: float
    stream: int
    stride: int
    values: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, stream: _Optional[int] = ..., first: _Optional[int] = ..., attempt: _Optional[int] = ..., stride: _Optional[int] = ..., values: _Optional[_Iterable[bytes]] = ..., seconds: _Optional[float] = ..., mixed: bool = ...) -> None: ...

class DropKinds(_message.Message):
    __slots__ = ["ids", "owner"]
    IDS_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    owner: int
    def __init__(self, ids: _Optional[_Iterable[int]] = ..., owner: _Optional[int] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ["cause", "lost", "pickled", "text", "traceback", "type_name", "value_repr"]
    class Cause(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    ARGUMENT_UNPICKLABLE: Error.Cause
    CANCELLED: Error.Cause
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    DEPENDENCY: Error.Cause
    EXITED: Error.Cause
    FUNCTION_UNPICKLABLE: Error.Cause
    INPUT_LOST: Error.Cause
    LOST_FIELD_NUMBER: _ClassVar[int]
    PICKLED_FIELD_NUMBER: _ClassVar[int]
    RAISED: Error.Cause
    RESULT_UNPICKLABLE: Error.Cause
    STORE_FULL: Error.Cause
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TRACEBACK_FIELD_NUMBER: _ClassVar[int]
    TYPE_NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_REPR_FIELD_NUMBER: _ClassVar[int]
    cause: Error.Cause
    lost: Ref
    pickled: bytes
    text: str
    traceback: str
    type_name: str
    value_repr: str
    def __init__(self, pickled: _Optional[bytes] = ..., type_name: _Optional[str] = ..., text: _Optional[str] = ..., traceback: _Optional[str] = ..., cause: _Optional[_Union[Error.Cause, str]] = ..., value_repr: _Optional[str] = ..., lost: _Optional[_Union[Ref, _Mapping]] = ...) -> None: ...

class Extent(_message.Message):
    __slots__ = ["nbytes", "offset", "segment"]
    NBYTES_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    nbytes: int
    offset: int
    segment: int
    def __init__(self, segment: _Optional[int] = ..., offset: _Optional[int] = ..., nbytes: _Optional[int] = ...) -> None: ...

class Fetch(_message.Message):
    __slots__ = ["asker", "nbytes", "offset", "owner", "seq", "version"]
    ASKER_FIELD_NUMBER: _ClassVar[int]
    NBYTES_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    asker: int
    nbytes: int
    offset: int
    owner: int
    seq: int
    version: int
    def __init__(self, owner: _Optional[int] = ..., seq: _Optional[int] = ..., version: _Optional[int] = ..., offset: _Optional[int] = ..., nbytes: _Optional[int] = ..., asker: _Optional[int] = ...) -> None: ...

class Finished(_message.Message):
    __slots__ = ["adopted", "announced", "done", "given_back", "heard", "lent", "packet", "packet_done", "printed", "unpinned"]
    ADOPTED_FIELD_NUMBER: _ClassVar[int]
    ANNOUNCED_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    GIVEN_BACK_FIELD_NUMBER: _ClassVar[int]
    HEARD_FIELD_NUMBER: _ClassVar[int]
    LENT_FIELD_NUMBER: _ClassVar[int]
    PACKET_DONE_FIELD_NUMBER: _ClassVar[int]
    PACKET_FIELD_NUMBER: _ClassVar[int]
    PRINTED_FIELD_NUMBER: _ClassVar[int]
    UNPINNED_FIELD_NUMBER: _ClassVar[int]
    adopted: _containers.RepeatedCompositeFieldContainer[Adoption]
    announced: _containers.RepeatedCompositeFieldContainer[Descriptor]
    done: _containers.RepeatedCompositeFieldContainer[Done]
    given_back: int
    heard: int
    lent: _containers.RepeatedCompositeFieldContainer[Ref]
    packet: int
    packet_done: bool
    printed: bool
    unpinned: _containers.RepeatedCompositeFieldContainer[Ref]
    def __init__(self, done: _Optional[_Iterable[_Union[Done, _Mapping]]] = ..., announced: _Optional[_Iterable[_Union[Descriptor, _Mapping]]] = ..., adopted: _Optional[_Iterable[_Union[Adoption, _Mapping]]] = ..., unpinned: _Optional[_Iterable[_Union[Ref, _Mapping]]] = ..., packet: _Optional[int] = ..., packet_done: bool = ..., printed: bool = ..., given_back: _Optional[int] = ..., lent: _Optional[_Iterable[_Union[Ref, _Mapping]]] = ..., heard: _Optional[int] = ...) -> None: ...

class Gang(_message.Message):
    __slots__ = ["bundles", "nodes", "number", "owner", "strategy"]
    BUNDLES_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    bundles: _containers.RepeatedCompositeFieldContainer[Bundle]
    nodes: _containers.RepeatedScalarFieldContainer[int]
    number: int
    owner: int
    strategy: str
    def __init__(self, number: _Optional[int] = ..., bundles: _Optional[_Iterable[_Union[Bundle, _Mapping]]] = ..., nodes: _Optional[_Iterable[int]] = ..., owner: _Optional[int] = ..., strategy: _Optional[str] = ...) -> None: ...

class GangRequest(_message.Message):
    __slots__ = ["gang", "release"]
    GANG_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    gang: Gang
    release: bool
    def __init__(self, gang: _Optional[_Union[Gang, _Mapping]] = ..., release: bool = ...) -> None: ...

class GangState(_message.Message):
    __slots__ = ["gang", "nodes", "outcome", "reason", "totals"]
    class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    class TotalsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    BROKEN: GangState.Outcome
    GANG_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    READY: GangState.Outcome
    REASON_FIELD_NUMBER: _ClassVar[int]
    REFUSED: GangState.Outcome
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    UNREACHABLE: GangState.Outcome
    gang: int
    nodes: _containers.RepeatedScalarFieldContainer[int]
    outcome: GangState.Outcome
    reason: str
    totals: _containers.ScalarMap[str, int]
    def __init__(self, gang: _Optional[int] = ..., outcome: _Optional[_Union[GangState.Outcome, str]] = ..., nodes: _Optional[_Iterable[int]] = ..., reason: _Optional[str] = ..., totals: _Optional[_Mapping[str, int]] = ...) -> None: ...

class GetKind(_message.Message):
    __slots__ = ["id", "owner"]
    ID_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    id: int
    owner: int
    def __init__(self, owner: _Optional[int] = ..., id: _Optional[int] = ...) -> None: ...

class GetPacket(_message.Message):
    __slots__ = ["packet"]
    PACKET_FIELD_NUMBER: _ClassVar[int]
    packet: int
    def __init__(self, packet: _Optional[int] = ...) -> None: ...

class GiveBack(_message.Message):
    __slots__ = ["parts", "segments"]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    parts: _containers.RepeatedCompositeFieldContainer[Extent]
    segments: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, segments: _Optional[_Iterable[int]] = ..., parts: _Optional[_Iterable[_Union[Extent, _Mapping]]] = ...) -> None: ...

class Grant(_message.Message):
    __slots__ = ["credit", "kind"]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    credit: int
    kind: int
    def __init__(self, kind: _Optional[int] = ..., credit: _Optional[int] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ["authkey", "cwd", "incarnation", "main_package", "main_path", "namespace", "pid", "preload", "protocol", "python", "release", "role", "root", "sys_path", "worker"]
    class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    AUTHKEY_FIELD_NUMBER: _ClassVar[int]
    CLIENT: Hello.Role
    CWD_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    MAIN_PACKAGE_FIELD_NUMBER: _ClassVar[int]
    MAIN_PATH_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    PRELOAD_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    SYS_PATH_FIELD_NUMBER: _ClassVar[int]
    WORKER: Hello.Role
    WORKER_FIELD_NUMBER: _ClassVar[int]
    authkey: bytes
    cwd: str
    incarnation: int
    main_package: str
    main_path: str
    namespace: str
    pid: int
    preload: _containers.RepeatedScalarFieldContainer[str]
    protocol: int
    python: str
    release: str
    role: Hello.Role
    root: int
    sys_path: _containers.RepeatedScalarFieldContainer[str]
    worker: int
    def __init__(self, protocol: _Optional[int] = ..., release: _Optional[str] = ..., python: _Optional[str] = ..., pid: _Optional[int] = ..., incarnation: _Optional[int] = ..., role: _Optional[_Union[Hello.Role, str]] = ..., worker: _Optional[int] = ..., preload: _Optional[_Iterable[str]] = ..., sys_path: _Optional[_Iterable[str]] = ..., cwd: _Optional[str] = ..., main_path: _Optional[str] = ..., main_package: _Optional[str] = ..., authkey: _Optional[bytes] = ..., root: _Optional[int] = ..., namespace: _Optional[str] = ...) -> None: ...

class Hold(_message.Message):
    __slots__ = ["objects", "position"]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    objects: _containers.RepeatedCompositeFieldContainer[Descriptor]
    position: int
    def __init__(self, position: _Optional[int] = ..., objects: _Optional[_Iterable[_Union[Descriptor, _Mapping]]] = ...) -> None: ...

class Holder(_message.Message):
    __slots__ = ["nbytes", "what"]
    NBYTES_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    nbytes: int
    what: str
    def __init__(self, what: _Optional[str] = ..., nbytes: _Optional[int] = ...) -> None: ...

class Holding(_message.Message):
    __slots__ = ["count", "process"]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    count: int
    process: int
    def __init__(self, process: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class InitFailed(_message.Message):
    __slots__ = ["outcome"]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    outcome: bytes
    def __init__(self, outcome: _Optional[bytes] = ...) -> None: ...

class Interval(_message.Message):
    __slots__ = ["array", "attempt", "calls", "first", "holds", "kind", "stream", "stride"]
    ARRAY_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    array: bool
    attempt: int
    calls: _containers.RepeatedScalarFieldContainer[bytes]
    first: int
    holds: _containers.RepeatedCompositeFieldContainer[Hold]
    kind: int
    stream: int
    stride: int
    def __init__(self, kind: _Optional[int] = ..., stream: _Optional[int] = ..., first: _Optional[int] = ..., attempt: _Optional[int] = ..., calls: _Optional[_Iterable[bytes]] = ..., holds: _Optional[_Iterable[_Union[Hold, _Mapping]]] = ..., stride: _Optional[int] = ..., array: bool = ...) -> None: ...

class Kind(_message.Message):
    __slots__ = ["binding", "binding_owner", "function", "id", "modules", "name", "num_returns", "owner", "process_retries", "resources", "sys_path", "writable"]
    class ResourcesEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    BINDING_FIELD_NUMBER: _ClassVar[int]
    BINDING_OWNER_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    MODULES_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUM_RETURNS_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    PROCESS_RETRIES_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    SYS_PATH_FIELD_NUMBER: _ClassVar[int]
    WRITABLE_FIELD_NUMBER: _ClassVar[int]
    binding: int
    binding_owner: int
    function: bytes
    id: int
    modules: _containers.RepeatedScalarFieldContainer[str]
    name: str
    num_returns: int
    owner: int
    process_retries: int
    resources: _containers.ScalarMap[str, int]
    sys_path: _containers.RepeatedScalarFieldContainer[str]
    writable: bool
    def __init__(self, id: _Optional[int] = ..., binding: _Optional[int] = ..., function: _Optional[bytes] = ..., name: _Optional[str] = ..., resources: _Optional[_Mapping[str, int]] = ..., num_returns: _Optional[int] = ..., writable: bool = ..., sys_path: _Optional[_Iterable[str]] = ..., owner: _Optional[int] = ..., modules: _Optional[_Iterable[str]] = ..., binding_owner: _Optional[int] = ..., process_retries: _Optional[int] = ...) -> None: ...

class KindRefused(_message.Message):
    __slots__ = ["asked", "available", "gone", "id", "reason"]
    class AskedEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class AvailableEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ASKED_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    asked: _containers.ScalarMap[str, int]
    available: _containers.ScalarMap[str, int]
    gone: bool
    id: int
    reason: str
    def __init__(self, id: _Optional[int] = ..., asked: _Optional[_Mapping[str, int]] = ..., available: _Optional[_Mapping[str, int]] = ..., reason: _Optional[str] = ..., gone: bool = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ["nbytes"]
    NBYTES_FIELD_NUMBER: _ClassVar[int]
    nbytes: int
    def __init__(self, nbytes: _Optional[int] = ...) -> None: ...

class Line(_message.Message):
    __slots__ = ["ended", "function", "host", "pid", "plain", "stderr", "text", "worker"]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    PLAIN_FIELD_NUMBER: _ClassVar[int]
    STDERR_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    ended: bool
    function: str
    host: str
    pid: int
    plain: bool
    stderr: bool
    text: str
    worker: int
    def __init__(self, text: _Optional[str] = ..., stderr: bool = ..., pid: _Optional[int] = ..., worker: _Optional[int] = ..., function: _Optional[str] = ..., host: _Optional[str] = ..., plain: bool = ..., ended: bool = ...) -> None: ...

class Log(_message.Message):
    __slots__ = ["dropped", "lines"]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    dropped: int
    lines: _containers.RepeatedCompositeFieldContainer[Line]
    def __init__(self, lines: _Optional[_Iterable[_Union[Line, _Mapping]]] = ..., dropped: _Optional[int] = ...) -> None: ...

class Lost(_message.Message):
    __slots__ = ["cause", "death", "outcome", "spans"]
    class Cause(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    BINDING: Lost.Cause
    CANCELLED: Lost.Cause
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    DEATH_FIELD_NUMBER: _ClassVar[int]
    MACHINE: Lost.Cause
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    PROCESS: Lost.Cause
    SPANS_FIELD_NUMBER: _ClassVar[int]
    cause: Lost.Cause
    death: Death
    outcome: bytes
    spans: _containers.RepeatedCompositeFieldContainer[Span]
    def __init__(self, cause: _Optional[_Union[Lost.Cause, str]] = ..., spans: _Optional[_Iterable[_Union[Span, _Mapping]]] = ..., death: _Optional[_Union[Death, _Mapping]] = ..., outcome: _Optional[bytes] = ...) -> None: ...

class Map(_message.Message):
    __slots__ = ["segment"]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    segment: int
    def __init__(self, segment: _Optional[int] = ...) -> None: ...

class Moved(_message.Message):
    __slots__ = ["objects", "owner"]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    objects: _containers.RepeatedCompositeFieldContainer[Descriptor]
    owner: int
    def __init__(self, owner: _Optional[int] = ..., objects: _Optional[_Iterable[_Union[Descriptor, _Mapping]]] = ...) -> None: ...

class NameReply(_message.Message):
    __slots__ = ["outcome", "reason", "record"]
    class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    FOUND: NameReply.Outcome
    GRANTED: NameReply.Outcome
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    REFUSED: NameReply.Outcome
    UNKNOWN: NameReply.Outcome
    UNREACHABLE: NameReply.Outcome
    outcome: NameReply.Outcome
    reason: str
    record: bytes
    def __init__(self, outcome: _Optional[_Union[NameReply.Outcome, str]] = ..., record: _Optional[bytes] = ..., reason: _Optional[str] = ...) -> None: ...

class NameRequest(_message.Message):
    __slots__ = ["name", "namespace", "owner", "record", "what"]
    class What(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    CLAIM: NameRequest.What
    FIND: NameRequest.What
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    RELEASE: NameRequest.What
    WHAT_FIELD_NUMBER: _ClassVar[int]
    name: str
    namespace: str
    owner: int
    record: bytes
    what: NameRequest.What
    def __init__(self, what: _Optional[_Union[NameRequest.What, str]] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., record: _Optional[bytes] = ..., owner: _Optional[int] = ...) -> None: ...

class NoPath(_message.Message):
    __slots__ = ["node", "number", "owner", "refused"]
    NODE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    node: int
    number: int
    owner: int
    refused: bool
    def __init__(self, owner: _Optional[int] = ..., node: _Optional[int] = ..., number: _Optional[int] = ..., refused: bool = ...) -> None: ...

class NodeGone(_message.Message):
    __slots__ = ["lost", "node", "reason"]
    LOST_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    lost: bool
    node: int
    reason: str
    def __init__(self, node: _Optional[int] = ..., lost: bool = ..., reason: _Optional[str] = ...) -> None: ...

class NodeStatus(_message.Message):
    __slots__ = ["actors", "address", "free", "host", "node", "pid", "queued", "running", "store_nbytes", "store_used_nbytes", "totals", "workers"]
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
    ACTORS_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    FREE_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    STORE_NBYTES_FIELD_NUMBER: _ClassVar[int]
    STORE_USED_NBYTES_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    actors: _containers.RepeatedCompositeFieldContainer[ActorStatus]
    address: str
    free: _containers.ScalarMap[str, int]
    host: str
    node: int
    pid: int
    queued: int
    running: int
    store_nbytes: int
    store_used_nbytes: int
    totals: _containers.ScalarMap[str, int]
    workers: _containers.RepeatedCompositeFieldContainer[WorkerStatus]
    def __init__(self, node: _Optional[int] = ..., host: _Optional[str] = ..., pid: _Optional[int] = ..., totals: _Optional[_Mapping[str, int]] = ..., free: _Optional[_Mapping[str, int]] = ..., running: _Optional[int] = ..., queued: _Optional[int] = ..., store_nbytes: _Optional[int] = ..., store_used_nbytes: _Optional[int] = ..., workers: _Optional[_Iterable[_Union[WorkerStatus, _Mapping]]] = ..., address: _Optional[str] = ..., actors: _Optional[_Iterable[_Union[ActorStatus, _Mapping]]] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ["error", "value"]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    error: Error
    value: Parcel
    def __init__(self, value: _Optional[_Union[Parcel, _Mapping]] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class Parcel(_message.Message):
    __slots__ = ["buffers", "inputs", "refs", "stored", "stream"]
    BUFFERS_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    REFS_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    buffers: _containers.RepeatedCompositeFieldContainer[Buffer]
    inputs: _containers.RepeatedScalarFieldContainer[bytes]
    refs: _containers.RepeatedCompositeFieldContainer[Ref]
    stored: Descriptor
    stream: bytes
    def __init__(self, stream: _Optional[bytes] = ..., stored: _Optional[_Union[Descriptor, _Mapping]] = ..., buffers: _Optional[_Iterable[_Union[Buffer, _Mapping]]] = ..., refs: _Optional[_Iterable[_Union[Ref, _Mapping]]] = ..., inputs: _Optional[_Iterable[bytes]] = ...) -> None: ...

class PassedOn(_message.Message):
    __slots__ = ["refs", "refused"]
    REFS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    refs: _containers.RepeatedCompositeFieldContainer[Ref]
    refused: bool
    def __init__(self, refs: _Optional[_Iterable[_Union[Ref, _Mapping]]] = ..., refused: bool = ...) -> None: ...

class Peer(_message.Message):
    __slots__ = ["incarnation", "ref"]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    ref: Ref
    def __init__(self, incarnation: _Optional[int] = ..., ref: _Optional[_Union[Ref, _Mapping]] = ...) -> None: ...

class Piece(_message.Message):
    __slots__ = ["data", "offset", "owner", "seq", "source", "version"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    offset: int
    owner: int
    seq: int
    source: int
    version: int
    def __init__(self, owner: _Optional[int] = ..., seq: _Optional[int] = ..., version: _Optional[int] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ..., source: _Optional[int] = ...) -> None: ...

class Pull(_message.Message):
    __slots__ = ["object"]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    object: Descriptor
    def __init__(self, object: _Optional[_Union[Descriptor, _Mapping]] = ...) -> None: ...

class Pulled(_message.Message):
    __slots__ = ["cause", "object", "reason"]
    class Cause(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    FULL: Pulled.Cause
    LOST: Pulled.Cause
    NONE: Pulled.Cause
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    cause: Pulled.Cause
    object: Descriptor
    reason: str
    def __init__(self, object: _Optional[_Union[Descriptor, _Mapping]] = ..., cause: _Optional[_Union[Pulled.Cause, str]] = ..., reason: _Optional[str] = ...) -> None: ...

class Reclaim(_message.Message):
    __slots__ = ["extents"]
    EXTENTS_FIELD_NUMBER: _ClassVar[int]
    extents: _containers.RepeatedCompositeFieldContainer[Extent]
    def __init__(self, extents: _Optional[_Iterable[_Union[Extent, _Mapping]]] = ...) -> None: ...

class Ref(_message.Message):
    __slots__ = ["owner", "seq", "version"]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    owner: int
    seq: int
    version: int
    def __init__(self, owner: _Optional[int] = ..., seq: _Optional[int] = ..., version: _Optional[int] = ...) -> None: ...

class Refs(_message.Message):
    __slots__ = ["refs"]
    REFS_FIELD_NUMBER: _ClassVar[int]
    refs: _containers.RepeatedCompositeFieldContainer[Ref]
    def __init__(self, refs: _Optional[_Iterable[_Union[Ref, _Mapping]]] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ["reason"]
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Returned(_message.Message):
    __slots__ = ["spans"]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    spans: _containers.RepeatedCompositeFieldContainer[Span]
    def __init__(self, spans: _Optional[_Iterable[_Union[Span, _Mapping]]] = ...) -> None: ...

class Segment(_message.Message):
    __slots__ = ["nbytes", "segment", "writable"]
    NBYTES_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    WRITABLE_FIELD_NUMBER: _ClassVar[int]
    nbytes: int
    segment: int
    writable: bool
    def __init__(self, segment: _Optional[int] = ..., nbytes: _Optional[int] = ..., writable: bool = ...) -> None: ...

class Span(_message.Message):
    __slots__ = ["attempt", "count", "first", "stream", "stride"]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    count: int
    first: int
    stream: int
    stride: int
    def __init__(self, stream: _Optional[int] = ..., first: _Optional[int] = ..., count: _Optional[int] = ..., attempt: _Optional[int] = ..., stride: _Optional[int] = ...) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ["nodes", "request"]
    NODES_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[NodeStatus]
    request: int
    def __init__(self, request: _Optional[int] = ..., nodes: _Optional[_Iterable[_Union[NodeStatus, _Mapping]]] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ["request"]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request: int
    def __init__(self, request: _Optional[int] = ...) -> None: ...

class StoreFull(_message.Message):
    __slots__ = ["capacity_nbytes", "free_nbytes", "holders", "needed_nbytes"]
    CAPACITY_NBYTES_FIELD_NUMBER: _ClassVar[int]
    FREE_NBYTES_FIELD_NUMBER: _ClassVar[int]
    HOLDERS_FIELD_NUMBER: _ClassVar[int]
    NEEDED_NBYTES_FIELD_NUMBER: _ClassVar[int]
    capacity_nbytes: int
    free_nbytes: int
    holders: _containers.RepeatedCompositeFieldContainer[Holder]
    needed_nbytes: int
    def __init__(self, needed_nbytes: _Optional[int] = ..., free_nbytes: _Optional[int] = ..., capacity_nbytes: _Optional[int] = ..., holders: _Optional[_Iterable[_Union[Holder, _Mapping]]] = ...) -> None: ...

class Submit(_message.Message):
    __slots__ = ["announced", "intervals", "owner", "packet"]
    ANNOUNCED_FIELD_NUMBER: _ClassVar[int]
    INTERVALS_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    PACKET_FIELD_NUMBER: _ClassVar[int]
    announced: _containers.RepeatedCompositeFieldContainer[Descriptor]
    intervals: _containers.RepeatedCompositeFieldContainer[Interval]
    owner: int
    packet: int
    def __init__(self, intervals: _Optional[_Iterable[_Union[Interval, _Mapping]]] = ..., announced: _Optional[_Iterable[_Union[Descriptor, _Mapping]]] = ..., packet: _Optional[int] = ..., owner: _Optional[int] = ...) -> None: ...

class Timeline(_message.Message):
    __slots__ = ["events", "host", "is_last", "node", "request"]
    class Event(_message.Message):
        __slots__ = ["has_died", "is_call", "name", "pid", "seconds", "start", "tasks"]
        HAS_DIED_FIELD_NUMBER: _ClassVar[int]
        IS_CALL_FIELD_NUMBER: _ClassVar[int]
        NAME_FIELD_NUMBER: _ClassVar[int]
        PID_FIELD_NUMBER: _ClassVar[int]
        SECONDS_FIELD_NUMBER: _ClassVar[int]
        START_FIELD_NUMBER: _ClassVar[int]
        TASKS_FIELD_NUMBER: _ClassVar[int]
        has_died: bool
        is_call: bool
        name: str
        pid: int
        seconds: float
        start: float
        tasks: int
        def __init__(self, name: _Optional[str] = ..., is_call: bool = ..., pid: _Optional[int] = ..., start: _Optional[float] = ..., seconds: _Optional[float] = ..., tasks: _Optional[int] = ..., has_died: bool = ...) -> None: ...
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    IS_LAST_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[Timeline.Event]
    host: str
    is_last: bool
    node: int
    request: int
    def __init__(self, request: _Optional[int] = ..., node: _Optional[int] = ..., host: _Optional[str] = ..., events: _Optional[_Iterable[_Union[Timeline.Event, _Mapping]]] = ..., is_last: bool = ...) -> None: ...

class Unbind(_message.Message):
    __slots__ = ["force", "id", "owner", "restart"]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    RESTART_FIELD_NUMBER: _ClassVar[int]
    force: bool
    id: int
    owner: int
    restart: bool
    def __init__(self, id: _Optional[int] = ..., force: bool = ..., restart: bool = ..., owner: _Optional[int] = ...) -> None: ...

class Want(_message.Message):
    __slots__ = ["kind", "waiting"]
    KIND_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    kind: int
    waiting: int
    def __init__(self, kind: _Optional[int] = ..., waiting: _Optional[int] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ["address", "host", "initial_credit", "joined", "node", "protocol", "python", "release", "slots", "store_nbytes", "totals", "you"]
    class TotalsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    INITIAL_CREDIT_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    STORE_NBYTES_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    YOU_FIELD_NUMBER: _ClassVar[int]
    address: str
    host: str
    initial_credit: int
    joined: bool
    node: int
    protocol: int
    python: str
    release: str
    slots: int
    store_nbytes: int
    totals: _containers.ScalarMap[str, int]
    you: int
    def __init__(self, protocol: _Optional[int] = ..., release: _Optional[str] = ..., python: _Optional[str] = ..., node: _Optional[int] = ..., totals: _Optional[_Mapping[str, int]] = ..., initial_credit: _Optional[int] = ..., store_nbytes: _Optional[int] = ..., you: _Optional[int] = ..., address: _Optional[str] = ..., host: _Optional[str] = ..., slots: _Optional[int] = ..., joined: bool = ...) -> None: ...

class WorkerStatus(_message.Message):
    __slots__ = ["binding", "owner", "pid", "state", "worker"]
    BINDING_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    binding: int
    owner: int
    pid: int
    state: str
    worker: int
    def __init__(self, worker: _Optional[int] = ..., pid: _Optional[int] = ..., state: _Optional[str] = ..., binding: _Optional[int] = ..., owner: _Optional[int] = ...) -> None: ...

class FrameType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
