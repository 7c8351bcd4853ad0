"""What goes between the head's machine and the wire: descriptions and commands there, messages here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .rpc.protos import cluster_pb2 as pb
from .scheduler import cluster_commands as commands
from .scheduler.clusterview import ClusterView, NodeView
from .scheduler.members import Member, MembersChanged

#: Members in one message; a full list of more goes in several. With the longest names it stays below 1 MiB.
MEMBERS_PER_NOTE = 1000

#: Bytes of all nodes in one status, below what a message may have.
STATUS_NBYTES = 900_000


def node_info(said: pb.Registration) -> commands.NodeInfo:
    """Read what a node says of itself; the machine judges it."""
    labels = {label.name: label.value for label in said.labels}
    return commands.NodeInfo(
        said.incarnation, said.address, said.host, said.release, said.protocol, said.python, dict(said.totals),
        said.slots, labels, said.draining
    )  # fmt: skip


def name_claim(said: pb.NameClaim) -> commands.NameClaim:
    """Read a claim to a name."""
    return commands.NameClaim(said.namespace, said.name, said.owner, said.incarnation, said.record, said.detached)


def member_message(member: Member) -> pb.Member:
    """Describe a member as nodes know it."""
    return pb.Member(incarnation=member.incarnation, address=member.address, host=member.host, python=member.python,
                     slots=member.slots, draining=member.is_draining)  # fmt: skip


def membership_notes(change: MembersChanged) -> Iterator[pb.Note]:
    """Tell a change of the membership, in as many notes as it needs."""
    present, gone = change.present, change.gone
    for start in range(0, max(len(present), len(gone), 1), MEMBERS_PER_NOTE):
        end = start + MEMBERS_PER_NOTE
        told = pb.Membership(number=change.number, whole=change.is_full, since=change.since, epoch=change.epoch,
                             joined=map(member_message, present[start:end]), left=gone[start:end],
                             more=end < max(len(present), len(gone)))  # fmt: skip
        yield pb.Note(membership=told)


def room_note(answer: commands.RoomAnswer) -> pb.Note:
    """Name nodes with room."""
    rooms = [pb.Room(node=offer.node, tasks=offer.room, address=offer.address) for offer in answer.offers]
    return pb.Note(room=pb.RoomAnswer(id=answer.request, rooms=rooms))


def no_room_note(refused: commands.RoomRefused) -> pb.Note:
    """Say that no node could ever meet a demand, with what was asked and what there is."""
    totals = [pb.Amounts(amounts=amounts) for amounts in refused.totals]
    return pb.Note(room=pb.RoomAnswer(id=refused.request, never=True, asked=refused.asked, python=refused.python,
                                      pythons=refused.pythons, totals=totals))  # fmt: skip


def name_note(answer: commands.NameAnswer) -> pb.Note:
    """Answer a look-up."""
    note = pb.NameAnswer(id=answer.request)
    if answer.entry is not None:
        _describe_entry(note, answer.entry)
    return pb.Note(name=note)


def name_refusal_note(refused: commands.NameRefused) -> pb.Note:
    """Say who has a name that was claimed, or why nobody can have it."""
    note = pb.NameAnswer(id=refused.request, outcome=pb.NameAnswer.REFUSED, reason=refused.reason)
    if refused.holder is not None:
        _describe_entry(note, refused.holder)
    return pb.Note(name=note)


def _describe_entry(note: pb.NameAnswer, entry: commands.NameEntry) -> None:
    claim = entry.claim
    note.outcome, note.node = pb.NameAnswer.FOUND, entry.node
    note.owner, note.incarnation, note.detached = claim.owner, claim.incarnation, claim.is_detached
    note.record = claim.record  # how it is reached


def request_note(command: commands.Command) -> pb.Note:
    """Tell a node what is said in one message without conversion.

    Raises:
        TypeError: a command that is not said to a node so.
    """
    match command:
        case commands.NameGranted():
            return pb.Note(name=pb.NameAnswer(id=command.request, outcome=pb.NameAnswer.GRANTED))
        case commands.ClientAccepted():
            return pb.Note(client=pb.ClientAnswer(id=command.request, accepted=True))
        case commands.ClientRefused():
            return pb.Note(client=pb.ClientAnswer(id=command.request, pythons=command.pythons))
        case commands.TryLater():
            return pb.Note(try_later=pb.TryLater(id=command.request))
        case commands.KillActor():
            return pb.Note(kill_actor=pb.KillActor(namespace=command.namespace, name=command.name,
                                                   owner=command.owner, incarnation=command.incarnation))  # fmt: skip
    raise TypeError(f"{command!r} is said to no node")


class Facts:
    """What a node told of itself for people; ``born`` is on the head's clock."""

    __slots__ = ("born", "host", "load", "log", "pid")

    def __init__(self, said: pb.Registration, now: float) -> None:
        self.born = now - said.age_seconds
        self.host = said.host
        self.log = said.log
        self.pid = said.pid
        self.load = pb.Beat()

    def note(self, beat: pb.Beat) -> None:
        """Take the figures of a beat."""
        beat.ClearField("free")
        self.load = beat


def add_nodes(status: pb.ClusterStatus, nodes: Iterable[tuple[NodeView, Facts | None]], now: float) -> None:
    """Describe nodes in a status; those beyond the bounds of a message are only counted."""
    nbytes = 0
    for view, facts in nodes:
        described = _node_status(view, facts, now)
        nbytes += described.ByteSize() + 4
        if nbytes > STATUS_NBYTES:
            status.unlisted += 1
        else:
            status.nodes.append(described)


def _node_status(view: NodeView, facts: Facts | None, now: float) -> pb.NodeStatus:
    is_draining = view.state == "draining"
    member = pb.Member(incarnation=view.incarnation, address=view.address, host=view.host, python=view.python,
                       slots=view.slots, totals=view.totals, draining=is_draining)  # fmt: skip
    described = pb.NodeStatus(member=member, free=view.free, silence_seconds=view.silent_seconds or 0.0,
                              draining=is_draining, awaited=view.state == "awaited", release=view.release)  # fmt: skip
    if facts is not None:
        described.pid, described.log, described.age_seconds = facts.pid, facts.log, max(0.0, now - facts.born)
        described.clients = facts.load.clients
        described.load.CopyFrom(facts.load)
    return described


def status_of(view: ClusterView) -> pb.ClusterStatus:
    """Describe a cluster without its nodes."""
    return pb.ClusterStatus(cluster=view.cluster, epoch=view.epoch, settling=not view.is_settled)
