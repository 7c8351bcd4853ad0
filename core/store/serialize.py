"""Values to bytes and back: pickle protocol 5, large buffers beside the stream instead of in it.

Plain pickle comes first. Where it fails, or where the stream names ``__main__`` (which means another module in the
process that loads it), ``main_module`` pickles by value. Source: PEP 574 (out-of-band buffers).
"""

from __future__ import annotations

import copyreg
import io
import pickle
import sys
import threading
import types
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..ids import ObjectId

#: Buffers of at least this many bytes leave the stream and reach the store without a copy. Smaller ones cost more to
#: describe than to copy (an entry of the extent's header, a page of the store, a pin).
BUFFER_MIN = 64 * 1024


Reducers = dict[type, Callable[[Any], Any]]


class Pickled(NamedTuple):
    """A pickled value: the stream, the buffers it refers to in order, and the references inside it."""

    stream: bytes
    buffers: list[pickle.PickleBuffer]
    refs: list[ObjectId]


class _Collector(threading.local):
    """Per thread: where references inside the value being pickled are noted."""

    refs: list[ObjectId] | None = None
    met_reference = False
    reducers: Reducers | None = None  # of the value being pickled alone


class _TooLarge(Exception):
    """Ends ``dumps_small`` at the first large buffer."""


_collector = _Collector()


def note_reference(oid: ObjectId) -> None:
    """Tell the ``dumps`` that runs in this thread that the value contains a reference; nothing outside of one."""
    _collector.met_reference = True
    if _collector.refs is not None:
        _collector.refs.append(oid)


def dumps_small(value: Any) -> bytes | None:
    """Pickle a value that plain pickle can, without large buffers and references; else None: take ``dumps``.

    The stream itself may be of any length.
    """
    _collector.met_reference = False
    try:
        stream = pickle.dumps(value, 5, buffer_callback=_refuse_large)
    except Exception:
        return None
    if b"__main__" in stream or _collector.met_reference:
        return None
    if len(stream) >= BUFFER_MIN and _may_hide_buffers(stream):
        return None
    return stream


def _may_hide_buffers(stream: bytes) -> bool:
    """Whether a stream names types whose buffers stay in it by themselves: strided arrays, tensors."""
    return b"_reconstruct" in stream or b"torch" in stream


def names_memmap(stream: bytes) -> bool:
    """Whether a stream may hold memmaps by their contents; True for others that have the word in them, too."""
    return b"memmap" in stream


def _refuse_large(buffer: pickle.PickleBuffer) -> bool:
    if buffer.raw().nbytes >= BUFFER_MIN:
        raise _TooLarge
    return True


def dumps(value: Any, *, to_origin: bool = False, reducers: Reducers | None = None, reduces: bool = False) -> Pickled:
    """Pickle any value that plain pickle or cloudpickle can.

    Buffers alias the value's memory: write them somewhere before the value changes.

    Args:
        to_origin: only the process whose ``__main__`` this one adopted will load it, so what of ``__main__`` came
            from there need not travel back.
        reducers: what to reduce otherwise than its type says, beside `buffer_reducers`.
        reduces: the value is known to hold something of them.
    Raises:
        Exception: whatever says best why the value cannot be pickled; a note names the global of ``__main__``.
    """
    outer, outer_reducers = _collector.refs, _collector.reducers
    refs: list[ObjectId]
    _collector.reducers = reducers
    try:
        if not _is_of_main(value):
            refs = _collector.refs = []
            try:
                stream, buffers = _dumps_plain(value, reduces=reduces)
                if b"__main__" not in stream:
                    return Pickled(stream, buffers, refs)
            except MemoryError:
                raise
            except Exception:  # by value it may succeed; if not, that error tells more
                pass
        from .main_module import dumps_by_value

        refs = _collector.refs = []
        stream, buffers = dumps_by_value(value, to_origin=to_origin)
        return Pickled(stream, buffers, refs)
    finally:
        _collector.refs, _collector.reducers = outer, outer_reducers


def _is_of_main(value: Any) -> bool:
    named = value if isinstance(value, (types.FunctionType, types.MethodType, type)) else type(value)
    return named.__module__ == "__main__"


def _dumps_plain(value: Any, *, reduces: bool) -> tuple[bytes, list[pickle.PickleBuffer]]:
    buffers, keep = buffer_keeper()
    stream = pickle.dumps(value, 5, buffer_callback=keep) if not reduces else b""
    # Only pickle itself knows which types a value holds, so a second pass is taken when the stream names them.
    hides = len(stream) >= BUFFER_MIN and _may_hide_buffers(stream)
    if reduces or hides or (_collector.reducers and names_memmap(stream)):
        buffers, keep = buffer_keeper()
        file = io.BytesIO()
        pickler = pickle.Pickler(file, 5, buffer_callback=keep)
        pickler.dispatch_table = {**copyreg.dispatch_table, **buffer_reducers()}
        pickler.dump(value)
        stream = file.getvalue()
    return stream, buffers


def buffer_keeper() -> tuple[list[pickle.PickleBuffer], Callable[[pickle.PickleBuffer], bool]]:
    """Return a list and the ``buffer_callback`` that moves large buffers to it and leaves others in the stream."""
    buffers: list[pickle.PickleBuffer] = []

    def keep(buffer: pickle.PickleBuffer) -> bool:
        if buffer.raw().nbytes < BUFFER_MIN:
            return True
        buffers.append(buffer)
        return False

    return buffers, keep


def loads(stream: Any, buffers: Iterable[Any] = ()) -> Any:
    """Unpickle; ``buffers`` are those of ``Pickled`` in order. Arrays alias them, read-only where they are."""
    return pickle.loads(stream, buffers=buffers)


# --- values that do not leave the stream by themselves ---


def buffer_reducers() -> Reducers:
    """Reducers for strided numpy arrays and torch CPU tensors, of the modules that are loaded, and what `dumps` got."""
    reducers: Reducers = {}
    if "numpy" in sys.modules:
        reducers[sys.modules["numpy"].ndarray] = reduce_array
    if "torch" in sys.modules:
        reducers[sys.modules["torch"].Tensor] = _reduce_tensor
    return reducers | (_collector.reducers or {})


def reduce_array(array: Any) -> Any:
    """Reduce a numpy array so that its contents leave the stream if they are large."""
    flags = array.flags
    if flags.c_contiguous or flags.f_contiguous or array.dtype.hasobject or array.nbytes < BUFFER_MIN:
        return array.__reduce_ex__(5)
    return array.copy(order="C").__reduce_ex__(5)


def _reduce_tensor(tensor: Any) -> Any:
    torch = sys.modules["torch"]
    plain = tensor.device.type == "cpu" and tensor.layout is torch.strided and not tensor.is_quantized
    if not plain or tensor.is_conj() or tensor.is_neg() or tensor.nbytes < BUFFER_MIN or tensor.grad_fn is not None:
        return tensor.__reduce_ex__(5)
    raw = tensor.detach().contiguous().view(torch.uint8).numpy()
    return _load_tensor, (raw, str(tensor.dtype).partition(".")[2], tuple(tensor.shape), tensor.requires_grad)


def _load_tensor(raw: Any, dtype: str, shape: tuple[int, ...], requires_grad: bool) -> Any:
    import importlib
    import warnings

    torch = importlib.import_module("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of read-only memory, which torch cannot mark as such
        flat = torch.from_numpy(raw)
    return flat.view(getattr(torch, dtype)).reshape(shape).requires_grad_(requires_grad)


# --- exceptions ---


class _Rebuilt:
    """Carries an exception whose own pickling loses it: made again without its ``__init__``."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_exception, (type(self.error), self.error.args, vars(self.error))


def _rebuild_exception(kind: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]) -> BaseException:
    error = kind.__new__(kind, *args)
    error.args = args
    vars(error).update(state)
    return error


def encode_exception(error: BaseException) -> tuple[bytes, str, str, str]:
    """Describe an exception: pickled (or empty), type name, text, and traceback with the chain. Never raises.

    The pickled form was loaded again here and had the same type and text: exceptions whose constructor takes other
    arguments than ``args`` would otherwise fail, or change, in the process that receives them.
    """
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    text = _text_of(error)
    for candidate in (error, _Rebuilt(error)):
        try:
            pickled = dumps(candidate)
            if pickled.refs:
                break  # a reference in an exception would outlive its object
            stream = pickled.stream if not pickled.buffers else pickle.dumps(candidate, 5)
            copied = loads(stream)
            if type(copied).__qualname__ == kind.__qualname__ and _text_of(copied) == text:
                return stream, name, text, _traceback_of(error)
        except BaseException:  # whatever an exception's own code does; the next form may do better
            continue
    return b"", name, text, _traceback_of(error)


def decode_exception(pickled: bytes) -> BaseException | None:
    """Load what ``encode_exception`` pickled; None when it is empty or does not give an exception here."""
    if not pickled:
        return None
    try:
        error = loads(pickled)
    except (Exception, SystemExit):
        return None
    return error if isinstance(error, BaseException) else None


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as failure:
        return f"<its text cannot be made: {type(failure).__name__}>"


def _traceback_of(error: BaseException) -> str:
    import traceback

    try:
        return "".join(traceback.format_exception(error))
    except BaseException as failure:
        return f"{type(error).__name__}: <its traceback cannot be formatted: {type(failure).__name__}>\n"
