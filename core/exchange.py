"""Objects that pass between processes, as far as their node has a part in it.

Words about an object go to its present owner, references in messages are counted before the message passes, results
that pass to another owner are routed from then on, and whoever dealt with a process hears of its end. Processes at
other nodes take part like those here; what must be done once is done at the node of the process that says it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .ids import ObjectId
from .rpc.codec import Frame
from .rpc.protos import outboard_pb2 as pb

if TYPE_CHECKING:
    from .node import Node, Peer
    from .tree import Trunk


class Exchange:
    """Handles these frames for one node. ``adopted`` says who owns the objects that passed to another owner."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.adopted: dict[ObjectId, int] = {}

    def adopt(self, peer: Peer, message: pb.Finished | pb.Adopt, heir: Peer | None) -> None:
        """Objects pass from a peer to another owner, who has been sent the message; None: there is none.

        The node of who passes them on confirms, and repeats what that one may not have heard; others only take note.
        """
        self._node.note_sharing(peer)
        adopted = {ObjectId(a.ref.owner, a.ref.seq): a.value for a in message.adopted}
        if heir is not None:
            self._node.note_sharing(heir)
            moved = [self._route(oid, value, peer, heir.incarnation) for oid, value in adopted.items()]
            if self._node.tree is not None:
                self._node.tree.tell_moved(heir, moved, (peer.trunk, heir.trunk))
        if peer.trunk is not None:
            return
        self._forget_words(peer, message.heard)
        if heir is not None:
            for _, frame_type, body in [word for word in peer.words if word[0] in adopted]:
                self._tell_owner(frame_type, body, peer)
        passed = pb.PassedOn(refs=[a.ref for a in message.adopted], refused=heir is None)
        self._node.send(peer.incarnation, Frame.PASSED_ON, passed.SerializeToString())

    def on_passing(self, passer: Peer, body: bytes, owner: Peer) -> None:
        """Results with objects in them pass this node on their way to their owner."""
        finished = pb.Finished.FromString(body)
        if finished.adopted:
            self.adopt(passer, finished, owner)

    @staticmethod
    def _forget_words(peer: Peer, heard: int) -> None:
        while peer.words_heard < heard and peer.words:
            peer.words.popleft()
            peer.words_heard += 1

    def _route(self, oid: ObjectId, value: bytes, passer: Peer, owner: int) -> tuple[pb.Descriptor, bool]:
        """What is said of an object goes to its new owner from now on; who passed it on borrows it.

        Returns where it lies, and whether it had passed on before.
        """
        lies = pb.Descriptor(owner=oid.owner, seq=oid.seq)
        if value[:1] == b"\x0a":
            stored = pb.Outcome.FromString(value).value.stored
            if stored.nbytes:
                lies = pb.Descriptor(owner=oid.owner, seq=oid.seq, version=stored.version, node=stored.node)
                if passer.trunk is None:  # views of processes elsewhere are of copies
                    self._node.store.extents.pin(oid, stored.version, passer.incarnation)
        return lies, self._note(lies, owner)

    def _note(self, lies: pb.Descriptor, owner: int) -> bool:
        """Note who owns an object; returns whether anybody had taken it over before."""
        oid = ObjectId(lies.owner, lies.seq)
        had_passed = oid in self.adopted
        if owner == oid.owner:
            self.adopted.pop(oid, None)
        else:
            self.adopted[oid] = owner
        if lies.node:
            self._node.store.extents.on_handed_over(oid, lies.version, owner)
        return had_passed

    def on_moved(self, body: bytes, trunk: Trunk) -> None:
        """Objects have passed to another owner, and this node had no part in that."""
        moved = pb.Moved.FromString(body)
        owner = self._node.find(moved.owner, trunk.root)
        if owner is not None and self._node.tree is not None:
            self._node.note_sharing(owner)
            noted = [(lies, self._note(lies, moved.owner)) for lies in moved.objects]
            self._node.tree.tell_moved(owner, noted, (trunk,))

    def on_adopt(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        """Objects that were pending pass to their heir, or a process says how many words it has heard."""
        adopt = pb.Adopt.FromString(body)
        if not adopt.adopted:
            self._forget_words(peer, adopt.heard)
            return
        if peer.trunk is None:
            self._node.store.announce(peer, adopt.announced)
        heir = self._node.find(destination, peer.root)
        if heir is None or heir.is_leaving:
            self.adopt(peer, adopt, None)
            self.tell_gone(peer, destination)
            return
        if peer.trunk is None:
            self.lend(adopt.lent, destination, peer, peer.incarnation)
        self._node.send(destination, Frame.ADOPT, body, peer.incarnation)
        self.adopt(peer, adopt, heir)
        for process in {h.process for adoption in adopt.adopted for h in adoption.holdings}:
            self.tell_gone(heir, process)

    def on_leaving(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        """A worker is about to end: nothing passes to it any more."""
        peer.is_leaving = True
        self._node.send(peer.incarnation, Frame.LEAVING, b"")

    def lend(self, refs: Any, receiver: int, lender: Peer, by: int) -> None:
        """A message with references is about to pass: their owners count the process that it goes to, if that is there.

        Before the message: who owns what it is sent takes back at once what was counted for it.
        """
        if self._node.find(receiver, lender.root) is not None:
            for ref in refs:
                borrow = pb.Borrow(ref=ref, borrower=receiver, count=1, by=by)
                self._tell_owner(Frame.BORROW, borrow.SerializeToString(), lender)

    def tell_gone(self, peer: Peer, incarnation: int) -> None:
        """Say once more of a process that has ended that it has, to one that counted on it after it was told."""
        if self._node.find(incarnation, peer.root) is not None:
            return
        if peer.trunk is not None and self._node.tree is not None:
            self._node.tree.tell_ended(peer.trunk, incarnation)  # its node, too, has to hear of it
        else:
            self._node.send(peer.incarnation, Frame.BORROWER_DIED, pb.Peer(incarnation=incarnation).SerializeToString())

    def on_borrow(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        """A process refers to an object of another one."""
        self._node.note_sharing(peer)
        self._tell_owner(Frame.BORROW, body, peer)

    def on_release(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        """A process no longer does."""
        self._node.note_sharing(peer)
        self._tell_owner(Frame.RELEASE, body, peer)

    def _tell_owner(self, frame_type: int, body: bytes, teller: Peer) -> None:
        """Tell the present owner of an object of a borrower, unless that has ended: then it is forgotten."""
        borrow = pb.Borrow.FromString(body)
        oid = ObjectId(borrow.ref.owner, borrow.ref.seq)
        owner = self._node.find(self.adopted.get(oid, oid.owner), teller.root)
        borrower = self._node.find(borrow.borrower, teller.root)
        if borrower is not None and owner is not None:
            self._node.note_sharing(owner)
            self._node.note_sharing(borrower)
            if owner.worker is not None:
                owner.words.append((oid, frame_type, body))
            self._node.send(owner.incarnation, frame_type, body, teller.incarnation)
        elif teller.trunk is not None:
            self.tell_gone(teller, borrow.borrower if borrower is None else self.adopted.get(oid, oid.owner))

    def on_ask(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        """A process wants the value of an object that it borrows."""
        ask = pb.Ask.FromString(body)
        self._node.note_sharing(peer)
        oid = ObjectId(ask.ref.owner, ask.ref.seq)
        owner = self._node.find(self.adopted.get(oid, oid.owner), peer.root)
        if self.adopted.get(oid) == peer.incarnation:
            return  # it passed to the asker while the question was on its way, and so does its value
        if oid.owner == peer.incarnation and oid not in self.adopted:
            self._tell_lost(peer, ask.ref)  # it passed from the asker to a process that has gone, or has been released
        elif owner is None:
            self._tell_lost(peer, ask.ref)
        else:
            self._node.send(owner.incarnation, Frame.ASK, body, peer.incarnation)

    def _tell_lost(self, peer: Peer, ref: pb.Ref) -> None:
        lost = pb.Peer(incarnation=ref.owner, ref=ref)
        self._node.send(peer.incarnation, Frame.OWNER_LOST, lost.SerializeToString())

    def on_answer(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        """An owner answers who asked."""
        answer = pb.Answer.FromString(body)
        asker = self._node.find(destination, peer.root)
        if answer.value[:1] == b"\x0a" and asker is not None and asker.trunk is None:
            stored = pb.Outcome.FromString(answer.value).value.stored
            # What lies elsewhere is pinned when it was pulled.
            if stored.nbytes and stored.node == self._node.incarnation:
                self._node.store.extents.pin(ObjectId(stored.owner, stored.seq), stored.version, destination)
        if peer.trunk is None:
            self.lend(answer.lent, destination, peer, 0)
        self._node.send(destination, Frame.ANSWER, body, peer.incarnation)
        self.tell_gone(peer, destination)

    def announce_end(self, incarnation: int) -> None:
        """Tell the processes here that one they may have dealt with has ended."""
        gone = pb.Peer(incarnation=incarnation).SerializeToString()
        orphans = [oid for oid, owner in self.adopted.items() if owner == incarnation]
        for oid in orphans:
            del self.adopted[oid]
        for other in list(self._node.peers.values()):
            if other.trunk is None and (other.is_client or other.shares):
                self._node.send(other.incarnation, Frame.BORROWER_DIED, gone)
                self._node.send(other.incarnation, Frame.OWNER_LOST, gone)
                for oid in orphans:
                    self._tell_lost(other, pb.Ref(owner=oid.owner, seq=oid.seq))
