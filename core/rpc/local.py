"""The local link: frames over a Unix stream socket, one end with an event loop and one without.

A client or worker has a ``BlockingLink``: whoever waits reads the socket itself, in its own thread. There a signal
handler may raise (Ctrl-C, a cancelled task) between any two bytecodes, so each step that moves bytes is one call of C
code from the interpreter's view: ``inbox.extend(map(recvmsg, …))`` stores what the kernel gave before the interpreter
can look for signals. A frame on its way out carries its own progress, ``[data, fds, sent, sent, …]``, and decoded
frames are committed from an iterator, which a second try finds exhausted.

The node has ``LoopLink``s (``looplink.py``), which nothing interrupts.
"""

from __future__ import annotations

import select
import socket
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from .claims import MAX_PACKET, ClaimSender, claim_pair
from .codec import START, DecoderState, FrameTuple, decode, encode_frame
from .looplink import READ_NBYTES, LoopLink
from .sockets import (
    RECEIVE_FLAGS,
    RIGHTS_NBYTES,
    TRUNCATED,
    RawMessage,
    accept,
    check_complete,
    close_fds,
    connect,
    duplicates,
    listen,
    peer_ids,
    received_fds,
    rights,
    socketpair,
)

__all__ = [
    "MAX_PACKET",
    "BlockingLink",
    "ClaimSender",
    "LoopLink",
    "accept",
    "claim_pair",
    "connect",
    "listen",
    "peer_ids",
    "socketpair",
]

# Arguments of calls made through map(), so that one call is one step of the interpreter.
_DONTWAIT = (int(socket.MSG_DONTWAIT),)
_SIZE = (READ_NBYTES,)
_RIGHTS_ROOM = (RIGHTS_NBYTES,)
_BLOCK_FLAGS = (RECEIVE_FLAGS,)
_NOWAIT_FLAGS = (RECEIVE_FLAGS | int(socket.MSG_DONTWAIT),)
_TRUE = (True,)
_FALSE = (False,)

_END: RawMessage = (b"", [], 0, None)

#: Seconds that `hang_up` gives a reader to leave, which takes microseconds once the stream has ended.
LEAVE_SECONDS = 1.0


class BlockingLink:
    """A link's end in a process without an event loop.

    One thread at a time may send and one may receive (callers hold a lock each); both may go on at once. Any method may
    be interrupted by an exception from a signal handler: no byte or descriptor is lost or doubled, a frame whose
    sending was interrupted is completed before the next one. Handlers themselves must not use the link.
    """

    __slots__ = (
        "_inbox",
        "_outbox",
        "_poll",
        "_reading",
        "_ready",
        "_recvmsg",
        "_send",
        "_sock",
        "_state",
        "_step",
        "closed",
    )

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(True)
        self._sock = sock
        self._send = sock.send
        self._recvmsg = sock.recvmsg
        self._poll = select.poll()
        self._poll.register(sock.fileno(), select.POLLIN)
        self._reading = threading.Lock()
        self._inbox: deque[RawMessage] = deque()
        self._outbox: deque[list[Any]] = deque()
        self._state: DecoderState = START
        self._step: tuple[RawMessage, Iterator[FrameTuple], DecoderState] | None = None
        self._ready: list[FrameTuple] = []
        #: The end of the stream has been read; frames that came before it are still handed out.
        self.closed = False

    def fileno(self) -> int:
        """The socket's descriptor, to poll on; -1 once closed."""
        return self._sock.fileno()

    def send(self, frame_type: int, body: bytes, destination: int = 0, fds: Sequence[int] = ()) -> None:
        """Send one message whole; blocks while the peer's socket is full, reading what comes in meanwhile.

        Raises:
            ProtocolError: the message is over the bounds.
            OSError: the peer is gone (BrokenPipeError); what it sent before can still be received.
        """
        data = encode_frame(frame_type, body, destination, None, len(fds))
        if fds:
            self._outbox.append([data, duplicates(fds)])
            self.flush()
        else:
            self.send_raw(data)

    def send_raw(self, data: bytes) -> None:
        """Send encoded frames without descriptors; as ``send`` otherwise."""
        outbox = self._outbox
        entry: list[Any] = [data, ()]
        outbox.append(entry)
        if len(outbox) == 1:
            try:
                entry.extend(map(self._send, (data,), _DONTWAIT))
            except BlockingIOError:
                pass
            except OSError:
                outbox.clear()
                raise
            else:
                if entry[2] == len(data):
                    outbox.popleft()
                    return
        self.flush()

    def flush(self) -> None:
        """Complete frames whose sending was interrupted; blocks as ``send`` does."""
        outbox = self._outbox
        while outbox:
            entry = outbox[0]
            data, fds = entry[0], entry[1]
            sent = sum(entry[2:])
            if sent == len(data):
                outbox.popleft()
                close_fds(fds)
                continue
            try:
                if fds and not sent:
                    entry.extend(map(self._sock.sendmsg, ((data,),), (rights(fds),), _DONTWAIT))
                else:
                    entry.extend(map(self._send, (memoryview(data)[sent:],), _DONTWAIT))
            except BlockingIOError:
                self._wait_for_room()
            except OSError:
                self._drop_outbox()
                raise

    def receive(self, timeout: float | None) -> bool:
        """Wait until something has arrived and take it in; False when ``timeout`` seconds passed first.

        None waits without limit, 0 does not wait. A True is no promise of a whole frame. At the end of the stream it is
        True at once, now and later, with ``closed`` set: look at that after ``frames``.
        """
        held: list[bool] = []
        try:
            held.extend(map(self._reading.acquire, _TRUE))
            if self._inbox or self.closed:
                return True
            if timeout is not None and not self._poll.poll(max(0.0, timeout * 1000)):
                return False
            self._take_in(_BLOCK_FLAGS)
            return True
        finally:
            if held:
                self._reading.release()

    def frames(self) -> list[FrameTuple]:
        """Hand over the frames received since the last call, in order.

        Raises ProtocolError when the peer breaks the rules, OSError(EMFILE) when descriptors were dropped: once, for
        then the stream is at its end.
        """
        if self._step is not None:
            self._finish_step()
        inbox = self._inbox
        while inbox:
            message = inbox[0]
            data, ancillary, flags, _ = message
            if not data:
                self.closed = True
                break
            fds: tuple[int, ...] = ()
            if ancillary or flags & TRUNCATED:
                fds = received_fds(ancillary)
                if flags & TRUNCATED:
                    self._end_at(message)
                    close_fds(fds)
                    check_complete(flags)
            frames, state = decode(self._state, data, fds)
            self._step = (message, iter(frames), state)
            self._finish_step()
        # No call between taking the list and returning it: the caller has it before the next look for signals.
        fresh: list[FrameTuple] = []
        ready = self._ready
        self._ready = fresh
        return ready

    def _end_at(self, message: RawMessage) -> None:
        """Let the stream end before a message that came without its descriptors: nothing after it would fit."""
        inbox = self._inbox
        if inbox and inbox[0] is message:
            inbox[0] = _END
        self.closed = True

    def hang_up(self) -> None:
        """End both directions for everybody who has the socket, and wait until the thread that reads has left it.

        Unlike ``close`` it may be called while other threads use the link: the descriptor stays, reads come to the end
        of the stream, writes raise BrokenPipeError.
        """
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the peer has ended it, or it is closed
        # With a limit: it may be a signal handler in the very thread that reads who calls us.
        if self._reading.acquire(timeout=LEAVE_SECONDS):
            self._reading.release()

    def close(self) -> None:
        """Close this end and the descriptors nobody took; a second call does nothing."""
        self.closed = True
        self._drop_outbox()
        for message in self._inbox:
            close_fds(received_fds(message[1]))
        for frame in self._ready:
            close_fds(frame[3])
        self._inbox.clear()
        self._ready.clear()
        self._sock.close()

    def _take_in(self, flags: tuple[int]) -> None:
        inbox = self._inbox
        try:
            inbox.extend(map(self._recvmsg, _SIZE, _RIGHTS_ROOM, flags))
        except ConnectionResetError:
            inbox.append(_END)
        if not inbox[-1][0]:
            self.closed = True

    def _finish_step(self) -> None:
        """Commit one decoded chunk; repeating it after an interruption changes nothing twice."""
        step = self._step
        assert step is not None
        message, frames, state = step
        self._ready.extend(frames)
        if self._inbox and self._inbox[0] is message:
            self._inbox.popleft()
        self._state = state
        self._step = None

    def _wait_for_room(self) -> None:
        """Wait until the socket takes bytes; read meanwhile, for the peer may be waiting for room just as we are."""
        poll = select.poll()
        poll.register(self._sock.fileno(), select.POLLOUT if self.closed else select.POLLOUT | select.POLLIN)
        events = poll.poll()
        if not events or not events[0][1] & select.POLLIN:
            return
        held: list[bool] = []
        try:
            # When another thread holds the lock it reads, which is just as good.
            held.extend(map(self._reading.acquire, _FALSE))
            if held[0]:
                self._take_in(_NOWAIT_FLAGS)
        except BlockingIOError:
            pass
        finally:
            if held and held[0]:
                self._reading.release()

    def _drop_outbox(self) -> None:
        for entry in self._outbox:
            close_fds(entry[1])
        self._outbox.clear()
