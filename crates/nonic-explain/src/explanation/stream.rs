//! Explains why an iWARP stream ended: what a Terminate says, sent or received, and what TCP says where there was none.

use super::Explanation;
use nonic_core::record::StreamLoss;
use nonic_wire::iwarp::{Layer, TerminateCode as Code};

/// One of the two ended the stream with a Terminate, which says which layer found what.
pub(super) fn terminated(code: Code, by_peer: bool) -> Explanation {
    // Who sent the Terminate found something wrong with what the other one did.
    let (sender, offender) = match by_peer {
        true => ("the peer", "this side"),
        false => ("this side", "the peer"),
    };
    let (what, steps) = meaning(code);
    let what = what.replace("{offender}", offender).replace("{sender}", sender);
    let happened = match by_peer {
        true => format!("The peer ended the stream with a Terminate: {code}. That means: {what}."),
        false => format!("This side ended the stream with a Terminate: {code}. That means: {what}."),
    };
    let mut explanation = Explanation::known(happened, &[], steps);
    if by_peer && code.layer() != Some(Layer::Mpa) {
        explanation
            .steps
            .push("look at the peer as well: what it refused is in its own explanation".into());
    }
    explanation
}

/// The Terminate beside a failure that has an explanation of its own.
pub(super) fn beside(code: Code, by_peer: bool) -> String {
    match by_peer {
        true => format!(" The peer said so by ending the stream with a Terminate: {code}."),
        false => format!(" The peer was told by a Terminate, which ends the stream: {code}."),
    }
}

/// The stream ended without a Terminate.
pub(super) fn lost(loss: StreamLoss) -> Explanation {
    match loss {
        StreamLoss::PeerClosed => Explanation::known(
            "The peer closed the connection (TCP FIN).",
            &[],
            &[
                "if the connection was to end, expect this for every request that is still posted",
                "otherwise see whether the peer's process lives: one that ends or is killed closes its connections",
            ],
        ),
        StreamLoss::Broken => Explanation::known(
            "The TCP connection broke: it was reset, timed out, or ended in the middle of a message.",
            &[
                "the peer's process was killed or aborted the connection with requests under way",
                "the way to the peer is gone, or a firewall or NAT between the two forgot the connection",
            ],
            &[
                "see whether the peer's process lives, and what it says of its queue pair",
                "look for loss: `nonic ping`, or tcpdump on both hosts",
            ],
        ),
        StreamLoss::NotReady => Explanation::known(
            "The peer connected and did not send the first message that it had promised (MPA's ready-to-receive message).",
            &[
                "the peer's process stopped or is very slow",
                "the network loses nearly everything",
            ],
            &["see what the peer's program does after it is told that it is connected"],
        ),
    }
}

/// What a code means, with `{offender}` for who did it and `{sender}` for who said so, and what to try.
fn meaning(code: Code) -> (&'static str, &'static [&'static str]) {
    match code.layer() {
        Some(Layer::Rdmap) => rdmap(code),
        Some(Layer::Ddp) => ddp(code),
        Some(Layer::Mpa) => mpa(code),
        None => unknown(),
    }
}

const KEY: (&str, &[&str]) = (
    "{offender} named a key (STag, rkey) that {sender} does not have, has revoked, or that does not permit it",
    &[
        "send the other side the rkey that registration returned, and keep the memory registered while it is used",
        "register the memory, and create the queue pair, with the right that the request needs (REMOTE_WRITE, REMOTE_READ)",
    ],
);
const BOUNDS: (&str, &[&str]) = (
    "a request of {offender} runs out of what is registered under its key at {sender}",
    &["check the address and the length: addresses are those of registration (iova), not offsets"],
);
const DOMAIN: (&str, &[&str]) = (
    "the key that {offender} named belongs to another protection domain, or another stream, than the queue pair of {sender}",
    &["register the memory in the protection domain that the queue pair was created in"],
);
const WRAP: (&str, &[&str]) = (
    "address and length of a request of {offender} run over the end of the address space",
    &["check the address and the length that the request names"],
);
const INVALIDATE: (&str, &[&str]) = (
    "{offender} sent SEND with invalidate for a key that {sender} cannot invalidate",
    &["only memory windows of type 2 can be invalidated; send without invalidation otherwise"],
);
const VERSION: (&str, &[&str]) = (
    "{offender} speaks a version of the protocol that {sender} does not",
    &["see what the other side is; capture the TCP connection with tcpdump and look at it with Wireshark"],
);
const ORDER: (&str, &[&str]) = (
    "the segments that {offender} sent do not follow each other as they must",
    &[
        "this is an error of one of the two implementations: capture the TCP connection with tcpdump and report it",
    ],
);
const OWN: (&str, &[&str]) = (
    "{sender} could not go on for a reason of its own: memory of a request is gone, or a request of its own failed",
    &["look for the first failed completion at the side that sent the Terminate"],
);

fn rdmap(code: Code) -> (&'static str, &'static [&'static str]) {
    match code {
        Code::RDMAP_INVALID_STAG => KEY,
        Code::RDMAP_BOUNDS => BOUNDS,
        Code::RDMAP_ACCESS_RIGHTS => (
            "the key that {offender} named at {sender}, or the queue pair, does not permit the request",
            &[
                "register the memory with the right that the request needs (REMOTE_READ, REMOTE_ATOMIC)",
                "give the queue pair the right as well, in `qp_access_flags`",
            ],
        ),
        Code::RDMAP_STAG_OF_OTHER_STREAM => DOMAIN,
        Code::RDMAP_TO_WRAP => WRAP,
        Code::RDMAP_PROTECTION_CANNOT_INVALIDATE | Code::RDMAP_CANNOT_INVALIDATE => INVALIDATE,
        Code::RDMAP_VERSION => VERSION,
        Code::RDMAP_UNEXPECTED_OPCODE => (
            "{offender} sent a message that {sender} does not offer or does not expect now",
            &[
                "atomics and immediate data are an extension (RFC 7306) that not every device has: do without them",
                "otherwise capture the TCP connection with tcpdump and look at it with Wireshark",
            ],
        ),
        Code::RDMAP_STREAM_CATASTROPHIC => (
            "{sender} could not carry out a request of {offender}; an atomic at an address that is not a multiple of 8 ends like this",
            &["align words of atomics to 8 bytes"],
        ),
        _ if code.etype == 0 => OWN,
        Code::RDMAP_GLOBAL_CATASTROPHIC => OWN,
        _ => unknown(),
    }
}

fn ddp(code: Code) -> (&'static str, &'static [&'static str]) {
    match code {
        Code::DDP_TAGGED_INVALID_STAG => KEY,
        Code::DDP_TAGGED_BOUNDS => BOUNDS,
        Code::DDP_TAGGED_STAG_OF_OTHER_STREAM => DOMAIN,
        Code::DDP_TAGGED_TO_WRAP => WRAP,
        Code::DDP_TAGGED_VERSION | Code::DDP_UNTAGGED_VERSION => VERSION,
        Code::DDP_UNTAGGED_INVALID_QN | Code::DDP_UNTAGGED_INVALID_MSN | Code::DDP_UNTAGGED_INVALID_MO => {
            ORDER
        }
        Code::DDP_UNTAGGED_NO_BUFFER => (
            "a message of {offender} found no receive at {sender}, or more READs were under way than {sender} takes",
            &[
                "post receives before the other side may send: iWARP has no receiver-not-ready and ends the connection",
                "connect with an `initiator_depth` no higher than the other side's `responder_resources`",
            ],
        ),
        Code::DDP_UNTAGGED_TOO_LONG => (
            "a message of {offender} is longer than the receive that {sender} had posted for it",
            &["post receives of the longest message that the other side may send"],
        ),
        Code::DDP_CATASTROPHIC => OWN,
        _ => unknown(),
    }
}

fn mpa(code: Code) -> (&'static str, &'static [&'static str]) {
    match code {
        Code::MPA_CONNECTION_LOST => (
            "{sender} lost the TCP connection",
            &["see whether both processes live, and whether the way between them is there"],
        ),
        Code::MPA_CRC => (
            "bytes of {offender} arrived at {sender} damaged, although TCP's checksum was right",
            &[
                "look for what changes packets on the way: a middlebox, a tunnel, memory or a NIC that is broken",
                "see that nothing else writes to the connection's descriptor",
            ],
        ),
        Code::MPA_MARKER => (
            "a marker in the stream of {offender} does not point to the start of an FPDU",
            &["look for what changes bytes on the way, or connect without markers"],
        ),
        Code::MPA_BAD_FRAME => (
            "{offender} did not start the connection as MPA has it",
            &["see that the other side is an iWARP program, of the same port"],
        ),
        Code::MPA_INSUFFICIENT_IRD => (
            "{offender} takes fewer READs at a time than {sender} needs",
            &["connect with a smaller `initiator_depth`, or accept with larger `responder_resources`"],
        ),
        Code::MPA_NO_MATCHING_RTR => (
            "the two could not agree on a first message",
            &[
                "see which ready-to-receive messages the other side's driver offers (Linux: peer-to-peer mode)",
            ],
        ),
        Code::MPA_LOCAL_CATASTROPHIC => OWN,
        _ => unknown(),
    }
}

fn unknown() -> (&'static str, &'static [&'static str]) {
    (
        "{sender} found something wrong that no specification has a name for",
        &["capture the TCP connection with tcpdump and look at it with Wireshark"],
    )
}
